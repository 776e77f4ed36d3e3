"""The file of users: salted keys for each SCRAM mechanism, never passwords.

JSON: ``{"version": 1, "secret": …, "iterations": …, "users": {name: {mechanism: {salt, iterations, stored_key,
server_key}}}}``, bytes in base64. ``secret`` makes up credentials for names that are not there, so that they look like
those that are; a reader of the file can tell them apart and try passwords, so it is for the server alone (0600).
"""

from __future__ import annotations

import base64
import binascii
import json
import secrets
from pathlib import Path
from typing import Any, Final

from payload_stores.errors import ConfigError
from payload_stores.offload_server.files import Watched, replace, warn_if_readable
from payload_stores.scram.server import ITERATIONS, Credential, derive, invented
from payload_stores.scram.wire import MAX_ITERATIONS, MECHANISMS, MIN_ITERATIONS

_VERSION: Final = 1
_SECRET_BYTES: Final = 32
_LONGEST_NAME: Final = 200


class FileCredentials:
    """Users of a file, which is read again when it changes; a :class:`~payload_stores.scram.server.Credentials`.

    Args:
        path: What :func:`add_user` writes.

    Raises:
        ConfigError: It cannot be read, or is not a file of users.
    """

    def __init__(self, path: Path) -> None:
        self._file = Watched(path, _parse)
        warn_if_readable(path)

    def reload(self) -> None:
        """See :class:`~payload_stores.offload_server.files.SupportsReload`."""
        self._file.reload()

    def find(self, user: str, mechanism: str) -> Credential:
        """The user's credential, or one that is made up."""
        secret, iterations, users = self._file.get()
        made_up = invented(secret, user, mechanism, iterations)
        return users.get((user, mechanism), made_up)


def list_users(path: Path) -> list[str]:
    """The names of a file's users, in order.

    Raises:
        ConfigError: The file cannot be read.
    """
    return sorted(_load(path, make=False)["users"])


def remove_user(path: Path, name: str) -> None:
    """Remove a user; authentication in one round ends with it.

    Raises:
        ConfigError: There is no such user, or the file cannot be read or written.
    """
    content = _load(path, make=False)
    if content["users"].pop(_prepare(name), None) is None:
        raise ConfigError(f"{path} has no user {name}", hint="list-users shows those that it has")
    replace(path, json.dumps(content, indent=1) + "\n")


def add_user(path: Path, name: str, password: str) -> bool:
    """Add a user to the file, or give one a new password. The file is made if it is missing, and replaced at once.

    Args:
        path: The file.
        name: The user's name, as the broker has it.
        password: The password; only keys derived from it are written.

    Returns:
        Whether the user is new.

    Raises:
        ConfigError: The name or the password cannot be used, or the file cannot be read or written.
    """
    prepared = _prepare(name)
    if not prepared or len(prepared) > _LONGEST_NAME:
        raise ConfigError(f"{name!r} cannot be a user name")
    content = _load(path)
    is_new = prepared not in content["users"]
    content["users"][prepared] = {
        mechanism: _written(derive(password, mechanism, content["iterations"])) for mechanism in MECHANISMS
    }
    replace(path, json.dumps(content, indent=1) + "\n")
    return is_new


def _prepare(name: str) -> str:
    """A name as clients prepare it (RFC 5802 section 5.1), the only form that matches; empty if that is impossible."""
    from scramp import ScramException
    from scramp.utils import saslprep

    try:
        return str(saslprep(name))
    except ScramException:
        return ""


def _load(path: Path, *, make: bool = True) -> dict[str, Any]:
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        if not make:
            raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
        secret = base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()
        return {"version": _VERSION, "secret": secret, "iterations": ITERATIONS, "users": {}}
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    _parse(data)
    content: dict[str, Any] = json.loads(data)
    return content


def _written(credential: Credential) -> dict[str, Any]:
    parts = {"salt": credential.salt, "stored_key": credential.stored_key, "server_key": credential.server_key}
    encoded = {name: base64.b64encode(value).decode() for name, value in parts.items()}
    return {"iterations": credential.iterations, **encoded}


def _parse(data: bytes) -> tuple[bytes, int, dict[tuple[str, str], Credential]]:
    try:
        content = json.loads(data)
        if content["version"] != _VERSION:
            raise ConfigError(f"a file of users of version {content['version']!r}; this program knows {_VERSION}")
        users = {
            (str(name), mechanism): Credential(
                _bytes(keys["salt"]),
                _iterations(keys["iterations"]),
                _bytes(keys["stored_key"]),
                _bytes(keys["server_key"]),
            )
            for name, mechanisms in content["users"].items()
            for mechanism, keys in mechanisms.items()
            if mechanism in MECHANISMS
        }
        return _bytes(content["secret"]), _iterations(content["iterations"]), users
    except ConfigError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        # Without the cause: it may quote the file.
        raise ConfigError("not a file of users", hint="Make one with serde-chain offload-server add-user") from None


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ValueError("not base64") from None


def _iterations(number: int) -> int:
    if type(number) is not int or not MIN_ITERATIONS <= number <= MAX_ITERATIONS:
        raise ValueError("not a number of iterations")
    return number
