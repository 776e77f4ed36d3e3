"""Bearer tokens, and their users."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol

from payload_stores.errors import ConfigError
from payload_stores.offload_server.files import Watched, replace, toml

_TOKEN_BYTES: Final = 32
_SCHEME: Final = "sha256:"
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")


class TokenVerifier(Protocol):
    """Finds the user of a token. Called in a thread; may block on a server."""

    def verify(self, token: str) -> str | None:
        """The user's name; None if the token is invalid."""
        ...


class FileTokens:
    """Tokens from a TOML file, reloaded when it changes.

    The file contains SHA-256 digests, so it reveals no token: ``[tokens]`` with lines ``"sha256:<hex>" = "user"``.
    This is secure for random tokens only, not for chosen ones. It does not check OAuth tokens: for signed tokens that
    expire, give the server a verifier of your identity provider.

    Args:
        path: The file.

    Raises:
        ConfigError: The file is unreadable, or not a tokens file.
    """

    def __init__(self, path: Path) -> None:
        self._file = Watched(path, _parse)

    def reload(self) -> None:
        """See :class:`~payload_stores.offload_server.files.SupportsReload`."""
        self._file.reload()

    def verify(self, token: str) -> str | None:
        """The user's name; None if the token is not in the file.

        The lookup is by digest, so its duration reveals nothing about existing tokens.
        """
        return self._file.get().get(_digest(token))


def add_token(path: Path, user: str) -> str:
    """Make a token for a user and add its digest to the file, which is created if missing.

    Args:
        path: The file.
        user: The user's name on the broker.

    Returns:
        The token, 256 random bits; it is not stored.

    Raises:
        ConfigError: The file cannot be read or written, or the name is empty.
    """
    if not user:
        raise ConfigError("the user's name is empty")
    tokens = _load(path) if path.exists() else {}
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    _save(path, {**tokens, _digest(token): user})
    return token


def list_tokens(path: Path) -> list[tuple[str, str]]:
    """Users and the digests of their tokens, sorted by name.

    Raises:
        ConfigError: The file cannot be read.
    """
    return sorted((user, digest) for digest, user in _load(path).items())


def remove_token(path: Path, which: str) -> int:
    """Remove a token, or all tokens of a user.

    Args:
        path: The file.
        which: A user's name, or ``sha256:`` and a prefix of a digest.

    Returns:
        Number of removed tokens.

    Raises:
        ConfigError: There is none, the prefix is ambiguous, or the file cannot be read or written.
    """
    tokens = _load(path)
    if which.startswith(_SCHEME):
        digests = [digest for digest in tokens if digest.startswith(which)]
        if len(digests) > 1:
            raise ConfigError(f"{len(digests)} tokens begin with {which}", hint="Give more of the digest")
    else:
        digests = [digest for digest, user in tokens.items() if user == which]
    if not digests:
        raise ConfigError(f"{path} has no token of {which}", hint="list-tokens shows those that it has")
    _save(path, {digest: user for digest, user in tokens.items() if digest not in digests})
    return len(digests)


def _load(path: Path) -> dict[str, str]:
    try:
        return _parse(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error


def _save(path: Path, tokens: Mapping[str, str]) -> None:
    # JSON strings are valid TOML strings.
    lines = [f'"{digest}" = {json.dumps(name)}\n' for digest, name in tokens.items()]
    replace(path, "[tokens]\n" + "".join(lines))


def _digest(token: str) -> str:
    return _SCHEME + hashlib.sha256(token.encode(errors="surrogateescape")).hexdigest()


def _parse(data: bytes) -> dict[str, str]:
    content = toml(data)
    tokens = content.pop("tokens", {})
    if content or not isinstance(tokens, dict):
        raise ConfigError("a file of tokens has one table, [tokens]")
    for digest, user in tokens.items():
        if not _DIGEST.fullmatch(digest) or not isinstance(user, str) or not user:
            raise ConfigError('a token is written "sha256:<64 hexadecimal digits>" = "user"')
    return tokens
