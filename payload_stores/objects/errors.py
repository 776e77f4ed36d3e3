"""Converts errors of obstore to those of payload stores.

Most of obstore's errors differ only in their text, which contains the server's answer. The text is truncated and masked
before it enters an error: addresses may contain signatures, and obstore's description repeats the request.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import unescape
from http import HTTPStatus
from typing import Final

from payload_stores.errors import (
    PayloadAccessDeniedError,
    PayloadIntegrityError,
    PayloadNotFoundError,
    PayloadStoreError,
    PayloadStoreUnavailableError,
    PayloadTooLargeError,
    UntrustedReferenceError,
)
from payload_stores.plugins import require

__all__ = ["Errors", "status_of"]

_Meaning = tuple[type[PayloadStoreError], str | None]

_STATUS: Final = re.compile(r"status code: (\d{3})")
_CODE: Final = re.compile(r"<Code>(\w+)</Code>")
_MESSAGE: Final = re.compile(r"<Message>([^<\n]+)")
_REGION: Final = re.compile(r"<Region>([\w-]+)</Region>|<Endpoint>([\w.-]+)</Endpoint>")
_KIND: Final = re.compile(r"\bkind: (Connect|Timeout|Interrupted|Decode|Body)\b")
_SYSTEM: Final = re.compile(r'\bmessage: "([^"]+)"')
_QUERY: Final = re.compile(r"\?[^\s\"'<>)]+")
# Metadata services with credentials for the clouds' own machines; obstore's fallback without configured credentials.
_METADATA: Final = re.compile(r"169\.254\.169\.254|169\.254\.170\.2\b|metadata\.google\.internal")

_OF_CHECKSUMS: Final = re.compile(r"x-amz-(?:sdk-)?checksum|x-amz-content-sha256|UNSIGNED-PAYLOAD", re.IGNORECASE)
_WITHOUT_CHECKSUMS: Final = (
    "objects.unsigned_payload = false, which signs the payload and sends no checksum, may help with this server"
)
_CREDENTIALS: Final = "Check the credentials under objects., or where obstore looks for others, and their permissions"

# Error codes of S3, Azure and Google. Sources: "Error responses" in the Amazon S3 API Reference; "Common REST API error
# codes" and "Blob Storage error codes" in Azure's REST API reference; Google's XML API has those of S3.
_NO_BUCKET: Final = frozenset({"NoSuchBucket", "InvalidBucketName", "ContainerNotFound", "ContainerBeingDeleted"})
_ODD_NAME: Final = frozenset(
    {"KeyTooLongError", "KeyTooLong", "InvalidResourceName", "OutOfRangeInput", "InvalidUri", "XMinioInvalidObjectName"}
)
_TOO_LARGE: Final = frozenset({"EntityTooLarge", "MaxMessageLengthExceeded", "RequestBodyTooLarge"})
_FULL: Final = frozenset({"XMinioStorageFull", "InsufficientStorage", "QuotaExceeded", "InsufficientCapacity"})
_ELSEWHERE: Final = frozenset({"PermanentRedirect", "TemporaryRedirect", "AuthorizationHeaderMalformed"})

_MEANINGS: Final[tuple[tuple[frozenset[str], type[PayloadStoreError], str | None], ...]] = (
    (_NO_BUCKET, PayloadStoreError, "Check the bucket or container of objects.url, and objects.endpoint"),
    (
        frozenset({"RequestTimeTooSkewed"}),
        PayloadAccessDeniedError,
        "Set the clock of this machine: signatures are valid for 15 minutes",
    ),
    (_ODD_NAME, UntrustedReferenceError, "No payload can have this name; to publish it, shorten objects.url"),
    (_TOO_LARGE, PayloadTooLargeError, "Raise the server's own limit, or lower objects.part.bytes"),
    (
        # Two writers of one name; Azure drops the parts of one when the other finishes.
        frozenset({"InvalidBlockList", "ConditionalRequestConflict", "OperationAborted"}),
        PayloadStoreUnavailableError,
        "Another writer has written the same object meanwhile",
    ),
    (_FULL, PayloadStoreUnavailableError, "The server has no space left"),
)

_STATUSES: Final[Mapping[int, _Meaning]] = {
    401: (PayloadAccessDeniedError, _CREDENTIALS),
    403: (PayloadAccessDeniedError, _CREDENTIALS),
    408: (PayloadStoreUnavailableError, None),
    413: (PayloadTooLargeError, "Raise the server's own limit, or lower objects.part.bytes"),
    429: (PayloadStoreUnavailableError, None),
    507: (PayloadStoreUnavailableError, "The server has no space left"),
}
# Messages of obstore itself.
_SIGNS: Final[tuple[tuple[str, type[PayloadStoreError], str | None], ...]] = (
    ("BadScheme", PayloadStoreError, "For a server without TLS, set objects.allow_http = true"),
    ("Could not parse path", UntrustedReferenceError, None),
    (
        "ETag Header missing",
        PayloadStoreUnavailableError,
        "Is objects.endpoint the address of an object store's API? obstore needs its ETags; the store s3 does not",
    ),
)


def status_of(error: Exception) -> int:
    """The HTTP status in an error of obstore; 0 if there is none."""
    match = _STATUS.search(str(error))
    return int(match[1]) if match else 0


class Errors:
    """Converts the errors of one store.

    Args:
        scheme: Scheme of the store's references.
        secrets: Values that messages must not contain.
    """

    def __init__(self, scheme: str, secrets: Sequence[str]) -> None:
        self._scheme = scheme
        self._secrets = tuple(secret for secret in secrets if secret)

    @contextmanager
    def translated(self, *, topic: str | None = None, reference: str | None = None) -> Iterator[None]:
        """Convert every error of obstore to one of payload stores.

        Args:
            topic: For the error.
            reference: For the error.

        Raises:
            PayloadStoreError: Replaces obstore's error.
        """
        library = require("obstore.exceptions", "objects").BaseError
        where = {"store": self._scheme, "topic": topic, "reference": reference}
        try:
            yield
        except PayloadStoreError as error:
            error.add_context(**where)
            raise
        # obstore raises some built-in errors: FileNotFoundError, ValueError for names.
        except (library, OSError, ValueError) as error:
            kind, hint = _meaning(error)
            message = self.message(error)
            error.args = (message,)  # as the cause, it would show unmasked text
            raise kind(message, hint=hint, **where) from error

    def message(self, error: Exception) -> str:
        """The text of an error, without possible secrets."""
        said, _, description = str(error).partition("\n\nDebug source:")
        status, code, message = status_of(error), _CODE.search(said), _MESSAGE.search(said)
        if status:
            named = f"{status} {code[1]}" if code else f"{status} {_phrase(status)}".rstrip()
            text = f"the server answered {named}: {unescape(message[1]) if message else 'no further text'}"
        else:
            reasons = [found[1] for pattern in (_KIND, _SYSTEM) if (found := pattern.search(description))]
            text = said.partition("\n")[0] + (f" ({', '.join(reasons)})" if reasons else "")
        text = _QUERY.sub("?…", text)
        for secret in self._secrets:
            text = text.replace(secret, "********")
        return text[:1000]


def _meaning(error: Exception) -> _Meaning:
    kind, hint = _kind(error)
    text = found[1] if (found := _MESSAGE.search(str(error))) else ""
    return kind, _WITHOUT_CHECKSUMS if _OF_CHECKSUMS.search(text) else hint


def _kind(error: Exception) -> _Meaning:
    from obstore import exceptions as obs

    said = str(error)
    code = found[1] if (found := _CODE.search(said)) else ""
    for codes, kind, hint in _MEANINGS:
        if code in codes:
            return kind, hint
    if code in _ELSEWHERE or "redirect without LOCATION" in said:
        region = found[1] or found[2] if (found := _REGION.search(said)) else None
        where = f"the bucket is in {region}: set objects.region or objects.endpoint" if region else "set objects.region"
        return PayloadStoreError, f"The bucket is in another region than requests are made for; {where}"
    if _METADATA.search(said):
        return PayloadAccessDeniedError, f"No credentials are configured, and this machine has none. {_CREDENTIALS}"
    classes: tuple[tuple[type[Exception], type[PayloadStoreError], str | None], ...] = (
        (
            FileNotFoundError,
            PayloadNotFoundError,
            "It was deleted, or the bucket's lifecycle expired it before the record; or the bucket is not there",
        ),
        (obs.PermissionDeniedError, PayloadAccessDeniedError, _CREDENTIALS),
        (obs.UnauthenticatedError, PayloadAccessDeniedError, _CREDENTIALS),
        (obs.PreconditionError, PayloadIntegrityError, "The object was replaced while it was read"),
        (obs.AlreadyExistsError, PayloadStoreError, "Something else has this name, or a part of it, in the bucket"),
        (obs.NotSupportedError, PayloadStoreError, None),
        (obs.InvalidPathError, UntrustedReferenceError, None),
    )
    for cls, kind, hint in classes:
        if isinstance(error, cls):
            return kind, hint
    return _other(error, said)


def _other(error: Exception, said: str) -> _Meaning:
    """The error class by status alone, or by obstore's message if there is no status."""
    status = status_of(error)
    if not status:
        for sign, kind, hint in _SIGNS:
            if sign in said:
                return kind, hint
        # A truncated answer, or none.
        return PayloadStoreUnavailableError, "Check objects.endpoint and that the server is running"
    unknown = (PayloadStoreUnavailableError if status >= 500 else PayloadStoreError, None)
    return _STATUSES.get(status, unknown)


def _phrase(status: int) -> str:
    return HTTPStatus(status).phrase if status in set(HTTPStatus) else ""
