"""Settings of a registry's HTTP client: the keys ``schema.registry.*``, typed and checked by name."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from typing import Any, Final
from urllib.parse import urlsplit

from payload_stores.options import Option, choice, integer, nearest, text
from payload_stores.plugins import import_object
from serde_chain.errors import ConfigError, SchemaRegistryError
from serde_chain.schemas.registry import URL, USER_INFO

CLIENT: Final = Option("schema.registry.*", text, "", secret=True, doc="settings of the registry's HTTP client")
CREDENTIALS: Final = Option(
    "basic.auth.credentials.source",
    choice("user_info", "url", "sasl_inherit"),
    None,
    doc="where the login is: USER_INFO (basic.auth.user.info), URL, SASL_INHERIT (sasl.username, sasl.password)",
)
SASL_USERNAME: Final = Option("sasl.username", text, None)
SASL_PASSWORD: Final = Option("sasl.password", text, None, secret=True)

OPTIONS: Final[tuple[Option[Any], ...]] = (CLIENT, CREDENTIALS)
LOGIN: Final[tuple[Option[Any], ...]] = (SASL_USERNAME, SASL_PASSWORD)
"""Keys of the Kafka client that SASL_INHERIT reads."""

# Shorter than the deadline of a question (serde_chain.schemas.deadline).
_MOST_SECONDS: Final = 45


def _seconds(value: object) -> float:
    try:
        number = float(value) if isinstance(value, (int, float, str)) and not isinstance(value, bool) else 0.0
    except ValueError:
        number = 0.0
    if not 0 < number <= _MOST_SECONDS:
        raise ValueError(f"expected seconds, up to {_MOST_SECONDS}")
    return number


def _authority(value: object) -> str | bool:
    """A file or folder of certificates; False for no verification."""
    if value is False or (isinstance(value, str) and value.strip().lower() == "false"):
        return False
    return text(value)


def _address(value: object) -> str:
    return _checked(text(value), ("http", "https", "mock"), "http://localhost:8081")


def _proxy(value: object) -> str:
    proxy = _checked(text(value), ("http", "https", "socks5", "socks5h"), "http://proxy:3128")
    if proxy.startswith("socks") and find_spec("socksio") is None:
        raise ValueError("a SOCKS proxy requires a package: pip install socksio")
    return proxy


def _checked(addresses: str, schemes: tuple[str, ...], example: str) -> str:
    """Addresses as they are; clients otherwise take some wrong ones for servers that do not answer."""
    for address in addresses.split(","):
        try:
            parts = urlsplit(address.strip())
            has_host = bool(parts.hostname) or parts.scheme == "mock"  # Confluent's, in memory
            is_address = parts.scheme in schemes and has_host and (parts.port or 1) > 0
        except ValueError:
            is_address = False
        if not is_address or not address.isprintable():
            raise ValueError(f"expected an address such as {example}")
    return addresses


def _function(value: object) -> object:
    found: object = import_object(value, "function") if isinstance(value, str) else value
    if not callable(found):
        raise ValueError("expected a function, or its dotted path")
    return found


def _mapping(value: object) -> object:
    if not isinstance(value, Mapping):
        raise ValueError("expected a mapping")
    return dict(value)


PLAIN: Final[Mapping[str, Callable[[object], object]]] = {
    "url": _address,
    "proxy": _proxy,
    "timeout": _seconds,
    "basic.auth.user.info": text,
    "ssl.ca.location": _authority,
    "ssl.certificate.location": text,
    "ssl.key.location": text,
    "ssl.key.password": text,
}
"""What the clients of all registries with an address take."""

LIBRARYS: Final[Mapping[str, Callable[[object], object]]] = {
    **PLAIN,
    "cache.capacity": integer(minimum=1),
    "max.retries": integer(minimum=0),
    "retries.wait.ms": integer(minimum=0),
    "retries.max.wait.ms": integer(minimum=0),
    "bearer.auth.credentials.source": text,
    "bearer.auth.token": text,
    "bearer.auth.logical.cluster": text,
    "bearer.auth.identity.pool.id": text,
    "bearer.auth.client.id": text,
    "bearer.auth.client.secret": text,
    "bearer.auth.scope": text,
    "bearer.auth.issuer.endpoint.url": text,
    "bearer.auth.issuer.endpoint.query": text,
    "bearer.auth.custom.provider.function": _function,
    "bearer.auth.custom.provider.config": _mapping,
}
"""What Confluent's client takes."""

