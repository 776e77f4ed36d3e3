"""The chain of each topic: the configured one, or another that the form names."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Final

import click

from serde_chain.catalogue import DESERIALIZERS
from serde_chain.cli.browse.preview import Previews
from serde_chain.errors import ConfigError, MissingDependencyError

_MOST: Final = 8
_CHAINS: Final = ("value.deserializer", "value.deserializers")


class Formats:
    """Opens the chains that pages ask for, and remembers the one of each topic. Must be closed.

    Args:
        config: Flat configuration.

    Raises:
        ConfigError: The configuration is wrong.
        MissingDependencyError: The extra of a stage or store is not installed.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = config
        self._lock = threading.Lock()
        self._opened = {"": Previews(config)}
        self._chosen: dict[str, str] = {}

    def choose(self, topic: str, stages: str) -> None:
        """Read a topic's values by another chain from now on.

        Args:
            topic: The topic.
            stages: Names of deserializers, by comma; empty for the configured ones.

        Raises:
            click.UsageError: They make no chain, or too many have been tried.
        """
        names = [name.strip() for name in stages.split(",") if name.strip()]
        chain = ", ".join(names)
        # Names only: a dotted path would import anything.
        for name in names:
            if name not in DESERIALIZERS.names():
                raise click.UsageError(f"Format: there is no stage {name!r}")
        with self._lock:
            if chain not in self._opened:
                if len(self._opened) > _MOST:
                    raise click.UsageError("Format: too many have been tried; start serde-chain browse again")
                rest = {key: value for key, value in self._config.items() if key not in _CHAINS}
                try:
                    self._opened[chain] = Previews({**rest, _CHAINS[1]: chain})
                except (ConfigError, MissingDependencyError) as error:
                    raise click.UsageError(f"Format: {error}") from error
            self._chosen[topic] = chain

    def of(self, topic: str) -> str:
        """The chain chosen for a topic; empty for the configured one."""
        return self._chosen.get(topic, "")

    def previews(self, topic: str) -> Previews:
        """What decodes a topic's records."""
        return self._opened[self.of(topic)]

    def close(self) -> None:
        """Close the chains."""
        for previews in self._opened.values():
            previews.close()
