"""Chains: an ordered list of stages that acts as one serializer or deserializer (KIP-1159, "Serializer chain").

Calling a chain is one loop over its stages, :meth:`_Chain._go_on`. If all stages work on the data alone, their plain
functions run first, and the loop only if one of these raises. The rest builds chains in a valid order, and errors that
name the stage and the record.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from payload_stores.errors import drop_data, text_of
from payload_stores.signals import let_through
from serde_chain import base, order
from serde_chain import config as configuration
from serde_chain.base import Data, Deserializer, Serializer, Stage, SupportsTransfers
from serde_chain.base.kinds import typed_at, typed_stage
from serde_chain.catalogue import (
    DESERIALIZE,
    SERIALIZE,
    ConfiguredStage,
    Side,
    check_side,
    explain_placeholder,
    marker_headers,
)
from serde_chain.config import Config, Resolved
from serde_chain.errors import (
    ConfigError,
    ContextualError,
    DecodeError,
    EncodeError,
    ForeignFormatError,
    PayloadStoreError,
    SerializationError,
    in_chain,
    is_about_record,
)
from serde_chain.record import KEY, VALUE, Context, RecordContext, get_header, remove_headers
from serde_chain.stage_calls import Begun, check_call, composed, max_unchanged, plain_call, stage_call
from serde_chain.transfer import Transfer, TransferSlots, finish, then, together

if TYPE_CHECKING:
    from pathlib import Path

    from payload_stores.base import PayloadStore, RecordWriter
    from serde_chain.arrow import Batch, BatchForm, BatchResult
    from serde_chain.arrow.writing import ArrowRecords
    from serde_chain.wire.reference_format import Reference

# Of tables, outside of clients, which have their own bounds.
_IN_FLIGHT: Final = 8
_PATIENCE_MS: Final = 60_000


def _same(data: Any) -> Any:
    return data


def _as_bytes(data: Any, _ctx: Context | None) -> bytes:
    """Clients accept only bytes; a view costs one copy here."""
    if type(data) is bytes:
        return data
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data)
    raise EncodeError(
        f"returned {type(data).__name__} instead of bytes",
        hint="Put a stage that makes bytes of it into the chain, such as json or string",
    )


class _Chain(Stage):
    """The base of both directions."""

    side: ClassVar[Side]
    _failure: ClassVar[type[SerializationError]]
    _ending: ClassVar[tuple[Callable[..., Any], ...]] = ()
    plain: Callable[[Any], Any] | None
    """The stages' plain functions as one, if all of them have one (:class:`~serde_chain.base.SupportsPlainCalls`).

    Its result is that of the chain if it is ``bytes``, or if the chain is a deserializer's; otherwise :meth:`begun`
    says what is left to do.
    """
    max_unchanged: int
    """Length up to which ``plain`` returns objects of exactly the type ``bytes`` unchanged; -1 if it may change any."""
    own_headers: frozenset[str]

    def __init__(self, stages: Iterable[Callable[..., Any]], *, labels: Iterable[str] | None = None) -> None:
        """Build a chain of configured stages.

        Args:
            stages: Stages in the order of application.
            labels: Their names in messages; class or function names by default. More labels than stages are accepted
                for the first stages of a longer chain.

        Raises:
            ConfigError: The order is invalid.
        """
        stages = list(stages)
        for stage in stages:
            if not callable(stage):
                raise ConfigError(
                    f"a chain is made of stages, not of {type(stage).__name__}",
                    hint=f"{type(self).__name__}.from_config takes the names of stages",
                )
            if isinstance(stage, type) and issubclass(stage, Stage):
                raise ConfigError(
                    f"{stage.__name__} is a class, and a chain is made of instances",
                    hint=f"Pass a configured instance, or name the class in {type(self).__name__}.from_config",
                )
            if not isinstance(stage, _Chain):  # a chain of the other direction is a callable, as for transcoding
                hint = f"Put it into a {self.side.other.__name__}Chain"
                check_side(stage, _name(stage), self.side, hint=hint)
        names = list(map(_name, stages)) if labels is None else list(labels)
        for stage, name in zip(stages, names, strict=False):  # labels may name more stages
            check_call(stage, name)
        stages, names = self._flat(stages, names)
        self._names = tuple(names)
        self._labels = _numbered(names)
        self._source: tuple[Mapping[str, object], bool] | None = None
        order.check(stages, self._labels, self.side)
        self._arrange(_bound(stages))

    def _arrange(self, stages: tuple[Any, ...]) -> None:
        self._stages = stages
        self._steps = (*map(stage_call, stages), *self._ending)
        self._waits = any(isinstance(stage, SupportsTransfers) for stage in stages)
        plain = list(map(plain_call, stages))
        self.plain, self.max_unchanged = composed(plain), max_unchanged(plain)
        # Any writer can add a header; it must not bypass these stages.
        self.authenticates = any(isinstance(stage, Deserializer) and stage.authenticates for stage in stages)
        self.moves_payloads = any(isinstance(stage, Stage) and stage.moves_payloads for stage in stages)  # type: ignore[misc]
        self._resolves = any(
            isinstance(stage, Stage) and stage.moves_payloads and stage.takes is not Data.OBJECT for stage in stages
        )
        self.own_headers = frozenset(
            name for stage in stages if isinstance(stage, Deserializer) for name in stage.own_headers
        )
        if stages and isinstance(stages[0], Stage):
            self.takes = stages[0].takes
        if stages and isinstance(stages[-1], Stage):
            self.gives = stages[-1].gives

    @classmethod
    def from_config(cls, config: Config | Resolved | str | Path, *, is_key: bool = False) -> Self:
        """Build the chain that a configuration describes.

        Args:
            config: A mapping, or the path of a TOML or Java ``.properties`` file; or the result of
                :func:`serde_chain.config.resolve`.
            is_key: Build the chain for record keys (``key.serializers``) instead of values.

        Returns:
            The chain; empty if the configuration names no stages: it returns data unchanged.

        Raises:
            ConfigError: A stage is unknown, the order is wrong, a key is missing, misspelt or has a wrong value.
            MissingDependencyError: The extra of a stage or store is not installed.

        Example:
            >>> with DeserializerChain.from_config({"value.deserializers": "zstd, json"}) as chain:
            ...     chain.labels
            ('zstd (1 of 2)', 'json (2 of 2)')
        """
        resolved = configuration.checked(config)
        configured = resolved.of(cls.side, is_key=is_key)
        cls.check_order(configured)
        stages: list[Callable[..., Any]] = []
        try:
            stages += (stage.make() for stage in configured)
            with _of_list(configured):
                chain = cls(stages, labels=[stage.label for stage in configured])
                if is_key:
                    chain._check_key()
        except BaseException:
            with contextlib.suppress(Exception):  # must not hide the original error
                close_all(stages)
            raise
        chain._source = (resolved.settings, is_key)
        return chain

    @classmethod
    def check_order(cls, stages: Sequence[ConfiguredStage]) -> None:
        """Refuse an invalid order before any stage is made and looks for its settings, files and stores.

        Args:
            stages: The stages of a configuration's list.

        Raises:
            ConfigError: Two stages do not fit, or one of them is unknown.
        """
        kinds = [stage.kind for stage in stages]
        with _of_list(stages):
            order.check(kinds, _numbered(stage.label for stage in stages), cls.side)

    def _flat(self, stages: list[Any], names: list[str]) -> tuple[list[Any], list[str]]:
        """The stages, with nested chains replaced by their stages, so that all rules apply to these as well."""
        flat: list[tuple[Any, str]] = []
        for stage, name in zip(stages, names, strict=False):
            is_chain = isinstance(stage, _Chain) and stage.side is self.side
            # A subclass that overrides the call counts as one stage.
            if is_chain and type(stage).__call__ is _Chain.__call__:
                flat += zip(stage.stages, stage._names, strict=False)  # noqa: SLF001, of this class
            else:
                flat.append((stage, name))
        # The first stages of a longer chain have more names than stages.
        return [stage for stage, _ in flat], [*(name for _, name in flat), *names[len(stages) :]]

    @property
    def stages(self) -> tuple[Any, ...]:
        """The stages, in the order of application."""
        return self._stages

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the stages in messages: name and position, ``zstd (2 of 3)``."""
        return self._labels

    @property
    def retries(self) -> int:
        """Number of requests that its stages have repeated. See :class:`~payload_stores.SupportsRetryCount`."""
        from payload_stores.base import SupportsRetryCount  # chains without a store import none

        return sum(stage.retries for stage in self._stages if isinstance(stage, SupportsRetryCount))

    def close(self) -> None:
        """Close all stages, even if one of them fails; the first error is raised at the end."""
        close_all(self._stages)

    async def aclose(self) -> None:
        """Close all stages from a coroutine, awaiting those that close asynchronously; errors as in :meth:`close`."""
        first: Exception | None = None
        for stage in self._stages:
            try:
                if isinstance(stage, base.SupportsAsyncClose):
                    await stage.aclose()
                elif isinstance(stage, base.SupportsClose) and inspect.isawaitable(result := stage.close()):
                    await result
            except Exception as error:  # noqa: BLE001, the other stages must be closed too
                first = first or error
        if first is not None:
            raise first

    def set_cluster_id_resolver(self, resolver: Callable[..., object]) -> None:
        """Pass a resolver of the cluster id to the stages that need one; confluent_kafka calls this by duck typing."""
        for stage in self._stages:
            if isinstance(stage, base.SupportsClusterId):
                stage.set_cluster_id_resolver(resolver)

    def set_async_cluster_id_resolver(self, resolver: Callable[..., object]) -> None:
        """Pass an asynchronous resolver of the cluster id to the stages that need one."""
        for stage in self._stages:
            if isinstance(stage, base.SupportsAsyncClusterId):
                stage.set_async_cluster_id_resolver(resolver)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        if self._source is not None:
            # Rebuilt on unpickling: connections and native objects cannot be pickled.
            return _from_config, (type(self), *self._source)
        return type(self), (self._stages,)

    def __repr__(self) -> str:
        # Never the configuration, which contains secrets.
        return f"{type(self).__name__}([{', '.join(self._labels)}])"

    @property
    def _field(self) -> str:
        return KEY if self._source is not None and self._source[1] else VALUE

    def _check_key(self) -> None:
        """Refuse stages that are unsuitable for keys."""

    def __call__(self, data: Any, ctx: Context | None = None, /) -> Any:
        """Run one key or value through the stages.

        Args:
            data: Input of the first stage; None (a tombstone) stays None and reaches no stage. Of its headers, only
                those that a stage would hand to the reader are removed.
            ctx: The record around it. Stages add headers to it; deserializers remove transport headers.

        Returns:
            The last stage's result.

        Raises:
            SerializationError: A stage failed; names the stage, topic, field, and position where the context has it.
        """
        if data is None:
            return self._go_on(None, ctx, 0) if self.own_headers else None
        plain, start = self.plain, 0
        # Without a context, stages that move payloads fail at the first record, not at the first large one.
        if plain is not None and (not ctx.headers if ctx is not None else not self.moves_payloads):
            try:
                result = plain(data)
            except Exception as error:  # noqa: BLE001  raised again below, with its place
                let_through(error)
            else:
                if type(result) is bytes or not self._ending:
                    return result
                begun = self.begun(result)
                data, start = begun.data, begun.at
        step = self._go_on(data, ctx, start)
        # Most results are bytes: the comparison costs less than a call.
        return finish(step, self._undo) if self._waits and type(step) is not bytes else step

    def _undo(self, reference: str) -> None:
        """Delete what a transfer made for a record that failed later."""

    def begin(self, data: Any, ctx: Context | None = None, /) -> Any:
        """Run one key or value through the stages, up to the first I/O of a stage.

        Args:
            data: As in a call of the chain.
            ctx: The record around it.

        Returns:
            The last stage's result, or a :class:`~serde_chain.transfer.Transfer` that leads to it.

        Raises:
            SerializationError: As in a call of the chain; the transfer's methods raise likewise.

        Example:
            >>> SerializerChain.from_config({"value.serializer": "string"}).begin("text")
            b'text'
        """
        return self._go_on(data, ctx, 0)

    def begun(self, result: Any) -> Begun:
        """What is left to do after ``plain``, for :meth:`resume`: no stage runs twice.

        Args:
            result: Result of ``plain``, where it is not that of the chain.
        """
        return result if type(result) is Begun else Begun(result, len(self._stages))

    def resume(self, begun: Begun, ctx: Context | None) -> Any:
        """Run the stages that ``plain`` has left; otherwise like :meth:`begin`.

        Args:
            begun: Result of :meth:`begun`.
            ctx: The record around it.

        Example:
            >>> chain = SerializerChain.from_config({"value.serializers": "bytes"})
            >>> chain.resume(chain.begun(chain.plain(bytearray(b"M 51"))), None)
            b'M 51'
        """
        return self._go_on(begun.data, ctx, begun.at)

    def _go_on(self, data: Any, ctx: Context | None, start: int) -> Any:
        """Run the stages from one on."""
        at = start
        if self.own_headers and not start:
            remove_headers(ctx, self.own_headers)
        try:
            for at, step in enumerate(self._steps[start:] if start else self._steps, start):
                if data is None:
                    return None
                data = step(data, ctx)
                if self._waits and type(data) is not bytes and isinstance(data, Transfer):
                    return then(data, partial(self._go_on, ctx=ctx, start=at + 1), partial(self._fail, at, ctx=ctx))
        except Exception as error:  # noqa: BLE001  raised with its place
            return self._fail(at, error, ctx, data)
        return data

    def _fail(self, at: int, error: Exception, ctx: Context | None, data: Any = None) -> Any:
        """Raise a stage's error with its place; return the data if they are merely in another format."""
        # Without data, a nested chain has refused to return them.
        if isinstance(error, ForeignFormatError) and error.data is not None:
            if not self.authenticates:
                return error.data
            error.data = None
        failure = self._error(at, error, ctx)
        if isinstance(failure, EncodeError) and failure.hint is None:
            failure.hint = self._advice(at, data)
        elif isinstance(failure, DecodeError) and failure.hint is None and self._reads_objects(at):
            from serde_chain.codecs import missing_stage  # needed for messages only

            failure.hint = missing_stage(data)
        try:
            raise failure from failure.__cause__
        finally:
            del failure, error  # this frame is in the traceback: the error would hold itself, and the payload

    def _advice(self, at: int, data: Any) -> str | None:
        """Advice for a serializer that received the wrong kind of data."""
        if base.is_stream(data):
            return "Files are streamed by large-message alone, or after bytes; otherwise pass the content as bytes"
        stage = self._stages[at] if at < len(self._stages) else None
        takes_bytes = isinstance(stage, Serializer) and stage.takes is Data.BYTES
        if takes_bytes and data is not None and not isinstance(data, (bytes, bytearray, memoryview)):
            kind = type(data).__name__
            if at > 0:
                return f"It takes bytes, but the stage before it, {self._labels[at - 1]}, returned {kind}"
            return f"It takes bytes, not {kind}: begin the chain with a stage for objects, such as json"
        return None

    def _reads_objects(self, at: int) -> bool:
        """Whether a stage makes objects of bytes."""
        stage = self._stages[at] if at < len(self._stages) else None
        return isinstance(stage, Deserializer) and stage.gives is Data.OBJECT

    def _configure_first(self, at: int, error: Exception) -> str | None:
        """Advice for a stage that lacks an attribute because ``configure`` was never called."""
        stage = self._stages[at] if at < len(self._stages) else None
        if not isinstance(error, AttributeError) or not isinstance(stage, Stage) or stage.configured is not None:
            return None
        if type(stage).configure is Stage.configure:
            return None
        return f"Call configure(config, is_key) of an instance first, or use {type(self).__name__}.from_config"

    def _error(self, at: int, error: Exception, ctx: Context | None) -> Exception:
        """The error to raise for a stage's exception, with its place.

        Raises:
            Exception: A signal handler raised it.
        """
        let_through(error)
        if isinstance(error, PayloadStoreError) and not isinstance(error, SerializationError):
            failure: ContextualError = in_chain(error)
        elif isinstance(error, ContextualError):
            failure = error
        else:
            advice = self._configure_first(at, error)
            failure = self._failure(_message(error), hint=advice)
            drop_data(error)
            failure.__cause__ = error
            failure.about_record = advice is None and is_about_record(error)
        if ctx is not None:
            failure.add_context(
                topic=ctx.topic,
                field=_text(ctx.field),
                partition=ctx.partition if isinstance(ctx, RecordContext) else None,
                offset=ctx.offset if isinstance(ctx, RecordContext) else None,
            )
        # The check of the result follows the last stage, and is about its output.
        return failure.add_context(stage=self._labels[min(at, len(self._labels) - 1)] if self._labels else None)


