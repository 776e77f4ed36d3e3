"""Chains: order, errors, tombstones, threads, pickling, closing."""

import asyncio
import json
import pickle
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
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
    SerializationError,
    Serializer,
    SerializerChain,
)
from serde_chain.clients.client_chains import ClientChains
from serde_chain.config import resolve
from serde_chain.stages.primitives import BytesSerializer

SCHEMA = json.dumps({"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]})
CONFIG = {
    "value.serializers": "avro, zstd, large-message",
    "value.deserializers": "large-message, zstd, avro",
    "avro.schema": SCHEMA,
    "large.message.payload.store.class": "memory",
    "large.message.threshold.bytes": "0",
}


class Recorder(Serializer[Any]):
    """Passes bytes through and keeps what happened to it."""

    takes = Data.BYTES

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.seen: list[Any] = []
        self.closed = 0

    def __call__(self, data: Any, ctx: Any = None, /) -> Any:
        self.seen.append(data)
        return data

    def close(self) -> None:
        self.closed += 1
        if self.error is not None:
            raise self.error


def reversed_(data: Any) -> bytes:
    return bytes(reversed(data))


class Unpickler(Deserializer[Any]):
    def __call__(self, data: Any, ctx: Any = None, /) -> Any:
        return data


def context(**more: Any) -> RecordContext:
    return RecordContext("alerts", "value", [], **more)


def test_stages_run_in_order_and_back() -> None:
    write, read = SerializerChain.from_config(CONFIG), DeserializerChain.from_config(CONFIG)
    assert write.labels == ("avro (1 of 3)", "zstd (2 of 3)", "large-message (3 of 3)")
    ctx = context()
    data = write({"id": 7}, ctx)
    assert data.startswith(b"memory:")
    assert read(data, ctx) == {"id": 7}
    assert ctx.headers == []


def test_a_chain_without_stages_passes_through() -> None:
    assert SerializerChain.from_config({})(b"data", context()) == b"data"
    assert DeserializerChain.from_config({})(b"data", context()) == b"data"
    assert DeserializerChain([]).stages == ()


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("zstd, avro", r"avro \(2 of 2\) cannot come after zstd \(1 of 2\): it takes objects, .* gives bytes"),
        ("avro, json", r"json \(2 of 2\) cannot come after avro \(1 of 2\): it takes objects"),
        ("avro, large-message, zstd", r"zstd \(3 of 3\) cannot come after large-message \(2 of 3\).*max_overhead"),
        ("avro, large-message, large-message", r"large-message \(3 of 3\) cannot come after"),
    ],
)
def test_a_wrong_order_of_serializers_is_refused(names: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SerializerChain.from_config({**CONFIG, "value.serializers": names})


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("avro, zstd", r"zstd \(2 of 2\) cannot come after avro \(1 of 2\): it takes bytes, .* gives objects"),
        (
            "zstd, large-message, avro",
            r"zstd \(1 of 3\) cannot come before large-message \(2 of 3\).* unwraps_placeholders",
        ),
    ],
)
def test_a_wrong_order_of_deserializers_is_refused(names: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        DeserializerChain.from_config({**CONFIG, "value.deserializers": names})


def test_a_stage_that_declares_its_overhead_may_come_after_large_message() -> None:
    class Framed(Recorder):
        max_overhead = 28

    config = {**CONFIG, "value.serializers": ["avro", "large-message", Framed()]}
    assert SerializerChain.from_config(config)({"id": 1}, context()).startswith(b"memory:")


def test_instances_are_checked_too() -> None:
    avro, zstd = (
        SerializerChain.from_config({**CONFIG, "value.serializers": name}).stages[0] for name in ("avro", "zstd")
    )
    with pytest.raises(ConfigError, match=r"AvroSerializer \(2 of 2\) cannot come after ZstdSerializer \(1 of 2\)"):
        SerializerChain([zstd, avro])


def test_a_chain_is_a_stage() -> None:
    inner = SerializerChain.from_config({**CONFIG, "value.serializers": "avro, zstd"})
    outer = SerializerChain([inner, *SerializerChain.from_config({"value.serializer": "gzip"}).stages])
    assert (outer.takes, outer.gives) == (Data.OBJECT, Data.BYTES)
    data = outer({"id": 1}, context())
    back = DeserializerChain.from_config({**CONFIG, "value.deserializers": "gzip, zstd, avro"})
    assert back(data, context()) == {"id": 1}
    with pytest.raises(ConfigError, match=r"avro \(2 of 3\) cannot come after ZstdSerializer"):
        SerializerChain([*SerializerChain.from_config({"value.serializer": "zstd"}).stages, inner])


def test_tombstones_touch_no_stage_and_no_header() -> None:
    recorder = Recorder()
    ctx = context()
    assert SerializerChain([recorder])(None, ctx) is None
    assert SerializerChain.from_config(CONFIG)(None, ctx) is None
    assert DeserializerChain.from_config(CONFIG)(None, ctx) is None
    assert (recorder.seen, ctx.headers) == ([], [])


def test_a_stage_may_make_a_tombstone() -> None:
    recorder = Recorder()
    chain = SerializerChain([lambda _data, _ctx: None, recorder])
    assert chain({"deleted": True}, context()) is None
    assert recorder.seen == []


def test_chains_tell_which_bytes_they_leave_unchanged() -> None:
    class Reversed(BytesSerializer):
        plain = staticmethod(reversed_)

    def most(names: str, **config: Any) -> int:
        return SerializerChain.from_config({"value.serializers": names, **config}).max_unchanged

    store = {"large.message.payload.store.class": "memory", "large.message.threshold.bytes": 1000}
    limited = most("bytes, large-message", **store)
    assert most("bytes") > 1 << 30
    assert 0 < limited <= 1000
    assert most("bytes, zstd") == most("string") == most("bytes, zstd, large-message", **store) == -1
    assert SerializerChain([Reversed()]).max_unchanged == -1
    assert SerializerChain([]).max_unchanged == -1
    chain = SerializerChain.from_config({"value.serializers": "bytes, large-message", **store})
    assert chain.plain is not None
    data = bytes(limited)
    assert chain.plain(data) is data
    long = bytes(1001)
    left = chain.plain(long)
    assert (left.data, left.at) == (long, 1)  # for the stage at 1


def test_a_chain_gives_bytes_that_the_client_takes() -> None:
    assert SerializerChain.from_config({"value.serializer": "bytes"})(memoryview(b"view")) == b"view"
    assert type(SerializerChain.from_config({"value.serializer": "bytes"})(bytearray(b"a"))) is bytes
    with pytest.raises(EncodeError, match=r"returned dict instead of bytes \[.*stage=<lambda> \(1 of 1\)\]"):
        SerializerChain([lambda data, _ctx: data])({}, context())


# Errors


def test_an_error_says_where() -> None:
    with pytest.raises(EncodeError) as caught:
        SerializerChain.from_config(CONFIG)({"id": "text"}, context(partition=3))
    error = caught.value
    assert (error.topic, error.field, error.stage, error.partition) == ("alerts", "value", "avro (1 of 3)", 3)
    assert "[topic=alerts, field=value, stage=avro (1 of 3), partition=3]" in str(error)


@pytest.mark.parametrize("names", ["zstd", "gzip", "zstd, large-message", "encrypt"])
def test_objects_for_a_chain_that_begins_with_bytes(names: str) -> None:
    config = {
        "value.serializers": names,
        "large.message.payload.store.class": "memory",
        "encryption.keys": {"k": bytes(32)},
    }
    with SerializerChain.from_config(config) as chain, pytest.raises(EncodeError) as caught:
        chain({"id": 1}, RecordContext("images", "value", []))
    assert "bytes, not dict: begin the chain with a stage for objects, such as json" in str(caught.value)


def test_an_object_for_large_message_alone() -> None:
    config = {"value.serializers": "large-message", "large.message.payload.store.class": "memory"}
    with SerializerChain.from_config(config) as chain, pytest.raises(EncodeError, match="such as json"):
        chain({"id": 1}, RecordContext("images", "value", []))


@pytest.mark.parametrize("stages", ["json", ["json", "zstd"]])
def test_names_are_not_stages(stages: Any) -> None:
    with pytest.raises(ConfigError, match=r"made of stages, not of str\. SerializerChain.from_config takes the names"):
        SerializerChain(stages)


def test_any_exception_of_a_stage_becomes_a_typed_one_with_its_cause() -> None:
    def broken(_data: Any, _ctx: Any) -> bytes:
        raise KeyError("what")

    with pytest.raises(EncodeError, match=r"KeyError: 'what' \[topic=alerts.*stage=broken \(1 of 1\)\]") as caught:
        SerializerChain([broken])(b"", context())
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(DecodeError, match="KeyError") as caught_again:
        DeserializerChain([broken])(b"", context(offset=9))
    assert caught_again.value.offset == 9


SECRET = "secret" * 40


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (KeyError(SECRET.encode()), "KeyError: bytes of length 240"),
        (ValueError(bytearray(SECRET.encode())), "ValueError: bytearray of length 240"),
        (ValueError("bad", SECRET.encode()), "ValueError: bad, bytes of length 240"),
        (OSError({"a": SECRET}), "OSError: dict of length 1"),
        (AssertionError([SECRET]), "AssertionError: list of length 1"),
        (KeyError((SECRET, 1)), "KeyError: tuple of length 2"),
        (KeyError(SECRET), "KeyError: str of length 240"),
        (
            ExceptionGroup("two", [ValueError(SECRET.encode()), ExceptionGroup("in", [KeyError(SECRET)])]),
            "ExceptionGroup: two (2 sub-exceptions)",
        ),
    ],
)
def test_data_in_the_arguments_of_an_exception_is_not_shown(error: Exception, said: str) -> None:
    def broken(_data: Any, _ctx: Any) -> bytes:
        raise error

    with pytest.raises(DecodeError) as caught:
        DeserializerChain([broken])(b"", context())
    assert caught.value.message == said
    assert "secret" not in "".join(traceback.format_exception(caught.value))


