"""Where a chain says that something went wrong, what it refuses around placeholders, and what it never hands over."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from serde_chain import (
    ConfigError,
    Data,
    DecodeError,
    Deserializer,
    DeserializerChain,
    EncodeError,
    RecordContext,
    Serializer,
    SerializerChain,
)
from serde_chain.errors import ForeignFormatError
from serde_chain.transfer import Transfer, finish

Step = Callable[[Any], Any]


def context(*headers: tuple[str, bytes], field: str = "value") -> RecordContext:
    return RecordContext("alerts", field, list(headers))


class Read(Deserializer[Any]):
    """Does to bytes what it is told."""

    gives = Data.BYTES

    def __init__(self, work: Step = bytes) -> None:
        self._work = work

    def __call__(self, data: Any, ctx: Any = None, /) -> Any:
        return self._work(data)


class Write(Serializer[Any]):
    takes = Data.BYTES

    def __init__(self, work: Step = bytes) -> None:
        self._work = work

    def __call__(self, data: Any, ctx: Any = None, /) -> Any:
        return self._work(data)


def fail(error: Exception) -> Step:
    def work(_data: Any) -> Any:
        raise error

    return work


class Round(Transfer[bytes]):
    """A transfer after which there is another one, so often as it is told; the last one may fail."""

    def __init__(self, rounds: int, end: Step, where: str) -> None:
        self._rounds, self._end, self._where = rounds, end, where

    def run(self) -> bytes:
        return self._end(b"run") if self._rounds == 1 and self._where == "run" else b"ran"

    def resume(self, result: bytes, /) -> Any:
        if self._rounds > 1:
            return Round(self._rounds - 1, self._end, self._where)
        return self._end(b"resumed") if self._where == "resume" else b"done"


class Fetch(Read):
    def __init__(self, rounds: int = 1, end: Step = bytes, where: str = "resume") -> None:
        super().__init__()
        self._made = rounds, end, where

    def begin(self, data: Any, ctx: Any, /) -> Any:
        return Round(*self._made)


class TestPlaces:
    @pytest.mark.parametrize("at", [0, 1, 2])
    def test_the_stage_that_failed_is_named_in_both_directions(self, at: int) -> None:
        for chain in (
            DeserializerChain([Read(fail(ValueError("no")) if place == at else bytes) for place in range(3)]),
            SerializerChain([Write(fail(ValueError("no")) if place == at else bytes) for place in range(3)]),
        ):
            with pytest.raises((DecodeError, EncodeError)) as caught:
                chain(b"data", context())
            assert caught.value.stage == f"{chain.labels[at]}"

    @pytest.mark.parametrize("where", ["run", "resume"])
    @pytest.mark.parametrize("rounds", [1, 2, 3])
    def test_a_transfer_fails_at_its_own_stage(self, where: str, rounds: int) -> None:
        chain = DeserializerChain([Read(), Fetch(rounds, fail(ValueError("no")), where), Read()])
        with pytest.raises(DecodeError) as caught:
            chain(b"data", context())
        assert caught.value.stage == "Fetch (2 of 3)"
        with pytest.raises(DecodeError) as caught:
            finish(chain.begin(b"data", context()))
        assert caught.value.stage == "Fetch (2 of 3)"

    @pytest.mark.parametrize("after", [1, 2])
    def test_a_stage_after_a_transfer_fails_at_its_own_place(self, after: int) -> None:
        later = [Read(fail(ValueError("no")) if place == after else bytes) for place in (1, 2)]
        with pytest.raises(DecodeError) as caught:
            DeserializerChain([Fetch(2), *later])(b"data", context())
        assert caught.value.stage == f"Read ({after + 1} of 3)"

    def test_the_end_result_is_the_last_stages(self) -> None:
        with pytest.raises(EncodeError, match="returned str instead of bytes") as caught:
            SerializerChain([Write(), Write(lambda _: "text")])(b"data", context())
        assert caught.value.stage == "Write (2 of 2)"

    def test_whose_fault_it_is_stays_known(self) -> None:
        for error, about_record in ((ConnectionError("down"), False), (ValueError("foreign"), True)):
            with pytest.raises(DecodeError) as caught:
                DeserializerChain([Read(fail(error))])(b"data", context())
            assert caught.value.about_record is about_record

    def test_of_a_batch_the_first_record_that_fails_is_reported(self) -> None:
        def refuse(data: bytes) -> bytes:
            if data.startswith(b"bad"):
                raise ValueError(data.decode())
            return data

        with pytest.raises(DecodeError, match="bad 1") as caught:
            DeserializerChain([Read(refuse)]).to_arrow([b"good", b"bad 1", b"bad 2"], topic="alerts")
        assert caught.value.row == 1

    def test_a_batch_of_keys_is_one_of_keys(self) -> None:
        fields: list[str] = []

        class Note(Read):
            def __call__(self, data: Any, ctx: Any = None, /) -> Any:
                fields.append(ctx.field)
                return data

        for is_key in (True, False):
            config = {"key.deserializers": [Note], "value.deserializers": [Note]}
            DeserializerChain.from_config(config, is_key=is_key).to_arrow([b"data"], topic="alerts")
        assert fields == ["key", "value"]


class TestWhatIsNotHandedOver:
    @pytest.mark.parametrize("authenticates", [False, True])
    def test_a_header_does_not_lead_around_a_stage_that_authenticates(self, authenticates: bool) -> None:
        foreign = ForeignFormatError("of another format")
        foreign.data = b"not authenticated"

        class Authenticate(Read):
            pass

        Authenticate.authenticates = authenticates
        chain = DeserializerChain([Read(fail(foreign)), Authenticate()])
        if not authenticates:
            assert chain(b"data", context()) == b"not authenticated"
            return
        with pytest.raises(ForeignFormatError) as caught:
            chain(b"data", context())
        assert caught.value.data is None

    def test_nor_around_one_in_a_chain_that_is_one_stage(self) -> None:
        class Authenticate(Read):
            authenticates = True

        class Marking(DeserializerChain):
            def __call__(self, data: Any, ctx: Any = None, /) -> Any:
                return super().__call__(data, ctx)

        def refuse(_data: bytes) -> bytes:
            foreign = ForeignFormatError("of another format")
            foreign.data = b"not authenticated"
            raise foreign

        for chain in (
            DeserializerChain([Read(refuse), Marking([Authenticate()])]),
            DeserializerChain([Marking([Read(refuse), Authenticate()])]),
        ):
            with pytest.raises(ForeignFormatError):
                chain(b"data", context())

    def test_a_placeholder_is_called_one_where_nothing_fetches_it(self) -> None:
        class Move(Read):
            moves_payloads = True

        mark = ("large-message", b"true")
        for stage, said in ((Read, True), (Move, False)):
            chain = DeserializerChain([stage(fail(ValueError("no")))])
            with pytest.raises(DecodeError) as caught:
                chain(b"memory:x", context(mark))
            assert ("the record is a reference to a payload" in str(caught.value)) is said
            with pytest.raises(DecodeError) as caught:
                chain.to_arrow([b"x", b"y"], [[mark], []], topic="alerts")
            assert ("the record is a reference to a payload" in str(caught.value)) is said


class TestOrder:
    def test_foreign_callables_do_not_pass_placeholders_on(self) -> None:
        class Offload(Write):
            moves_payloads = True

        class Fetches(Read):
            moves_payloads = True

        class Frame(Write):
            max_overhead = 8

        class Unframe(Read):
            unwraps_placeholders = True

        def foreign(data: Any, _ctx: Any) -> Any:
            return data

        SerializerChain([foreign, Offload(), Frame(), Frame()])
        DeserializerChain([Unframe(), Unframe(), Fetches(), foreign])
        refused: list[list[Any]]
        refused = [[Offload(), foreign], [Offload(), Frame(), foreign], [Offload(), Frame(), Write()]]
        for stages in refused:
            with pytest.raises(ConfigError, match=r"(foreign|Write) \(\d of \d\) cannot come after Offload \(1"):
                SerializerChain(stages)
        refused = [[foreign, Fetches()], [Unframe(), foreign, Fetches()], [foreign, Unframe(), Fetches()]]
        for stages in refused:
            with pytest.raises(ConfigError, match=r"foreign \(\d of \d\) cannot come before Fetches \(\d"):
                DeserializerChain(stages)

    def test_a_chain_takes_and_gives_what_its_ends_do(self) -> None:
        class Encode(Serializer[Any]):
            def __call__(self, data: Any, ctx: Any = None, /) -> Any:
                return data

        class Decode(Deserializer[Any]):
            def __call__(self, data: Any, ctx: Any = None, /) -> Any:
                return data

        assert (SerializerChain([Write()]).takes, SerializerChain([Encode(), Write()]).takes) == ("bytes", "object")
        assert (DeserializerChain([Read()]).gives, DeserializerChain([Read(), Decode()]).gives) == ("bytes", "object")

    def test_a_chain_of_the_other_direction_is_one_stage(self) -> None:
        chain = SerializerChain([DeserializerChain([Read(), Read()]), Write()])
        assert chain.labels == ("DeserializerChain (1 of 2)", "Write (2 of 2)")

    def test_a_stage_of_the_other_direction_is_refused(self) -> None:
        expected = "Read is a deserializer, but a serializer is needed here. Put it into a Deserial"
        with pytest.raises(ConfigError, match=expected):
            SerializerChain([Write(), Read()])
        with pytest.raises(ConfigError, match=r"Write is a serializer, but .* Put it into a SerializerChain"):
            DeserializerChain([Write()])

    def test_a_class_is_refused(self) -> None:
        expected = r"Write is a class, and a chain is made of instances\. .* class in SerializerChain\.from_config"
        with pytest.raises(ConfigError, match=expected):
            SerializerChain([Write])

    @pytest.mark.parametrize("count", range(1, 8))
    def test_plain_calls_run_in_order(self, count: int) -> None:
        class Append(Read):
            plain: Any = None

            def __init__(self, mark: bytes) -> None:
                super().__init__(lambda data: data + mark)
                self.plain = lambda data: data + mark

        chain = DeserializerChain([Append(b"%d" % number) for number in range(count)])
        assert chain.plain is not None
        assert chain.plain(b"") == chain._go_on(b"", context(), 0) == b"0123456"[:count]


def test_a_missing_compression_stage_is_named() -> None:
    data = SerializerChain.from_config({"value.serializers": "json, zstd"})({"name": "M 51"})
    schema = {"type": "record", "name": "R", "fields": [{"name": "name", "type": "string"}]}
    for stage in ("json", "bson", "avro"):
        read = DeserializerChain.from_config({"value.deserializers": stage, "avro.schema": schema})
        with pytest.raises(DecodeError, match="begin like zstd: is that stage missing before this one"):
            read(data)
    with pytest.raises(DecodeError) as raised:
        DeserializerChain.from_config({"value.deserializers": "zstd, json"})(data[:-1])
    assert raised.value.hint is None or "begin like" not in raised.value.hint


class TestClosing:
    def test_a_close_that_fails_does_not_hide_what_is_wrong(self) -> None:
        class Stubborn(Write):
            def close(self) -> None:
                raise RuntimeError("cannot be closed")

        class Refusing(Write):
            def configure(self, config: Any, is_key: bool) -> None:
                raise ConfigError("what is wrong")

        with pytest.raises(ConfigError, match="what is wrong"):
            SerializerChain.from_config({"value.serializers": [Stubborn, Refusing]})

    def test_aclose_awaits_a_close_that_is_a_coroutine(self) -> None:
        closed: list[str] = []

        class Foreign:
            def __call__(self, data: Any, _ctx: Any) -> Any:
                return data

            async def close(self) -> None:
                await asyncio.sleep(0)
                closed.append("closed")

        asyncio.run(SerializerChain([Foreign()]).aclose())
        assert closed == ["closed"]
