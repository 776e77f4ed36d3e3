"""Framings of schema registries: the bytes or headers by which a record names its schema, in one interface.

:mod:`.schema_id` has the bytes; here is how stages use them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from serde_chain.base import Buffer
from serde_chain.codecs import CODECS, MAX_OUTPUT
from serde_chain.errors import EncodeError
from serde_chain.record import KEY, VALUE, Context, get_header, set_headers
from serde_chain.schemas import schema_id
from serde_chain.schemas.apicurio import GLOBAL_ID, ID_BYTES, USE_ID
from serde_chain.schemas.glue import COMPRESSION
from serde_chain.schemas.registry import RegisteredSchema
from serde_chain.schemas.schema_id import GlobalId, SchemaKey

CONFLUENT: Final = "confluent"
GLUE: Final = "glue"
APICURIO: Final = "apicurio"
HEADER: Final = "header"
NONE: Final = "none"

MessageName: TypeAlias = tuple[int, ...] | int | str
"""How a record names its Protobuf message: index path, position among the sorted names, or simple name."""


class MessageType(NamedTuple):
    """A Protobuf message type within its file, by all names that framings use.

    Attributes:
        indexes: Index of the message, of the message nested in it, and so on.
        rank: Position of its full name among all of the file's, in order.
        name: Its simple name.
    """

    indexes: tuple[int, ...]
    rank: int
    name: str


class SchemaFrame(NamedTuple):
    """The bytes and headers by which a record names its schema.

    Attributes:
        prefix: Bytes in front of the record.
        headers: Headers that name the schema, if the prefix does not.
        compresses: Whether the record is compressed.
    """

    prefix: bytes
    headers: Mapping[str, bytes] = {}
    compresses: bool = False

    @property
    def is_prefix(self) -> bool:
        """Whether the prefix is the whole frame."""
        return not self.headers and not self.compresses

    def put(self, encoded: bytes, ctx: Context | None) -> bytes:
        """Name the schema in a record.

        Args:
            encoded: The record's bytes.
            ctx: The record around it.

        Returns:
            The bytes, with the prefix.
        """
        if self.headers:
            set_headers(ctx, self.headers)
        if self.compresses:
            # A Protobuf message's name, behind Glue's own bytes, is compressed with the message.
            head = self.prefix[: schema_id.GLUE_BYTES]
            return head + _ZLIB.compressor(_ZLIB.default_level)(self.prefix[schema_id.GLUE_BYTES :] + encoded)
        return self.prefix + encoded


_ZLIB: Final = CODECS["zlib"]


class Framing(ABC):
    """How the records of a registry name their schemas.

    Attributes:
        header_names: Headers that name the schema; they count before a prefix.
        first_bytes: Number of a record's first bytes by which most prefixes can be compared.
        has_raw_bytes: Whether records of Avro's schema ``bytes`` are the bytes alone, without their length.
        resembles: What :func:`.schema_id.framing_of_bytes` says of its prefix.
    """

    header_names: tuple[str, ...] = ()
    first_bytes: int = 5
    has_raw_bytes: bool = False
    resembles: str = "confluent"

    def advice(self, data: Buffer, key: str) -> str:
        """Advice for a record that :meth:`split` refuses.

        Args:
            data: The record.
            key: The name of the stage's option for the framing.
        """
        found = schema_id.framing_of_bytes(data)
        if found is None or found == self.resembles:
            return f"Was it written without a schema registry? See {key}"
        return f"The bytes begin like a schema id of another registry: is schema.registry.type = {found} meant?"

    @abstractmethod
    def split(self, data: Buffer, ctx: Context | None) -> tuple[SchemaKey, int]:
        """Read how a record names its schema.

        Args:
            data: The record; its first 32 bytes suffice.
            ctx: The record around it.

        Returns:
            The schema's id, and the length of the prefix: 0 if headers name the schema.

        Raises:
            ValueError: The record does not name a schema.
        """

    @abstractmethod
    def frame(self, registered: RegisteredSchema) -> SchemaFrame:
        """The frame for records of a schema."""

    @abstractmethod
    def prefix_of(self, key: SchemaKey) -> bytes | None:
        """The prefix of ordinary records of a schema; None if ordinary records have none, or the key is unusual."""

    def size(self, _prefix: Buffer, /) -> int:
        """Length of the prefix that begins with these :attr:`first_bytes`."""
        return self.first_bytes

    def in_headers(self, ctx: Context | None) -> Hashable | None:
        """How a record's headers name its schema, for comparisons; None if they do not."""
        named = tuple(get_header(ctx, name) for name in self.header_names)
        return None if all(value is None for value in named) else named

    def unpacked(self, data: Buffer) -> Buffer:
        """The record as it would be without the framing's own compression.

        Raises:
            DecodeError: The compressed data is corrupt, or too large.
        """
        return data

    @abstractmethod
    def encode_name(self, message: MessageType) -> bytes:
        """The bytes that name a Protobuf message in front of it, or at the end of a header."""

    @abstractmethod
    def name_of(self, message: MessageType) -> MessageName:
        """The name that :meth:`split_name` returns for a message."""

    @abstractmethod
    def split_name(self, data: Buffer, at: int, ctx: Context | None) -> tuple[MessageName, int]:
        """Read the name of a Protobuf message.

        Args:
            data: The record.
            at: End of the prefix.
            ctx: The record around it.

        Returns:
            The message's name, and the start of the message.

        Raises:
            ValueError: There is none.
        """

    def named_frame(self, registered: RegisteredSchema, message: MessageType) -> SchemaFrame:
        """The frame for Protobuf messages of a type."""
        frame = self.frame(registered)
        return frame._replace(prefix=frame.prefix + self.encode_name(message))


