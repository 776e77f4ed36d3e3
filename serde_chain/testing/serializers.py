"""The conformance suite for stages.

Tests a pair of stages against the whole contract of :mod:`serde_chain.base` with a few lines::

    from hypothesis import strategies as st
    from serde_chain.testing import SerializerTests

    class TestReverse(SerializerTests):
        stage = StagePair(ReverseSerializer, ReverseDeserializer)     # or the registered name
        values = st.binary()                                          # values that users may pass
        detects_truncation = False                                    # a truncated text is still a text
"""
# ruff: noqa: S101, S301  pytest checks with assert, and the unpickled bytes are our own

from __future__ import annotations

import copy
import itertools
import pickle
import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, Final, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from payload_stores.testing.suite.options import check_options
from payload_stores.testing.suite.required import RequiredSettings
from serde_chain.arrow import Batch
from serde_chain.arrow.loop import declared_type, find_form
from serde_chain.base import Buffer, Data, Deserializer, Serializer, Stage, StagePair, SupportsClose, SupportsPlainCalls
from serde_chain.catalogue import DESERIALIZE, SERIALIZE, ConfiguredStage, Side, StageItem
from serde_chain.chain import DeserializerChain
from serde_chain.errors import ConfigError, DecodeError, EncodeError, PayloadStoreError, SerializationError
from serde_chain.record import KEY, VALUE, Header, RecordContext

