"""Converts errors of S3 and botocore to those of payload stores: gone, refused, too large, transient."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from payload_stores.buckets.driver import Target
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

# Error codes in answers; HEAD answers have no body, so botocore uses the HTTP status as the code.
# Source: "Error responses" in the Amazon S3 API Reference.
MISSING: Final = frozenset({"NoSuchKey", "404", "NotFound"})
FORBIDDEN: Final = frozenset(
    {
        "403", "401", "AccessDenied", "AccountProblem", "AllAccessDisabled", "ExpiredToken",
        "ExpiredTokenException", "Forbidden", "InvalidAccessKeyId", "InvalidSecurity", "InvalidToken",
        "SignatureDoesNotMatch", "TokenRefreshRequired", "Unauthorized",
    }
)  # fmt: skip
THROTTLED: Final = frozenset(
    {
        "BandwidthLimitExceeded", "InternalError", "OperationAborted", "RequestLimitExceeded", "RequestTimeout",
        "RequestTimeoutException", "ServiceUnavailable", "SlowDown", "SlowDownRead", "SlowDownWrite", "Throttling",
        "ThrottlingException", "TooManyRequests", "TooManyRequestsException",
    }
)  # fmt: skip
# Servers that store objects as files refuse long path segments; Amazon accepts keys of up to 1,024 bytes.
ODD_KEY: Final = frozenset({"KeyTooLongError", "KeyTooLong", "XMinioInvalidObjectName"})
TOO_LARGE: Final = frozenset({"EntityTooLarge", "413", "MaxMessageLengthExceeded"})
DAMAGED: Final = frozenset({"BadDigest", "InvalidDigest", "XAmzContentSHA256Mismatch", "XAmzContentChecksumMismatch"})
# A conditional write (If-None-Match: *) found an object; a conditional read (If-Match) found another one.
EXISTS: Final = frozenset({"PreconditionFailed", "412"})
CONFLICT: Final = frozenset({"ConditionalRequestConflict", "409"})
NOT_IMPLEMENTED: Final = frozenset({"NotImplemented", "501"})
NO_UPLOAD: Final = frozenset({"NoSuchUpload"})
NO_RULES: Final = frozenset({"NoSuchLifecycleConfiguration"})
ELSEWHERE: Final = frozenset(
    {"AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "PermanentRedirect"}
)
EMPTY: Final = frozenset({"InvalidRange", "416", "RequestedRangeNotSatisfiable"})

_CREDENTIALS: Final = "Check s3.access.key, s3.secret.key, s3.session.token, or boto3's other sources of credentials"
_WITHOUT_CHECKSUMS: Final = "s3.checksum.calculation = when_required may help with this server"
_REFUSED: Final = (
    f"{_CREDENTIALS}, their permissions, and s3.expected.bucket.owner. "
    "Without s3:ListBucket, S3 also answers this for deleted objects"
)


def arguments(target: Target) -> dict[str, str]:
    """Arguments that name an object in a request."""
    return {"Bucket": target.bucket, "Key": target.name}


def error_code(error: BaseException) -> str:
    """The S3 error code of a botocore ClientError; empty for other errors."""
    response = getattr(error, "response", None)
    return str(response.get("Error", {}).get("Code", "")) if isinstance(response, dict) else ""


def field(answer: Mapping[str, Any], name: str) -> Any:
    """A field of every complete answer.

    Raises:
        PayloadStoreUnavailableError: It is missing: Python's HTTP client accepts truncated headers as complete.
    """
    if name not in answer:
        raise PayloadStoreUnavailableError(f"S3's answer was cut off, it has no {name}")
    return answer[name]


def refuse_pages(http_response: Any, **_: object) -> None:
    """Refuse an HTML page as an answer of S3's: botocore takes one with the status 200 as the success of an upload.

    A handler of botocore's event ``after-call.s3``. Objects may be pages, and have an ETag.

    Raises:
        PayloadStoreUnavailableError: It is a page.
    """
    if http_response.status_code not in {200, 206}:
        return
    headers = http_response.headers
    is_page = str(headers.get("content-type", "")).startswith("text/html") and headers.get("content-length") != "0"
    if is_page and not headers.get("etag"):
        raise PayloadStoreUnavailableError(
            f"the server answered {http_response.status_code} with an HTML page",
            hint="Is s3.endpoint.url the address of the S3 API, and not of a console, a proxy or a login page?",
        )


# The first row with the code applies.
_ROWS: Final = (
    ErrorRow(frozenset({"NoSuchBucket"}), PayloadStoreError, "Check s3.bucket and s3.endpoint.url"),
    ErrorRow(
        MISSING,
        PayloadNotFoundError,
        "It was deleted, or the bucket's lifecycle expired it before the record",
        Refusal.MISSING,
    ),
    ErrorRow(
        frozenset({"InvalidObjectState"}),
        PayloadAccessDeniedError,
        "The object is archived: restore it, and keep the bucket's lifecycle from moving payloads to an archive",
    ),
    ErrorRow(FORBIDDEN, PayloadAccessDeniedError, _REFUSED, Refusal.FORBIDDEN),
    SKEWED,
    ErrorRow(ELSEWHERE, PayloadStoreError, "The bucket is in another region than requests are made for; set s3.region"),
    ErrorRow(ODD_KEY, UntrustedReferenceError, "No payload can have this name; to publish it, shorten s3.prefix"),
    ErrorRow(TOO_LARGE, PayloadTooLargeError, "Raise the server's own limit, or lower s3.multipart.threshold.bytes"),
    ErrorRow(EXISTS, PayloadIntegrityError, "The object was replaced while it was read", Refusal.CONDITION),
    ErrorRow(THROTTLED | DAMAGED, PayloadStoreUnavailableError),
    ErrorRow(CONFLICT, PayloadStoreUnavailableError, refusal=Refusal.CONFLICT),
    FULL,
    ErrorRow(NOT_IMPLEMENTED, PayloadStoreError, _WITHOUT_CHECKSUMS, Refusal.CONFLICT),
)


class S3Errors(Errors):
    """Converts errors of botocore and the layers below it."""

    def foreign(self) -> tuple[type[Exception], ...]:
        """See :meth:`~payload_stores.buckets.errors.Errors.foreign`."""
        require("botocore", "s3")
        from botocore.exceptions import BotoCoreError, ClientError
        from urllib3.exceptions import HTTPError

        # ValueError: from botocore's parsers, for a truncated date.
        return ClientError, BotoCoreError, HTTPError, OSError, ValueError, RecursionError

    def meaning(self, error: Exception) -> Meaning:
        """See :meth:`~payload_stores.buckets.errors.Errors.meaning`."""
        from botocore.exceptions import ClientError

        if isinstance(error, RecursionError):  # botocore follows each redirect to a region by requests of its own
            hint = "Set s3.region to the bucket's, and s3.endpoint.url to the server that has it"
            return Meaning(PayloadStoreError, "S3 redirects to another region without end", hint)
        if not isinstance(error, ClientError):
            return _other_meaning(error)
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode") or 0)
        return _meaning(error_code(error), str(error.response.get("Error", {}).get("Message") or ""), status)

    def refusal(self, error: Exception) -> Refusal | None:
        """See :meth:`~payload_stores.buckets.errors.Errors.refusal`."""
        row = row_of(error_code(error), _ROWS)
        return None if row is None else row.refusal

    def of_one(self, answer: Mapping[str, Any]) -> PayloadStoreError:
        """The error of one object in the answer to a request about many.

        Args:
            answer: Its code and message, as S3 sent them.
        """
        kind, message, hint = _meaning(str(answer.get("Code", "")), str(answer.get("Message", "")), 0)
        return kind(message, hint=hint)


def _meaning(code: str, text: str, status: int) -> Meaning:
    text = (text or "no further text").removesuffix(".")  # a hint may follow
    row = row_of(code, _ROWS)
    if row is None:  # servers may have other codes
        denied = PayloadAccessDeniedError if status in {401, 403} else PayloadStoreError
        row = ErrorRow(frozenset(), PayloadStoreUnavailableError if status == 429 or status >= 500 else denied, None)
    return Meaning(
        row.kind, f"S3 answered {code}: {text}", _WITHOUT_CHECKSUMS if is_about_checksums(text) else row.hint
    )


def _other_meaning(error: Exception) -> Meaning:
    from botocore import exceptions as boto
    from botocore.parsers import ResponseParserError

    message = f"{type(error).__name__}: {error}"
    no_credentials = (
        boto.NoCredentialsError,
        boto.PartialCredentialsError,
        boto.CredentialRetrievalError,
        boto.TokenRetrievalError,
        boto.SSOError,
    )
    if isinstance(error, no_credentials):
        return Meaning(PayloadAccessDeniedError, message, f"{_CREDENTIALS} (environment, profile, instance role)")
    if isinstance(error, boto.FlexibleChecksumError):
        return Meaning(PayloadIntegrityError, message, None)
    if isinstance(error, boto.SSLError):
        return Meaning(PayloadStoreUnavailableError, message, "Check s3.endpoint.url and the server's certificate")
    if isinstance(error, (ResponseParserError, ValueError)):
        return Meaning(
            PayloadStoreUnavailableError, message, "If this persists, s3.endpoint.url is not the URL of an S3 server"
        )
    # Remaining errors of OSError and urllib3 are the network's.
    network = (boto.ConnectionError, boto.HTTPClientError, boto.IncompleteReadError, boto.ResponseStreamingError)
    if isinstance(error, network) or not isinstance(error, boto.BotoCoreError):
        return Meaning(PayloadStoreUnavailableError, message, "Check s3.endpoint.url and that the server is running")
    return Meaning(PayloadStoreError, message, None)
