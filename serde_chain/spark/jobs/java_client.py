"""librdkafka's connection keys translated for the Java client in Spark's Kafka source."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from serde_chain.errors import ConfigError

_log = logging.getLogger("serde_chain")

# Keys with the same meaning in both clients; None for the same name.
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
# PEM text instead of paths: the files may not exist on Spark's executors.
_PEM: Final[Mapping[str, tuple[str, ...]]] = {
    "ssl.truststore.certificates": ("ssl.ca.pem", "ssl.ca.location"),
    "ssl.keystore.certificate.chain": ("ssl.certificate.pem", "ssl.certificate.location"),
    "ssl.keystore.key": ("ssl.key.pem", "ssl.key.location"),
}
_LOGIN: Final = frozenset({"sasl.username", "sasl.password"})
_VERIFICATION: Final = "ssl.endpoint.identification.algorithm"
# Other untranslated keys of the connection are reported; all remaining keys concern reading or writing records.
_MISSED: Final = ("sasl.", "ssl.", "ssl_", "security.", "enable.ssl.", "enable.sasl.", "oauth", "https.", "broker.")


def java_settings(client: Mapping[str, object]) -> dict[str, str]:
    """Translate the settings with which a librdkafka client connects.

    Args:
        client: librdkafka's keys. Keys that Java's client lacks are omitted; the names of those that concern the
            connection are logged.

    Returns:
        Keys of Java's client.

    Raises:
        ConfigError: A certificate or key is unreadable, or the address is missing; or the login uses a mechanism other
            than PLAIN and SCRAM, whose keys Java's client does not understand.

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
            f"sasl.mechanism = {mechanism} cannot be used for this job: it reads topics with Java's Kafka client, and "
            "only the keys of PLAIN and SCRAM are translated",
            hint=f"Give the job a configuration with one of {', '.join(_MODULES)}, or with a client certificate",
            key="sasl.mechanism",
        )
    used = {*_SAME, *_put_login(client, settings), *_put_pem(client, settings)}
    if _VERIFICATION in client:
        name = str(client[_VERIFICATION])
        settings[_VERIFICATION] = "" if name == "none" else name
        used.add(_VERIFICATION)
    if missed := sorted(key for key in client if key.startswith(_MISSED) and key not in used):
        _log.warning("Spark connects without %s, which Java's Kafka client lacks", ", ".join(missed))
    return settings


def _put_login(client: Mapping[str, object], settings: dict[str, str]) -> frozenset[str]:
    module = _MODULES.get(settings.get("sasl.mechanism", ""))
    if module is None or not client.keys() >= _LOGIN:
        return frozenset()
    user, password = (_quoted(str(client[key])) for key in ("sasl.username", "sasl.password"))
    settings["sasl.jaas.config"] = f"{module} required username={user} password={password};"
    return _LOGIN


def _quoted(text: str) -> str:
    """A value in JAAS syntax."""
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