# The same examples in every run, so that every failure is reproducible.
_SETTINGS: Final = settings(
    max_examples=50,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
_THREADS: Final = 8
# A chain around the stage turns a store's error into a SerializationError.
_DOCUMENTED: Final = (SerializationError, PayloadStoreError)
_TOPIC: Final = "conformance"

# A serializer and a deserializer, which may be foreign callables.
Stages = tuple[Any, Any]

# No format of text has them as a blank, no format of chunks as padding, and no format of fields as another field.
_TRAILING: Final = (b"\xff", b"trailing bytes")


class SerializerTests(RequiredSettings):
    """Tests that every pair of stages must pass; subclass it in a test file.

    Attributes:
        stage: Required. The pair, or its name or dotted path; with a name, its options are tested too.
        values: Required. Hypothesis strategy for the serializer's input, without None, which is always tested.
        misfits: Values that the serializer must refuse with an EncodeError.
        foreign: Bytes that the deserializer must refuse with a DecodeError.
        detects_truncation: Whether the deserializer refuses truncated data. If it cannot (a truncated text is still
            a text), it must return a value or raise a SerializationError.
        detects_trailing: Whether the deserializer refuses bytes behind the end of the data, or makes them part of the
            value. If the format allows such bytes, it may ignore them.
        expects_type: Exact type of the deserializer's values; None if they differ.

    Example:
        >>> class TestLong(SerializerTests):
        ...     stage = "long"
        ...     values = st.integers(-(2**63), 2**63 - 1)
        ...     misfits = (2**63, "text")
        ...     foreign = (b"", b"nine byte")
    """

    required_settings: ClassVar[Mapping[str, str]] = {
        "stage": "StagePair(MySerializer, MyDeserializer)",
        "values": "st.binary()",
    }

    stage: ClassVar[str | StagePair]
    values: ClassVar[st.SearchStrategy[Any]]
    misfits: ClassVar[tuple[object, ...]] = ()
    foreign: ClassVar[tuple[bytes, ...]] = ()
    detects_truncation: ClassVar[bool] = True
    detects_trailing: ClassVar[bool] = True
    expects_type: ClassVar[type | None] = None

    @pytest.fixture
    def config(self) -> Mapping[str, object]:
        """A user's configuration; override for stages that need keys."""
        return {}

    @pytest.fixture(params=[False, True], ids=[VALUE, KEY])
    def is_key(self, request: pytest.FixtureRequest) -> bool:
        """Whether the stages are for keys."""
        return bool(request.param)

    @pytest.fixture
    def stages(self, config: Mapping[str, object], is_key: bool) -> Iterator[Stages]:
        """The serializer and the deserializer, configured."""
        serializer = self._make(SERIALIZE, config, is_key=is_key)
        deserializer = self._make(DESERIALIZE, config, is_key=is_key)
        yield serializer, deserializer
        _close(serializer, deserializer)

    def equal(self, given_: Any, got: Any) -> bool:
        """Whether a value was restored; override if ``==`` cannot decide it."""
        return bool(given_ == got)

    def from_column(self, value: Any) -> Any:
        """A value of a batch column as the stage itself returns it; override if they differ."""
        return value

    def context(self, *, is_key: bool = False) -> RecordContext:
        """The record around a value."""
        return RecordContext(_TOPIC, KEY if is_key else VALUE, [("user", b"header")], b"key")

    def _configured(self, side: Side, config: Mapping[str, object], *, is_key: bool) -> ConfiguredStage:
        pair = self.stage
        target = pair if isinstance(pair, str) else pair[side.pair_index]
        return ConfiguredStage.of(StageItem.of(target), config, side, is_key=is_key)

    def _make(self, side: Side, config: Mapping[str, object], *, is_key: bool) -> Any:
        return self._configured(side, config, is_key=is_key).make()

    def _examples(self) -> list[Any]:
        """Some values, the same in every run."""
        values: list[Any] = []

        @settings(_SETTINGS, max_examples=12)
        @given(self.values)
        def collect(value: Any) -> None:
            values.append(value)

        collect()
        return values

    def _round_trip(self, stages: Stages, value: Any) -> Any:
        serialize, deserialize = stages
        ctx = self.context()
        data = serialize(value, ctx)
        assert isinstance(data, (bytes, bytearray, memoryview)), f"{value!r} became {type(data).__name__}"
        return deserialize(bytes(data), ctx)

    # Declarations

    def test_it_declares_what_it_is(self, stages: Stages) -> None:
        """Classes declare input and output, and their options have names and explanations."""
        if not any(isinstance(stage, Stage) for stage in stages):
            pytest.skip("both are foreign callables, which declare nothing")
        for stage, base in zip(stages, (Serializer, Deserializer), strict=True):
            if not isinstance(stage, Stage):
                continue
            assert isinstance(stage, base)
            assert isinstance(stage.takes, Data)
            assert isinstance(stage.gives, Data)
            assert (stage.gives if base is Serializer else stage.takes) is Data.BYTES
            undocumented = [option.name for option in stage.options if not option.doc]
            assert not undocumented, f"options without a doc: {', '.join(undocumented)}: write Option(…, doc='…')"
            bare = [option.name for option in stage.options if "." not in option.name]
            assert not bare, f"options without a prefix of the stage's own: {', '.join(bare)}: write prefix.{bare[0]}"
            if type(stage).configure is not Stage.configure:
                assert stage.configured is not None, (
                    f"{type(stage).__name__}.configure does not call super().configure(config, is_key), which keeps "
                    "the configuration for pickling"
                )

    def test_the_options_that_it_reads_are_declared(self, config: Mapping[str, object], is_key: bool) -> None:
        """An option missing from ``options`` cannot be set: its key is refused, or left to the client."""
        for side in (SERIALIZE, DESERIALIZE):
            configured = self._configured(side, config, is_key=is_key)
            make = lambda made=configured: _close(made.make())  # noqa: E731
            check_options(make, configured.settings, configured.options, configured.label)

    def test_an_option_that_it_does_not_have_is_refused(self, config: Mapping[str, object]) -> None:
        """Options of one stage are checked against what it declares."""
        if not isinstance(self.stage, str):
            pytest.skip("`stage` is the pair itself: its options are tested with its name or dotted path")
        for side in (SERIALIZE, DESERIALIZE):
            item = StageItem(self.stage, {"no.such.option": "1"})
            with pytest.raises(ConfigError, match=r"no\.such\.option"):
                ConfiguredStage.of(item, config, side, is_key=False).make()

    # Round trips

    def test_values_come_back(self, stages: Stages) -> None:
        """Deserializing a serialized value restores it."""

        @_SETTINGS
        @given(self.values)
        def check(value: Any) -> None:
            before = copy.deepcopy(value)
            got = self._round_trip(stages, value)
            assert self.equal(before, got), f"{before!r} came back as {got!r}"
            assert self.equal(before, value), "the serializer changed its input"
            if self.expects_type is not None:
                assert type(got) is self.expects_type

        check()

    def test_none_stays_none(self, stages: Stages, is_key: bool) -> None:
        """A tombstone is None, and adds no header."""
        for stage in stages:
            ctx = self.context(is_key=is_key)
            assert stage(None, ctx) is None
            assert stage(None, None) is None
            assert ctx == self.context(is_key=is_key)

    def test_headers_of_others_are_kept(self, stages: Stages) -> None:
        """Headers written by the user or another stage are kept, and the list stays the same object."""
        serialize, deserialize = stages
        for value in self._examples():
            ctx = self.context()
            headers = ctx.headers
            deserialize(serialize(value, ctx), ctx)
            assert ctx.headers is headers
            assert ("user", b"header") in list(headers or ())

    def test_equal_keys_are_equal_bytes(self, config: Mapping[str, object]) -> None:
        """Partitions and compaction depend on the keys' bytes; a stage that may vary them declares it in ``varies``."""
        stages = [self._make(SERIALIZE, config, is_key=True) for _ in range(2)]
        try:
            if isinstance(stages[0], Serializer) and stages[0].varies is not None:
                pytest.skip("the serializer declares that it may give different bytes for equal data")
            for value in self._examples():
                one, two = (stage(copy.deepcopy(value), self.context(is_key=True)) for stage in stages)
                assert bytes(one) == bytes(two), f"{value!r}"
        finally:
            _close(*stages)

    def test_it_adds_no_more_than_it_declares(self, stages: Stages) -> None:
        """A serializer that may follow ``large-message`` declares the most bytes it adds, in ``max_overhead``."""
        serialize = stages[0]
        most = serialize.max_overhead if isinstance(serialize, Serializer) else None
        if most is None:
            pytest.skip("the serializer declares no max_overhead, and cannot follow large-message")
        assert serialize.takes is Data.BYTES, "a serializer with max_overhead takes bytes"

        @_SETTINGS
        @given(self.values)
        def check(value: Any) -> None:
            added = len(bytes(serialize(value, self.context()))) - len(value)
            assert added <= most, f"max_overhead is {most}, and the serializer added {added} bytes to {value!r}"

        check()

    def test_any_buffer_is_taken(self, stages: Stages) -> None:
        """Bytes, bytearrays and views are equivalent for a stage, and are not changed."""
        serialize, deserialize = stages
        takes_bytes = isinstance(serialize, Serializer) and serialize.takes is Data.BYTES
        for value in self._examples():
            ctx = self.context()
            data = bytes(serialize(value, ctx))
            inputs: tuple[Buffer, ...] = (bytearray(data), memoryview(data), memoryview(b"<" + data + b">")[1:-1])
            for buffer in inputs:
                assert self.equal(value, deserialize(buffer, copy.deepcopy(ctx)))
                assert bytes(buffer) == data
            for kind in (bytearray, memoryview) if takes_bytes else ():
                again = self.context()
                assert self.equal(value, deserialize(bytes(serialize(kind(value), again)), again))

    def test_plain_serializing_is_the_same(self, stages: Stages, is_key: bool) -> None:
        """Calling the stage returns the same as ``plain``; if it fails, ``plain`` fails too."""
        serialize, plain = stages[0], _plain(stages[0])
        varies = isinstance(serialize, Serializer) and serialize.varies is not None

        @_SETTINGS
        @given(self.values)
        def check(value: Any) -> None:
            one, two = plain(copy.deepcopy(value)), serialize(copy.deepcopy(value), self._bare_context(is_key=is_key))
            if varies:
                assert self.equal(value, stages[1](bytes(one), self._bare_context(is_key=is_key))), f"{value!r}"
            else:
                assert bytes(one) == bytes(two), f"{value!r}"

        check()
        for misfit in self.misfits:
            with pytest.raises(Exception):  # noqa: B017, PT011  any error: the chain then calls the stage itself
                plain(misfit)

    def test_plain_deserializing_is_the_same(self, stages: Stages, is_key: bool) -> None:
        """Calling the stage returns the same as ``plain``; if it fails, ``plain`` fails too."""
        plain = _plain(stages[1])

        @_SETTINGS
        @given(self.values, st.binary(max_size=40), st.integers(0))
        def check(value: Any, noise: bytes, at: int) -> None:
            ctx = self._bare_context(is_key=is_key)
            data = bytes(stages[0](value, ctx))
            if not ctx.headers:  # records with headers are not for plain calls
                at %= len(data) + 1
                for given_ in (data, noise, data[:at], data + noise, data[:at] + noise + data[at + len(noise) :]):
                    self._compare(plain, stages[1], given_, is_key=is_key)

        check()
        for data in self.foreign:
            self._compare(plain, stages[1], data, is_key=is_key)

    def _bare_context(self, *, is_key: bool) -> RecordContext:
        ctx = self.context(is_key=is_key)
        ctx.headers = []
        return ctx

    def _compare(self, plain: Callable[[Any], Any], stage: Any, data: bytes, *, is_key: bool) -> None:
        try:
            expected = stage(data, self._bare_context(is_key=is_key))
        except _DOCUMENTED:
            with pytest.raises(Exception):  # noqa: B017, PT011  any error: the stage itself is called then
                plain(data)
            return
        try:
            got = plain(data)
        except Exception:  # noqa: BLE001, allowed too if ``plain`` cannot decide
            return
        # Damaged bytes may be a NaN, which is unequal to itself.
        assert self.equal(expected, got) or repr(expected) == repr(got), f"{expected!r} and {got!r} of {data!r}"

    # Whole columns

    def test_a_batch_is_its_records(self, stages: Stages) -> None:
        """A batch form returns the same as calling the stage per record, and null for null."""
        chain, records = _chain_with_form(stages[1]), self._records(stages[0])
        for rows in (records, records[:1], []):
            result = chain.read_batch(_batch([None, *rows, None]))
            assert result.errors == {}
            self._assert_rows(result.values, [None, *rows, None], stages[1])

    def test_bad_records_of_a_batch_are_null_and_reported(self, stages: Stages) -> None:
        """Each is reported with its row, and the other records are still read."""
        chain, good = _chain_with_form(stages[1]), self._records(stages[0])
        if not self.foreign:
            pytest.skip("no bytes are foreign to the stage")
        bad = [_Record(data, ()) for data in self.foreign]
        rows = [*bad, *(record for pair in zip(good, itertools.cycle(bad), strict=False) for record in pair)]
        result = chain.read_batch(_batch(rows))
        assert set(result.errors) == {row for row, record in enumerate(rows) if record in bad}
        for row, error in result.errors.items():
            assert isinstance(error, SerializationError)
            assert error.row == row
        self._assert_rows(result.values, [None if record in bad else record for record in rows], stages[1])

    def test_the_parts_of_a_batch_are_the_whole(self, stages: Stages) -> None:
        """In order, none missing and none repeated, however small the parts are."""
        chain, rows = _chain_with_form(stages[1]), self._records(stages[0])
        for most_bytes in (1, 100, None):
            parts = list(chain.read_parts(_batch(rows), most_bytes))
            assert [part.first for part in parts] == [0, *itertools.accumulate(map(len, parts[:-1]))]
            done = 0
            for part in parts:
                self._assert_rows(part.column, rows[done : done + len(part)], stages[1])
                done += len(part)
            assert done == len(rows)

    def _records(self, serialize: Any) -> list[_Record]:
        records = []
        for value in self._examples():
            headers: list[Header] = []
            data = serialize(value, RecordContext(_TOPIC, VALUE, headers))
            records.append(_Record(bytes(data), tuple(headers)))
        return records

    def _assert_rows(self, column: Any, records: Sequence[_Record | None], deserialize: Any) -> None:
        assert len(column) == len(records)
        for in_column, record in zip(column.to_pylist(), records, strict=True):
            if record is None:
                assert in_column is None
            else:
                alone = deserialize(record.data, RecordContext(_TOPIC, VALUE, list(record.headers)))
                assert self.equal(alone, self.from_column(in_column)), f"{alone!r} became {in_column!r}"

    # Threads, and other processes

    def test_threads_share_a_stage(self, stages: Stages) -> None:
        """One pair serves several threads concurrently."""
        values = self._examples()
        start = threading.Barrier(_THREADS)

        def work(seed: int) -> list[tuple[Any, Any]]:
            mine = random.Random(seed).choices(values, k=40)  # noqa: S311, an order, not a secret
            start.wait(30)
            return [(value, self._round_trip(stages, value)) for value in mine]

        with ThreadPoolExecutor(_THREADS) as pool:
            for results in pool.map(work, range(_THREADS), timeout=60):
                assert all(self.equal(value, got) for value, got in results)

    def test_it_can_be_pickled(self, stages: Stages) -> None:
        """Spark sends stages to its executors."""
        serialize, deserialize = (pickle.loads(pickle.dumps(stage)) for stage in stages)
        try:
            for value in self._examples():
                assert self.equal(value, self._round_trip((stages[0], deserialize), value))
                assert self.equal(value, self._round_trip((serialize, stages[1]), value))
        finally:
            _close(serialize, deserialize)

    def test_it_can_be_closed_again(self, config: Mapping[str, object], is_key: bool) -> None:
        """Closing again has no effect."""
        stages = [self._make(side, config, is_key=is_key) for side in (SERIALIZE, DESERIALIZE)]
        closed = [stage for stage in stages if isinstance(stage, SupportsClose)]
        if not closed:
            pytest.skip("both are foreign callables without close()")
        for stage in closed:
            stage.close()
            stage.close()

    # Bad input

    def test_values_that_do_not_fit_are_refused(self, stages: Stages) -> None:
        """The error names the fault; nothing is converted silently."""
        if not self.misfits:
            pytest.skip("`misfits`, the values that the serializer must refuse, is empty")
        for misfit in self.misfits:
            _assert_refused(stages[0], misfit, self.context(), EncodeError, what=f"{misfit!r} of `misfits`")

    def test_foreign_bytes_are_refused(self, stages: Stages) -> None:
        """Bytes of another program raise an error."""
        if not self.foreign:
            pytest.skip("`foreign`, the bytes that the deserializer must refuse, is empty")
        for data in self.foreign:
            _assert_refused(stages[1], data, self.context(), DecodeError, what=f"{data!r} of `foreign`")

    def test_what_is_cut_off_is_refused(self, stages: Stages) -> None:
        """Truncation at any byte raises a DecodeError, if the format can detect it."""
        serialize, deserialize = stages
        for value in self._examples():
            ctx = self.context()
            data = bytes(serialize(value, ctx))
            for end in _some(len(data)):
                if self.detects_truncation:
                    what = f"{data!r} cut off after {end} of {len(data)} bytes"
                    advice = ", or set detects_truncation = False if the format cannot detect it"
                    _assert_refused(deserialize, data[:end], copy.deepcopy(ctx), DecodeError, what=what, advice=advice)
                else:
                    _tolerate(deserialize, data[:end], copy.deepcopy(ctx))

    def test_trailing_bytes_are_refused(self, stages: Stages) -> None:
        """Bytes behind the end raise a DecodeError, or are part of the value; they are never ignored."""
        serialize, deserialize = stages
        for value in self._examples():
            ctx = self.context()
            data = bytes(serialize(value, ctx))
            for trailing in _TRAILING:
                if not self.detects_trailing:
                    _tolerate(deserialize, data + trailing, copy.deepcopy(ctx))
                    continue
                try:
                    got = deserialize(data + trailing, copy.deepcopy(ctx))
                except (DecodeError, PayloadStoreError):
                    continue
                assert not self.equal(value, got), (
                    f"{trailing!r} behind {data!r} was ignored: raise a DecodeError, or set detects_trailing = False "
                    "if the format allows bytes behind its end"
                )

    def test_damaged_bytes_give_a_value_or_a_documented_error(self, stages: Stages) -> None:
        """Flipped, inserted and missing bytes, and noise: never another exception, a crash or a hang."""
        serialize, deserialize = stages

        @_SETTINGS
        @given(self.values, st.randoms(use_true_random=False), st.binary(max_size=40))
        def check(value: Any, source: random.Random, noise: bytes) -> None:
            ctx = self.context()
            data = bytearray(serialize(value, ctx))
            at = source.randrange(len(data) + 1)
            for damaged in (
                bytes(data[:at] + noise + data[at:]),
                bytes(data[:at] + data[at + 1 + len(noise) :]),
                bytes(data[:at] + bytes([source.randrange(256)]) + data[at + 1 :]),
                noise,
                bytes(data[: source.randrange(17)]) + noise,
            ):
                _tolerate(deserialize, damaged, copy.deepcopy(ctx))

        check()


def _close(*stages: object) -> None:
    for stage in stages:
        if isinstance(stage, SupportsClose):
            stage.close()


class _Record(NamedTuple):
    data: bytes
    headers: tuple[Header, ...]


def _chain_with_form(stage: Any) -> DeserializerChain:
    """A chain of one stage that has a batch form."""
    if find_form(stage) is None:
        pytest.skip("the stage has no batch form: batches are read record by record")
    pytest.importorskip("pyarrow", reason="batches need the extra arrow")
    try:
        declared_type(stage)
    except ConfigError as error:
        pytest.skip(f"as configured, the stage's values have no Arrow type: {error}")
    return DeserializerChain([stage])


def _batch(records: Sequence[_Record | None]) -> Batch:
    return Batch(
        [None if record is None else record.data for record in records],
        [[] if record is None else list(record.headers) for record in records],
        topic=_TOPIC,
    )


def _plain(stage: Any) -> Callable[[Any], Any]:
    plain = stage.plain if isinstance(stage, SupportsPlainCalls) else None
    if plain is None:
        pytest.skip("the stage has no `plain` function, or none as configured")
    return plain


def _tolerate(deserialize: Callable[..., Any], data: bytes, ctx: RecordContext) -> None:
    try:
        deserialize(data, ctx)
    except _DOCUMENTED as error:
        assert str(error)  # noqa: PT017, other exceptions are in the next clause
    except Exception as error:
        raise _other_error(error, DecodeError, f"{data!r}, which is damaged") from error


def _assert_refused(
    stage: Callable[..., Any],
    data: object,
    ctx: RecordContext,
    expected: type[SerializationError],
    *,
    what: str,
    advice: str = "",
) -> None:
    """Check that a stage refuses data with an error of the right kind, and a message."""
    try:
        result = stage(data, ctx)
    except expected as error:
        assert str(error)  # noqa: PT017, other exceptions are in the next clause
        return
    except Exception as error:
        raise _other_error(error, expected, what) from error
    raise AssertionError(f"the stage accepted {what} and returned {result!r}: raise {expected.__name__}{advice}")


def _other_error(error: Exception, expected: type[SerializationError], what: str) -> AssertionError:
    return AssertionError(
        f"the stage raised {type(error).__name__} ({error}) for {what}: raise {expected.__name__} from it"
    )


def _some(size: int) -> list[int]:
    """Lengths below a size: all of them for small sizes."""
    return list(range(size)) if size <= 64 else [*range(32), *range(32, size, size // 32), size - 1]
