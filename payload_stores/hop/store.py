"""A payload store behind hop's offload API (SCiMMA Hopskotch): whole records, over HTTP.

A record is posted to ``<endpoint>/topic/<topic>+oversized``; its reference is ``<endpoint>/msg/<uuid>``. The endpoint
is configured, or announced by the broker. Credentials are those of the Kafka client and go only to the endpoint;
besides its records, only trusted references are fetched, without credentials.
"""

from __future__ import annotations

import hashlib
import io
import logging
import mmap
import re
import tempfile
import threading
import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, Final

from payload_stores.base import Buffer, PayloadStore, PublishContext, StoredRecord
from payload_stores.buffers import checked_range
from payload_stores.connection import can_connect
from payload_stores.errors import ConfigError, PayloadRetractedError, PayloadStoreError, PayloadTooLargeError
from payload_stores.hop.endpoint import Endpoint, Unsupported, discover, is_message
from payload_stores.hop.settings import switch
from payload_stores.ids import DIGEST_PREFIX, sha256_digest
from payload_stores.options import Option, boolean, choice, integer, text

if TYPE_CHECKING:
    import httpx2

    from payload_stores.hop.client import HopClient

_log = logging.getLogger("payload_stores")

_BLOCK_BYTES: Final = 1 << 20
_ID_HEADER: Final = "_id"
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_MECHANISMS: Final = ("scram-sha-256", "scram-sha-512")
_BEARER: Final = "oauthbearer"
_CREDENTIALS: Final = re.compile(r"//[^/]*@")


