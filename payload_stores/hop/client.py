"""Requests to hop's offload API, with timeouts and retries, and the interpretation of its answers."""

from __future__ import annotations

import io
import ssl
import uuid
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from http import HTTPStatus
from typing import Any, BinaryIO, Final, TypeVar, cast

from payload_stores.base import StoredRecord
from payload_stores.counter import Counter
from payload_stores.errors import (
    ConfigError,
    PayloadAccessDeniedError,
    PayloadIntegrityError,
    PayloadNotFoundError,
    PayloadStoreError,
    PayloadStoreUnavailableError,
    PayloadTooLargeError,
)
from payload_stores.hop import record_document, retraction
from payload_stores.hop.record_document import Frame
from payload_stores.plugins import require

require("httpx2", "hop")

import httpx2  # noqa: E402  after the check that it is there

from payload_stores.multipart import PayloadFile  # noqa: E402
from payload_stores.scram.auth import REPLAYABLE, UNSIGNED  # noqa: E402

T = TypeVar("T")

_CONNECTIONS: Final = 64
_MAX_REASON: Final = 2048
_FILE_BYTES: Final = 256 << 10
_FIRST_WAIT_S: Final = 0.1
_MAX_WAIT_S: Final = 2.0

_Kinds = dict[int, tuple[type[PayloadStoreError], str, "str | None"]]
_KINDS: Final[_Kinds] = {
    HTTPStatus.UNAUTHORIZED: (
        PayloadAccessDeniedError,
        "the offload server refused the user name or password",
        "Check hop.username, hop.password (or sasl.username, sasl.password) and hop.scram.mechanism, or the token",
    ),
    HTTPStatus.FORBIDDEN: (
        PayloadAccessDeniedError,
        "this user lacks the permission on the offload server",
        "The user needs the same permission for the topic as on the broker",
    ),
    HTTPStatus.NOT_FOUND: (PayloadNotFoundError, "the offload server has no such record", None),
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: (
        PayloadTooLargeError,
        "the record is larger than the offload server accepts",
        "Ask its operator for the limit, or send less",
    ),
    HTTPStatus.UNPROCESSABLE_ENTITY: (
        PayloadStoreError,
        "the offload server refused the record, or has its id already",
        None,
    ),
}
# A POST's 404 is about the address: the record does not exist yet.
_UPLOADING: Final = _KINDS | {
    HTTPStatus.NOT_FOUND: (
        PayloadNotFoundError,
        "the offload server does not accept records at this address",
        "Check hop.offload.url, or what the broker announces",
    )
}
# Older archives, and offload servers that are none, do not know the address.
_RETRACTING: Final = _KINDS | {
    HTTPStatus.NOT_FOUND: (
        PayloadNotFoundError,
        "the offload server has no such record, or does not offer retractions",
        "SCiMMA's archive does from archive-api 1.3 on",
    ),
    HTTPStatus.FORBIDDEN: (
        PayloadAccessDeniedError,
        "this user may not retract the record",
        "Its sender and the owners of the topic's group may",
    ),
}
_NOT_OFFERED: Final = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.NOT_IMPLEMENTED})
# Unsigned, before or instead of the proof: the public service answers unknown users and wrong passwords this way. A
# known user gets a signature with such an answer.
_UNSIGNED_REFUSALS: Final = frozenset({HTTPStatus.FORBIDDEN, HTTPStatus.INTERNAL_SERVER_ERROR})
# Not 500: nothing suggests that a retry may succeed.
_TRANSIENT: Final = frozenset({408, 429, 502, 503, 504})