# The names of the same settings in Confluent's Java client, and in librdkafka.
_OTHERS: Final[Mapping[str, str]] = {
    "latest.cache.ttl.sec": "cache.latest.ttl.sec",
    "request.timeout.ms": "timeout",
    "http.connect.timeout.ms": "timeout",
    "http.read.timeout.ms": "timeout",
    "ssl.truststore.location": "ssl.ca.location",
    "ssl.truststore.certificates": "ssl.ca.location",
    "ssl.keystore.location": "ssl.certificate.location",
    "ssl.keystore.password": "ssl.key.password",
    "ssl.certificate.pem": "ssl.certificate.location",
    "ssl.key.pem": "ssl.key.location",
    "ssl.ca.pem": "ssl.ca.location",
}
# Keys of this package's own with the same prefix.
_OURS: Final = frozenset({"type", "basic.auth.credentials.source", "cache.latest.ttl.sec"})
_SECRET: Final = ("password", "secret", "token", "user.info", "url", "proxy")


def settings_of(
    config: Mapping[str, object], taken: Mapping[str, Callable[[object], object]], registry: str
) -> dict[str, Any]:
    """The settings of a registry's client, without the prefix.

    Args:
        config: Flat configuration.
        taken: The settings that the client takes, and their parsers.
        registry: Its ``schema.registry.type``.

    Returns:
        The values of their types, with the login of ``basic.auth.credentials.source``.

    Raises:
        ConfigError: A setting is unknown, without effect with this registry, or has no such value.
    """
    settings: dict[str, Any] = {}
    for name, value in CLIENT.select(config).items():
        key = f"schema.registry.{name}"
        if name in _OURS or value is None:
            continue
        if name not in taken:
            raise ConfigError(
                f"{key} has no effect with schema.registry.type = {registry}", hint=_meant(name, taken), key=key
            )
        option: Option[Any] = Option(key, taken[name], None, secret=name.endswith(_SECRET))
        settings[name] = option.read({key: value})
    user_info = login(config, settings)
    settings.pop("basic.auth.user.info", None)
    return settings if user_info is None else {**settings, "basic.auth.user.info": user_info}


def _meant(name: str, taken: Iterable[str]) -> str:
    known = {*taken, *_OURS}
    here = _OTHERS.get(name)
    if here is not None and here in known:
        form = ", of PEM files" if here.startswith("ssl.") else ", in seconds"
        return f"Here it is schema.registry.{here}{form}"
    near = nearest(name, known)
    return f"Did you mean schema.registry.{near}?" if near else "Remove it; docs/registries.md has a table of all keys"


def login(config: Mapping[str, object], settings: Mapping[str, Any]) -> str | None:
    """The login, as ``user:password``; None for that in the address, or for none.

    Args:
        config: Flat configuration.
        settings: Those of the client.

    Raises:
        ConfigError: The login is not where ``basic.auth.credentials.source`` says.
    """
    nested = f"schema.registry.{CREDENTIALS.name}"
    source = CREDENTIALS.read(config) or CREDENTIALS.read({CREDENTIALS.name: config.get(nested)})
    user_info: str | None = USER_INFO.read(config) or settings.get("basic.auth.user.info")
    if source == "sasl_inherit":
        user, password = SASL_USERNAME.read(config), SASL_PASSWORD.read(config)
        if user is None or password is None:
            raise ConfigError(
                f"{CREDENTIALS.name} = SASL_INHERIT requires {SASL_USERNAME.name} and {SASL_PASSWORD.name}",
                hint=f"Set them, or {USER_INFO.name} with {CREDENTIALS.name} = USER_INFO",
                key=CREDENTIALS.name,
            )
        user_info = f"{user}:{password}"
    elif source == "user_info" and user_info is None:
        raise ConfigError(
            f"{CREDENTIALS.name} = USER_INFO requires {USER_INFO.name}", hint="Set it", key=USER_INFO.name
        )
    elif source == "url":
        if "@" not in settings.get("url", ""):
            raise ConfigError(f"{CREDENTIALS.name} = URL, and {URL.name} has no login", hint="Set it", key=URL.name)
        user_info = None
    if user_info is not None and ":" not in user_info:
        raise ConfigError(f"{USER_INFO.name} is not of the form user:password", key=USER_INFO.name)
    return user_info


