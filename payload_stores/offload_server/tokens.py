"""Bearer tokens: who may be behind one."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from pathlib import Path
from typing import Final, Protocol

from payload_stores.errors import ConfigError
from payload_stores.offload_server.files import Watched, replace, toml

__all__ = ["FileTokens", "TokenVerifier", "add_token"]

_TOKEN_BYTES: Final = 32
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")


class TokenVerifier(Protocol):
    """Says whose a token is. Called in a thread; may ask a server."""

    def verify(self, token: str) -> str | None:
        """The user's name, None if the token is not good."""
        ...


class FileTokens:
    """Tokens of a TOML file, which is read again when it changes.

    The file holds SHA-256 digests, so that it gives no token away: ``[tokens]`` with lines
    ``"sha256:<hex>" = "user"``. That is sound for random tokens only, not for chosen ones. This is no check of OAuth
    tokens: for tokens with a signature and an end, give the server a verifier of your identity provider.

    Args:
        path: The file.

    Raises:
        ConfigError: It cannot be read, or is no such file.
    """

    def __init__(self, path: Path) -> None:
        self._file = Watched(path, _parse)

    def verify(self, token: str) -> str | None:
        """The user's name, None if the token is not in the file.

        The lookup is by digest, so how long it takes says nothing about tokens that are there.
        """
        return self._file.get().get(_digest(token))


def add_token(path: Path, user: str) -> str:
    """Make a token for a user and add its digest to the file, which is made if it is missing.

    Args:
        path: The file.
        user: The user's name, as the broker has it.

    Returns:
        The token, 256 random bits; it is kept nowhere.

    Raises:
        ConfigError: The file cannot be read or written, or the name is empty.
    """
    if not user:
        raise ConfigError("the user's name is empty")
    try:
        tokens = _parse(path.read_bytes())
    except FileNotFoundError:
        tokens = {}
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    # JSON's strings are TOML's as well.
    lines = [f'"{digest}" = {json.dumps(name)}\n' for digest, name in {**tokens, _digest(token): user}.items()]
    replace(path, "[tokens]\n" + "".join(lines))
    return token


def _digest(token: str) -> str:
    return "sha256:" + hashlib.sha256(token.encode(errors="surrogateescape")).hexdigest()


def _parse(data: bytes) -> dict[str, str]:
    content = toml(data)
    tokens = content.pop("tokens", {})
    if content or not isinstance(tokens, dict):
        raise ConfigError("a file of tokens has one table, [tokens]")
    for digest, user in tokens.items():
        if not _DIGEST.fullmatch(digest) or not isinstance(user, str) or not user:
            raise ConfigError('a token is written "sha256:<64 hexadecimal digits>" = "user"')
    return tokens