class SerializerChain(_Chain, Serializer[Any]):
    """Serializers that run one after the other; a serializer itself.

    Safe for concurrent calls. Picklable: a chain built from a configuration is rebuilt from it.

    Example:
        >>> from serde_chain import RecordContext
        >>> chain = SerializerChain.from_config({"value.serializers": "json, gzip"})
        >>> DeserializerChain.from_config({"value.deserializers": "gzip, json"})(chain({"id": 1}))
        {'id': 1}
    """

    side = SERIALIZE
    _failure = EncodeError
    _ending: ClassVar[tuple[Callable[..., Any], ...]] = (_as_bytes,)

    def from_arrow(self, table: Any, *, topic: str, keys: Any = None) -> ArrowRecords:
        """Serialize the rows of a table, with no Python object per row where the first stage takes columns.

        ``avro`` and ``protobuf`` do for most types, unless a header names the schema: docs/arrow.md. All other stages
        are called for each row, with a dictionary of its columns.

        Args:
            table: A table with the Arrow PyCapsule interface, of pyarrow, Polars, DuckDB or pandas; or a column of the
                stage's input: structs, or bytes for a chain of bytes.
            topic: The topic.
            keys: The records' encoded keys, a ``pyarrow`` array of bytes or a sequence, if a stage needs them.

        Returns:
            The values, and the headers that stages have added. Large payloads are uploaded, eight at a time; if a row
            fails, those of all rows are deleted.

        Raises:
            SerializationError: A row cannot be serialized; ``row`` is its position.
            ConfigError: The argument is no table.
            MissingDependencyError: The extra ``arrow`` is not installed.

        Example:
            >>> import pyarrow as pa
            >>> chain = SerializerChain.from_config({"value.serializers": "json"})
            >>> chain.from_arrow(pa.table({"name": ["M 51"]}), topic="images").values.to_pylist()
            [b'{"name":"M 51"}']
        """
        from serde_chain.arrow.columns import binary_column
        from serde_chain.arrow.writing import ArrowRecords, arrays_of, chunked, header_column, listed

        arrays: list[Any] = []
        steps: dict[int, Any] = {}  # by the arrays' positions
        headers: list[Any] = []
        known = None if keys is None else binary_column(keys).to_pylist()
        for column in arrays_of(table):
            first, count = len(headers), len(column)
            values, chain = self.begin_column(column, topic, first)
            if chain.stages:
                contexts = [RecordContext(topic, self._field, [], known and known[first + at]) for at in range(count)]
                rows = zip(range(first, first + count), listed(values), contexts, strict=True)
                steps[len(arrays)] = [chain._begin_row(row, value, ctx) for row, value, ctx in rows]  # noqa: SLF001
                headers += [ctx.headers for ctx in contexts]
            else:
                headers += [None] * count
            arrays.append(values)
        slots = TransferSlots(_IN_FLIGHT, max((stage.timeout_ms for stage in self._uploading), default=_PATIENCE_MS))
        uploads = [step for several in steps.values() for step in several]
        results = iter(finish(together(uploads, list, slots=slots, undo=self._undo), self._undo))
        for at, several in steps.items():
            arrays[at] = [next(results) for _ in several]
        return ArrowRecords(chunked(arrays), header_column(headers))

    def begin_column(self, column: Any, topic: str, row: int = 0) -> tuple[Any, SerializerChain]:
        """Run the first stage over a column, if it takes columns.

        Args:
            column: A ``pyarrow.Array`` of the first stage's input.
            topic: The topic.
            row: Position of the column's first row, for errors.

        Returns:
            A row each: a ``pyarrow.BinaryArray`` with the first stage's results, or a list of its input; and the chain
            that continues with each row.

        Raises:
            SerializationError: The registry does not answer, or a value does not fit.

        Example:
            >>> import pyarrow as pa
            >>> chain = SerializerChain.from_config({"value.serializers": "json, gzip"})
            >>> values, rest = chain.begin_column(pa.array([{"id": 1}]), "images")
            >>> values, rest is chain
            ([{'id': 1}], True)
        """
        from serde_chain.arrow.writing import columns_first, rows_of

        ctx, at = RecordContext(topic, self._field, []), 0
        try:
            written = columns_first(self._stages[0] if self._stages else None, column, ctx)
            if written is not None:
                return written, self._with_stages(self._stages[1:], 1)
            at = typed_at(self._stages)
            return rows_of(typed_stage(self._stages), column, ctx), self
        except Exception as error:  # noqa: BLE001  raised with its place
            failure = self._error(at, error, ctx)
            if isinstance(failure, SerializationError) and failure.row is not None:
                failure.row += row
            try:
                raise failure from failure.__cause__
            finally:
                del failure  # as above

    def _begin_row(self, row: int, value: Any, ctx: Context) -> Any:
        """Begin a row of a table; errors name it."""
        try:
            step = self.begin(value, ctx)
        except SerializationError as error:
            error.add_context(row=row)
            raise
        return with_row(step, row)

    @property
    def _uploading(self) -> list[base.SupportsUploads]:
        return [stage for stage in self._stages if isinstance(stage, base.SupportsUploads)]

    @property
    def varies(self) -> str | None:  # type: ignore[override]
        """As its stages declare; foreign callables are trusted."""
        return next((stage.varies for stage in self._stages if isinstance(stage, Serializer) and stage.varies), None)

    def with_limits(self, limits: base.RecordLimits) -> Self:
        """The chain with a client's size limits; it shares the stages that do not depend on them.

        Args:
            limits: The client's limits.
        """
        return self._with_uploads(lambda stage: stage.with_limits(limits))

    def within(self, writer: RecordWriter) -> Self:
        """The chain with payloads in a client's transactions; it shares the stages without payloads.

        Args:
            writer: The client's transactional producer.
        """
        return self._with_uploads(lambda stage: stage.within(writer))

    def _with_uploads(self, change: Callable[[base.SupportsUploads], Any]) -> Self:
        return self._with_stages(
            [change(stage) if isinstance(stage, base.SupportsUploads) else stage for stage in self._stages]
        )

    def _with_stages(self, stages: Iterable[Any], start: int = 0) -> Self:
        """The chain with other stages, bound already, in place of its own from a position on; its source stays."""
        changed = object.__new__(type(self))
        changed.__dict__.update(self.__dict__)
        changed._names, changed._labels = self._names[start:], self._labels[start:]
        changed._arrange(tuple(stages))
        return changed

    def _undo(self, reference: str) -> None:
        for stage in self._stages:
            if isinstance(stage, base.SupportsUploads) and stage.owns(reference):
                stage.delete(reference)
                return

    def _check_key(self) -> None:
        for stage, label in zip(self._stages, self._labels, strict=True):
            if isinstance(stage, Serializer) and (varies := stage.varies) is not None:
                raise ConfigError(
                    f"{label} is not for keys: it may write different bytes for equal keys, which would go to "
                    "different partitions, and be different keys to compaction",
                    hint=varies,
                )


