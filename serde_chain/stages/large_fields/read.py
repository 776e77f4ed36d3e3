"""``large-fields``, reading: fetches the fields that the header names, and puts them into the object."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple, NoReturn, Self

from payload_stores.base import PayloadStore
from payload_stores.errors import ContextualError, PayloadTooLargeError
from serde_chain.base import (
    Buffer,
    Data,
    DescribesFields,
    Deserializer,
    ModelOfRecords,
    RemovedHeaders,
    SupportsDownloads,
    SupportsModels,
    SupportsReferences,
    untouched,
)
from serde_chain.chain import DeserializerChain
from serde_chain.errors import ConfigError, DecodeError
from serde_chain.handles import PayloadHandle
from serde_chain.record import Context, RecordContext, get_header, key_of, remove_headers
from serde_chain.reference import Reference
from serde_chain.stages.large_fields.options import FETCH, LAZY, OF_READERS, STAGE
from serde_chain.stages.large_fields.paths import MISSING, look_up, type_at, with_contents
from serde_chain.stages.large_fields.stage import LargeFields
from serde_chain.transfer import finish, then, together
from serde_chain.wire import large_fields as wire
from serde_chain.wire.kip1159 import MAX_REFERENCE_BYTES
from serde_chain.wire.large_fields import HEADER, FieldEntry, Path, join

if TYPE_CHECKING:
    from serde_chain.arrow import BatchForm

_ABSOLUTE: Final = re.compile(r"[a-z][a-z0-9+.-]*:")  # RFC 3986, in the canonical lower case


class FieldReference(NamedTuple):
    """A field that the header names.

    Attributes:
        path: Where it is, by the names that the reader uses.
        reference: The reference that it holds.
        is_text: Whether the field is a string.
    """

    path: Path
    reference: Reference
    is_text: bool


class LargeFieldsDeserializer(LargeFields, Deserializer[Any]):
    """Replaces references in fields by their payloads, or by handles (``large.fields.fetch = lazy``).

    Takes and gives objects. Only fields that the header ``large-fields`` names are references. The whole header is
    checked before the first request.
    """

    takes = Data.OBJECT
    gives = Data.OBJECT
    options = OF_READERS
    removed_headers = (RemovedHeaders(HEADER, frozenset({HEADER})),)
    plain: Callable[[Any], Any] | None = None
    restores_records = False
    _kind = DeserializerChain
    _slots_key = "large.message.downloads.in.flight"
    _before: object | None = None
    _model: ModelOfRecords | None = None
    _chain: DeserializerChain | None
    _mover: SupportsDownloads

    def configure(self, config: Mapping[str, object], is_key: bool) -> None:
        """Read the settings and open the payload stores."""
        super().configure(config, is_key)
        self._is_lazy = FETCH.read(config) == LAZY
        self._max_bytes = PayloadStore.MAX_PAYLOAD.read(config)
        self.plain = untouched  # a record without headers has no references

    def bind(self, before: object | None, after: object | None) -> Self:
        """Note the type of the values: fields that a reader's schema leaves out are passed over.

        Raises:
            ConfigError: Fetching is lazy, and the values have no place for handles.
        """
        if not isinstance(before, DescribesFields):
            return self
        if self._is_lazy and not before.holds_objects:
            raise ConfigError(
                f"{FETCH.name} = {LAZY} is not for messages, whose fields hold no handles",
                hint=f"Read dictionaries (protobuf.values = dict), or leave {FETCH.name} at eager",
                key=FETCH.name,
            )
        model = before.model() if isinstance(before, SupportsModels) else None
        if self._is_lazy and model is not None:
            raise ConfigError(
                f"{FETCH.name} = {LAZY} is not for objects of a class, which checks its fields",
                hint=f"Leave {FETCH.name} at eager, or name the schema instead of the class",
                key=FETCH.name,
            )
        make = untouched if model is None else model.read
        return self._with(_type=before.field_type(), _before=before, _model=model, plain=make)

    def __call__(self, data: Any, ctx: Context | None = None, /) -> Any:
        """Fetch the fields of a value."""
        return None if data is None else finish(self.begin(data, ctx))

    def begin(self, data: Any, ctx: Context | None, /) -> Any:
        """Return a value without references; a transfer for all others.

        Raises:
            DecodeError: The header is malformed, or names a field that is not there or holds no reference.
            UntrustedReferenceError: A reference belongs to no configured store.
            PayloadTooLargeError: The payloads are larger than allowed, alone or together.
        """
        make = untouched if self._model is None else self._model.read
        entries = self.entries(ctx)
        if entries is None:
            return make(data)
        fields = self.fields(data, entries, ctx)
        remove_headers(ctx, (HEADER,))
        if self._is_lazy:
            return with_contents(data, {field.path: self._handle(field, ctx) for field in fields}) if fields else data

        def restore(payloads: list[Any]) -> Any:
            return make(with_contents(data, self.contents(fields, payloads, ctx)) if fields else data)

        return together((self.download(field, ctx) for field in fields), restore, slots=self._slots)

    # The steps of reading, which the batch form shares.

    def entries(self, ctx: Context | None) -> list[FieldEntry] | None:
        """The references that a record's header names; None without the header.

        Raises:
            DecodeError: The header is malformed.
        """
        return moved_fields(ctx)

    def fields(self, data: Any, entries: Sequence[FieldEntry], ctx: Context | None) -> list[FieldReference]:
        """The references in a value, checked.

        Args:
            data: The value.
            entries: The references that the header names.
            ctx: The record around it.
        """
        found = []
        for entry in entries:
            path = self.own_path(entry.path)
            if path is not None and (field := self.checked(path, look_up(data, path), entry, ctx)) is not None:
                found.append(field)
        self.check_total(found)
        return found

    def own_path(self, path: Path) -> Path | None:
        """A path by the reader's names; None if the reader's schema leaves the field out."""
        if self._type is None:
            return path
        own, kind = type_at(self._type, path)
        return None if kind is None else own

    def checked(self, path: Path, content: Any, entry: FieldEntry, ctx: Context | None) -> FieldReference | None:
        """The reference in a field; None if its store is switched off for reading.

        Args:
            path: The reader's path.
            content: Content of the field, or ``MISSING``.
            entry: The header's entry.
            ctx: The record around it.
        """
        if content is MISSING or not isinstance(content, (str, bytes, bytearray, memoryview)):
            what = "is not there" if content is MISSING else f"is {type(content).__name__}, neither bytes nor text"
            raise DecodeError(
                f"the header {HEADER} names the field {join(path)[:200]}, which {what}",
                hint=f"Was the value changed after it was written? {STAGE} must follow the stage that reads the value",
            )
        try:
            url = content if isinstance(content, str) else str(content, "utf-8")
        except UnicodeDecodeError:
            url = ""
        if not url or len(url) > MAX_REFERENCE_BYTES:
            raise DecodeError(f"the field {join(path)[:200]} holds no reference, although the header {HEADER} names it")
        reference = Reference(url, entry.size, entry.digest)
        try:
            is_followed = self._mover.check(reference, ctx)
        except ContextualError as error:
            _name(path, error)
            raise
        return FieldReference(path, reference, isinstance(content, str)) if is_followed else None

    def check_total(self, fields: Sequence[FieldReference]) -> None:
        """Refuse a record whose payloads together are larger than one may be.

        Raises:
            PayloadTooLargeError: They are.
        """
        self._check_size(sum(field.reference.size or 0 for field in fields))

    def _check_size(self, size: int) -> None:
        if size > self._max_bytes:
            raise PayloadTooLargeError(
                f"the fields of the record have more than {self._max_bytes} bytes together",
                hint=f"Raise {PayloadStore.MAX_PAYLOAD.name} if this is expected",
            )

    def download(self, field: FieldReference, ctx: Context | None) -> Any:
        """A transfer that resumes with the stored payload of a field."""

        def failed(error: Exception) -> NoReturn:
            _name(field.path, error)
            try:
                raise error
            finally:
                del error  # or it would hold itself, by this frame

        return then(self._mover.download(field.reference, ctx), untouched, failed)

    def follow(self, reference: Reference, ctx: Context | None) -> Any:
        """Fetch and verify a stored payload without the stages for payloads, for jobs that check stores.

        Args:
            reference: The reference, from :meth:`references_in`.
            ctx: The record around it.

        Returns:
            A transfer that resumes with the stored payload; None if its store is switched off for reading.

        Raises:
            UntrustedReferenceError: No configured store owns it, or the record may not refer to it.
            PayloadTooLargeError: The payload is larger than allowed.
        """
        return self._mover.download(reference, ctx) if self._mover.check(reference, ctx) else None

    def contents(
        self, fields: Sequence[FieldReference], payloads: Sequence[Any], ctx: Context | None
    ) -> dict[Path, Any]:
        """The contents of fields by their paths.

        Args:
            fields: The fields.
            payloads: Their stored payloads.
            ctx: The record around them.

        Raises:
            SerializationError: A stage of ``large.fields.serializers`` failed.
            DecodeError: The payload of a string is not UTF-8.
            PayloadTooLargeError: The contents are larger than one payload may be.
        """
        contents: dict[Path, Any] = {}
        size = 0
        for field, payload in zip(fields, payloads, strict=True):
            content = self.restored(payload, ctx)
            size += len(content)
            self._check_size(size)
            contents[field.path] = _text(content, field.path) if field.is_text else bytes(content)
        return contents

    def restored(self, payload: Any, ctx: Context | None) -> Any:
        """A stored payload after the stages for payloads."""
        if self._chain is None:
            return payload
        inner = ctx and RecordContext(ctx.topic, str(ctx.field), [], key_of(ctx))
        return self._chain(payload, inner)

    def _handle(self, field: FieldReference, ctx: Context | None) -> PayloadHandle:
        handle = self._mover.handle(field.reference, ctx)
        if self._chain is None:
            return handle
        inner = ctx and RecordContext(ctx.topic, str(ctx.field), [], key_of(ctx))
        return _FieldHandle(handle, lambda payload: self.restored(payload, inner))

    def batch_form(self) -> BatchForm | None:
        """The form for whole columns; it always fetches the payloads."""
        from serde_chain.arrow.loop import declared_type
        from serde_chain.stages.large_fields.batch import LargeFieldsBatch

        return LargeFieldsBatch(self, declared_type(self._before))

    # What a client needs to know of downloads.

    @property
    def downloads_in_flight(self) -> int:
        """Most downloads at a time."""
        return self._mover.downloads_in_flight

    @property
    def downloads_bytes(self) -> int:
        """Most bytes fetched ahead."""
        return self._mover.downloads_bytes

    def marker_headers(self) -> frozenset[str]:
        """The header that every record with references has."""
        return frozenset({HEADER})

    @property
    def stores(self) -> tuple[PayloadStore, ...]:
        """The stores to read from. See :class:`~serde_chain.base.SupportsReferences`."""
        return self._mover.stores if isinstance(self._mover, SupportsReferences) else ()

    def references_in(self, data: Any, ctx: Context | None) -> tuple[Reference, ...]:
        """The references in a value, followed or not. See :class:`~serde_chain.base.SupportsReferences`."""
        references = []
        for entry in self.entries(ctx) or ():
            content = look_up(data, self.own_path(entry.path) or entry.path)
            url = content if isinstance(content, (str, bytes)) and len(content) <= MAX_REFERENCE_BYTES else ""
            url = url if isinstance(url, str) else url.decode(errors="replace")
            # A wrong schema may read another text from this place, and no error would tell.
            if not _ABSOLUTE.match(url):
                raise DecodeError(
                    f"the header {HEADER} names the field {join(entry.path)[:200]}, which has no reference"
                )
            references.append(Reference(url, entry.size, entry.digest))
        return tuple(references)


class _FieldHandle(PayloadHandle):
    """A field whose payload passes stages; size and digest of its content are unknown.

    Args:
        stored: The handle of the stored payload.
        restore: Undoes the stages.
    """

    def __init__(self, stored: PayloadHandle, restore: Callable[[Buffer], Any]) -> None:
        self._stored = stored
        self._restore = restore
        self.size = None
        self.reference = stored.reference

    def read(self) -> bytes:
        """See :meth:`PayloadHandle.read`."""
        return bytes(self._restore(self._stored.read()))

    def open(self) -> BinaryIO:
        """See :meth:`PayloadHandle.open`; holds the whole content."""
        return io.BytesIO(self.read())


def moved_fields(ctx: Context | None) -> list[FieldEntry] | None:
    """The references that a record's header names; None without the header.

    Raises:
        DecodeError: The header is malformed.
    """
    header = get_header(ctx, HEADER)
    if header is None:
        return None
    try:
        return wire.decode(header)
    except ValueError as error:
        raise DecodeError(f"the header {HEADER} is malformed: {error}") from None


def _name(path: Path, error: Exception) -> None:
    """Name the field in an error about its reference."""
    if isinstance(error, ContextualError):
        error.message = f"the field {join(path)[:200]}: {error.message}"


def _text(content: Any, path: Path) -> str:
    try:
        return str(content, "utf-8")
    except UnicodeDecodeError:
        raise DecodeError(f"the payload of the field {join(path)[:200]} is not UTF-8") from None
