"""A payload store in a cloud's bucket or container (obstore).

The reference of an object is its URL, ``<objects.url>/<topic>/<id>``, so this store reads payloads of the store ``s3``,
and vice versa.

obstore retries requests without an answer or with a temporary refusal, up to ``objects.retry.attempts`` attempts. With
the defaults a request takes less than a minute in the worst case, less than Kafka's default ``max.block.ms``
(KIP-1159).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from payload_stores import references
from payload_stores.buckets import BucketStore
from payload_stores.errors import ConfigError
from payload_stores.multipart import PARALLEL, PART_BYTES, DaemonPool
from payload_stores.objects.driver import ObstoreDriver
from payload_stores.objects.settings import PROVIDERS, Clients
from payload_stores.options import Option, integer, nearest, text, without_login
from payload_stores.plugins import import_object

_MAX_BACKOFF_MS: Final = 1_000
_ALIASES: Final = {"gcs": "gs", "s3a": "s3", "azure": "az", "abfs": "az", "abfss": "az", "adl": "az"}


def _credential_provider(value: object) -> object:
    if isinstance(value, str):
        return text(value)
    if not callable(value):
        raise ValueError("expected the dotted path of a class, or a callable")
    return value


class ObjectsStore(BucketStore):
    """Stores payloads as objects in S3, Google Cloud Storage or Azure Blob Storage, by URL.

    Payloads up to ``objects.part.bytes`` are uploaded in one request, larger ones in parallel parts; downloads of more
    than 8 MiB use parallel ranges. With ids of the content, an existing object is not replaced.

    Without configured credentials, obstore searches environment variables and the metadata services of the clouds'
    machines. Trusted references may be read, but are never deleted.

    The scheme is that of ``objects.url``.

    Example:
        >>> from payload_stores import open_store
        >>> store = open_store("objects", {"objects.url": "gs://payloads/alerts/"})  # doctest: +SKIP
        >>> store.publish("images", b"payload")  # doctest: +SKIP
        'gs://payloads/alerts/images/6c8f2c2e-5d0c-4f5e-9d8e-0a6f2f1f3b7a'
    """

    scheme = "objects"

    URL: ClassVar[Option[str]] = Option(
        "objects.url", text, "", required=True, doc="s3://bucket/folder/, gs://bucket/folder/, az://container/folder/"
    )
    PART: ClassVar[Option[int]] = Option(
        "objects.part.bytes", integer(5 << 20, 4_000 << 20), PART_BYTES, doc="payloads above it are uploaded in parts"
    )
    ATTEMPTS: ClassVar[Option[int]] = Option("objects.retry.attempts", integer(1), 3, doc="total attempts per request")
    CONNECT_MS: ClassVar[Option[int]] = Option("objects.connection.timeout.ms", integer(1), 5_000, doc="to connect")
    REQUEST_MS: ClassVar[Option[int]] = Option(
        "objects.request.timeout.ms", integer(1), 18_000, doc="for a whole request of up to objects.part.bytes"
    )
    PROVIDER: ClassVar[Option[Any]] = Option(
        "objects.credential.provider.class", _credential_provider, None, doc="class whose objects give credentials"
    )
    # Common options whose values may be shown.
    ENDPOINT: ClassVar[Option[str]] = Option("objects.endpoint", text, "", doc="server, if it is not the cloud's own")
    REGION: ClassVar[Option[str]] = Option("objects.region", text, "", doc="S3's region; default: us-east-1")
    ACCESS_KEY: ClassVar[Option[str]] = Option("objects.access_key_id", text, "", doc="S3's access key")
    ACCOUNT: ClassVar[Option[str]] = Option("objects.account_name", text, "", doc="Azure's storage account")
    ALLOW_HTTP: ClassVar[Option[str]] = Option("objects.allow_http", text, "", doc="true for servers without TLS")
    OBSTORE: ClassVar[Option[str]] = Option(
        "objects.*", text, "", secret=True, doc="any other option of obstore, by obstore's name"
    )
    _OWN: ClassVar[tuple[Option[Any], ...]] = (URL, PART, ATTEMPTS, CONNECT_MS, REQUEST_MS, PROVIDER)
    options = (*_OWN, ENDPOINT, REGION, ACCESS_KEY, ACCOUNT, ALLOW_HTTP, OBSTORE)

    def configure(self, config: Mapping[str, object]) -> None:
        """Read the ``objects.*`` keys and create the client, without I/O. See :meth:`PayloadStore.configure`."""
        super().configure(config)
        place = self._read_url(config)
        without_login(self.ENDPOINT.read(config), self.ENDPOINT.name)
        self.roots = references.Roots(self, place.host, place.segments)
        self._attempts = self.ATTEMPTS.read(config)
        self._request_ms = self.REQUEST_MS.read(config)
        own = tuple(option.name for option in self._OWN)
        clients = Clients(
            self.scheme,
            {
                name: value
                for name, value in self.OBSTORE.select(config).items()
                if f"objects.{name}" not in own and value not in (None, "")
            },
            known=own,
            provider=self._read_provider(config),
            connect_ms=self.CONNECT_MS.read(config),
            request_ms=self._request_ms,
            attempts=self._attempts,
            backoff_ms=_MAX_BACKOFF_MS,
        )
        clients.of(place.host)  # reports what obstore refuses
        self._start(ObstoreDriver(clients, self.PART.read(config)), DaemonPool(PARALLEL))

    def worst_case_ms(self) -> int:
        """Maximum time in ms until a request without an answer fails permanently.

        The same bound applies to a server that answers a few bytes at a time.
        """
        return self._attempts * self._request_ms + (self._attempts - 1) * _MAX_BACKOFF_MS

    def _read_url(self, config: Mapping[str, object]) -> references.Location:
        url, key = self.URL.read(config), self.URL.name
        self.scheme = url.partition("://")[0]
        if self.scheme not in PROVIDERS:
            near = _ALIASES.get(self.scheme) or nearest(self.scheme, PROVIDERS)
            raise ConfigError(
                f"{key} does not begin with any of {', '.join(f'{scheme}://' for scheme in PROVIDERS)}",
                hint=f"Did you mean {near}://?" if near else "For a folder on this machine there is the store local",
                key=key,
            )
        place = references.parse_prefix(self, url, key)
        if not place.host or any(sign in place.host for sign in "@: "):
            raise ConfigError(
                f"{key} names no bucket or container behind ://",
                hint="Accounts, keys and servers have options of their own: objects.account_name, objects.endpoint, …",
                key=key,
            )
        return place

    def _read_provider(self, config: Mapping[str, object]) -> object:
        provider = self.PROVIDER.read(config)
        if not isinstance(provider, str):
            return provider
        made = import_object(provider, "credential provider")
        if not callable(made):
            raise ConfigError(f"{provider} is not a class", key=self.PROVIDER.name)
        try:
            return made()
        except Exception as error:  # a third-party class may raise anything
            raise ConfigError(
                f"{provider} cannot be made without arguments: {type(error).__name__}: {error}", key=self.PROVIDER.name
            ) from error
