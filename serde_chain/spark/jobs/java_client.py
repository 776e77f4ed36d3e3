"""librdkafka's connection keys as the Java client's, which Spark's Kafka source runs."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from serde_chain.errors import ConfigError

__all__ = ["java_settings"]

_log = logging.getLogger("serde_chain")

# Keys of one meaning in both; None for those of the same name.
_SAME: Final[Mapping[str, str | None]] = {
    "bootstrap.servers": None,
    "metadata.broker.list": "bootstrap.servers",
    "security.protocol": None,
    "sasl.mechanism": None,
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.kerberos.service.name": None,
    "ssl.key.password": None,
    "client.id": None,
    "client.rack": None,
    "fetch.max.bytes": None,
    "max.partition.fetch.bytes": None,
}
_MODULES: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
# In PEM, and by its text: the files need not be on Spark's executors.
_PEM: Final[Mapping[str, tuple[str, ...]]] = {
    "ssl.truststore.certificates": ("ssl.ca.pem", "ssl.ca.location"),
    "ssl.keystore.certificate.chain": ("ssl.certificate.pem", "ssl.certificate.location"),
    "ssl.keystore.key": ("ssl.key.pem", "ssl.key.location"),
}
_LOGIN: Final = frozenset({"sasl.username", "sasl.password"})
_VERIFICATION: Final = "ssl.endpoint.identification.algorithm"
# What else is about the connection would be missed; all other keys are about how records are read or written.
_MISSED: Final = ("sasl.", "ssl.", "ssl_", "security.", "enable.ssl.", "enable.sasl.", "oauth", "https.", "broker.")


def java_settings(client: Mapping[str, object]) -> dict[str, str]:
    """Translate what a client of librdkafka needs to connect.

    Args:
        client: librdkafka's keys. Those that Java's client does not have are left out; of those that are about the
            connection, the names are logged.

    Returns:
        Keys of Java's client.

    Raises:
        ConfigError: A certificate or key cannot be read, or there is no address; or the login is of a mechanism other
            than PLAIN and SCRAM: its keys mean nothing to Java's client.

    Example:
        >>> settings = java_settings({"bootstrap.servers": "localhost:9092", "security.protocol": "ssl", "acks": "all"})
        >>> settings["security.protocol"], "acks" in settings
        ('SSL', False)
    """
    settings = {_SAME[key] or key: str(value) for key, value in client.items() if key in _SAME}
    if not settings.get("bootstrap.servers"):
        raise ConfigError("bootstrap.servers is required to read topics", key="bootstrap.servers")
    for key in ("security.protocol", "sasl.mechanism"):
        if key in settings:
            settings[key] = settings[key].upper()
    mechanism = settings.get("sasl.mechanism", "GSSAPI")  # the default of both clients
    if settings.get("security.protocol", "").startswith("SASL") and mechanism not in _MODULES:
        raise ConfigError(
            f"sasl.mechanism = {mechanism} cannot be used for this job: it reads topics by Java's Kafka client, for "
            "which only the keys of PLAIN and SCRAM are translated",
            hint=f"Give the job a configuration with one of {', '.join(_MODULES)}, or with a client certificate",
            key="sasl.mechanism",
        )
    used = {*_SAME, *_put_login(client, settings), *_put_pem(client, settings)}
    if _VERIFICATION in client:
        name = str(client[_VERIFICATION])
        settings[_VERIFICATION] = "" if name == "none" else name
        used.add(_VERIFICATION)
    if missed := sorted(key for key in client if key.startswith(_MISSED) and key not in used):
        _log.warning("Spark connects without %s, which Java's Kafka client does not have", ", ".join(missed))
    return settings


def _put_login(client: Mapping[str, object], settings: dict[str, str]) -> frozenset[str]:
    module = _MODULES.get(settings.get("sasl.mechanism", ""))
    if module is None or not client.keys() >= _LOGIN:
        return frozenset()
    user, password = (_quoted(str(client[key])) for key in ("sasl.username", "sasl.password"))
    settings["sasl.jaas.config"] = f"{module} required username={user} password={password};"
    return _LOGIN


def _quoted(text: str) -> str:
    """A value in JAAS's own syntax."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _put_pem(client: Mapping[str, object], settings: dict[str, str]) -> set[str]:
    used = set()
    for name, (inline, file) in _PEM.items():
        if inline in client:
            settings[name] = str(client[inline])
            used.add(inline)
        elif file in client:
            settings[name] = _content(str(client[file]), file)
            used.add(file)
        else:
            continue
        settings[name.rpartition("store.")[0] + "store.type"] = "PEM"
    return used


def _content(path: str, key: str) -> str:
    try:
        return Path(path).read_text()
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{key} = {path!r} cannot be read as PEM: {error}", hint="Name a file, not a folder", key=key
        ) from error
