"""Converts errors of S3 and botocore to those of payload stores: gone, refused, too large, transient."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

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

__all__ = [
    "CONFLICT",
    "EMPTY",
    "EXISTS",
    "FORBIDDEN",
    "MISSING",
    "NOT_IMPLEMENTED",
    "NO_RULES",
    "NO_UPLOAD",
    "error_code",
    "field",
    "refusal",
    "refuse_pages",
    "translated",
]

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
FULL: Final = frozenset({"XMinioStorageFull", "InsufficientStorage", "QuotaExceeded", "InsufficientCapacity"})
ELSEWHERE: Final = frozenset(
    {"AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "PermanentRedirect"}
)
EMPTY: Final = frozenset({"InvalidRange", "416", "RequestedRangeNotSatisfiable"})

_CREDENTIALS: Final = "Check s3.access.key, s3.secret.key, s3.session.token, or boto3's other sources of credentials"
# Servers word it in many ways; all name the header, or the signature that goes with it.
_OF_CHECKSUMS: Final = re.compile(
    r"x-amz-(?:sdk-)?checksum|x-amz-trailer|x-amz-content-sha256|UNSIGNED-PAYLOAD|-TRAILER", re.IGNORECASE
)
_WITHOUT_CHECKSUMS: Final = "s3.checksum.calculation = when_required may help with this server"
_REFUSED: Final = (
    f"{_CREDENTIALS}, their permissions, and s3.expected.bucket.owner. "
    "Without s3:ListBucket, S3 also answers this for deleted objects"
)


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


@contextmanager
def translated(*, topic: str | None = None, reference: str | None = None) -> Iterator[None]:
    """Convert every error of botocore and the layers below it to one of payload stores.

    Args:
        topic: For the error.
        reference: For the error.

    Raises:
        PayloadStoreError: Replaces the error of botocore, urllib3 or the network.
    """
    require("botocore", "s3")
    from botocore.exceptions import BotoCoreError, ClientError
    from urllib3.exceptions import HTTPError

    where = {"store": "s3", "topic": topic, "reference": reference}
    try:
        yield
    except PayloadStoreError as error:
        error.add_context(**where)
        raise
    # ValueError: from botocore's parsers, for a truncated date.
    except (ClientError, BotoCoreError, HTTPError, OSError, ValueError) as error:
        kind, message, hint = _client_error(error) if isinstance(error, ClientError) else _other_error(error)
        raise kind(message, hint=hint, **where) from error
    except RecursionError as error:  # botocore follows each redirect to a region by requests of its own
        hint = "Set s3.region to the bucket's, and s3.endpoint.url to the server that has it"
        raise PayloadStoreError("S3 redirects to another region without end", hint=hint, **where) from error


_Meaning = tuple[type[PayloadStoreError], str, str | None]

# The first row with the code applies.
_MEANINGS: Final[tuple[tuple[frozenset[str], type[PayloadStoreError], str | None], ...]] = (
    (frozenset({"NoSuchBucket"}), PayloadStoreError, "Check s3.bucket and s3.endpoint.url"),
    (MISSING, PayloadNotFoundError, "It was deleted, or the bucket's lifecycle expired it before the record"),
    (
        frozenset({"InvalidObjectState"}),
        PayloadAccessDeniedError,
        "The object is archived: restore it, and keep the bucket's lifecycle from moving payloads to an archive",
    ),
    (
        FORBIDDEN,
        PayloadAccessDeniedError,
        _REFUSED,
    ),
    (
        frozenset({"RequestTimeTooSkewed"}),
        PayloadAccessDeniedError,
        "Set the clock of this machine: signatures are valid for 15 minutes",
    ),
    (ELSEWHERE, PayloadStoreError, "The bucket is in another region than requests are made for; set s3.region"),
    (ODD_KEY, UntrustedReferenceError, "No payload can have this name; to publish it, shorten s3.prefix"),
    (TOO_LARGE, PayloadTooLargeError, "Raise the server's own limit, or lower s3.multipart.threshold.bytes"),
    (EXISTS, PayloadIntegrityError, "The object was replaced while it was read"),
    (THROTTLED | CONFLICT | DAMAGED, PayloadStoreUnavailableError, None),
    (FULL, PayloadStoreUnavailableError, "The server has no space left"),
    (NOT_IMPLEMENTED, PayloadStoreError, _WITHOUT_CHECKSUMS),
)


def refusal(answer: Mapping[str, Any], reference: str) -> PayloadStoreError:
    """The error of one object in the answer to a request about many.

    Args:
        answer: Its code and message, as S3 sent them.
        reference: The object's reference.
    """
    kind, message, hint = _meaning(str(answer.get("Code", "")), str(answer.get("Message", "")), 0)
    return kind(message, hint=hint, store="s3", reference=reference)


def _client_error(error: Exception) -> _Meaning:
    response = getattr(error, "response", {})
    status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode") or 0)
    return _meaning(error_code(error), str(response.get("Error", {}).get("Message") or ""), status)


def _meaning(code: str, text: str, status: int) -> _Meaning:
    text = (text or "no further text").removesuffix(".")  # a hint may follow
    message = f"S3 answered {code}: {text}"
    refused = _WITHOUT_CHECKSUMS if _OF_CHECKSUMS.search(text) else None
    for codes, kind, hint in _MEANINGS:
        if code in codes:
            return kind, message, refused or hint
    # Servers may have other codes.
    kind = PayloadAccessDeniedError if status in {401, 403} else PayloadStoreError
    return PayloadStoreUnavailableError if status == 429 or status >= 500 else kind, message, refused


def _other_error(error: Exception) -> _Meaning:
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
        return PayloadAccessDeniedError, message, f"{_CREDENTIALS} (environment, profile, instance role)"
    if isinstance(error, boto.FlexibleChecksumError):
        return PayloadIntegrityError, message, None
    if isinstance(error, boto.SSLError):
        return PayloadStoreUnavailableError, message, "Check s3.endpoint.url and the server's certificate"
    if isinstance(error, (ResponseParserError, ValueError)):
        return PayloadStoreUnavailableError, message, "If this persists, s3.endpoint.url is not the URL of an S3 server"
    # Remaining errors of OSError and urllib3 are the network's.
    network = (boto.ConnectionError, boto.HTTPClientError, boto.IncompleteReadError, boto.ResponseStreamingError)
    if isinstance(error, network) or not isinstance(error, boto.BotoCoreError):
        return PayloadStoreUnavailableError, message, "Check s3.endpoint.url and that the server is running"
    return PayloadStoreError, message, None
