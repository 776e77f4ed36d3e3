"""The switches of hop's users: ``automatic_offload`` and ``fetch_external``.

The client's configuration comes first, then the environment (``HOP_AUTOMATIC_OFFLOAD``,
``HOP_FETCH_EXTERNAL``), then hop's own ``config.toml``. Both are on by default.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Final

from payload_stores.errors import ConfigError

# The words accepted by hop-client in the environment.
_WORDS: Final = dict.fromkeys(("true", "yes", "on", "1"), True) | dict.fromkeys(("false", "no", "off", "0"), False)


def switch(name: str, configured: bool | None) -> bool:
    """Whether a switch is on.

    Args:
        name: ``automatic_offload`` or ``fetch_external``.
        configured: The value in the client's configuration, if set.

    Raises:
        ConfigError: The value in the environment or the file is neither true nor false.
    """
    if configured is not None:
        return configured
    variable = f"HOP_{name.upper()}"
    if variable in os.environ:
        word = os.environ[variable].strip().lower()
        if word not in _WORDS:
            raise ConfigError(f"{variable} = {word!r}: expected true or false", key=variable)
        return _WORDS[word]
    return _in_file(config_file(), name)


def config_file() -> Path:
    """hop-client's configuration file: ``hop/config.toml`` in the user's configuration folder."""
    folder = os.environ.get("XDG_CONFIG_HOME")
    return (Path(folder) if folder else Path("~/.config").expanduser()) / "hop" / "config.toml"


def _in_file(path: Path, name: str) -> bool:
    try:
        content = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return True
    except (OSError, ValueError) as error:
        raise ConfigError(f"hop's configuration {path} cannot be read: {error}", key=name) from error
    try:
        section = tomllib.loads(content).get("config", {})
        value = section.get(name, True)
    except (ValueError, AttributeError) as error:
        raise ConfigError(f"hop's configuration {path} is malformed: {error}", key=name) from error
    if not isinstance(value, bool):
        raise ConfigError(f"hop's configuration {path}: {name} = {value!r}, expected true or false", key=name)
    return value
