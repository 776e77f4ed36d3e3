"""The words that functions accept as arguments: modes, engines, topics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from payload_stores.options import nearest
from serde_chain.errors import ConfigError

FAILFAST: Final = "FAILFAST"
PERMISSIVE: Final = "PERMISSIVE"
DROPMALFORMED: Final = "DROPMALFORMED"

AUTO: Final = "auto"
ARROW: Final = "arrow"
NATIVE: Final = "native"
PANDAS: Final = "pandas"


def check_mode(mode: str) -> str:
    """Check a mode, ignoring case.

    Raises:
        ConfigError: The mode is unknown.
    """
    return _check(str(mode).upper(), (FAILFAST, PERMISSIVE, DROPMALFORMED), key="mode", given=mode)


def check_engine(engine: str) -> str:
    """Check an engine.

    Raises:
        ConfigError: The engine is unknown.
    """
    return _check(engine, (AUTO, ARROW, NATIVE), key="engine", given=engine)


def check_kind(kind: str) -> str:
    """Check a kind of user-defined function.

    Raises:
        ConfigError: The kind is unknown.
    """
    return _check(kind, (PANDAS, ARROW), key="kind", given=kind)


def _check(word: str, known: Sequence[str], *, key: str, given: object) -> str:
    if word not in known:
        near = nearest(str(word).lower(), known) or nearest(str(word).upper(), known)
        raise ConfigError(
            f"unknown {key} {given!r}",
            hint=(f"Did you mean {near}? " if near else "") + f"Known: {', '.join(known)}",
            key=key,
        )
    return word


def as_topics(topics: str | Sequence[str]) -> tuple[str, ...]:
    """One topic or several, as a tuple."""
    return (topics,) if isinstance(topics, str) else tuple(topics)