class DeserializerChain(_Chain, Deserializer[Any]):
    """Deserializers that run one after the other; the first one reads the bytes from the broker.

    Safe for concurrent calls. Picklable: a chain built from a configuration is rebuilt from it.

    Example:
        >>> chain = DeserializerChain.from_config({"value.deserializers": "string"})
        >>> chain(b"M 51")
        'M 51'
    """

    side = DESERIALIZE
    _failure = DecodeError
    _forms: Sequence[tuple[Any, BatchForm | None]] | None = None
    _only_form: BatchForm | None = None

    def to_arrow(
        self,
        values: Any,
        headers: Any = None,
        *,
        topic: str,
        keys: Any = None,
        columns: Sequence[str] | None = None,
    ) -> Any:
        """Deserialize a batch into an Arrow array, with no Python object per record where the stages allow.

        Args:
            values: The data from the broker: a ``pyarrow`` array of bytes, chunked or not, or a sequence of bytes and
                None.
            headers: A list of ``(name, bytes)`` pairs or None for each record, or the Arrow column of Spark's Kafka
                source, ``list<struct<key: string, value: binary>>``. Not changed.
            topic: The topic.
            keys: The records' encoded keys, in the form of ``values``, if a stage needs them.
            columns: Names of fields, or dotted paths (``diaSource.psfFlux``), for typed values: the result has only
                these. ``avro`` skips the others without decoding them, so their values are not checked; of fields that
                ``large-fields`` has moved, only these are fetched. None for all.

        Returns:
            ``pyarrow.Array`` with a row per record, null where the value is null: structs for Avro records, bytes if
            the last stage returns bytes, otherwise the type that the stage declares or pyarrow infers.

        Raises:
            SerializationError: A record is undecodable; ``row`` is its position in the batch. :meth:`read_batch`
                continues without it.
            ConfigError: The values have no such column.
            MissingDependencyError: The extra ``arrow`` is not installed.

        Example:
            >>> chain = DeserializerChain.from_config({"value.deserializers": "string"})
            >>> chain.to_arrow([b"M 51", None], topic="images").to_pylist()
            ['M 51', None]
        """
        if headers is None and columns is None and self._only_form is not None:
            whole = self._only_form.at_once(values, topic)
            if whole is not None:
                return whole
        from serde_chain.arrow import Batch  # most chains never see one

        batch = Batch(values, headers, topic=topic, field=self._field, keys=keys, columns=columns)
        return self.read_batch(batch).checked()

    def read_batch(self, batch: Batch) -> BatchResult:
        """Deserialize a batch; undecodable records are null, and their errors are in the result.

        Args:
            batch: The records.

        Example:
            >>> from serde_chain.arrow import Batch
            >>> chain = DeserializerChain.from_config({"value.deserializers": "integer"})
            >>> result = chain.read_batch(Batch([bytes(4), b"foreign"], topic="counts"))
            >>> result.values.to_pylist(), list(result.errors)
            ([0, None], [1])
        """
        (whole,) = self.read_parts(batch)
        return whole.result()

    def read_parts(self, batch: Batch, most_bytes: int | None = None) -> Iterator[Batch]:
        """Deserialize a batch in parts, for results that do not fit into memory together.

        Args:
            batch: The records.
            most_bytes: Approximate limit of the bytes held between two stages, though one record is always accepted;
                None for one part.

        Yields:
            The batch's parts in order, each with the last stage's results as its column, and its errors.

        Example:
            >>> from serde_chain.arrow import Batch
            >>> chain = DeserializerChain.from_config({"value.deserializers": "bytes"})
            >>> parts = chain.read_parts(Batch([bytes(100)] * 4, topic="images"), most_bytes=200)
            >>> [len(part) for part in parts]
            [2, 2]
        """
        from serde_chain.arrow.loop import find_form, run

        for row in batch.rows_with_header(self.own_headers) if self.own_headers else ():
            remove_headers(batch.context(row), self.own_headers)
        if self._forms is None:
            self._forms = [(stage, find_form(stage)) for stage in self._stages]
            self._only_form = self._forms[0][1] if len(self._forms) == 1 else None
        for part in run(self._forms, batch, self._error, most_bytes):
            if part.errors and not self._resolves:
                part.change_errors(marker_headers(is_key=part.field == KEY), explain_placeholder)
            yield part

    @property
    def stores(self) -> tuple[PayloadStore, ...]:
        """The stores that its stages read from. See :class:`~serde_chain.base.SupportsReferences`."""
        return tuple(
            store for stage in self._stages if isinstance(stage, base.SupportsReferences) for store in stage.stores
        )

    def references_in(self, data: Any, ctx: Context | None) -> tuple[Reference, ...]:
        """The references in a record, of its whole value and of fields.

        See :class:`~serde_chain.base.SupportsReferences`.

        Runs the stages before the one that follows references. Fields are looked for only in records whose header
        names some; a payload of the whole value is fetched then.

        Raises:
            SerializationError: One of these stages failed, or a reference is malformed.
        """
        found: tuple[Reference, ...] = ()
        given: Any = data
        ctx = _copy_of(ctx)  # stages remove headers
        following = [at for at, stage in enumerate(self._stages) if isinstance(stage, base.SupportsReferences)]
        for at, stage in enumerate(self._stages):
            try:
                if isinstance(stage, base.SupportsReferences):
                    found += stage.references_in(given, ctx)
                if not any(later > at and self._may_refer(later, ctx) for later in following):
                    break
                given = stage(given, ctx)
            except Exception as error:
                raise self._error(at, error, ctx) from error
            if given is None:
                break
        return found

    def _may_refer(self, at: int, ctx: Context | None) -> bool:
        """Whether a record may have a reference that a later stage follows."""
        stage = self._stages[at]
        names = stage.marker_headers() if isinstance(stage, base.SupportsFetch) else None
        return names is None or any(get_header(ctx, name) is not None for name in names)

    def _error(self, at: int, error: Exception, ctx: Context | None) -> Exception:
        failure = super()._error(at, error, ctx)
        if ctx is None or not isinstance(failure, DecodeError) or self._resolves:
            return failure
        return explain_placeholder(failure, ctx)


