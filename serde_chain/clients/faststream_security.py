"""FastStream's security options from the keys of a Kafka client's configuration."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Final

from faststream.security import BaseSecurity, SASLPlaintext, SASLScram256, SASLScram512

from payload_stores.options import Option, boolean, text
from serde_chain.errors import ConfigError

_PROTOCOL: Final = Option("security.protocol", text, "plaintext")
_MECHANISM: Final = Option("sasl.mechanism", text, "GSSAPI")  # librdkafka's default, and its alias:
_MECHANISMS: Final = Option("sasl.mechanisms", text, None)
_USER: Final = Option("sasl.username", text, "", required=True)
_PASSWORD: Final = Option("sasl.password", text, "", required=True, secret=True)
_CA: Final = Option("ssl.ca.location", text, None)
_CA_PEM: Final = Option("ssl.ca.pem", text, None)
_CERTIFICATE: Final = Option("ssl.certificate.location", text, None)
_KEY: Final = Option("ssl.key.location", text, None)
_KEY_PASSWORD: Final = Option("ssl.key.password", text, None, secret=True)
_VERIFIES: Final = Option("enable.ssl.certificate.verification", boolean, True)
_HOST_CHECK: Final = Option("ssl.endpoint.identification.algorithm", text, "https")
_KNOWN: Final = frozenset(
    option.name
    for option in (
        *(_PROTOCOL, _MECHANISM, _MECHANISMS, _USER, _PASSWORD, _CA, _CA_PEM, _CERTIFICATE, _KEY, _KEY_PASSWORD),
        *(_VERIFIES, _HOST_CHECK),
    )
)
_OF_SECURITY: Final = ("security.", "sasl.", "ssl.", "ssl_", "enable.ssl.", "enable.sasl.", "oauth", "https.")
_LOGINS: Final = {"PLAIN": SASLPlaintext, "SCRAM-SHA-256": SASLScram256, "SCRAM-SHA-512": SASLScram512}
_HINT: Final = "Pass FastStream's own option: KafkaBroker(config, security=...)"


def security_of(config: Mapping[str, object]) -> BaseSecurity | None:
    """Translate librdkafka's keys.

    Args:
        config: The whole configuration: of ``security.*``, ``sasl.*`` and ``ssl.*``, keys for passwords (PLAIN, SCRAM),
            certificates in files, and their verification.

    Returns:
        FastStream's option; None for plain connections.

    Raises:
        ConfigError: A key has no counterpart, or a certificate or key cannot be read.

    Example:
        >>> login = {"sasl.mechanism": "PLAIN", "sasl.username": "ada", "sasl.password": "secret"}
        >>> type(security_of({"security.protocol": "SASL_SSL", **login})).__name__
        'SASLPlaintext'
    """
    protocol = _PROTOCOL.read(config).upper()
    for key in config:
        if key.startswith(_OF_SECURITY) and key not in _KNOWN:
            raise ConfigError(f"{key} has no counterpart in FastStream", hint=_HINT, key=key)
    if protocol not in {"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"}:
        raise ConfigError(f"{_PROTOCOL.name} is none of plaintext, ssl, sasl_plaintext, sasl_ssl", key=_PROTOCOL.name)
    context = _context(config) if protocol.endswith("SSL") else None
    if not protocol.startswith("SASL"):
        return None if context is None else BaseSecurity(context)
    mechanism = (_MECHANISMS.read(config) or _MECHANISM.read(config)).upper()
    if mechanism not in _LOGINS:
        raise ConfigError(
            f"{_MECHANISM.name} = {mechanism} is not translated: only {', '.join(_LOGINS)} are",
            hint=_HINT,
            key=_MECHANISM.name,
        )
    return _LOGINS[mechanism](_USER.read(config), _PASSWORD.read(config), context)


def _context(config: Mapping[str, object]) -> ssl.SSLContext:
    certificate, key = _CERTIFICATE.read(config), _KEY.read(config)
    try:
        context = ssl.create_default_context(cafile=_CA.read(config), cadata=_CA_PEM.read(config))
        if certificate is not None:
            # Without a password, OpenSSL would ask for one on the terminal.
            context.load_cert_chain(certificate, key, _KEY_PASSWORD.read(config) or "")
    except (OSError, ValueError) as error:  # of ssl, too
        reason = error.strerror or type(error).__name__ if isinstance(error, OSError) else type(error).__name__
        names = ", ".join(option.name for option in (_CA, _CERTIFICATE, _KEY))
        raise ConfigError(f"a certificate or key cannot be read: {reason}", hint=f"Check {names}") from error
    verifies = _VERIFIES.read(config)
    if not verifies or _HOST_CHECK.read(config).lower() == "none":
        context.check_hostname = False
    if not verifies:
        context.verify_mode = ssl.CERT_NONE
    return context