class Confluent(Framing):
    """Confluent's framing.

    Args:
        in_header: Whether writers name the schema in a header.
        is_key: Whether records are keys.
    """

    has_raw_bytes = True

    def __init__(self, *, in_header: bool, is_key: bool) -> None:
        self._in_header = in_header
        self.header_names = (schema_id.KEY_HEADER if is_key else schema_id.VALUE_HEADER,)

    def split(self, data: Buffer, ctx: Context | None) -> tuple[SchemaKey, int]:
        """See :class:`Framing`."""
        named = get_header(ctx, self.header_names[0])
        key, size = schema_id.split_confluent(data if named is None else named)
        return key, size if named is None else 0

    def frame(self, registered: RegisteredSchema) -> SchemaFrame:
        """See :class:`Framing`."""
        by_id = self.prefix_of(registered.key) or b""
        if not self._in_header:
            return SchemaFrame(by_id)
        # Registries with GUIDs expect them in headers; readers accept ids there as well.
        named = schema_id.encode_guid(UUID(registered.guid)) if registered.guid else by_id
        return SchemaFrame(b"", {self.header_names[0]: named})

    def prefix_of(self, key: SchemaKey) -> bytes | None:
        """See :class:`Framing`."""
        return schema_id.encode_id(key) if isinstance(key, int) else None

    def size(self, prefix: Buffer, /) -> int:
        """See :class:`Framing`."""
        return 17 if prefix[:1] == b"\1" else self.first_bytes

    def encode_name(self, message: MessageType) -> bytes:
        """See :class:`Framing`."""
        return schema_id.encode_indexes(message.indexes)

    def name_of(self, message: MessageType) -> MessageName:
        """See :class:`Framing`."""
        return message.indexes

    def split_name(self, data: Buffer, at: int, ctx: Context | None) -> tuple[MessageName, int]:
        """See :class:`Framing`."""
        named = get_header(ctx, self.header_names[0])
        if named is None:
            return schema_id.split_indexes(data, at)
        return schema_id.split_indexes(named, schema_id.split_confluent(named)[1])[0], at

    def named_frame(self, registered: RegisteredSchema, message: MessageType) -> SchemaFrame:
        """See :class:`Framing`."""
        frame, name = self.frame(registered), self.encode_name(message)
        if frame.headers:
            return SchemaFrame(b"", {header: value + name for header, value in frame.headers.items()})
        return SchemaFrame(frame.prefix + name)