class HopClient:
    """A pool of open connections; thread-safe.

    Args:
        auth: Credentials, sent to the endpoint only.
        connect_ms: Time for a connection, in ms.
        request_ms: Longest silence within a request, in ms.
        attempts: Total attempts per request.
        ca_file: Further certificate authorities to trust.

    Attributes:
        repeated: Counts retries.

    Raises:
        ConfigError: The file cannot be read.
    """

    def __init__(
        self, auth: httpx2.Auth | None, *, connect_ms: int, request_ms: int, attempts: int, ca_file: str | None
    ) -> None:
        tenacity: Any = require("tenacity", "retry")
        self._auth = auth
        silence = request_ms / 1000
        self._client = httpx2.Client(
            timeout=httpx2.Timeout(silence, connect=connect_ms / 1000),
            limits=httpx2.Limits(max_connections=_CONNECTIONS, max_keepalive_connections=_CONNECTIONS),
            verify=_trust(ca_file),
            follow_redirects=False,  # credentials must go to one endpoint only
            headers={"Accept-Encoding": "identity", "User-Agent": "serde-chain"},
        )
        self.repeated = Counter()
        self._retrying = tenacity.Retrying(
            stop=tenacity.stop_after_attempt(attempts),
            wait=tenacity.wait_random_exponential(multiplier=_FIRST_WAIT_S, max=_MAX_WAIT_S),
            retry=tenacity.retry_if_exception_type(PayloadStoreUnavailableError),
            before_sleep=lambda _state: self.repeated.add(),
            reraise=True,
        )
        waits = sum(min(_FIRST_WAIT_S * 2**number, _MAX_WAIT_S) for number in range(attempts - 1))
        # Two requests, since the first round of SCRAM is a request too.
        self.worst_case_ms = attempts * (connect_ms + 2 * request_ms) + int(waits * 1000)

    def upload(self, url: str, reference: str, record: StoredRecord, *, repeatable: bool) -> None:
        """Post a record.

        Args:
            url: The address.
            reference: Its future address.
            record: The record, with its id among the headers.
            repeatable: Whether its id is made from its whole content, so that it may already exist.
        """
        try:
            document = record_document.frame(record)
        except ValueError as error:
            raise PayloadTooLargeError(
                f"the record cannot be written: {error}", store="hop", reference=reference
            ) from error

        def attempt(number: int) -> None:
            with self._request("POST", url, self._auth, reference, _Body(document)) as response:
                # If an attempt's answer was lost, its stored record blocks the next one.
                taken = response.status_code == HTTPStatus.UNPROCESSABLE_ENTITY and (repeatable or number > 1)
                if not taken:
                    _check(response, reference, _UPLOADING)
                _rest(response)  # the connection is reusable after reading the answer
            if taken:
                self._check_same(reference, record)

        self._retried(attempt)

    def download(self, reference: str, check: Callable[[int], None], *, authenticated: bool = True) -> StoredRecord:
        """Fetch a record.

        Args:
            reference: Its address.
            check: Called with the size of the payload before memory is allocated for it.
            authenticated: Whether to send credentials.
        """

        def attempt(_number: int) -> StoredRecord:
            with self._request("GET", reference, self._auth if authenticated else None, reference) as response:
                _check(response, reference)
                with _readable(reference):
                    return record_document.read(response.iter_raw(), check)

        return self._retried(attempt)

    def open(self, reference: str, check: Callable[[int], None], *, authenticated: bool = True) -> BinaryIO:
        """Open a record's payload, read as it arrives. Seeking back requests it again.

        Args:
            reference: Its address.
            check: Called with the size of the payload.
            authenticated: Whether to send credentials.
        """
        auth = self._auth if authenticated else None

        def attempt(_number: int) -> _Message:
            with ExitStack() as stack:
                response = stack.enter_context(self._request("GET", reference, auth, reference))
                _check(response, reference)
                with _readable(reference):
                    size, views = record_document.open_message(response.iter_raw(), check)
                return _Message(size, views, stack.pop_all())

        return cast("BinaryIO", io.BufferedReader(_RecordFile(reference, lambda: self._retried(attempt)), _FILE_BYTES))

    def retract(self, reference: str, *, retracted: bool) -> None:
        """Set or remove the mark of a retracted record.

        Args:
            reference: Its address.
            retracted: Whether it is to count as retracted.
        """

        def attempt(_number: int) -> None:
            url = retraction.mark_url(reference, retracted=retracted)
            with self._request("PUT", url, self._auth, reference) as response:
                _check(response, reference, _RETRACTING)
                _rest(response)  # the connection is reusable after reading the answer

        self._retried(attempt)

    def is_retracted(self, endpoint: str, reference: str, message_id: uuid.UUID, timestamp: int) -> bool | None:
        """Whether a record is retracted; None if the server does not say.

        Args:
            endpoint: The server's address.
            reference: The record's address, for errors.
            message_id: Its id.
            timestamp: Its timestamp on the server, in ms.
        """
        url = retraction.list_url(endpoint, timestamp)

        def attempt(_number: int) -> bool | None:
            with self._request("GET", url, self._auth, reference) as response:
                if response.status_code in _NOT_OFFERED:
                    _rest(response)
                    return None
                _check(response, reference)
                try:
                    return retraction.is_retracted(response.iter_raw(), message_id)
                except ValueError as error:
                    raise PayloadStoreError(
                        f"the offload server's list of messages cannot be read: {error}",
                        hint="hop.retracted = ignore reads records without it",
                        store="hop",
                        reference=reference,
                    ) from error

        return self._retried(attempt)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _check_same(self, reference: str, record: StoredRecord) -> None:
        """Raise unless the stored record with this id is the same: another user who knows an id can take it."""
        with self._request("GET", reference, self._auth, reference) as response:
            status = response.status_code
            if status in _TRANSIENT:
                _check(response, reference)
            if status == HTTPStatus.OK and record_document.holds(response.iter_raw(), record):
                return
        raise PayloadStoreError(
            "the record's id is taken on the offload server by another record, or one that this user cannot see "
            f"(HTTP 422, then {status})",
            hint="Ids that are made of the content need READ on the topic; random ids cannot be taken by others",
            store="hop",
            reference=reference,
        )

    def _retried(self, attempt: Callable[[int], T]) -> T:
        for trial in self._retrying.copy():
            with trial:
                return attempt(trial.retry_state.attempt_number)
        raise AssertionError("there is at least one attempt")

    @contextmanager
    def _request(
        self, method: str, url: str, auth: httpx2.Auth | None, reference: str, body: _Body | None = None
    ) -> Generator[httpx2.Response]:
        headers = {} if body is None else {"Content-Type": "application/bson", "Content-Length": str(body.size)}
        with (
            _explained(reference),
            self._client.stream(
                method, url, content=body, headers=headers, auth=auth, extensions={REPLAYABLE: True}
            ) as response,
        ):
            yield response


