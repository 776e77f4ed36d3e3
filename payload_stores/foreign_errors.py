"""Exceptions of other packages, in stores of others: what they mean, and the one translation into errors of stores."""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from payload_stores.errors import ContextualError, PayloadStoreError, PayloadStoreUnavailableError, drop_data, text_of
from payload_stores.signals import let_through

# Errors that other packages raise for an unreachable service; only loaded packages are considered.
_NOT_THERE: Final = (
    ("socket", "gaierror"),
    ("httpx", "TransportError"),
    ("httpx2", "TransportError"),
    ("requests", "ConnectionError"),
    ("requests", "Timeout"),
    ("urllib3.exceptions", "TimeoutError"),
    ("urllib3.exceptions", "ProtocolError"),
    ("urllib3.exceptions", "MaxRetryError"),
    ("aiohttp", "ClientConnectionError"),
    ("botocore.exceptions", "ConnectionError"),
    ("botocore.exceptions", "HTTPClientError"),
)
# Errors that they raise for an error status.
_ANSWERED: Final = (("httpx", "HTTPStatusError"), ("httpx2", "HTTPStatusError"), ("requests", "HTTPError"))
_ANSWERED_URLLIB: Final = (("urllib.error", "HTTPError"),)
_URLLIB: Final = (("urllib.error", "URLError"),)
# Statuses (RFC 9110) after which the same request may succeed: a time-out, a rate; so may all from 500 on.
_LATER: Final = frozenset({408, 425, 429})
# System errors of networks, besides those that Python raises as ConnectionError and TimeoutError.
_NETWORK: Final = frozenset({
    errno.EADDRNOTAVAIL, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETDOWN, errno.ENETRESET, errno.ENETUNREACH,
    errno.ENOTCONN,
})  # fmt: skip


_MOST_TEXT: Final = 500


def is_unreachable(error: BaseException) -> bool:
    """Whether an exception, without its causes, means a failed connection or a time-out.

    Args:
        error: A ``ConnectionError``, a ``TimeoutError`` (``socket.timeout``), a system error of a network, a failed
            look-up of a name, or what HTTP clients raise for them.

    Example:
        >>> is_unreachable(TimeoutError()), is_unreachable(OSError(errno.EHOSTUNREACH, "")), is_unreachable(OSError())
        (True, True, False)
    """
    if isinstance(error, (ConnectionError, TimeoutError, *kinds_of(_NOT_THERE))):
        return True
    if isinstance(error, kinds_of(_URLLIB)) and not isinstance(error, kinds_of(_ANSWERED_URLLIB)):
        reason: Any = error.reason  # type: ignore[attr-defined]
        return isinstance(reason, BaseException) and is_unreachable(reason)
    return isinstance(error, OSError) and error.errno in _NETWORK


def http_status(error: BaseException) -> int | None:
    """The status in an HTTP client's error; None for other errors."""
    found: Any = error
    if isinstance(error, kinds_of(_ANSWERED_URLLIB)):
        return int(found.code)
    answer: Any = found.response if isinstance(error, kinds_of(_ANSWERED)) else None
    return None if answer is None else int(answer.status_code)


def is_transient(error: BaseException) -> bool:
    """Whether the same call may succeed later: a connection or a time-out is at fault, here or in a cause.

    Args:
        error: The error. Its causes count too, since wrappers are common; of a group, all errors have to be so.

    Example:
        >>> is_transient(ConnectionResetError()), is_transient(RuntimeError("quota"))
        (True, False)
    """
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        if isinstance(cause, ContextualError):
            return cause.transient
        status = http_status(cause)
        if status is not None:
            return status in _LATER or status >= 500
        if is_unreachable(cause):
            return True
        if isinstance(cause, BaseExceptionGroup):
            return all(map(is_transient, cause.exceptions))
        seen.add(id(cause))
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return False


def translated_error(
    error: Exception, store: str | None, *, topic: str | None = None, reference: str | None = None
) -> PayloadStoreError:
    """The error of a store for an exception of its own code or library, which says nothing about the record.

    The same in both directions: transient for connection and time-out errors, otherwise permanent.

    Args:
        error: The exception, which the caller sets as ``__cause__``.
        store: The store's scheme, if known.
        topic: The topic of the call, if it has one.
        reference: Its reference, likewise; of any form, even that of a topic's name.

    Raises:
        Exception: A signal handler raised it.

    Example:
        >>> translated_error(RuntimeError("quota"), "shelf", topic="alerts").message
        'the store failed: RuntimeError: quota'
    """
    let_through(error)
    drop_data(error)
    kind = PayloadStoreUnavailableError if is_transient(error) else PayloadStoreError
    failure = kind(
        f"the store failed: {type(error).__name__}: {text_of(error)}"[:_MOST_TEXT],
        hint="Stores raise the errors of payload_stores.errors; any other exception counts as a fault of the store",
        store=store,
        topic=topic,
        reference=None if reference is None else reference[:_MOST_TEXT],
    )
    failure.is_translated = True
    return failure


@contextmanager
def translated(store: str | None, *, topic: str | None = None, reference: str | None = None) -> Iterator[None]:
    """Within a ``with`` block, raise a store's own exceptions as :class:`~payload_stores.errors.PayloadStoreError`.

    Errors of this library pass: they say themselves what is at fault. So does MemoryError, and what is no
    ``Exception``: ``KeyboardInterrupt``, ``SystemExit``.

    Args:
        store: The store's scheme, if known.
        topic: The topic of the call, if it has one.
        reference: Its reference, likewise.

    Raises:
        PayloadStoreError: The block raised any other exception, which is the ``__cause__``.

    Example:
        >>> with translated("memory", topic="alerts"):  # doctest: +ELLIPSIS
        ...     raise RuntimeError("quota")
        Traceback (most recent call last):
            ...
        payload_stores.errors.PayloadStoreError: the store failed: RuntimeError: quota [store=memory, topic=alerts]...
    """
    try:
        yield
    except (ContextualError, MemoryError):
        raise
    except Exception as error:
        raise translated_error(error, store, topic=topic, reference=reference) from error


def kinds_of(names: tuple[tuple[str, str], ...]) -> tuple[type[BaseException], ...]:
    """The classes with these names, by module; only of modules that are loaded."""
    return tuple(getattr(sys.modules[module], name) for module, name in names if module in sys.modules)