@contextlib.contextmanager
def _of_list(stages: Sequence[ConfiguredStage]) -> Iterator[None]:
    """Errors about several stages, which name the key of their list."""
    try:
        yield
    except ConfigError as error:
        if stages:
            error.add_context(key=stages[0].item.key)
        raise


def _bound(stages: list[Any]) -> tuple[Any, ...]:
    """The stages, each bound to its neighbours."""
    padded = [None, *stages, None]
    around = zip(padded[:-2], stages, padded[2:], strict=True)
    return tuple(stage.bind(before, after) if isinstance(stage, Stage) else stage for before, stage, after in around)


def _copy_of(ctx: Context | None) -> Context | None:
    """A context whose headers can be changed."""
    if ctx is None:
        return None
    from copy import copy  # clients never call this

    copied = copy(ctx)
    copied.headers = copy(ctx.headers)
    return copied


def _numbered(names: Iterable[str]) -> tuple[str, ...]:
    """The names of the stages in messages: name and position."""
    names = list(names)
    return tuple(f"{name} ({at} of {len(names)})" for at, name in enumerate(names, 1))


def _name(stage: object) -> str:
    return str(getattr(stage, "__name__", type(stage).__name__))


def _message(error: BaseException) -> str:
    """The message of an error, or of its cause if it has none, as errors of Confluent's rules."""
    source = error if text_of(error) else error.__cause__ or error
    return f"{type(source).__name__}: {text_of(source)}"


def _text(field: object) -> str | None:
    return None if field is None else str(field)


def _from_config(cls: type[_Chain], config: Mapping[str, object], is_key: bool) -> _Chain:
    return cls.from_config(config, is_key=is_key)


def close_all(stages: Iterable[object]) -> None:
    """Close stages that hold resources, also when one of them fails; the first error is raised at the end."""
    first: Exception | None = None
    for stage in stages:
        try:
            if isinstance(stage, base.SupportsClose):
                stage.close()
        except Exception as error:  # noqa: BLE001, the other stages must be closed too
            first = first or error
    if first is not None:
        raise first


def with_row(step: Any, row: int) -> Any:
    """A step of a table's row: an error of its transfers names the row.

    Args:
        step: Result of a ``begin``.
        row: Position of the row in the table.
    """

    def failed(error: Exception) -> Any:
        try:
            raise error.add_context(row=row) if isinstance(error, SerializationError) else error
        finally:
            del error  # or it would hold itself, by this frame

    return then(step, _same, failed) if isinstance(step, Transfer) else step
