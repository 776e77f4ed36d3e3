"""Errors for refused requests."""

from __future__ import annotations

from typing import ClassVar

from payload_stores.errors import PayloadStoreError


class RefusedError(PayloadStoreError):
    """A request is answered with an error.

    Also an error of payload stores, since a malformed body must end the store's reading from it.

    Attributes:
        status: The HTTP status.
        usual_status: That of the class, if none is given.
    """

    context_fields: ClassVar[tuple[str, ...]] = (*PayloadStoreError.context_fields, "status")
    usual_status: ClassVar[int | None] = None
    status: int | None

    def __init__(self, message: str, **more: object) -> None:
        super().__init__(message, **{"status": self.usual_status, **more})  # type: ignore[arg-type]


class MalformedUploadError(RefusedError):
    """The body is not a valid document of the offload API."""

    usual_status = 400


class ForbiddenError(RefusedError):
    """The user lacks the permission."""

    usual_status = 403


class NoRoomError(RefusedError):
    """The upload exceeds a quota or the free disk (RFC 4918, section 11.5)."""

    usual_status = 507


class TooLargeError(RefusedError):
    """The body is larger than the server accepts."""

    usual_status = 413
