"""Converts the errors of a bucket's library to those of payload stores."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import Enum, auto
from typing import Final, NamedTuple

from payload_stores.errors import (
    ConfigError,
    PayloadAccessDeniedError,
    PayloadStoreError,
    PayloadStoreUnavailableError,
)


class Refusal(Enum):
    """Why a request was refused, as far as the engine decides by it."""

    MISSING = auto()  # there is no such object
    FORBIDDEN = auto()  # the credentials do not suffice
    CONDITION = auto()  # the object exists, or has another version
    CONFLICT = auto()  # another writer is writing it, or the server knows no conditions


class Meaning(NamedTuple):
    """What an error means: the class of the store's error, its message and hint."""

    kind: type[PayloadStoreError]
    message: str
    hint: str | None


class ErrorRow(NamedTuple):
    """What error codes in answers mean: the class of the store's error, its hint, and what the engine decides by."""

    codes: frozenset[str]
    kind: type[PayloadStoreError]
    hint: str | None = None
    refusal: Refusal | None = None


# The same in all drivers.
SKEWED: Final = ErrorRow(
    frozenset({"RequestTimeTooSkewed"}),
    PayloadAccessDeniedError,
    "Set the clock of this machine: signatures are valid for 15 minutes",
)
FULL: Final = ErrorRow(
    frozenset({"XMinioStorageFull", "InsufficientStorage", "QuotaExceeded", "InsufficientCapacity"}),
    PayloadStoreUnavailableError,
    "The server has no space left",
)

# Servers word it in many ways; all name the header, or the signature that goes with it.
_OF_CHECKSUMS: Final = re.compile(
    r"x-amz-(?:sdk-)?checksum|x-amz-trailer|x-amz-content-sha256|UNSIGNED-PAYLOAD|-TRAILER", re.IGNORECASE
)


def is_about_checksums(text: str) -> bool:
    """Whether a server's message is about a checksum, or the signature that goes with it."""
    return _OF_CHECKSUMS.search(text) is not None


def row_of(code: str, rows: Iterable[ErrorRow]) -> ErrorRow | None:
    """The first row with an error code."""
    return next((row for row in rows if code in row.codes), None)


class Errors(ABC):
    """Converts the errors of one store's library.

    Args:
        store: Scheme of the store's references.
    """

    def __init__(self, store: str) -> None:
        self._store = store

    @abstractmethod
    def foreign(self) -> tuple[type[Exception], ...]:
        """The errors to convert: the library's, and those below it."""

    @abstractmethod
    def meaning(self, error: Exception) -> Meaning:
        """What one of them means."""

    @abstractmethod
    def refusal(self, error: Exception) -> Refusal | None:
        """Why the server refused a request; None for other reasons."""

    @contextmanager
    def translated(self, *, topic: str | None = None, reference: str | None = None) -> Iterator[None]:
        """Convert every error of the library to one of payload stores.

        Args:
            topic: For the error.
            reference: For the error.

        Raises:
            PayloadStoreError: Replaces the library's error.
        """
        where = {"store": self._store, "topic": topic, "reference": reference}
        foreign = self.foreign()
        try:
            yield
        except PayloadStoreError as error:
            error.add_context(**where)
            raise
        except ConfigError:  # a ValueError
            raise
        except foreign as error:
            kind, message, hint = self.meaning(error)
            raise kind(message, hint=hint, **where) from error