@contextmanager
def _explained(reference: str) -> Iterator[None]:
    """Convert the errors of the HTTP library."""
    try:
        yield
    except httpx2.TransportError as error:
        raise PayloadStoreUnavailableError(
            f"the offload server did not answer: {type(error).__name__}: {error}",
            hint="Check its address and that it is up",
            store="hop",
            reference=reference,
        ) from error
    except httpx2.HTTPError as error:
        raise PayloadStoreError(
            f"the request to the offload server failed: {error}", store="hop", reference=reference
        ) from error
    except PayloadStoreError as error:
        error.add_context(store="hop", reference=reference)
        raise


@contextmanager
def _readable(reference: str) -> Iterator[None]:
    """Convert the errors of a malformed document."""
    try:
        yield
    except ValueError as error:
        raise PayloadIntegrityError(
            f"the offload server's document cannot be read: {error}", store="hop", reference=reference
        ) from error


class _Message:
    """The payload of a record, as it arrives.

    Args:
        size: Its size in bytes.
        views: Its bytes.
        connection: Closed with it.
    """

    def __init__(self, size: int, views: Iterator[memoryview], connection: ExitStack) -> None:
        self.size = size
        self._views = views
        self._view = memoryview(b"")
        self.at = 0
        self.close = connection.close

    def take(self, size: int) -> memoryview:
        """The next bytes, up to a size."""
        if not self._view and self.at < self.size:
            self._view = next(self._views)
        block, self._view = self._view[:size], self._view[size:]
        self.at += len(block)
        return block