class HopStore(PayloadStore):
    """Stores records on an offload server.

    Without ``hop.offload.url``, the store asks the broker at the first large message. If the broker announces no
    endpoint, large messages are off: a warning is logged, and records stay unchanged.

    Ids are UUIDs: random, or for ids of the content, made from the digest of topic, headers, key and payload.

    Example:
        >>> from payload_stores import open_store
        >>> config = {"hop.offload.url": "https://offload.example.org", "hop.username": "alice", "hop.password": "…"}
        >>> store = open_store("hop", config)  # doctest: +SKIP
        >>> store.publish("images", b"payload")  # doctest: +SKIP
        'https://offload.example.org/msg/6c8f2c2e-5d0c-4f5e-9d8e-0a6f2f1f3b7a'
    """

    scheme = "https"
    sender: str | None = None
    offloads: bool = True
    fetches: bool = True

    URL: ClassVar[Option[str]] = Option(
        "hop.offload.url", text, "", doc="the endpoint; default: what the broker announces"
    )
    USERNAME: ClassVar[Option[str]] = Option("hop.username", text, "", doc="user name; default: sasl.username")
    PASSWORD: ClassVar[Option[str]] = Option(
        "hop.password", text, "", secret=True, doc="password; default: sasl.password"
    )
    MECHANISM: ClassVar[Option[str]] = Option(
        "hop.scram.mechanism",
        choice(*_MECHANISMS),
        "",
        doc="SCRAM-SHA-256 or SCRAM-SHA-512; default: sasl.mechanism, then SCRAM-SHA-512",
    )
    TOKEN: ClassVar[Option[str]] = Option(
        "hop.token", text, "", secret=True, doc="bearer token; default: from oauth_cb or sasl.oauthbearer.*"
    )
    ALLOW_HTTP: ClassVar[Option[bool]] = Option(
        "hop.allow.http", boolean, True, doc="an endpoint without TLS is used; for tokens only if set"
    )
    DISCOVERY_MS: ClassVar[Option[int]] = Option(
        "hop.discovery.timeout.ms", integer(1), 10_000, doc="for the broker to announce its endpoint"
    )
    CONNECT_MS: ClassVar[Option[int]] = Option("hop.connection.timeout.ms", integer(1), 2_000, doc="to connect")
    REQUEST_MS: ClassVar[Option[int]] = Option(
        "hop.request.timeout.ms", integer(1), 8_000, doc="for the server to answer, or to go on with its answer"
    )
    ATTEMPTS: ClassVar[Option[int]] = Option("hop.retry.attempts", integer(1), 3, doc="total attempts per request")
    AUTOMATIC_OFFLOAD: ClassVar[Option[bool | None]] = Option(
        "automatic_offload",
        boolean,
        None,
        doc="whether large messages are offloaded; default: HOP_AUTOMATIC_OFFLOAD, then hop's config.toml, then true",
    )
    FETCH_EXTERNAL: ClassVar[Option[bool | None]] = Option(
        "fetch_external",
        boolean,
        None,
        doc="whether placeholders are followed; default: HOP_FETCH_EXTERNAL, then hop's config.toml, then true",
    )
    RETRACTED: ClassVar[Option[str]] = Option(
        "hop.retracted",
        choice("ignore", "error", "flag"),
        "ignore",
        doc="records retracted in the archive: ignore the mark, error, or flag by the header _retracted; error and "
        "flag cost a request per record",
    )
    options = (
        URL, USERNAME, PASSWORD, MECHANISM, TOKEN, ALLOW_HTTP, DISCOVERY_MS, CONNECT_MS, REQUEST_MS, ATTEMPTS,
        AUTOMATIC_OFFLOAD, FETCH_EXTERNAL, RETRACTED,
    )  # fmt: skip

    def configure(self, config: Mapping[str, object]) -> None:
        """Read the ``hop.*`` keys and the client's own, without I/O. See :meth:`PayloadStore.configure`."""
        super().configure(config)
        self._config = dict(config)
        self._lock = threading.Lock()
        self.offloads = switch(self.AUTOMATIC_OFFLOAD.name, self.AUTOMATIC_OFFLOAD.read(config))
        self.fetches = switch(self.FETCH_EXTERNAL.name, self.FETCH_EXTERNAL.read(config))
        self._allow_http = self.ALLOW_HTTP.read(config)
        self._discovery_ms = self.DISCOVERY_MS.read(config)
        self._retracted = self.RETRACTED.read(config)
        self._has_warned = False
        self._trusted = [
            self._parse(prefix, self.TRUSTED.name) for prefix in self.trusted_references if prefix.startswith("http")
        ]
        self._discovered: Endpoint | Unsupported | None = None
        auth = self._credentials(config)
        if url := self.URL.read(config):
            endpoint = self._parse(url, self.URL.name)
            if why_not := self._refuse(endpoint):
                raise ConfigError(f"{self.URL.name} is {why_not}", key=self.URL.name)
            self._accept(endpoint)
        elif not can_connect(config):
            raise ConfigError(
                f"the hop store needs {self.URL.name}, or bootstrap.servers to ask the broker for it",
                key=self.URL.name,
            )
        self._client = self._make_client(config, auth)

    def owns(self, reference: str) -> bool:
        """Whether it is a record's address at the endpoint, or a trusted reference. See :meth:`PayloadStore.owns`.

        This does not ask the broker for its endpoint. Until the first download or upload does, and if references are
        not followed anyway, the store owns every address of the form ``https://…/msg/<uuid>``.
        """
        if any(prefix.covers(reference) for prefix in self._trusted):
            return True
        if self._discovered is None or not self.fetches:
            return is_message(reference)
        return isinstance(self._discovered, Endpoint) and self._discovered.own(reference) is not None

    def why_not(self) -> str | None:
        """Why nothing can be published: switched off by the user or the broker. See :class:`SupportsOptOut`."""
        if not self.offloads:
            return f"{self.AUTOMATIC_OFFLOAD.name} is off"
        endpoint = self._endpoint()
        return str(endpoint) if isinstance(endpoint, Unsupported) else None

    def publish(self, topic: str, data: Buffer, context: PublishContext | None = None) -> str:
        """Post a payload as a record without headers or key. See :meth:`PayloadStore.publish`."""
        return self.publish_record(topic, StoredRecord(data), context)

    def publish_record(self, topic: str, record: StoredRecord, context: PublishContext | None = None) -> str:
        """Post a record, streamed from the caller's buffer. See :class:`~payload_stores.SupportsRecords`.

        The header ``_id`` contains the id. With random ids, an existing one of 16 bytes is kept; otherwise a new one
        replaces it.
        """
        self.check_topic(topic)
        endpoint = self._endpoint()
        if isinstance(endpoint, Unsupported):
            raise PayloadStoreError(f"the record cannot be offloaded: {endpoint}", store="hop", topic=topic)
        message_id, headers = self._identify(topic, record, context)
        record = record._replace(headers=headers)
        reference = endpoint.message_url(message_id)
        repeatable = context is not None and context.deterministic
        self._client.upload(endpoint.upload_url(topic), reference, record, repeatable=repeatable)
        return reference

    def download(self, reference: str) -> bytes:
        """Fetch the payload of a record. See :meth:`PayloadStore.download`."""
        return bytes(self.download_record(reference).value)

    def download_record(self, reference: str) -> StoredRecord:
        """Fetch a record by the endpoint's or a trusted address. See :class:`~payload_stores.SupportsRecords`."""
        address, is_own = self._address(reference)
        record = self._client.download(address, lambda size: self.check_size(size, reference), authenticated=is_own)
        return record if self._retracted == "ignore" or not is_own else self._judged(record, address)

    def retract(self, reference: str, *, retracted: bool = True) -> None:
        """Mark a record of the endpoint as retracted in its archive, or take the mark back.

        The record stays readable; readers choose by ``hop.retracted``. The server is to offer it: SCiMMA's archive-api
        from 1.3 on (``PUT /msg/{id}/retraction``). It permits its sender, and owners of the topic's group.

        Args:
            reference: The record's address.
            retracted: False takes a retraction back.

        Raises:
            UntrustedReferenceError: It is not a record of the endpoint.
            PayloadNotFoundError: There is no such record, or the server does not offer retractions.
            PayloadAccessDeniedError: The user may not retract it.

        Example:
            >>> store.retract("https://hop.example.org/msg/6c8f2c2e-5d0c-4f5e-9d8e-0a6f2f1f3b7a")  # doctest: +SKIP
        """
        address, is_own = self._address(reference)
        if not is_own:
            raise self.untrusted(reference, "only records of the own endpoint can be retracted")
        self._client.retract(address, retracted=retracted)

    def open(self, reference: str) -> BinaryIO:
        """Open a payload, read as it arrives. See :class:`~payload_stores.SupportsStreaming`.

        The protocol has no ranges: the server builds the document around the payload for each request. So seeking
        forward reads the skipped bytes, and seeking back requests the record again.
        """
        address, is_own = self._address(reference)
        return self._client.open(address, lambda size: self.check_size(size, reference), authenticated=is_own)

    def read_range(self, reference: str, start: int, length: int) -> bytes:
        """Read a payload up to the end of a part. See :class:`~payload_stores.SupportsRanges`."""
        wanted = checked_range(start, length)
        with self.open(reference) as file:
            size = file.seek(0, io.SEEK_END)
            file.seek(wanted.start)
            return file.read(min(length, max(0, size - start)))

    def publish_stream(self, topic: str, reader: BinaryIO, context: PublishContext | None = None) -> str:
        """Post the contents of a reader, through a temporary file: a document begins with its length.

        See :class:`~payload_stores.SupportsStreaming`.
        """
        from payload_stores.hop.record_document import MAX_BYTES

        self.check_topic(topic)
        with tempfile.TemporaryFile() as file:
            while block := reader.read(_BLOCK_BYTES):
                file.write(block)
                if file.tell() > MAX_BYTES:
                    raise PayloadTooLargeError(
                        f"the record cannot be written: a BSON document has at most {MAX_BYTES} bytes",
                        store="hop",
                        topic=topic,
                    )
            if not file.tell():
                return self.publish(topic, b"", context)
            file.flush()
            # It is closed with its last view: views in a pending error's traceback would prevent closing it here.
            return self.publish(topic, memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)), context)

    def id(self, data: Buffer, context: PublishContext | None = None) -> str:
        """Make a UUID: random, or version 8 (RFC 9562) from the id of other stores."""
        context = context or PublishContext()
        payload_id = super().id(data, context)
        if not context.deterministic:
            return payload_id
        digest = bytearray(hashlib.sha256(payload_id.encode()).digest()[:16])
        digest[6] = digest[6] & 0x0F | 0x80
        digest[8] = digest[8] & 0x3F | 0x80
        return str(uuid.UUID(bytes=bytes(digest)))

    @property
    def retries(self) -> int:
        """Number of retries. See :class:`~payload_stores.SupportsRetryCount`."""
        return self._client.repeated.count

    def worst_case_ms(self) -> int:
        """Maximum time in ms until a request without an answer fails permanently."""
        return self._client.worst_case_ms

    def close(self) -> None:
        """Close the connections. See :meth:`PayloadStore.close`."""
        if hasattr(self, "_client"):
            self._client.close()

    def _identify(
        self, topic: str, record: StoredRecord, context: PublishContext | None
    ) -> tuple[uuid.UUID, tuple[tuple[str, bytes | None], ...]]:
        """The record's id, and its headers with only that id."""
        given = next((value for name, value in record.headers if name == _ID_HEADER and value), b"")
        if context is not None and context.deterministic:
            # An id identifies a whole record: a shared payload would have the headers of another record.
            context = replace(context, digest=_digest(topic, record, context.digest))
        elif len(given) == 16:
            return uuid.UUID(bytes=given), _with_id(record, given)
        payload_id = self.id(record.value, context)
        if not _UUID.fullmatch(payload_id):
            raise PayloadStoreError(
                f"{payload_id!r} cannot be used as a payload id", hint="Here ids are UUIDs", store="hop", topic=topic
            )
        message_id = uuid.UUID(payload_id)
        return message_id, _with_id(record, message_id.bytes)

    def _address(self, reference: str) -> tuple[str, bool]:
        """A record's address, and whether it is at the store's own endpoint, which gets the credentials."""
        if any(prefix.covers(reference) for prefix in self._trusted):
            return reference, False
        endpoint = self._endpoint()
        if isinstance(endpoint, Unsupported):
            raise self.untrusted(reference, str(endpoint))
        address = endpoint.own(reference)
        if address is None:
            raise self.untrusted(reference, f"it is not a message of {endpoint.url}")
        return address, True

    def _judged(self, record: StoredRecord, address: str) -> StoredRecord:
        """Refuse or mark a retracted record, by ``hop.retracted``."""
        from payload_stores.hop.retraction import HEADER

        endpoint, _, message_id = address.rpartition("/msg/")
        retracted = None
        if record.timestamp is not None:
            retracted = self._client.is_retracted(endpoint, address, uuid.UUID(message_id), record.timestamp)
        if retracted is None and not self._has_warned:
            self._has_warned = True
            _log.warning(
                "%s = %s: %s does not say whether %s is retracted; such records are delivered",
                self.RETRACTED.name, self._retracted, endpoint, message_id,
            )  # fmt: skip
        if retracted and self._retracted == "error":
            raise PayloadRetractedError(
                "the record is retracted in the archive",
                hint=f"{self.RETRACTED.name} = flag delivers it with the header {HEADER}",
                store="hop",
                reference=address,
            )
        # Only the archive's word counts, not a header that the writer stored.
        headers = tuple(header for header in record.headers if header[0] != HEADER)
        return record._replace(headers=(*headers, (HEADER, b"true")) if retracted else headers)

    def _endpoint(self) -> Endpoint | Unsupported:
        with self._lock:
            if self._discovered is None:
                endpoint = discover(self._config, self._discovery_ms)
                if isinstance(endpoint, Endpoint) and (why_not := self._refuse(endpoint)):
                    endpoint = Unsupported(f"the endpoint that the broker announces is {why_not}")
                if isinstance(endpoint, Endpoint):
                    self._accept(endpoint)
                else:
                    _log.warning("large messages are off: %s", endpoint)
                    self._discovered = endpoint
            return self._discovered  # type: ignore[return-value]  # it was set above

    def _refuse(self, endpoint: Endpoint) -> str | None:
        """Why an endpoint is not used; None if it is used."""
        if endpoint.scheme == "https":
            return None
        if not self._allow_http:
            return f"plain http, and {self.ALLOW_HTTP.name} = false"
        # A proof is valid for one request; a copied token is valid for any request.
        if self._sends_token and self.ALLOW_HTTP.name not in self._config and not endpoint.is_loopback:
            return f"plain http, over which a token can be copied: {self.ALLOW_HTTP.name} = true sends it anyway"
        return None

    def _accept(self, endpoint: Endpoint) -> None:
        if endpoint.scheme == "http" and not endpoint.is_loopback:
            _log.warning(
                "%s is plain http: anyone on the network can read the records and act with the credentials",
                endpoint.url,
            )
        self.scheme = endpoint.scheme
        self._discovered = endpoint

    def _parse(self, url: str, key: str) -> Endpoint:
        try:
            return Endpoint.parse(url)
        except ValueError as error:
            shown = _CREDENTIALS.sub("//********@", url)
            raise ConfigError(f"{key} has {shown!r}: {error}", key=key) from error

    def _make_client(self, config: Mapping[str, object], auth: httpx2.Auth | None) -> HopClient:
        from payload_stores.hop.client import HopClient

        ca_file = config.get("ssl.ca.location")
        return HopClient(
            auth,
            connect_ms=self.CONNECT_MS.read(config),
            request_ms=self.REQUEST_MS.read(config),
            attempts=self.ATTEMPTS.read(config),
            ca_file=str(ca_file) if ca_file and ca_file != "probe" else None,
        )

    def _credentials(self, config: Mapping[str, object]) -> httpx2.Auth | None:
        """SCRAM or a bearer token, by default with the Kafka client's mechanism; or none."""
        sasl = str(config.get("sasl.mechanism") or config.get("sasl.mechanisms") or "").strip().lower()
        token, mechanism = self.TOKEN.read(config), self.MECHANISM.read(config)
        username = self.USERNAME.read(config) or _known(config, "sasl.username")
        password = self.PASSWORD.read(config) or _known(config, "sasl.password")
        self.sender = username or None
        self._sends_token = bool(token) or (sasl == _BEARER and not mechanism)
        if self._sends_token:
            from payload_stores.hop.auth import BearerAuth, tokens

            return BearerAuth(tokens(token, config))
        if bool(username) != bool(password):
            missing = self.PASSWORD.name if username else self.USERNAME.name
            raise ConfigError(
                f"{self.USERNAME.name} and {self.PASSWORD.name} belong together, {missing} is missing", key=missing
            )
        if not username:
            return None
        from payload_stores.scram.auth import ScramAuth

        mechanism = mechanism or (sasl if sasl in _MECHANISMS else _MECHANISMS[1])
        return ScramAuth(username, password, mechanism=mechanism, public_over_http=self._allow_http)


def _known(config: Mapping[str, object], key: str) -> str:
    return str(config.get(key) or "")


def _digest(topic: str, record: StoredRecord, known: str | None) -> str:
    """Digest of a record without its id."""
    digest = hashlib.sha256()
    value = known or sha256_digest(record.value)
    parts: list[Any] = [topic, value, record.key]
    parts += (part for name, value in record.headers if name != _ID_HEADER for part in (name, value))
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(b"-" if data is None else b"%d:%b" % (len(data), data))
    return DIGEST_PREFIX + digest.hexdigest()


def _with_id(record: StoredRecord, message_id: bytes) -> tuple[tuple[str, bytes | None], ...]:
    """The headers with one id, at the position of the first one, or at the end."""
    names = [name for name, _ in record.headers]
    at = names.index(_ID_HEADER) if _ID_HEADER in names else len(names)
    others = [header for header in record.headers if header[0] != _ID_HEADER]
    return (*others[:at], (_ID_HEADER, message_id), *others[at:])
