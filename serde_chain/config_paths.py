"""Paths in a configuration file: relative ones count from the file's folder, ``~`` is the user's home folder.

If they counted from the current folder, the same file would mean other files, depending on where a program starts.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from serde_chain.errors import ConfigError

_log = logging.getLogger("serde_chain")

# Also under a side, a route, a registry or a mirror: key.avro.schema.file, schema.registry.ssl.ca.location.
_NAMES: Final = (
    "large.message.journal.path", "local.path", "sasl.kerberos.keytab",
    # of kafka-python
    "ssl_cafile", "ssl_certfile", "ssl_crlfile", "ssl_keyfile",
)  # fmt: skip
# By these words at the end of a key, paths of other packages' stages and stores are known too. A location is a path
# in TLS's keys alone: elsewhere it may be a region.
_ENDS: Final = r".+\.file|(?:.*\.)?(?:ssl\.(?:.+\.)?|https\.ca\.)location"
# Libraries are looked for in the system's folders.
_LIBRARY: Final = "ssl.engine.location"
# Obstore takes its options with and without the cloud's name.
_OF_OBSTORE: Final = (
    r"objects\.(?:(?:aws|google|azure)_)?(?:web_identity_token_file|container_authorization_token_file|"
    r"federated_token_file|service_account(?:_path)?|application_credentials)"
)
_KEY: Final = re.compile(rf"{_ENDS}|(?:.*\.)?(?:{'|'.join(map(re.escape, _NAMES))}|{_OF_OBSTORE})")
# Data keys: ``id = file:path, …``, or a key of its own for each.
_DATA_KEYS: Final = re.compile(r"(?:.*\.)?encryption\.keys")
_DATA_KEY: Final = re.compile(r"(?:.*\.)?encryption\.keys\..+")
_IN_DATA_KEYS: Final = re.compile(r"(=\s*file:)([^,]+?)(?=\s*(?:,|\Z))")
_FILE: Final = "file:"
_PIPE: Final = re.compile(r"/dev/(?:fd/|std(?:in|out|err)\Z)|/proc/")
# Values with a meaning of their own: librdkafka looks for the machine's certificates.
_WORDS: Final = frozenset({"probe"})


def is_path(key: str) -> bool:
    """Whether a key's value is the path of a file or folder.

    Example:
        >>> is_path("value.avro.schema.file"), is_path("schema.registry.ssl.ca.location"), is_path("avro.schema")
        (True, True, False)
    """
    return _KEY.fullmatch(key) is not None and key != _LIBRARY


def missing_files(config: Mapping[str, object]) -> dict[str, str]:
    """The paths in a configuration that lead nowhere, by their keys.

    Example:
        >>> missing_files({"ssl.ca.location": "/nowhere/ca.pem", "ssl.key.location": "/", "client.id": "a"})
        {'ssl.ca.location': '/nowhere/ca.pem'}
    """
    paths = {key: value for key, value in config.items() if isinstance(value, str) and is_path(key)}
    return {key: path for key, path in paths.items() if path not in _WORDS and not _exists(Path(path))}


def anchored(config: Mapping[str, Any], file: Path) -> dict[str, Any]:
    """A configuration whose relative paths are replaced by absolute ones, which count from its file's folder.

    ``~`` and ``~/…`` are the home folder of the user, as in a shell; ``~name`` is a relative path.

    A path that exists only in the current folder is warned of, and counts from the file's folder all the same.

    Args:
        config: The content of the file, by dotted keys.
        file: The file. Pipes (``/dev/fd/63``, ``/dev/stdin``) have no folder: paths count from the current one.

    Raises:
        ConfigError: A path begins with ``~``, and the system names no home folder.
    """
    here = _current_folder()
    absolute = here / file
    folder = here if _PIPE.match(str(absolute)) else absolute.parent
    return {key: _value(key, value, folder, here) for key, value in config.items()}


def _current_folder() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError:  # it was removed, and an absolute path of a file does not need it
        return Path()


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # the name is too long, or its folder may not be entered: the error of opening it names the key
        return False


def _value(key: str, value: Any, folder: Path, here: Path) -> Any:
    if isinstance(value, list):
        return [_value(key, item, folder, here) for item in value]
    if isinstance(value, Mapping):  # a stage or a store with options of its own, or data keys by id
        keys = _DATA_KEYS.fullmatch(key) is not None
        return {name: _value(f"{key}.{name}" if keys else name, item, folder, here) for name, item in value.items()}
    if not isinstance(value, str):
        return value
    if is_path(key):
        return _absolute(key, value, folder, here)
    if _DATA_KEYS.fullmatch(key):
        return _IN_DATA_KEYS.sub(lambda found: found[1] + _absolute(key, found[2], folder, here), value)
    is_file = _DATA_KEY.fullmatch(key) is not None and value.strip().startswith(_FILE)
    return _FILE + _absolute(key, value.strip().removeprefix(_FILE), folder, here) if is_file else value


def _absolute(key: str, value: str, folder: Path, here: Path) -> str:
    path = value.strip()
    # A null byte is refused by the stage, which names its key.
    if not path or path in _WORDS or "\0" in path or Path(path).is_absolute():
        return value
    if path == "~" or path.startswith("~/"):
        try:
            return str(Path(path).expanduser())
        except RuntimeError:  # a container's user without an entry in /etc/passwd, and without HOME
            raise ConfigError(
                f"{key} = {path}: the system names no home folder", hint="Set HOME, or write the whole path", key=key
            ) from None
    new, old = folder / path, here / path
    if old != new and _exists(old) and not _exists(new):
        _log.warning(
            "%s = %s counts from the configuration file's folder, which does not have it: %s. Only the current folder "
            "has it: %s. Move it, or write the whole path",
            key,
            path,
            new,
            old,
        )
    return str(new)
