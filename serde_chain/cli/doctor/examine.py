"""All checks, in their order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from serde_chain.cli.doctor.base import TIMEOUT_S, CheckContext, Checks
from serde_chain.cli.doctor.offline import offline, short_delivery_times
from serde_chain.cli.doctor.record_checks import readers
from serde_chain.cli.doctor.schema_checks import schemas
from serde_chain.cli.doctor.store_checks import journal, stores
from serde_chain.cli.doctor.topic_checks import cleanup, clocks, dead_letters, permissions, sizes, topics
from serde_chain.cli.findings import Finding, Level
from serde_chain.cli.mistakes import check_config
from serde_chain.config import Config
from serde_chain.errors import ConfigError, ContextualError

FAMILIES: Final[tuple[Checks, ...]] = (
    permissions,
    sizes,
    cleanup,
    dead_letters,
    schemas,
    stores,
    journal,
    clocks,
    readers,
)
"""One function per group; they require a valid configuration, and all but the stores' require existing topics."""


def examine(
    config: Config | str | Path, names: Iterable[str], *, timeout_s: float = TIMEOUT_S, tries: bool = False
) -> Iterator[Finding]:
    """Find mismatches between a configuration and its topics, stores and registry.

    Nothing is changed: no record is produced, no schema registered, no group joined, and no payload topic created.

    Args:
        config: Client configuration: a mapping, or the path of a file.
        names: The topics.
        timeout_s: Maximum wait for one answer of the broker, in seconds.
        tries: If the configuration writes, publish a tiny payload to each topic's store, download and delete it, and
            ask the registry whether it would accept new schemas.

    Yields:
        The findings as they come, including successful checks. Mistakes in the configuration, and a broker that
        does not answer, end the checks.

    Example:
        >>> for check in examine("client.toml", ["images"]):  # doctest: +SKIP
        ...     print(check)
        ok       configuration: no mistakes
        error    topic (images): the topic does not exist, or this user may not see it. Create it, or permit DESCRIBE
    """
    try:
        resolved, wrong = check_config(config)
    except ConfigError as error:
        resolved, wrong = None, [Finding.mistake(error)]
    yield from wrong
    if resolved is None:
        return
    yield Finding("configuration", Level.OK, "no mistakes")
    context = CheckContext(resolved, tuple(dict.fromkeys(names)), timeout_s)
    if context.writes:
        yield from short_delivery_times(resolved.settings)
    yield from offline(resolved)
    there = []
    try:
        for check in topics(context):
            yield check
            if check.level is Level.OK and check.topic is not None:
                there.append(check.topic)
    except ContextualError as error:
        yield Finding("broker", Level.ERROR, error.message, error.hint)
        return
    missing = tuple(topic for topic in context.topics if topic not in there)
    context = CheckContext(context.config, tuple(there), timeout_s, missing, tries=tries)
    for family in FAMILIES:
        yield from _made(family, context)


def _made(family: Checks, context: CheckContext) -> Iterator[Finding]:
    """The results of a group. A failure of the check itself becomes an error; the other groups go on."""
    try:
        yield from family(context)
    except ContextualError as error:
        yield Finding(family.__name__, Level.ERROR, f"the check failed: {error.message}", error.hint)
