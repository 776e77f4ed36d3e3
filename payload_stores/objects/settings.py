"""The ``objects.*`` settings: the location, the options of obstore, and clients made from them."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import urlsplit

from payload_stores.errors import ConfigError
from payload_stores.objects.errors import ObjectErrors
from payload_stores.options import nearest
from payload_stores.plugins import require

if TYPE_CHECKING:
    from obstore.store import AzureStore, GCSStore, S3Store

    Client: TypeAlias = AzureStore | GCSStore | S3Store


@dataclass(frozen=True, slots=True)
class Provider:
    """One cloud.

    Attributes:
        store: obstore's class.
        options: Its options, by obstore's names; the longer names (``aws_…``) are accepted too.
        place: Options implied by ``objects.url``.
        environment: Beginning of the environment variables that obstore reads options from.
        defaults: Groups of options set unless the user sets one of the group.
    """

    store: str
    environment: str
    options: tuple[str, ...]
    place: tuple[str, ...]
    defaults: tuple[Mapping[str, str], ...] = ()


# Names as in obstore's S3Config, GCSConfig, AzureConfig and ClientConfig; obstore refuses others.
PROVIDERS: Final[Mapping[str, Provider]] = {
    "s3": Provider(
        "S3Store",
        "AWS",
        (
            "access_key_id", "secret_access_key", "session_token", "region", "default_region", "endpoint",
            "virtual_hosted_style_request", "server_side_encryption", "sse_kms_key_id", "sse_bucket_key_enabled",
            "sse_customer_key_base64", "checksum_algorithm", "unsigned_payload", "skip_signature", "request_payer",
            "s3_express", "disable_bulk_delete", "disable_tagging", "conditional_put", "copy_if_not_exists", "role_arn",
            "role_session_name", "web_identity_token_file", "sts_endpoint", "metadata_endpoint", "imdsv1_fallback",
            "container_credentials_relative_uri", "container_credentials_full_uri",
            "container_authorization_token_file",
        ),
        ("bucket", "bucket_name"),
        (
            # A cheap checksum for the server. Otherwise the signature hashes the payload, whose SHA-256 is already in
            # the record.
            {"unsigned_payload": "true", "checksum_algorithm": "crc64nvme"},
            # Objects are deleted one by one; not every server can delete several at once.
            {"disable_bulk_delete": "true"},
        ),
    ),
    "gs": Provider(
        "GCSStore",
        "GOOGLE",
        ("service_account", "service_account_key", "application_credentials", "bearer_token", "base_url",
         "skip_signature"),
        ("bucket", "bucket_name"),
    ),
    "az": Provider(
        "AzureStore",
        "AZURE",
        (
            "account_name", "account_key", "sas_key", "token", "client_id", "client_secret", "tenant_id",
            "authority_host", "endpoint", "msi_endpoint", "object_id", "msi_resource_id", "federated_token_file",
            "use_azure_cli", "use_emulator", "use_fabric_endpoint", "skip_signature", "encryption_key",
            "credential_type", "disable_tagging", "fabric_token_service_url", "fabric_workload_host",
            "fabric_session_token", "fabric_cluster_identifier",
        ),
        ("container_name",),
    ),
}  # fmt: skip

_CLIENT: Final = (
    "allow_http", "allow_invalid_certificates", "default_content_type", "http1_only", "http2_only",
    "http2_keep_alive_interval", "http2_keep_alive_timeout", "http2_keep_alive_while_idle", "pool_idle_timeout",
    "pool_max_idle_per_host", "proxy_url", "proxy_ca_certificate", "proxy_excludes", "root_certificate",
    "randomize_addresses", "user_agent",
)  # fmt: skip
# Set by the store's own options, which determine its worst case.
_OURS: Final = {
    "timeout": "objects.request.timeout.ms",
    "read_timeout": "objects.request.timeout.ms",
    "connect_timeout": "objects.connection.timeout.ms",
    "max_retries": "objects.retry.attempts",
    "retry_timeout": "objects.retry.attempts",
}
# Values that messages may show.
_PLAIN: Final = frozenset({
    "region", "default_region", "endpoint", "base_url", "account_name", "access_key_id", "checksum_algorithm",
    "server_side_encryption", "conditional_put",
})  # fmt: skip
_ADDRESSES: Final = ("endpoint", "base_url", "authority_host", "msi_endpoint", "proxy_url")
_SHORT: Final = 6  # masking values such as "true" would make messages unreadable


class Clients:
    """obstore's clients for one configuration, one per bucket.

    Args:
        scheme: Scheme of the references.
        settings: The options of obstore, without the prefix ``objects.``.
        known: Names of the store's own options, for messages.
        provider: Source of credentials; None for obstore's own sources.
        connect_ms: Time for a connection, in ms.
        request_ms: Time for a request, including its answer, in ms.
        attempts: Total attempts per request.
        backoff_ms: Longest wait between two of them, in ms.

    Attributes:
        errors: Converts the clients' errors.

    Raises:
        ConfigError: obstore does not know an option, or refuses its value.
        MissingDependencyError: obstore is not installed.
    """

    def __init__(
        self,
        scheme: str,
        settings: Mapping[str, object],
        *,
        known: tuple[str, ...],
        provider: object,
        connect_ms: int,
        request_ms: int,
        attempts: int,
        backoff_ms: int,
    ) -> None:
        stores = require("obstore.store", "objects")
        self._provider = PROVIDERS[scheme]
        self._known = (*known, *(f"objects.{name}" for name in (*self._provider.options, *_CLIENT)))
        texts = {name: _text(name, value) for name, value in settings.items() if not self._is_of_another(name)}
        for name in texts:
            self._refuse_ours(name)
        self._set = frozenset(texts)
        # obstore reads the others itself, but these only where it gets no client options, which hold our time limits.
        environment = self._environment()
        texts = {name: value for name, value in environment.items() if name in _CLIENT} | texts
        for name in _ADDRESSES:
            self._check_address(name, texts.get(name) or environment.get(name))
        self.errors = ObjectErrors(
            scheme, [text for name, text in texts.items() if name not in _PLAIN and len(text) >= _SHORT]
        )
        self._make = getattr(stores, self._provider.store)
        self._config = {name: text for name, text in texts.items() if name not in _CLIENT}
        for group in self._provider.defaults:
            if not group.keys() & (self._config.keys() | environment.keys()):
                self._config.update(group)
        self._options: dict[str, Any] = {
            "client_options": {
                **{name: text for name, text in texts.items() if name in _CLIENT},
                "connect_timeout": timedelta(milliseconds=connect_ms),
                "timeout": timedelta(milliseconds=request_ms),
            },
            "retry_config": {
                "max_retries": attempts - 1,
                "retry_timeout": timedelta(milliseconds=attempts * (request_ms + backoff_ms)),
                "backoff": {"max_backoff": timedelta(milliseconds=backoff_ms)},
            },
            **({} if provider is None else {"credential_provider": provider}),
        }
        self._is_express = (self._config.get("s3_express") or environment.get("s3_express", "")).lower() == "true"
        self._lock = threading.Lock()
        self._made: dict[str, Client] = {}

    @property
    def is_ordered(self) -> bool:
        """Whether listings are sorted by name: not for S3's directory buckets."""
        return not self._is_express

    @property
    def begins_anywhere(self) -> bool:
        """Whether the server can start a listing after a name: with Azure, obstore reads all of it."""
        return self.is_ordered and self._provider is not PROVIDERS["az"]

    def of(self, bucket: str) -> Client:
        """The client of a bucket or container."""
        with self._lock:
            if bucket not in self._made:
                self._made[bucket] = self._open(bucket)
            return self._made[bucket]

    def close(self) -> None:
        """Release the clients, and so their connections."""
        with self._lock:
            self._made.clear()

    def _open(self, bucket: str) -> Client:
        from obstore.exceptions import BaseError

        try:
            client: Client = self._make(bucket, config=self._config, **self._options)
        except (BaseError, ValueError, TypeError) as error:
            explained = self._explained(str(error), self.errors.message(error))
            error.args = (explained.message,)  # as the cause, it might show a value
            raise explained from error
        return client

    def _explained(self, said: str, message: str) -> ConfigError:
        """The error for settings refused by obstore, with its message, without secrets."""
        for name, value in (self._config | self._options["client_options"]).items():
            if f'"{value}"' in said:
                return ConfigError(f"{self._where(name)}: {message}", key=f"objects.{name}")
            if f"key: '{name}'" in said or f"key: {name}." in said:
                near = nearest(f"objects.{name}", self._known)
                return ConfigError(
                    f"objects.{name} is not an option of obstore's {self._provider.store}",
                    hint=f"Did you mean {near}?" if near else None,
                    key=f"objects.{name}",
                )
        return ConfigError(
            f"obstore refuses these settings: {message}",
            hint="Set objects.account_name to the storage account" if "Account must be specified" in said else None,
            key="objects.url",
        )

    def _environment(self) -> dict[str, str]:
        """The options in the environment variables of this cloud, such as ``AWS_ALLOW_HTTP``."""
        names = (*self._provider.options, *_CLIENT)
        found = {name: os.environ.get(f"{self._provider.environment}_{name.upper()}", "") for name in names}
        return {name: value for name, value in found.items() if value}

    def _check_address(self, name: str, address: str | None) -> None:
        """Refuse an address without a scheme, with which obstore panics at the first request."""
        parts = None if address is None else urlsplit(address)
        if parts is not None and (parts.scheme not in {"http", "https"} or not parts.hostname):
            raise ConfigError(
                f"{self._where(name)} is not an address that begins with http:// or https://",
                hint="Write it with its scheme, as http://localhost:9000",
                key=f"objects.{name}",
            )

    def _where(self, name: str) -> str:
        return f"objects.{name}" if name in self._set else f"{self._provider.environment}_{name.upper()}"

    def _is_of_another(self, name: str) -> bool:
        """Whether only other clouds have an option: routes to several clouds share one configuration."""
        own = name in self._provider.options or name in _CLIENT
        return not own and any(name in provider.options for provider in PROVIDERS.values())

    def _refuse_ours(self, name: str) -> None:
        key = f"objects.{name}"
        if name in _OURS:
            raise ConfigError(f"{key} is set by {_OURS[name]}", hint=f"Use {_OURS[name]}, in ms or attempts", key=key)
        if name in self._provider.place:
            raise ConfigError(f"{key} is a part of objects.url", hint=f"Leave {key} out", key=key)


def _text(name: str, value: object) -> str:
    """The value of an option in obstore's form."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (str, int, float)):
        return str(value)
    raise ConfigError(f"objects.{name}: expected text, a number, or true or false", key=f"objects.{name}")
