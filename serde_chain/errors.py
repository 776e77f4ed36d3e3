"""Errors of serde-chain.

The tree (errors of payload stores: :mod:`payload_stores.errors`)::

    ContextualError
    ├── ConfigError (ValueError)             the configuration is wrong; raised before any record is touched
    ├── MissingDependencyError (ImportError) an extra is not installed; names the install command
    ├── ForkedClientError (RuntimeError)     a client of a parent process was used in the child of a fork
    ├── ReplayError                          dead letters cannot be returned (serde-chain replay)
    ├── JobError                             a job on topics and stores cannot continue (serde_chain.spark.jobs)
    ├── StampError                           a topic cannot be relayed, checked or searched (serde_chain.stamp)
    └── SerializationError                   a record cannot be written or read (Kafka's SerializationException)
        ├── EncodeError                      the object does not fit the stage or its schema
        │   └── MessageTooLargeError         too large for the topic or the client, and nothing can be offloaded
        ├── DecodeError                      the bytes are not what the stage reads: truncated, foreign, corrupt
        │   └── ForeignFormatError           in another format, by a header; chains return the bytes instead
        │   └── DecryptionError              cannot be decrypted: another key, topic or field, or changed bytes
        │       └── UnknownKeyError          the named key is not configured
        ├── DeadLetterError                  an undecodable record cannot be written to the dead-letter topic
        ├── TopicLimitError                  the broker does not report a topic's size limit
        ├── JournalError                     the crash journal of a producer cannot be written
        ├── SchemaRegistryError              the registry is down, refuses, or does not know the schema
        └── PayloadStoreError and its kinds  a store's error inside a chain is both a SerializationError and the
                                             store's own class, so that either ``except`` clause catches it

Each error carries topic, field, stage, partition and offset where known, a hint, and its cause. ``about_record`` says
whether the record is at fault or its surroundings; ``transient``, whether the same call may work later.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, ClassVar, Final, Self

from payload_stores.errors import (
    ConfigError,
    ContextualError,
    ForkedClientError,
    MissingDependencyError,
    PayloadAccessDeniedError,
    PayloadIntegrityError,
    PayloadNotFoundError,
    PayloadRetractedError,
    PayloadStoreError,
    PayloadStoreUnavailableError,
    PayloadTooLargeError,
    UntrustedReferenceError,
)
from payload_stores.foreign_errors import http_status, is_unreachable, kinds_of

__all__ = [
    "UNKNOWN_SCHEMA",
    "BytesExpectedError",
    "ConfigError",
    "ContextualError",
    "DeadLetterError",
    "DecodeError",
    "DecryptionError",
    "EncodeError",
    "ForeignFormatError",
    "ForkedClientError",
    "JobError",
    "JournalError",
    "MessageTooLargeError",
    "MissingDependencyError",
    "PayloadAccessDeniedError",
    "PayloadIntegrityError",
    "PayloadNotFoundError",
    "PayloadRetractedError",
    "PayloadStoreError",
    "PayloadStoreUnavailableError",
    "PayloadTooLargeError",
    "ReplayError",
    "SchemaRegistryError",
    "SerializationError",
    "StampError",
    "TopicLimitError",
    "UnknownKeyError",
    "UntrustedReferenceError",
    "in_chain",
    "is_about_record",
    "shape_of",
    "without_data",
]


class SerializationError(ContextualError):
    """A record cannot be written or read.

    Attributes:
        topic: Topic of the record.
        field: ``key`` or ``value``.
        stage: The stage that failed, by name and position: ``zstd (2 of 3)``.
        partition: Partition of the record, when reading.
        offset: Offset of the record, when reading.
        row: Position of the record in its batch, from 0, when a batch is read.
        record: The raw ``confluent_kafka.Message``, when a consumer raised this; not kept by pickling.

    Example:
        >>> error = DecodeError("the data is truncated", stage="avro (2 of 2)", topic="alerts", partition=0, offset=7)
        >>> error.stage, error.offset, error.about_record
        ('avro (2 of 2)', 7, True)
    """

    context_fields: ClassVar[tuple[str, ...]] = ("topic", "field", "stage", "partition", "offset", "row")
    topic: str | None
    field: str | None
    stage: str | None
    partition: int | None
    offset: int | None
    row: int | None
    record: object | None = None


class EncodeError(SerializationError):
    """An object cannot be written: it does not fit the stage or its schema."""

    about_record = True


class BytesExpectedError(EncodeError):
    """Something else is where the schema expects bytes, which JSON does not have."""


class MessageTooLargeError(EncodeError):
    """A record is larger than its topic or the client accepts, and cannot be offloaded."""


class DecodeError(SerializationError):
    """Bytes cannot be read: truncated, foreign or corrupt."""

    about_record = True


class DecryptionError(DecodeError):
    """Bytes cannot be decrypted: another key, another topic or field, or changed bytes."""


class UnknownKeyError(DecryptionError):
    """The key with which bytes were encrypted is not configured."""


class ForeignFormatError(DecodeError):
    """A header names a format that the chain does not read.

    A chain that reads single records returns the bytes and keeps the header. A batch has rows of one type, so there the
    record is undecodable.

    Attributes:
        data: The bytes; not kept by pickling.
    """

    data: object = None

    def with_data(self, data: object) -> Self:
        """The error itself, with the bytes."""
        self.data = data
        return self


class SchemaRegistryError(SerializationError):
    """The schema registry is down, refuses the request, or does not know the schema.

    Only an unknown schema is the record's fault, and only if the registry itself reports it.
    """


class TopicLimitError(SerializationError):
    """The broker did not report the size limit of a topic; the same call may work later."""

    transient = True


class DeadLetterError(SerializationError):
    """An undecodable record cannot be written to the dead-letter topic, so the consumer does not advance.

    Attributes:
        dead_letter_topic: The dead-letter topic.
    """

    context_fields = (*SerializationError.context_fields, "dead_letter_topic")
    dead_letter_topic: str | None


class JournalError(SerializationError):
    """A producer's crash journal cannot be written, so uploads and records that it must list are refused.

    Attributes:
        path: The file.
    """

    context_fields = (*SerializationError.context_fields, "path")
    transient = True
    path: str | None


class ReplayError(ContextualError):
    """Dead letters cannot be read, or cannot be returned to their topics.

    Attributes:
        topic: The topic at fault.
        partition: Its partition.
        offset: An offset in it.
    """

    context_fields = ("topic", "partition", "offset")
    topic: str | None
    partition: int | None
    offset: int | None


class JobError(ContextualError):
    """A job on topics and their payload stores cannot continue; the rest of its work is not done.

    Attributes:
        topic: The topic at fault.
        partition: Its partition.
        offset: An offset in it.
        store: The store at fault, by its scheme.
    """

    context_fields: ClassVar[tuple[str, ...]] = ("topic", "partition", "offset", "store")
    topic: str | None
    partition: int | None
    offset: int | None
    store: str | None


class StampError(ContextualError):
    """A topic with entry metadata cannot be relayed, checked or searched.

    Attributes:
        topic: The topic at fault.
        partition: Its partition.
        offset: An offset in it.
    """

    context_fields: ClassVar[tuple[str, ...]] = ("topic", "partition", "offset")
    topic: str | None
    partition: int | None
    offset: int | None


class _StoreErrorInChain(SerializationError):  # noqa: N818, the combined classes have names of their own
    """Context added to a store's error inside a chain; :func:`in_chain` combines it with the error's class."""

    context_fields = (*SerializationError.context_fields, "store", "reference")

    store_error: ClassVar[type[PayloadStoreError]]

    def __reduce__(self) -> tuple[Callable[..., ContextualError], tuple[object, ...], dict[str, object]]:
        # Pickle cannot import the combined class, which is made at run time, but can import the store's class.
        rebuild, (_, *details), facts = super().__reduce__()
        return _rebuild_in_chain, (rebuild, self.store_error, *details), facts


def in_chain(error: PayloadStoreError) -> SerializationError:
    """Turn a store's error into one that is also a :class:`SerializationError` (KIP-1159, "Error handling").

    Args:
        error: The store's error.

    Returns:
        An error of a class derived from both, with ``error`` as its cause.
    """
    context = {name: value for name, value in error.context.items() if name in _StoreErrorInChain.context_fields}
    combined = _combined(type(error))(error.message, hint=error.hint, **context)
    combined.__cause__ = error
    combined.transient, combined.about_record = error.transient, error.about_record
    return combined


_COMBINED: Final[dict[type[PayloadStoreError], type[SerializationError]]] = {}


def _combined(kind: type[PayloadStoreError]) -> type[SerializationError]:
    if kind not in _COMBINED:
        body = {"__doc__": kind.__doc__, "__module__": kind.__module__, "__qualname__": kind.__qualname__}
        _COMBINED[kind] = type(kind.__name__, (_StoreErrorInChain, kind), {**body, "store_error": kind})
    return _COMBINED[kind]


def _rebuild_in_chain(
    rebuild: Callable[..., ContextualError], kind: type[PayloadStoreError], *details: object
) -> ContextualError:
    return rebuild(_combined(kind), *details)


# HTTP statuses (RFC 9110) about the client, its rate, or the server; so are all from 500 on.
_REFUSED: Final = frozenset({401, 403, 407, 408, 429})
_REGISTRY_CLIENT: Final = (("confluent_kafka.schema_registry.error", "SchemaRegistryError"),)
# A registry's own codes for an unknown subject, version or schema.
UNKNOWN_SCHEMA: Final = frozenset({40401, 40402, 40403})


def is_about_record(error: BaseException) -> bool:
    """Whether an error raised in a foreign stage is the record's fault.

    Args:
        error: The error. Its causes count too, since wrappers are common.

    Returns:
        False where a connection, a file, memory, a schema registry or another HTTP server is at fault; True otherwise.
    """
    seen: list[Any] = []
    cause: Any = error
    while cause is not None and cause not in seen:
        if isinstance(cause, ContextualError):
            return cause.about_record
        refused: Any = cause if isinstance(cause, kinds_of(_REGISTRY_CLIENT)) else None
        if refused is not None:
            return refused.http_status_code == 404 and refused.error_code in UNKNOWN_SCHEMA
        if isinstance(cause, MemoryError) or is_unreachable(cause):
            return False
        status = http_status(cause)
        if status is not None and (status in _REFUSED or status >= 500):
            return False
        # Without errno, it is not from the operating system: gzip, bz2 and Pillow raise OSError for corrupt data.
        if isinstance(cause, OSError) and cause.errno is not None:
            return False
        seen.append(cause)
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return True


def shape_of(value: object) -> str:
    """A value in an error's text: its type and size. Errors reach logs and dead letters, so they hold no payload.

    Args:
        value: The value.

    Returns:
        The type, with the length of text, bytes and containers, and the bits of an integer.

    Example:
        >>> shape_of("M 51"), shape_of(2**63), shape_of(0.5), shape_of(None)
        ('str of length 4', 'int of 64 bits', 'float', 'None')
    """
    kind = type(value).__name__
    if value is None:
        return "None"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{kind} of {value.bit_length()} bits"
    if isinstance(value, (str, bytes, bytearray, list, tuple, dict)):
        return f"{kind} of length {len(value)}"
    return kind


# From the first quote to the last, since a value may have quotes; and numbers, but not those in names, as in int64.
_DATA: Final = r"""(?s)(?<!\w)[bu]?['"].*['"]|(?<![\w.])-?\d[\w.+-]*"""


def without_data(error: BaseException) -> str:
    """The text of a library's error, without what it may quote of a value: quoted text and numbers.

    Args:
        error: The error.

    Returns:
        Its type and the rest of its text, of at most 300 characters.

    Example:
        >>> without_data(ValueError("Could not convert 'M 51' with type str: tried to convert to int64"))
        'ValueError: Could not convert … with type str: tried to convert to int64'
    """
    return f"{type(error).__name__}: {re.sub(_DATA, '…', str(error))[:300]}"
