"""Converts errors of obstore to those of payload stores.

Most of obstore's errors differ only in their text, which contains the server's answer. The text is truncated and masked
before it enters an error: addresses may contain signatures, and obstore's description repeats the request.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import unescape
from http import HTTPStatus
from typing import Final

from payload_stores.buckets.errors import FULL, SKEWED, ErrorRow, Errors, Meaning, Refusal, is_about_checksums, row_of
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

_Advice = tuple[type[PayloadStoreError], str | None]

_STATUS: Final = re.compile(r"status code: (\d{3})")
_CODE: Final = re.compile(r"<Code>(\w+)</Code>")
_MESSAGE: Final = re.compile(r"<Message>([^<\n]+)")
_REGION: Final = re.compile(r"<Region>([\w-]+)</Region>|<Endpoint>([\w.-]+)</Endpoint>")
_KIND: Final = re.compile(r"\bkind: (Connect|Timeout|Interrupted|Decode|Body)\b")
_SYSTEM: Final = re.compile(r'\bmessage: "([^"]+)"')
_QUERY: Final = re.compile(r"\?[^\s\"'<>)]+")
# Metadata services with credentials for the clouds' own machines; obstore's fallback without configured credentials.
_METADATA: Final = re.compile(r"169\.254\.169\.254|169\.254\.170\.2\b|metadata\.google\.internal")

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
_ELSEWHERE: Final = frozenset({"PermanentRedirect", "TemporaryRedirect", "AuthorizationHeaderMalformed"})

_ROWS: Final = (
    ErrorRow(_NO_BUCKET, PayloadStoreError, "Check the bucket or container of objects.url, and objects.endpoint"),
    SKEWED,
    ErrorRow(_ODD_NAME, UntrustedReferenceError, "No payload can have this name; to publish it, shorten objects.url"),
    ErrorRow(_TOO_LARGE, PayloadTooLargeError, "Raise the server's own limit, or lower objects.part.bytes"),
    ErrorRow(
        # Two writers of one name; Azure drops the parts of one when the other finishes.
        frozenset({"InvalidBlockList", "ConditionalRequestConflict", "OperationAborted"}),
        PayloadStoreUnavailableError,
        "Another writer has written the same object meanwhile",
    ),
    FULL,
)

_STATUSES: Final[Mapping[int, _Advice]] = {
    401: (PayloadAccessDeniedError, _CREDENTIALS),
    403: (PayloadAccessDeniedError, _CREDENTIALS),
    408: (PayloadStoreUnavailableError, None),
    413: (PayloadTooLargeError, "Raise the server's own limit, or lower objects.part.bytes"),
    429: (PayloadStoreUnavailableError, None),
    507: (FULL.kind, FULL.hint),
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


class ObjectErrors(Errors):
    """Converts errors of obstore.

    Args:
        scheme: Scheme of the store's references.
        secrets: Values that messages must not contain.
    """

    def __init__(self, scheme: str, secrets: Sequence[str]) -> None:
        super().__init__(scheme)
        self._secrets = tuple(secret for secret in secrets if secret)

    def foreign(self) -> tuple[type[Exception], ...]:
        """See :meth:`~payload_stores.buckets.errors.Errors.foreign`."""
        # obstore raises some built-in errors: FileNotFoundError, ValueError for names.
        return require("obstore.exceptions", "objects").BaseError, OSError, ValueError

    def meaning(self, error: Exception) -> Meaning:
        """See :meth:`~payload_stores.buckets.errors.Errors.meaning`. Truncates the error's own text."""
        kind, hint = _kind(error)
        text = found[1] if (found := _MESSAGE.search(str(error))) else ""
        message = self.message(error)
        error.args = (message,)  # as the cause, it would show unmasked text
        return Meaning(kind, message, _WITHOUT_CHECKSUMS if is_about_checksums(text) else hint)

    def refusal(self, error: Exception) -> Refusal | None:
        """See :meth:`~payload_stores.buckets.errors.Errors.refusal`."""
        return next((refusal for cls, _, _, refusal in _classes() if isinstance(error, cls)), None)

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


def _kind(error: Exception) -> _Advice:
    said = str(error)
    code = found[1] if (found := _CODE.search(said)) else ""
    if (row := row_of(code, _ROWS)) is not None:
        return row.kind, row.hint
    if code in _ELSEWHERE or "redirect without LOCATION" in said:
        region = found[1] or found[2] if (found := _REGION.search(said)) else None
        where = f"the bucket is in {region}: set objects.region or objects.endpoint" if region else "set objects.region"
        return PayloadStoreError, f"The bucket is in another region than requests are made for; {where}"
    if _METADATA.search(said):
        return PayloadAccessDeniedError, f"No credentials are configured, and this machine has none. {_CREDENTIALS}"
    for cls, kind, hint, _ in _classes():
        if isinstance(error, cls):
            return kind, hint
    return _other(error, said)


def _classes() -> tuple[tuple[type[Exception], type[PayloadStoreError], str | None, Refusal | None], ...]:
    """What the classes of errors mean that differ, and what the engine decides by."""
    from obstore import exceptions as obs

    gone = "It was deleted, or the bucket's lifecycle expired it before the record; or the bucket is not there"
    taken = "Something else has this name, or a part of it, in the bucket"
    replaced = "The object was replaced while it was read"
    return (
        (FileNotFoundError, PayloadNotFoundError, gone, Refusal.MISSING),
        (obs.PermissionDeniedError, PayloadAccessDeniedError, _CREDENTIALS, Refusal.FORBIDDEN),
        (obs.UnauthenticatedError, PayloadAccessDeniedError, _CREDENTIALS, Refusal.FORBIDDEN),
        (obs.PreconditionError, PayloadIntegrityError, replaced, Refusal.CONDITION),
        (obs.AlreadyExistsError, PayloadStoreError, taken, Refusal.CONFLICT),
        (obs.NotSupportedError, PayloadStoreError, None, Refusal.CONFLICT),
        (obs.InvalidPathError, UntrustedReferenceError, None, None),
    )


def _other(error: Exception, said: str) -> _Advice:
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