class Glue(Framing):
    """AWS Glue's framing, whose body may be compressed.

    Args:
        config: Flat configuration.
    """

    first_bytes = schema_id.GLUE_BYTES
    resembles = "glue"

    def __init__(self, config: Mapping[str, object]) -> None:
        self._compresses = COMPRESSION.read(config) == "zlib"
        self._decompress = _ZLIB.decompressor(MAX_OUTPUT.read(config))

    def split(self, data: Buffer, ctx: Context | None) -> tuple[SchemaKey, int]:
        """See :class:`Framing`."""
        return schema_id.split_glue(data), schema_id.GLUE_BYTES

    def frame(self, registered: RegisteredSchema) -> SchemaFrame:
        """See :class:`Framing`."""
        if not isinstance(registered.key, UUID):
            raise TypeError("Glue names schemas by UUIDs")
        prefix = schema_id.encode_glue(registered.key, compressed=self._compresses)
        return SchemaFrame(prefix, compresses=self._compresses)

    def prefix_of(self, key: SchemaKey) -> bytes | None:
        """See :class:`Framing`."""
        return schema_id.encode_glue(key) if isinstance(key, UUID) else None

    def unpacked(self, data: Buffer) -> Buffer:
        """See :class:`Framing`."""
        if not schema_id.is_compressed(data):
            return data
        body = self._decompress(memoryview(data)[schema_id.GLUE_BYTES :])
        return schema_id.encode_glue(schema_id.split_glue(data)) + body

    def encode_name(self, message: MessageType) -> bytes:
        """See :class:`Framing`."""
        return schema_id.encode_rank(message.rank)

    def name_of(self, message: MessageType) -> MessageName:
        """See :class:`Framing`."""
        return message.rank

    def split_name(self, data: Buffer, at: int, ctx: Context | None) -> tuple[MessageName, int]:
        """See :class:`Framing`."""
        return schema_id.split_rank(data, at)


class Apicurio(Framing):
    """Apicurio's framing.

    Args:
        config: Flat configuration.
        in_header: Whether writers name the schema in a header.
        is_key: Whether records are keys.
    """

    def __init__(self, config: Mapping[str, object], *, in_header: bool, is_key: bool) -> None:
        self._in_header = in_header
        self._by_global_id = USE_ID.read(config) == GLOBAL_ID
        self._id_bytes = ID_BYTES.read(config)
        field = KEY if is_key else VALUE
        self._content_header, self._global_header = f"apicurio.{field}.contentId", f"apicurio.{field}.globalId"
        self.header_names = (self._content_header, self._global_header)

    def split(self, data: Buffer, ctx: Context | None) -> tuple[SchemaKey, int]:
        """See :class:`Framing`."""
        for name in self.header_names:
            named = get_header(ctx, name)
            if named is not None:
                if len(named) != 8:
                    raise ValueError(f"the header {name} has {len(named)} bytes, expected 8")
                return self._key(int.from_bytes(named, "big"), is_global=name == self._global_header), 0
        number, size = schema_id.split_apicurio(data)
        return self._key(number, is_global=self._by_global_id), size

    @staticmethod
    def _key(number: int, *, is_global: bool) -> SchemaKey:
        if number >> 63:
            raise ValueError("the schema id is negative")
        return GlobalId(number) if is_global else number

    def frame(self, registered: RegisteredSchema) -> SchemaFrame:
        """See :class:`Framing`."""
        number = _number(registered.key)
        if self._in_header:
            name = self._global_header if self._by_global_id else self._content_header
            return SchemaFrame(b"", {name: number.to_bytes(8, "big")})
        if number >> (8 * self._id_bytes):
            raise EncodeError(
                f"the schema id {number} has more than {self._id_bytes} bytes", hint=f"Set {ID_BYTES.name} = 8"
            )
        return SchemaFrame(schema_id.encode_apicurio(number, self._id_bytes))

    def prefix_of(self, key: SchemaKey) -> bytes | None:
        """See :class:`Framing`."""
        of_records = isinstance(key, GlobalId) == self._by_global_id and not isinstance(key, UUID)
        number = _number(key) if of_records else 1 << 32
        return schema_id.encode_apicurio(number) if 0 < number < 1 << 32 else None

    def size(self, prefix: Buffer, /) -> int:
        """See :class:`Framing`."""
        return 9 if bytes(prefix) == bytes(self.first_bytes) else self.first_bytes

    def encode_name(self, message: MessageType) -> bytes:
        """See :class:`Framing`."""
        return schema_id.encode_ref(message.name)

    def name_of(self, message: MessageType) -> MessageName:
        """See :class:`Framing`."""
        return message.name

    def split_name(self, data: Buffer, at: int, ctx: Context | None) -> tuple[MessageName, int]:
        """See :class:`Framing`."""
        return schema_id.split_ref(data, at)


def _number(key: SchemaKey) -> int:
    if isinstance(key, UUID):
        raise TypeError("Apicurio names schemas by numbers")
    return key.number if isinstance(key, GlobalId) else key
