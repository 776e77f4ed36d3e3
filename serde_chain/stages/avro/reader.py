"""How records of one schema are read, and how they name it: the words that the stage and its batch form share."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, Protocol

from payload_stores.errors import drop_data
from payload_stores.plugins import require
from payload_stores.signals import let_through
from serde_chain.base import Buffer
from serde_chain.codecs import missing_stage
from serde_chain.errors import DecodeError
from serde_chain.record import Context
from serde_chain.schemas.framing import Framing
from serde_chain.schemas.part_budget import FREE_PARTS, PARTS_PER_BYTE, TOO_MANY, Budget, TooManyPartsError
from serde_chain.stages.avro import bounds as avro_bounds
from serde_chain.stages.avro.container import encode_long, framing_advice
from serde_chain.stages.avro.indexes import guarded
from serde_chain.stages.avro.models import AvroModel
from serde_chain.stages.avro.moments import beyond
from serde_chain.stages.avro.native import Native
from serde_chain.stages.avro.resolution import RESOLVABLE, resolved
from serde_chain.stages.avro.schema import AvroSchema
from serde_chain.stages.avro.types import kind
from serde_chain.transfer import Transfer

SINGLE_OBJECT: Final = "single-object"
CONTAINER: Final = "container"
RECORD_KEY: Final = "record-key"
_MAX_SHOWN: Final = 3  # reported problems of two schemas
_OTHER_SCHEMA: Final = "Was it written with another schema, or an older version of the class?"


@dataclass(frozen=True)
class AvroReader:
    """The way to read records of one writer's schema.

    Attributes:
        source: The schema of the records.
        writer: The same in the form with which fastavro reads.
        target: The schema to read into; None if it is the same.
        registered: A number that grows with the registry's schemas, such as the id; None if there is none.
        problems: Reasons why the schemas do not resolve, or not for all records.
        budget: Maximum number of parts of a record.
        native: The compiled part, if it is used.
        skips_blindly: Whether fastavro must not see the bytes before they are checked; see ``Resolution``.
        model: The class of the records; None for dictionaries.
        into: The schema to read into, as configured; None if it is the records'.
        is_raw: Whether a record is its bytes, without Avro's length in front (:func:`is_raw`).
        latest: The registry's latest schema, if ``target`` is that; batches have its type.
        remedy: What to do about the problems.
    """

    source: AvroSchema
    writer: Any
    target: Any | None
    registered: int | None = None
    problems: tuple[str, ...] = ()
    budget: Budget = field(default_factory=Budget)
    native: Native | None = None
    skips_blindly: bool = False
    model: AvroModel | None = None
    into: AvroSchema | None = None
    is_raw: bool = False
    latest: AvroSchema | None = None
    remedy: str = RESOLVABLE

    @cached_property
    def _read(self) -> Callable[..., Any]:
        read: Callable[..., Any] = require("fastavro", "avro").schemaless_reader
        return read

    @cached_property
    def _writer(self) -> Any:
        return guarded(self.writer, resolves=self.target is not None)

    @cached_property
    def _unresolved(self) -> type[Exception]:
        error: type[Exception] = require("fastavro.read", "avro").SchemaResolutionError
        return error

    @cached_property
    def decode(self) -> Callable[..., Any]:
        """A function of a framed record and the start of its body (0 by default).

        It raises DecodeError for bytes that are not exactly one record of the schema.
        """
        if self.model is None:
            return _of_raw(self._decode) if self.is_raw else self._decode
        decode, convert = self._decode, self.model.read
        return lambda data, start=0: convert(decode(data, start))

    @property
    def _decode(self) -> Callable[..., Any]:
        if self.native is None or (self.model is not None and self.model.numbered):
            return self._decode_by_fastavro

        # Without the compiled part, which the garbage collector cannot look into: a circle through it would stay.
        other = replace(self, native=None)

        def rest(data: Buffer, start: int = 0) -> Any:  # prepared for the first record that needs it, mostly never
            return other._decode_by_fastavro(data, start)  # noqa: SLF001  of its own class

        parts, longest = None, self._longest_bounded
        if self.source.unbounded:
            most = self.budget.most
            parts, longest = (FREE_PARTS, PARTS_PER_BYTE) if most is None else (most, 0), None
        elif longest is not None and longest < 0:
            return self._decode_by_fastavro
        decode = self.native.decoder(self.writer, self.target, rest, longest, parts)
        return self._decode_by_fastavro if decode is rest else decode

    @cached_property
    def _decode_by_fastavro(self) -> Callable[..., Any]:
        new_buffer, read = io.BytesIO, self._read
        unresolved = self._unresolved
        writer, target, check_bounds = self._writer, self.target, self._check_bounds

        def decode(data: Buffer, start: int = 0) -> Any:
            buffer = new_buffer(data)
            try:
                if start:
                    buffer.seek(start)
                if check_bounds is not None:
                    check_bounds(data, start)
            except Exception as error:
                raise unreadable(error, data) from error
            try:
                value = read(buffer, writer, target)
            except unresolved:
                raise self._unresolvable() from None  # fastavro's text is about the rewritten schemas
            except Exception as error:
                raise self._of_value(error, buffer, start) or unreadable(error, data) from error
            if buffer.tell() != len(data):
                raise DecodeError(
                    f"the Avro record is followed by {len(data) - buffer.tell()} bytes",
                    hint=framing_advice(data)
                    or "Was it written with another schema, or with a framing? See avro.framing",
                )
            return value

        return decode

    def read(self, buffer: io.BytesIO) -> Any:
        """Read the record at a buffer's position, up to its end.

        Raises:
            DecodeError: The schemas do not resolve; other errors are fastavro's.
        """
        start = buffer.tell()
        try:
            return self._read(buffer, self._writer, self.target)
        except self._unresolved:
            raise self._unresolvable() from None
        except (ValueError, OverflowError) as error:
            if (found := self._of_value(error, buffer, start)) is not None:
                raise found from error
            raise

    def _unresolvable(self) -> DecodeError:
        what = "; ".join(self.problems[:_MAX_SHOWN]) or "a type of one has no match in the other"
        return DecodeError(f"the writer's schema does not resolve into the reader's: {what}", hint=self.remedy)

    def _of_value(self, error: Exception, buffer: io.BytesIO, start: int) -> DecodeError | None:
        """The error of a date, time, UUID or decimal that is not read, with its field; None if it is not the reason.

        The record is read once more, with the underlying types.
        """
        if not isinstance(error, (ValueError, OverflowError)):
            return None
        plain = (self.into or self.source).without_logical_types
        buffer.seek(start)
        try:
            way = resolved(self.source.without_logical_types, plain, numbered=True)
            found = beyond(
                (self.into or self.source).parsed,
                self._read(buffer, way.writer, way.target),
                (self.into or self.source).named,
            )
        except Exception as other:  # noqa: BLE001  then the bytes are the reason
            let_through(other)
            return None
        if found is None:
            return None
        drop_data(error)
        return DecodeError(found.message, hint=found.hint)

    def is_bounded(self, longest: int) -> bool:
        """Whether records of up to this size need no check first, as with all ordinary schemas."""
        most = self._longest_bounded
        return not self.source.unbounded and (most is None or longest <= most)

    @property
    def _longest_bounded(self) -> int | None:
        """Maximum size of records that cannot have too many parts, unless the schema is unbounded; None for any."""
        most = self.budget.most
        return None if most is None else (most - max(self.source.excess, 0)) // PARTS_PER_BYTE

    @property
    def _check_bounds(self) -> Callable[[Buffer, int], object] | None:
        if self.budget.most is None and not self.source.unbounded and not self.skips_blindly:
            return None
        source, budget, always = self.source, self.budget, self.skips_blindly

        def check(data: Buffer, start: int) -> None:
            if always or not self.is_bounded(len(data) - start):
                avro_bounds.check_bounds(source.parsed, source.named, data, start, budget, source.filled)

        return check


def _of_raw(decode: Callable[..., Any]) -> Callable[..., Any]:
    def of_bytes(data: Buffer, start: int = 0) -> Any:
        body = bytes(memoryview(data)[start:])
        return decode(encode_long(len(body)) + body)

    return of_bytes


def is_raw(schema: AvroSchema, framing: Framing | None) -> bool:
    """Whether records are bytes without Avro's length in front, as Confluent's clients write the schema ``bytes``.

    Args:
        schema: The schema of the records.
        framing: The framing of a registry; None for others.
    """
    return framing is not None and framing.has_raw_bytes and kind(schema.parsed) == "bytes"


class FindsReaders(Protocol):
    """A deserializer, as its batch form uses it: it finds the reader of each record."""

    @property
    def schema(self) -> AvroSchema | None:
        """The schema that all records are read into; None if each is read with its own."""

    @property
    def is_scoped(self) -> bool:
        """Whether records with one schema id may be read differently in different topics."""

    @property
    def framing(self) -> str:
        """The framing in effect: how records name their schema."""

    @property
    def registry_framing(self) -> Framing | None:
        """The framing of a registry; None for others."""

    def unpacked(self, data: Buffer) -> Buffer:
        """Undo compression that belongs to the framing."""

    def locate(self, data: Buffer, ctx: Context | None) -> tuple[AvroReader, int]:
        """Find the reader of a record, and the start of its body."""

    def question(self, data: Buffer, ctx: Context | None) -> Transfer[AvroReader] | None:
        """The transfer that must run before a record can be read; None if its schema is known."""

    def open_file(self, data: Buffer) -> tuple[AvroReader, bytes]:
        """Find the reader of the only record of a container file, and its bytes."""


def unreadable(error: Exception, data: Buffer, *, is_file: bool = False) -> DecodeError:
    """The error of a record whose bytes fastavro, or the look over them, refuses.

    Args:
        error: The error; its text may be about the bytes.
        data: The bytes.
        is_file: Whether they are read as a container file, which has its own schema.
    """
    reason = str(error)
    drop_data(error)
    if isinstance(error, TooManyPartsError):
        return DecodeError(reason, hint=TOO_MANY)
    if isinstance(error, (KeyError, IndexError)):
        reason = "an index that its enum or union does not have"
    if is_file:
        other_framing = None if framing_advice(data) else "Was it written with another framing? See avro.framing"
        return DecodeError(
            f"the Avro container file cannot be read: {reason or 'it is truncated'}",
            hint=missing_stage(data) or other_framing,
        )
    hint = missing_stage(data) or framing_advice(data) or _OTHER_SCHEMA
    if isinstance(error, EOFError):
        # Behind it is fastavro's buffer by its address, which would make each error another.
        what = reason.partition(" from <")[0]
        return DecodeError(f"the Avro record is truncated: {what or 'no bytes left'}", hint=hint)
    return DecodeError(f"the bytes are not a record of the schema: {type(error).__name__}: {reason}", hint=hint)
