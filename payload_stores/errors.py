"""Errors of payload stores, and the base class of all errors of both packages.

The tree::

    ContextualError                          message, hint (what to do), where it happened
    ├── ConfigError (ValueError)             the configuration is wrong; raised before any record is touched
    ├── MissingDependencyError (ImportError) an extra is not installed; names the install command
    ├── ForkedClientError (RuntimeError)     a client of a parent process was used in the child of a fork
    └── PayloadStoreError                    KIP-1159's PayloadStoreException
        ├── PayloadStoreUnavailableError     transient: down, throttled or too slow; trying again may help
        ├── PayloadNotFoundError             the object is gone (deleted, or the store's TTL ended)
        ├── PayloadAccessDeniedError         credentials or permissions refused
        ├── PayloadIntegrityError            size or digest differ from what was published
        ├── PayloadRetractedError            its sender or owner withdrew it in the archive
        ├── PayloadTooLargeError             larger than the configured or the store's own limit
        └── UntrustedReferenceError          outside the configured store, bucket, prefix or folder

``error.transient``: the same call may succeed later. ``error.about_record``: the fault is in one record, not in its
environment; only such records are ever skipped or set to null. ``error.about_topic``: no payload of the reference's
topic is readable, while those of other topics are; a reader of another topic treats it as a fault of the record. All
are attributes of each error, not only of its class, and survive copies and pickling.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, ClassVar, Final, Self

__all__ = [
    "ConfigError",
    "ContextualError",
    "ForkedClientError",
    "MissingDependencyError",
    "PayloadAccessDeniedError",
    "PayloadIntegrityError",
    "PayloadNotFoundError",
    "PayloadRetractedError",
    "PayloadStoreError",
    "PayloadStoreUnavailableError",
    "PayloadTooLargeError",
    "UntrustedReferenceError",
    "drop_data",
    "release",
    "text_of",
]


class ContextualError(Exception):
    """An error with its location and a hint.

    Each name in ``context_fields`` becomes an attribute, ``None`` if unknown. The error and its cause survive pickling,
    because Spark and process pools send errors between processes.

    Attributes:
        transient: Whether the same call may succeed later.
        about_record: Whether the fault is in the record (its bytes, size, digest, reference or payload), so that other
            records may be readable. False if a store, registry or key provider is down, refuses or does not exist.
        about_topic: Whether the fault concerns all payloads of the topic in a reference; a record of another topic may
            have named any topic.

    Args:
        message: What happened, one sentence without a full stop.
        hint: What the user can do about it.
        **context: Values for some of ``context_fields``.

    Example:
        >>> error = ConfigError("local.path is required", hint="Name a folder", key="local.path")
        >>> error.key, error.hint, error.about_record
        ('local.path', 'Name a folder', False)
    """

    context_fields: ClassVar[tuple[str, ...]] = ()
    # Class defaults; a single error may override them.
    transient: bool = False
    about_record: bool = False
    about_topic: bool = False

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        **context: object,
    ) -> None:
        unknown = context.keys() - set(self.context_fields)
        if unknown:
            raise TypeError(f"{type(self).__name__} has no context {sorted(unknown)}")
        super().__init__(message)
        self.message = message
        self.hint = hint
        for name in self.context_fields:
            setattr(self, name, context.get(name))

    @property
    def context(self) -> dict[str, Any]:
        """The known context, by name, in the order of ``context_fields``."""
        return {name: value for name in self.context_fields if (value := getattr(self, name)) is not None}

    def marked(self, *, transient: bool | None = None, about_record: bool | None = None) -> Self:
        """Say what kind of fault it is, where the class does not; None leaves the class's default.

        Args:
            transient: Whether the same call may succeed later.
            about_record: Whether the fault is in the record.

        Returns:
            The error itself, so that it can be raised at once: a frame with a variable for it would keep it alive.

        Example:
            >>> PayloadStoreError("the queue is full").marked(transient=True).transient
            True
        """
        if transient is not None:
            self.transient = transient
        if about_record is not None:
            self.about_record = about_record
        return self

    def add_context(self, **context: object) -> Self:
        """Fill in context unknown where the error was raised; known context stays.

        Args:
            **context: Values for some of ``context_fields``; others are ignored, since callers do not know the kind of
                error.

        Returns:
            The error itself.
        """
        for name, value in context.items():
            if name in self.context_fields and getattr(self, name) is None:
                setattr(self, name, value)
        return self

    def __str__(self) -> str:
        where = ", ".join(f"{name}={value}" for name, value in self.context.items())
        text = f"{self.message} [{where}]" if where else self.message
        said = f"{text}. {self.hint}" if self.hint else text
        # Names in a record may be invalid Unicode, such as half a surrogate pair; the error must still be printable.
        return said.encode(errors="backslashreplace").decode()

    def __reduce__(self) -> tuple[Callable[..., ContextualError], tuple[object, ...], dict[str, object]]:
        facts: dict[str, object] = {
            "transient": self.transient,
            "about_record": self.about_record,
            "about_topic": self.about_topic,
        }
        return _rebuild, (type(self), self.message, self.hint, self.context, _picklable(self.__cause__)), facts


def _rebuild(
    cls: type[ContextualError],
    message: str,
    hint: str | None,
    context: dict[str, object],
    cause: BaseException | None,
) -> ContextualError:
    error = cls(message, hint=hint, **context)
    error.__cause__ = cause
    return error


def _picklable(cause: BaseException | None) -> BaseException | None:
    """The cause itself if it survives pickling, otherwise its text, so that a foreign cause cannot break the error."""
    if cause is None or isinstance(cause, ContextualError):
        return cause
    try:
        import pickle  # rarely needed

        pickle.loads(pickle.dumps(cause))  # noqa: S301, our own bytes
    except Exception:  # noqa: BLE001, a foreign exception may fail in its own __reduce__ or __init__ in any way it likes
        return RuntimeError(f"{type(cause).__name__}: {text_of(cause)}")
    return cause


class ConfigError(ContextualError, ValueError):
    """The configuration is wrong. Raised when it is read, before any record is touched."""

    context_fields = ("key",)
    key: str | None


class MissingDependencyError(ContextualError, ImportError):
    """A third-party package that belongs to an extra is not installed."""


class ForkedClientError(ContextualError, RuntimeError):
    """A client was used in the child of a fork: its threads and connections are the parent's.

    Create a client in each process.
    """


class PayloadStoreError(ContextualError):
    """A payload store failed permanently (KIP-1159: ``PayloadStoreException``).

    Attributes:
        is_translated: Whether it stands for an exception of the store's own code or library, which is its cause: that
            one says nothing about the record, whatever other payloads are readable. Not kept by pickling.
    """

    context_fields: ClassVar[tuple[str, ...]] = ("store", "topic", "reference")
    is_translated: bool = False
    store: str | None
    topic: str | None
    reference: str | None


class PayloadStoreUnavailableError(PayloadStoreError):
    """The store is down, throttles or is too slow: the same call may succeed later."""

    transient = True


class PayloadNotFoundError(PayloadStoreError):
    """The payload is gone: deleted, or the store's time-to-live is shorter than the topic's retention."""

    about_record = True


class PayloadAccessDeniedError(PayloadStoreError):
    """The store refused the credentials or the permission."""


class PayloadIntegrityError(PayloadStoreError):
    """The payload's size or digest differs from the published one."""

    about_record = True


