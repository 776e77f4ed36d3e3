"""``large-fields``, writing: publishes large fields of an object, and leaves references in their places."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Self, cast

from payload_stores.base import RecordWriter
from serde_chain.base import (
    Data,
    DescribesFields,
    ModelOfRecords,
    RecordLimits,
    Serializer,
    SupportsModels,
    SupportsOffload,
    is_stream,
)
from serde_chain.chain import SerializerChain
from serde_chain.errors import ConfigError, EncodeError
from serde_chain.handles import PayloadHandle
from serde_chain.record import Context, RecordContext, key_of, remove_headers, require_headers, set_header, topic_of
from serde_chain.reference import Reference
from serde_chain.stages.large_fields.options import MIN_BYTES, OF_WRITERS, PATHS, SERIALIZERS, STAGE
from serde_chain.stages.large_fields.paths import Pattern, find, snapshot, type_at, with_contents
from serde_chain.stages.large_fields.stage import LargeFields
from serde_chain.transfer import finish, then, together
from serde_chain.wire.large_fields import HEADER, MAX_HEADER_BYTES, FieldEntry, Path, encode, join, longest

_BUFFERS: Final = (bytes, bytearray, memoryview)


class LargeFieldsSerializer(LargeFields, Serializer[Any]):
    """Publishes the fields that ``large.fields.paths`` names, from ``large.fields.min.bytes`` on.

    Takes and gives objects: dictionaries, Protobuf messages, dataclasses. The result has the same form; large fields
    hold references as text, and the header ``large-fields`` names them. The caller's object is not changed.
    """

    takes = Data.OBJECT
    gives = Data.OBJECT
    options = OF_WRITERS
    plain: Callable[[Any], Any] | None = None
    _kind = SerializerChain
    _slots_key = "large.message.uploads.in.flight"
    _model: ModelOfRecords | None = None
    _chain: SerializerChain | None
    _mover: SupportsOffload

    def configure(self, config: Mapping[str, object], is_key: bool) -> None:
        """Read the settings and open the payload stores."""
        patterns = PATHS.read(config)
        if patterns is None:
            raise ConfigError(
                f"{PATHS.name} is required: it names the fields to move",
                hint="Set it, for example to cutout*, document.body",
                key=PATHS.name,
            )
        self._patterns: tuple[Pattern, ...] = patterns
        self._min_bytes = MIN_BYTES.read(config)
        super().configure(config, is_key)
        self.plain = self._plain

    def bind(self, before: object | None, after: object | None) -> Self:
        """Check the paths against the schema of the next stage.

        Raises:
            ConfigError: A path names no field of bytes or text.
        """
        kind = after.field_type() if isinstance(after, DescribesFields) else None
        model = after.model() if isinstance(after, SupportsModels) else None
        if kind is None:
            return self if model is None else self._with(_model=model)
        problems = [problem for pattern in self._patterns if (problem := pattern.problem(kind)) is not None]
        if problems:
            near = [name for _, name in problems if name]
            raise ConfigError(
                f"{PATHS.name}: {'; '.join(what for what, _ in problems)}",
                hint=f"Did you mean {', '.join(near)}?" if near else None,
                key=PATHS.name,
            )
        # Names of a schema are matched once, not for each record.
        exact = {one.text: one for pattern in self._patterns for one in pattern.exact(kind)}
        return self._with(_type=kind, _patterns=tuple(exact.values()), _model=model)

    def _with(self, **changes: object) -> Self:
        changed = super()._with(**changes)
        changed.plain = changed._plain  # noqa: SLF001, of this class
        return changed

    def _plain(self, data: Any) -> Any:
        """Pass on values without large fields; all others need the record."""
        data = self._fields_of(data)
        if self._large(data):
            raise EncodeError("the value has large fields, which requires the record")
        return data

    def __call__(self, data: Any, ctx: Context | None = None, /) -> Any:
        """Move the large fields of a value."""
        return None if data is None else finish(self.begin(data, ctx), self.delete)

    def begin(self, data: Any, ctx: Context | None, /) -> Any:
        """Pass on a value without large fields; return a transfer for others.

        Args:
            data: The value. A field may be a path or an open binary file, which is read during the upload.
            ctx: The record around it.

        Raises:
            EncodeError: The context is missing, or a file is unreadable or in a field that is not of bytes.
        """
        data = self._fields_of(data)
        found = self._large(data)
        if ctx is not None and ctx.headers:
            # The caller's list was used for an earlier record.
            remove_headers(ctx, (HEADER,))
        if not found:
            return data
        topic_of(ctx, STAGE)
        require_headers(ctx)  # before the upload, which would be orphaned
        if longest(found) > MAX_HEADER_BYTES:
            raise EncodeError(
                f"the value has {len(found)} large fields, and no reader accepts the header that names them: it would "
                f"have more than {MAX_HEADER_BYTES} bytes",
                hint=f"Raise {MIN_BYTES.name}, or name fewer fields",
            )
        # The record is serialized after the upload. Until then, the caller may use the object again.
        data = snapshot(data)
        if (question := self._mover.ask_policy(ctx)) is not None:
            question.size = sum(_size(content) for content in found.values())
            return then(question, lambda _: self._upload(data, found, ctx))
        return self._upload(data, found, ctx)

    def _fields_of(self, data: Any) -> Any:
        """A value without its class, whose checks are for contents, not for references."""
        return data if self._model is None else self._model.write(data)

    def _large(self, data: Any) -> dict[Path, Any]:
        """The fields to move, and files of any size."""
        return {
            path: content
            for path, content in find(data, self._patterns).items()
            if self._is_large(content) and self._fits(path, content)
        }

    def _fits(self, path: Path, content: Any) -> bool:
        """Whether a reference fits into a field, and readers find it.

        Not in maps and ``fixed``, which globs may name; text elsewhere than in text is left to the serializer's error.
        """
        if self._type is None:
            return True
        kind = type_at(self._type, path)[1]
        if kind is None or not isinstance(content, (str, *_BUFFERS)):
            return kind is not None
        return kind.holds_text if isinstance(content, str) else kind.holds_bytes

    def _is_large(self, content: Any) -> bool:
        if isinstance(content, str):
            # At most four bytes a character.
            return 4 * len(content) >= self._min_bytes and len(content.encode(errors="replace")) >= self._min_bytes
        if isinstance(content, _BUFFERS):
            return memoryview(content).nbytes >= self._min_bytes
        return content is not None and is_stream(content)

    def _upload(self, data: Any, found: Mapping[Path, Any], ctx: Context | None) -> Any:
        chain = self._chain
        payloads = [self._payload(path, content) for path, content in found.items()]
        if chain is None:
            return self._publish(data, found, payloads, ctx)
        inner = RecordContext(topic_of(ctx, STAGE), str(ctx.field) if ctx else "", [], key_of(ctx))

        def checked(transformed: list[Any]) -> Any:
            if inner.headers:
                raise EncodeError(
                    f"a stage of {SERIALIZERS.name} wrote a header, and the payload of a field has none",
                    hint="Name stages that keep all they need in their bytes",
                )
            return self._publish(data, found, transformed, ctx)

        steps = [chain.begin(payload, inner) for payload in payloads]
        return together(steps, checked, slots=self._slots)

    def _payload(self, path: Path, content: Any) -> Any:
        """The content of a field as bytes, or as a file."""
        if isinstance(content, str):
            try:
                return content.encode()
            except UnicodeEncodeError:
                raise EncodeError(f"the field {join(path)} is not text that UTF-8 can encode") from None
        if isinstance(content, _BUFFERS):
            return content if memoryview(content).readonly else bytes(content)
        if isinstance(content, PayloadHandle):
            raise EncodeError(
                f"the field {join(path)} has a PayloadHandle, which is for reading",
                hint="Replace it by its content, handle.read(); in a field of bytes, handle.open() is streamed",
            )
        kind = None if self._type is None else type_at(self._type, path)[1]
        if kind is None or not kind.holds_bytes:
            raise EncodeError(
                f"the field {join(path)} has a file, and is not known to be of bytes",
                hint="Pass its content, or put a stage with a schema that has the field as bytes behind large-fields",
            )
        if self._chain is not None:
            raise EncodeError(
                f"the file in the field {join(path)} cannot be streamed: {SERIALIZERS.name} requires the whole payload",
                hint="Pass its content as bytes",
            )
        return content

    def _publish(self, data: Any, found: Mapping[Path, Any], payloads: list[Any], ctx: Context | None) -> Any:
        inline_bytes = self._min_bytes - 1
        steps = [self._mover.upload(payload, ctx, inline_bytes=inline_bytes) for payload in payloads]

        def replace(outcomes: list[Any]) -> Any:
            contents: dict[Path, Any] = {}
            entries: list[FieldEntry] = []
            for (path, content), outcome in zip(found.items(), outcomes, strict=True):
                if not isinstance(outcome, Reference):
                    contents[path] = outcome  # a small file
                    continue
                contents[path] = outcome.url if isinstance(content, str) else outcome.url.encode()
                entries.append(FieldEntry(path, cast("int", outcome.size), cast("str", outcome.digest)))
            if entries:
                set_header(ctx, HEADER, encode(entries))
            return with_contents(data, contents)

        return together(steps, replace, slots=self._slots, undo=self.delete)

    # What Spark needs to know, which moves fields by columns.

    @property
    def patterns(self) -> tuple[Pattern, ...]:
        """The fields to move: by exact names, but in open records, if the next stage knows its schema."""
        return self._patterns

    @property
    def min_bytes(self) -> int:
        """Smallest field that is moved, in bytes."""
        return self._min_bytes

    # What a client needs to know of uploads.

    @property
    def negotiates(self) -> bool:
        """Whether the topic's settings are asked for. See :class:`~serde_chain.base.SupportsUploads`."""
        return self._mover.negotiates

    @property
    def limits_ttl_ms(self) -> int:
        """Lifetime of a remembered topic limit, in ms."""
        return self._mover.limits_ttl_ms

    @property
    def joins_transactions(self) -> bool:
        """Whether payloads can be written in a client's transactions."""
        return self._mover.joins_transactions

    def with_limits(self, limits: RecordLimits) -> Self:
        """The stage with a client's limits; only whether a topic is compacted counts."""
        return self._with(_mover=self._mover.with_limits(limits))

    def within(self, writer: RecordWriter) -> Self:
        """The stage with its payloads in a client's transactions, where the store supports that."""
        return self._with(_mover=self._mover.within(writer))

    def owns(self, reference: str) -> bool:
        """Whether a payload is in one of the stage's stores, and deletable there."""
        return self._mover.owns(reference)

    def delete(self, reference: str) -> None:
        """Delete an unreferenced payload."""
        self._mover.delete(reference)


def _size(content: Any) -> int:
    return len(content) if isinstance(content, (*_BUFFERS, str)) else 0
