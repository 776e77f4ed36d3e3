"""The keys of ``encrypt``: from the configuration, the environment, files, or a user's class."""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

from payload_stores.options import Option, text
from payload_stores.plugins import import_object
from serde_chain.errors import ConfigError
from serde_chain.stages.encryption.envelope import KEY_ID

MIN_KEY_BYTES: Final = 32
_MAX_FILE_BYTES: Final = 4096

_ITEM: Final = re.compile(r"\s*([^\s:=,]+)\s*[:=]\s*(.+?)\s*")
_HEX: Final = re.compile(rf"(?:[0-9A-Fa-f]{{2}}){{{MIN_KEY_BYTES},}}")


@runtime_checkable
class KeyProvider(Protocol):
    """Returns keys by their ids: a user's class, for keys in a key management service.

    Must be thread-safe. Readers remember keys, and for a minute also that a key does not exist; writers ask again
    after 2^20 records. A provider with settings is also a :class:`ConfigurableKeyProvider`.
    """

    def key(self, key_id: str) -> bytes:
        """The key with an id, at least 32 random bytes.

        Args:
            key_id: 1 to 128 letters, digits and ``. _ : / -``. Readers get it from the record, so it is untrusted: do
                not use it as a path or URL.

        Raises:
            KeyError: The key does not exist, or not for this reader: the record's fault. Any other error is the
                provider's fault, so readers do not skip the record.
        """


@runtime_checkable
class ConfigurableKeyProvider(Protocol):
    """A key provider with settings."""

    def configure(self, config: Mapping[str, object], /) -> object:
        """Read the settings under ``encryption.key.provider.``, before the first key is requested."""


def _key_id(value: object) -> str:
    if not isinstance(value, str) or not KEY_ID.fullmatch(value):
        raise ValueError("expected a key id of 1 to 128 letters, digits and . _ : / -")
    return value


def _keys(value: object) -> dict[str, Any]:
    """Parse ``id = key, id = key`` or a mapping. Messages never show a value: it may be a key."""
    if isinstance(value, Mapping):
        keys = dict(value)
    else:
        matches = [_ITEM.fullmatch(item) for item in str(value).split(",") if item.strip()]
        keys = {match[1]: match[2] for match in matches if match is not None}
        if None in matches or len(keys) < len(matches):
            raise ValueError("expected id = key, separated by commas, and each id once")
    for key_id in keys:
        _key_id(key_id)
    return keys


def _provider(value: object) -> object:
    return text(value) if isinstance(value, str) else value


KEY_ID_OPTION: Final = Option(
    "encryption.key.id", _key_id, None, doc="id of the key for writing; required if there are several keys"
)
KEYS: Final[Option[dict[str, Any] | None]] = Option(
    "encryption.keys",
    _keys,
    None,
    secret=True,
    doc="keys by id, id = key, …: 32 or more bytes in base64 or hex, env:VARIABLE, or file:path",
)
EACH_KEY: Final = Option("encryption.keys.*", text, "", secret=True, doc="one key; its id replaces the *")
PROVIDER: Final[Option[Any]] = Option(
    "encryption.key.provider.class", _provider, None, doc="class with a method key(key_id), instead of encryption.keys"
)
PROVIDER_SETTINGS: Final = Option("encryption.key.provider.*", text, "", secret=True, doc="settings of that class")

OPTIONS: Final[tuple[Option[Any], ...]] = (KEY_ID_OPTION, KEYS, EACH_KEY, PROVIDER, PROVIDER_SETTINGS)


class ConfiguredKeys:
    """The keys of a configuration, read once, when the stage is configured."""

    def __init__(self, sources: Mapping[str, object]) -> None:
        self._keys = {key_id: _read(key_id, source) for key_id, source in sources.items()}

    def key(self, key_id: str) -> bytes:
        """The key with an id."""
        return self._keys[key_id]

    @property
    def ids(self) -> tuple[str, ...]:
        """All ids."""
        return tuple(self._keys)