class _RecordFile(PayloadFile):
    """The payload of a record as a file; the next read skips the bytes a seek passed over.

    Args:
        reference: For errors.
        connect: Requests the record.
    """

    def __init__(self, reference: str, connect: Callable[[], _Message]) -> None:
        self._reference = reference
        self._connect = connect
        self._message: _Message | None = None  # closed even if the next line raises
        self._message = connect()
        super().__init__(self._message.size)

    def readinto(self, buffer: Any) -> int:
        """Read; after a failure, the next read requests the record again."""
        if self._at >= self._size:
            return 0
        message = self._message
        if message is None or message.at > self._at:
            self._let_go()
            self._message = message = self._connect()
        try:
            with _explained(self._reference), _readable(self._reference):
                while message.at < self._at:
                    message.take(self._at - message.at)
                block = message.take(len(buffer))
        except BaseException:
            self._let_go()
            raise
        buffer[: len(block)] = block
        self._at += len(block)
        return len(block)

    def close(self) -> None:
        """Release the connection."""
        if not self.closed:
            self._let_go()
        super().close()

    def _let_go(self) -> None:
        message, self._message = self._message, None
        if message is not None:
            message.close()


class _Body:
    """A document for httpx2 to send, iterable again for retries."""

    def __init__(self, document: Frame) -> None:
        self._document = document
        self.size = document.size

    def __iter__(self) -> Iterator[Any]:
        return self._document.chunks()


def _check(response: httpx2.Response, reference: str, kinds: _Kinds = _KINDS) -> None:
    """Raise the error for an unsuccessful answer."""
    status = response.status_code
    if status in {HTTPStatus.OK, HTTPStatus.CREATED}:
        return
    error = _error(status, _rest(response).decode("utf-8", "replace"), reference, kinds)
    if status in _UNSIGNED_REFUSALS and response.extensions.get(UNSIGNED):
        error.hint = (
            "The server answered before it knew the user. Check user and password (hop.username, hop.password, or "
            "sasl.username, sasl.password) first, then the address"
        )
    if kinds is _UPLOADING and status == HTTPStatus.NOT_FOUND:
        error.about_record = False
    raise error


def _rest(response: httpx2.Response) -> bytes:
    """The text of an answer, up to a limit."""
    said = bytearray()
    for chunk in response.iter_raw():
        said += chunk
        if len(said) >= _MAX_REASON:
            break
    return bytes(said[:_MAX_REASON])


def _error(status: int, reason: str, reference: str, kinds: _Kinds) -> PayloadStoreError:
    words = " ".join("".join(character if character.isprintable() else " " for character in reason).split())[:200]
    said = f" (HTTP {status}{f': {words}' if words else ''})"
    where: dict[str, Any] = {"store": "hop", "reference": reference}
    if status in _TRANSIENT:
        return PayloadStoreUnavailableError(f"the offload server is busy or down{said}", **where)
    if status in kinds:
        kind, message, hint = kinds[status]
        return kind(message + said, hint=hint, **where)
    if 300 <= status < 400:
        return PayloadStoreError(
            f"the offload server redirects, which is not followed{said}",
            hint="Configure the address that it redirects to, if that is legitimate",
            **where,
        )
    return PayloadStoreError(f"the offload server refused the request{said}", **where)


def _trust(ca_file: str | None) -> ssl.SSLContext:
    """The usual certificate authorities, and those of the Kafka client: a broker's own may sign its server too."""
    context = httpx2.create_ssl_context()
    if ca_file is not None:
        try:
            context.load_verify_locations(ca_file)
        except OSError as error:
            raise ConfigError(
                f"ssl.ca.location = {ca_file!r} cannot be read: {error}", key="ssl.ca.location"
            ) from error
    return context