def tls_context(settings: Mapping[str, Any]) -> ssl.SSLContext | None:
    """The TLS settings, with their files loaded; None if there are none.

    Args:
        settings: Those of :func:`settings_of`.

    Raises:
        ConfigError: A file is missing, or does not contain what its key says.
    """
    authority, certificate, key = (settings.get(f"ssl.{name}.location") for name in ("ca", "certificate", "key"))
    password = settings.get("ssl.key.password")
    if certificate is None and (key is not None or password is not None):
        raise ConfigError(
            "schema.registry.ssl.key.* requires schema.registry.ssl.certificate.location",
            key="schema.registry.ssl.certificate.location",
        )
    if authority is None and certificate is None:
        return None
    context = _context(authority)
    if certificate is not None:
        for name, path in (("certificate", certificate), ("key", key)):
            if path is not None:
                _check_readable(f"schema.registry.ssl.{name}.location", path)
        try:
            # With an empty password, OpenSSL refuses an encrypted key; without one it would ask the terminal.
            context.load_cert_chain(certificate, key, password or "")
        except (OSError, ValueError) as error:
            alone = "ssl.certificate.location does not hold"
            holds = alone if key is None else "ssl.certificate.location and ssl.key.location do not hold"
            raise ConfigError(
                f"schema.registry.{holds} a certificate and its key: {_reason(error)}",
                hint="They are PEM files; set schema.registry.ssl.key.password if the key is encrypted",
                key="schema.registry.ssl.certificate.location",
            ) from error
    return context


def _context(authority: str | bool | None) -> ssl.SSLContext:
    if authority is False:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context
    name = "schema.registry.ssl.ca.location"
    if isinstance(authority, str):
        _check_readable(name, authority)
        file, folder = (None, authority) if os.path.isdir(authority) else (authority, None)  # noqa: PTH112, as ssl's
        try:
            return ssl.create_default_context(cafile=file, capath=folder)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"{name} = {authority!r} holds no certificates: {_reason(error)}",
                hint="It is a PEM file with the certificate of the registry's authority",
                key=name,
            ) from error
    return ssl.create_default_context()


def _check_readable(key: str, path: str) -> None:
    try:
        if not os.path.isdir(path):  # noqa: PTH112, as above
            with open(path, "rb"):  # noqa: PTH123, as above
                pass
    except (OSError, ValueError) as error:
        raise ConfigError(f"{key} = {path!r} cannot be read: {_reason(error)}", key=key) from error


def _reason(error: Exception) -> str:
    reason = error.reason if isinstance(error, ssl.SSLError) else None
    return reason or (error.strerror if isinstance(error, OSError) else None) or str(error)


# The peer ended the connection, as a server does that stops.
_OUTAGES: Final = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLWantReadError)


def refused_tls(error: BaseException) -> SchemaRegistryError | None:
    """The error of a connection that cannot be encrypted by these settings; None for other errors.

    An outage is not among them: nothing changes until someone changes the settings, or the server's certificate.

    Args:
        error: An error of an HTTP client.
    """
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    if cause is None or isinstance(cause, _OUTAGES):
        return None
    if isinstance(cause, ssl.SSLCertVerificationError):
        return SchemaRegistryError(
            f"the schema registry's certificate is refused: {cause.verify_message}",
            hint="Set schema.registry.ssl.ca.location to the file of the registry's certificate authority",
        )
    return SchemaRegistryError(
        f"the schema registry's connection cannot be encrypted: {_reason(cause)}",
        hint=f"Check {URL.name}, https or http; a server that wants certificates of its clients needs "
        "schema.registry.ssl.certificate.location",
    )