class PayloadTooLargeError(PayloadStoreError):
    """The payload exceeds the configured limit or the store's own."""

    about_record = True


class PayloadRetractedError(PayloadStoreError):
    """The payload is there, but its sender or the topic's owner retracted it, and the reader refuses such payloads."""

    about_record = True


class UntrustedReferenceError(PayloadStoreError):
    """The reference is outside the store's configured prefixes, so it is not followed."""

    about_record = True


def text_of(error: BaseException) -> str:
    """The text of another package's error, which may fail to make one; data among its arguments is not shown.

    Example:
        >>> text_of(KeyError("quota")), text_of(KeyError(b"of a payload"))
        ("'quota'", 'bytes of length 12')
    """
    try:
        if type(error).__str__ in _SHOWS_ARGUMENTS and _has_data(error):
            return ", ".join(map(str, _without_data(error)))
        return str(error)
    except Exception:  # noqa: BLE001  nothing may hide the error itself
        return "(no text)"


def drop_data(error: BaseException) -> None:
    """Drop the data held by an error of Python's own decoders, and data in the arguments of any; its message stays.

    Args:
        error: The cause of one of our errors, which are kept, logged and sent between processes.
    """
    if isinstance(error, (UnicodeDecodeError, UnicodeEncodeError)):
        error.object = error.object[:0]
        error.args = (error.encoding, error.object, error.start, error.end, error.reason)
    elif (json := sys.modules.get("json")) is not None and isinstance(error, json.JSONDecodeError):
        error.doc = ""
    elif isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            drop_data(each)
    elif _has_data(error):
        error.args = _without_data(error)


# Errors whose text is that of their arguments.
_SHOWS_ARGUMENTS: Final = frozenset({BaseException.__str__, KeyError.__str__, OSError.__str__})
_DATA: Final = (bytes, bytearray, memoryview, dict, list, tuple, set, frozenset)
# A longer text that is no key is data that was looked up.
_LONGEST_KEY: Final = 200


def _has_data(error: BaseException) -> bool:
    # The arguments of a group are the errors in it.
    return not isinstance(error, BaseExceptionGroup) and any(_is_data(each, error) for each in error.args)


def _is_data(argument: object, error: BaseException) -> bool:
    if isinstance(argument, str):
        return isinstance(error, KeyError) and len(argument) > _LONGEST_KEY
    return isinstance(argument, _DATA)


def _without_data(error: BaseException) -> tuple[Any, ...]:
    """The arguments of an error, with types and lengths in place of data."""
    return tuple(
        f"{type(each).__name__} of length {len(each)}" if _is_data(each, error) else each for each in error.args
    )


def release(error: BaseException) -> None:
    """Drop all data held by an error and its causes, for errors that are kept, such as those of a batch.

    Mainly the traceback: its frames and their callers hold the refused payload in local variables. Clearing frames is
    not enough, since running ones cannot be cleared.
    """
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        current = waiting.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        drop_data(current)
        current.__traceback__ = None
        waiting += [current.__cause__, current.__context__]