def test_the_stage_of_a_nested_chain_is_named() -> None:
    inner = DeserializerChain.from_config({**CONFIG, "value.deserializers": "zstd, avro"})
    with pytest.raises(DecodeError, match=r"stage=zstd \(1 of 2\)"):
        DeserializerChain([inner])(b"not compressed", context())


def test_interrupts_pass_through() -> None:
    def interrupted(_data: Any, _ctx: Any) -> bytes:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        SerializerChain([interrupted])(b"", context())


def test_nothing_in_a_chain_shows_secrets() -> None:
    config = {
        **CONFIG,
        "large.message.payload.store.class": "s3",
        "s3.bucket": "b",
        "s3.secret.key": "hush",
        "s3.access.key": "me",
    }
    with SerializerChain.from_config(config) as chain:
        assert repr(chain) == "SerializerChain([avro (1 of 3), zstd (2 of 3), large-message (3 of 3)])"
        assert "hush" not in str([repr(stage) for stage in chain.stages])
        with pytest.raises(SerializationError) as caught:
            chain({"id": "text"}, context())
        assert "hush" not in str(caught.value)
    assert "hush" not in repr(resolve(config))
    setup = ClientChains.of_writer({**config, "sasl.password": "hush"})
    assert "hush" not in repr(setup)
    setup.close()


