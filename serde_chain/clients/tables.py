"""The rows of a table as records, for the producers of all clients."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from serde_chain.chain import SerializerChain, with_row
from serde_chain.codec import Encoded, Encoder, Record
from serde_chain.errors import ConfigError, SerializationError
from serde_chain.transfer import then

_PART_BYTES: Final = 8 << 20
# pyarrow keeps the interpreter lock while it makes objects of a part, and an event loop waits for it.
_PART_BYTES_OF_LOOP: Final = 1 << 16


class TablePart(NamedTuple):
    """Some rows of a table, after the first stage of values if it takes columns.

    Attributes:
        pairs: Value and key of each row.
        rest: The chain of values that is left; None if no stage is.
        encoder: Encodes the rows. A transfer of a value names its row in an error.
    """

    pairs: Iterable[tuple[Any, Any]]
    rest: SerializerChain | None
    encoder: Encoder


class TableRows:
    """The rows of a table, in order. A context manager: errors within it name the current row.

    Args:
        key_chain: The chain of keys; None without one.
        value_chain: The chain of values.
        table: A table with the Arrow PyCapsule interface.
        topic: The topic.
        key: Name of the column of keys; None without keys.
        blocks: As for :class:`~serde_chain.codec.Encoder`: False beside an event loop, where parts are smaller.

    Attributes:
        row: Position of the current row; the caller counts it up.

    Raises:
        ConfigError: No chain of values is configured.

    Example:
        >>> import pyarrow as pa
        >>> chain = SerializerChain.from_config({"value.serializers": "json"})
        >>> with TableRows(None, chain, pa.table({"name": ["M 51"]}), "images", None, blocks=True) as rows:
        ...     [(list(part.pairs), part.rest is chain) for part in rows.parts()]
        [([({'name': 'M 51'}, None)], True)]
    """

    def __init__(
        self,
        key_chain: SerializerChain | None,
        value_chain: SerializerChain | None,
        table: Any,
        topic: str,
        key: str | None,
        *,
        blocks: bool,
    ) -> None:
        if value_chain is None:
            raise ConfigError("a table requires a chain of values", hint="Set value.serializers, such as avro")
        self.row = 0
        self._key_chain = key_chain
        self._value_chain = value_chain
        self._table = table
        self._topic = topic
        self._key = key
        self._blocks = blocks

    def parts(self) -> Iterator[TablePart]:
        """The rows in parts of 8 MB, or 64 KB beside an event loop. Each may query a schema registry.

        Yields:
            The parts.

        Raises:
            SerializationError: A row does not fit, after the rows before it; ``row`` is its position in the table.
            ConfigError: There is no such column, or no table.
            MissingDependencyError: The extra ``arrow`` is not installed.
        """
        from serde_chain.arrow.writing import arrays_of

        first = 0
        for column in arrays_of(self._table, _PART_BYTES if self._blocks else _PART_BYTES_OF_LOOP):
            try:
                part = self._part(column)
            except SerializationError as error:
                if error.row is not None:
                    if error.row:
                        yield self._part(column.slice(0, error.row))
                    error.row += first
                raise
            yield part
            first += len(column)

    def _part(self, column: Any) -> TablePart:
        from serde_chain.arrow.writing import key_rows, listed

        stages = () if self._key_chain is None else self._key_chain.stages
        keys = key_rows(column, self._key, stages, self._topic)
        values, chain = self._value_chain.begin_column(column, self._topic)
        rest = chain if chain.stages else None
        encoder = _RowEncoder(self, self._key_chain, rest, blocks=self._blocks)
        return TablePart(zip(listed(values), keys, strict=True), rest, encoder)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if isinstance(error, SerializationError):
            error.add_context(row=self.row)
        elif isinstance(error, BufferError):
            message = f"{error}: row {self.row} of the table, and those after it, are not queued"
            raise BufferError(message) from error


class _RowEncoder(Encoder):
    """Encodes rows. A payload is uploaded after the call, when the current row is another one."""

    def __init__(
        self, rows: TableRows, key: SerializerChain | None, value: SerializerChain | None, *, blocks: bool
    ) -> None:
        super().__init__(key, value, blocks=blocks)
        self._rows = rows

    def encode_in_call(self, record: Record) -> Any:
        row = self._rows.row

        def named(encoded: Encoded) -> Encoded:
            return encoded._replace(value=with_row(encoded.value, row))

        return then(super().encode_in_call(record), named)
