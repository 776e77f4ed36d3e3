"""Errors for refused requests."""

from __future__ import annotations

from typing import ClassVar

from payload_stores.errors import PayloadStoreError


class RefusedError(PayloadStoreError):
    """A request is answered with an error.

    Also an error of payload stores, since a malformed body must end the store's reading from it.

    Attributes:
        status: The HTTP status.
    """

    context_fields: ClassVar[tuple[str, ...]] = (*PayloadStoreError.context_fields, "status")
    status: int | None


class MalformedUploadError(RefusedError):
    """The body is not a valid document of the offload API."""

    def __init__(self, message: str, **more: object) -> None:
        super().__init__(message, **{"status": 400, **more})  # type: ignore[arg-type]


class ForbiddenError(RefusedError):
    """The user lacks the permission."""

    def __init__(self, message: str, **more: object) -> None:
        super().__init__(message, **{"status": 403, **more})  # type: ignore[arg-type]


class NoRoomError(RefusedError):
    """The upload exceeds a quota or the free disk (RFC 4918, section 11.5)."""

    def __init__(self, message: str, **more: object) -> None:
        super().__init__(message, **{"status": 507, **more})  # type: ignore[arg-type]


class TooLargeError(RefusedError):
    """The body is larger than the server accepts."""

    def __init__(self, message: str, **more: object) -> None:
        super().__init__(message, **{"status": 413, **more})  # type: ignore[arg-type]