# Threads and processes


def test_threads_share_a_chain() -> None:
    write, read = SerializerChain.from_config(CONFIG), DeserializerChain.from_config(CONFIG)
    start = threading.Barrier(8)

    def work(thread: int) -> list[bool]:
        start.wait(30)
        results = []
        for number in range(100):
            ctx, record = context(), {"id": thread * 1000 + number}
            results.append(read(write(record, ctx), ctx) == record)
        return results

    with ThreadPoolExecutor(8) as pool:
        assert all(all(results) for results in pool.map(work, range(8), timeout=60))


ELSEWHERE = """
import pickle, sys
from serde_chain import RecordContext
write, read = pickle.load(sys.stdin.buffer)
ctx = RecordContext("alerts", "value", [])
assert read(write({"id": 5}, ctx), ctx) == {"id": 5}
print(repr(write))
"""


def test_chains_travel_between_processes() -> None:
    chains = SerializerChain.from_config(CONFIG), DeserializerChain.from_config(CONFIG)
    command = [sys.executable, "-W", "error", "-c", ELSEWHERE]
    done = subprocess.run(command, input=pickle.dumps(chains), capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode().strip() == repr(chains[0])


def test_configured_instances_travel() -> None:
    stages = SerializerChain.from_config({**CONFIG, "value.serializers": "avro, zstd"}).stages
    copied = pickle.loads(pickle.dumps(SerializerChain(stages)))  # noqa: S301
    assert copied({"id": 1}) == SerializerChain(stages)({"id": 1})


def test_what_cannot_travel_says_so() -> None:
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        pickle.dumps(SerializerChain([lambda data, _ctx: data]))


# Closing and forwarding


def test_all_stages_are_closed_even_if_one_fails() -> None:
    stages = [Recorder(), Recorder(OSError("first")), Recorder(OSError("second")), Recorder()]
    with pytest.raises(OSError, match="first"):
        SerializerChain(stages).close()
    assert [stage.closed for stage in stages] == [1, 1, 1, 1]


def test_a_chain_is_a_context_manager() -> None:
    stage = Recorder()
    with SerializerChain([stage]) as chain:
        chain(b"data", context())
    assert stage.closed == 1


def test_a_wrong_order_is_reported_before_a_setting_that_is_missing() -> None:
    names = "json, large-message, zstd"
    with pytest.raises(ConfigError, match=r"zstd \(3 of 3\) cannot come after large-message \(2 of 3\)"):
        SerializerChain.from_config({"value.serializers": names, "large.message.payload.store.class": "s3"})


def test_stages_are_closed_when_a_later_one_refuses_its_configuration() -> None:
    closed: list[str] = []

    class First(Serializer[Any]):
        gives = Data.OBJECT

        def __call__(self, data: Any, ctx: Any = None, /) -> Any:
            return data

        def close(self) -> None:
            closed.append("first")

    with pytest.raises(ConfigError, match=r"avro\.schema"):
        SerializerChain.from_config({"value.serializers": [First, "avro"]})
    assert closed == ["first"]


def test_aclose_awaits_what_closes_asynchronously() -> None:
    closed: list[str] = []

    class Foreign:
        def __call__(self, data: Any, ctx: Any) -> Any:
            return data

        async def aclose(self) -> None:
            await asyncio.sleep(0)
            closed.append("foreign")

    plain, failing = Recorder(), Recorder(OSError("cannot close"))
    asyncio.run(SerializerChain([Foreign(), plain]).aclose())
    assert (closed, plain.closed) == (["foreign"], 1)
    with pytest.raises(OSError, match="cannot close"):
        asyncio.run(SerializerChain([failing, Foreign(), plain]).aclose())
    assert (closed, plain.closed) == (["foreign", "foreign"], 2)


def test_resolvers_are_forwarded() -> None:
    class Foreign:
        def __init__(self) -> None:
            self.resolvers: list[Callable[..., object]] = []

        def __call__(self, data: Any, ctx: Any) -> Any:
            return data

        def set_cluster_id_resolver(self, resolver: Callable[..., object]) -> None:
            self.resolvers.append(resolver)

        set_async_cluster_id_resolver = set_cluster_id_resolver

    foreign = Foreign()
    chain = SerializerChain([SerializerChain([foreign]), Recorder()])
    chain.set_cluster_id_resolver(len)
    chain.set_async_cluster_id_resolver(max)
    assert foreign.resolvers == [len, max]


LARGE = {"large.message.payload.store.class": "memory", "large.message.threshold.bytes": 10}


def test_the_rules_hold_for_the_stages_of_a_chain_in_a_chain() -> None:
    inner = SerializerChain.from_config({**LARGE, "value.serializers": "bytes, large-message"})
    [zstd] = SerializerChain.from_config({"value.serializer": "zstd"}).stages
    with pytest.raises(ConfigError, match=r"ZstdSerializer \(3 of 3\) cannot come after large-message \(2 of 3\)"):
        SerializerChain([inner, zstd])
    with pytest.raises(ConfigError, match="cannot come after"):
        SerializerChain.from_config({"value.serializers": [inner, "zstd"]})
    reader = DeserializerChain.from_config({**LARGE, "value.deserializers": "large-message, string"})
    assert DeserializerChain([reader]).labels == ("large-message (1 of 2)", "string (2 of 2)")
    assert str(DeserializerChain([reader]).to_arrow([b"text"], topic="t").type) == "string"
    broken = DeserializerChain([DeserializerChain.from_config({"value.deserializers": "zstd, integer"})])
    with pytest.raises(DecodeError, match=r"stage=zstd \(1 of 2\)"):
        broken(b"no integer", context())


def test_a_chain_that_does_more_is_one_stage() -> None:
    class Marking(SerializerChain):
        def __call__(self, data: Any, ctx: Any = None, /) -> Any:
            return b"mark " + super().__call__(data, ctx)

    inner = Marking.from_config({"value.serializer": "string"})
    outer = SerializerChain([inner])
    assert (outer("text", context()), outer.stages) == (b"mark text", (inner,))


def test_one_stage_stands_in_several_chains() -> None:
    config = {**LARGE, "large.message.accept": "kip1159, hop", "value.deserializers": "large-message, json"}
    first = DeserializerChain.from_config(config)
    large, json = first.stages
    headers = [("_format", b"blob")]
    assert DeserializerChain([large])(b"blob", RecordContext("t", "value", list(headers))) == b"blob"
    DeserializerChain([large, DeserializerChain.from_config({"value.deserializer": "string"}).stages[0]])
    # What a header calls JSON is read by the chain that has json, whatever chains were built since.
    assert first(b"1", RecordContext("t", "value", [("_format", b"json")])) == 1
    assert first(b"[", RecordContext("t", "value", list(headers))) == b"["
    assert first.stages == (large, json)