def key_provider(config: Mapping[str, object]) -> KeyProvider:
    """Find the source of a configuration's keys.

    Raises:
        ConfigError: No keys are configured, one is unreadable or too short, or the provider cannot be created.
    """
    sources = {
        **(KEYS.read(config) or {}),
        **{_checked(name): value for name, value in EACH_KEY.select(config).items()},
    }
    spec = PROVIDER.read(config)
    if spec is None and not sources:
        raise ConfigError("encrypt has no keys", hint=f"Set {KEYS.name} or {PROVIDER.name}", key=KEYS.name)
    if spec is None:
        return ConfiguredKeys(sources)
    if sources:
        raise ConfigError(f"{KEYS.name} and {PROVIDER.name} exclude each other", key=PROVIDER.name)
    provider: Any = import_object(spec, "key provider") if isinstance(spec, str) else spec
    if isinstance(provider, type):
        try:
            provider = provider()
        except TypeError as error:
            raise ConfigError(
                f"the key provider cannot be created without arguments: {error}", key=PROVIDER.name
            ) from error
    if not isinstance(provider, KeyProvider):
        raise ConfigError("the key provider has no method key(key_id)", key=PROVIDER.name)
    if isinstance(provider, ConfigurableKeyProvider):
        provider.configure({key: value for key, value in config.items() if PROVIDER_SETTINGS.matches(key)})
    return provider


def key_to_write(config: Mapping[str, object], provider: KeyProvider) -> str:
    """The id of the key for writing.

    Raises:
        ConfigError: The id is unset and the number of keys is not one, or the key does not exist.
    """
    key_id = KEY_ID_OPTION.read(config)
    ids = provider.ids if isinstance(provider, ConfiguredKeys) else None
    if key_id is None and ids is not None and len(ids) == 1:
        return ids[0]
    if key_id is None or (ids is not None and key_id not in ids):
        known = "" if ids is None else f"; there are {', '.join(ids)}"
        problem = "is required to encrypt" if key_id is None else f"= {key_id} is not among the keys"
        raise ConfigError(f"{KEY_ID_OPTION.name} {problem}{known}", key=KEY_ID_OPTION.name)
    return key_id


def _checked(key_id: str) -> str:
    try:
        return _key_id(key_id)
    except ValueError as error:
        raise ConfigError(f"{EACH_KEY.name}: {error}", key=EACH_KEY.name) from error


def _read(key_id: str, source: object) -> bytes:
    """Read one key; no message shows any part of it."""
    make, is_place = "openssl rand -base64 32", str(source).strip().startswith(("env:", "file:"))
    form = f"Write {KEYS.name} = ID=env:VARIABLE, ID=file:PATH or ID=BASE64; for a key: {make}"
    try:
        key = bytes(source) if isinstance(source, (bytes, bytearray)) else _from_text(str(source).strip())
    except ValueError as error:
        raise ConfigError(
            f"the key {key_id} cannot be read: {error}", hint=None if is_place else form, key=KEYS.name
        ) from None
    if len(key) < MIN_KEY_BYTES:
        raise ConfigError(
            f"the key {key_id} has {len(key)} bytes, at least {MIN_KEY_BYTES} are required",
            hint=f"Make one with: {make}" if is_place else form,
            key=KEYS.name,
        )
    return key


def _from_text(source: str) -> bytes:
    kind, colon, rest = source.partition(":")
    if colon and kind == "env":
        if rest not in os.environ:
            raise ValueError(f"the environment variable {rest} is not set")
        return _decode(os.environ[rest].strip())
    if colon and kind == "file":
        try:
            with Path(rest).open("rb") as file:
                content = file.read(_MAX_FILE_BYTES)
        except OSError as error:
            at = f", at {Path.cwd() / rest}" if isinstance(error, FileNotFoundError) else ""
            raise ValueError(f"{type(error).__name__}: {error}{at}") from None
        return content if len(content) == MIN_KEY_BYTES else _decode(content.decode("latin-1").strip())
    return _decode(source)


def _decode(encoded: str) -> bytes:
    if _HEX.fullmatch(encoded):
        return bytes.fromhex(encoded)
    try:
        padded = encoded + "=" * (-len(encoded) % 4)
        return base64.b64decode(padded.replace("-", "+").replace("_", "/"), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("it is neither base64 nor hexadecimal") from None
