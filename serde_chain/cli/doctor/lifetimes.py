"""The check of lifetimes: payloads live as long as the records that refer to them, and not much longer (KIP-1159)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from payload_stores import propose_expiration
from payload_stores.base import Lifetimes, PayloadStore, SupportsDelete, SupportsExpiration, SupportsLifetimes
from payload_stores.errors import PayloadStoreError
from serde_chain.cli.doctor.base import TopicSettings, change_for
from serde_chain.cli.findings import Finding, Level

_DAY_MS: Final = 86_400_000


def lifetime(store: PayloadStore, name: str, topic: str, facts: TopicSettings, *, is_folder: bool) -> Iterator[Finding]:
    """Compare the ages at which a store deletes payloads with the topic's retention.

    Args:
        store: The store.
        name: Its name in the configuration.
        topic: The topic.
        facts: Its retention.
        is_folder: Whether the store is a local folder, which has no server.
    """
    if not isinstance(store, SupportsExpiration):
        yield from _undated(store, name, topic, facts, is_folder=is_folder)
        return
    try:
        ages = store.lifetimes(topic) if isinstance(store, SupportsLifetimes) else _same(store.expiration(topic))
    except PayloadStoreError as error:
        change = change_for(
            error,
            "Permit reading the store's lifecycle rules (S3: s3:GetLifecycleConfiguration, s3:GetBucketVersioning)",
            otherwise="Make sure that the store keeps payloads longer than the topic keeps records",
        )
        message = f"the store does not report when it deletes payloads: {error.message}"
        yield Finding("retention", Level.WARNING, message, change, topic)
        return
    level, message, advice = _compared(ages, name, topic, facts)
    rules = "" if level is Level.OK or not ages.rules else f" ({'; '.join(ages.rules)})"
    yield Finding("retention", level, f"{message}{rules}", advice, topic)


def _same(age: timedelta | None) -> Lifetimes:
    """One age for all payloads."""
    return Lifetimes(age, age)


def _undated(store: PayloadStore, name: str, topic: str, facts: TopicSettings, *, is_folder: bool) -> Iterator[Finding]:
    """The advice for a store whose expiration cannot be read; ``orphans`` shows whether it is followed."""
    proposed = None if facts.longest_ms is None else propose_expiration(facts.longest_ms)
    if proposed is None:
        return
    sweep = f"un serde-chain sweep CONFIG {topic} regularly"
    rule = f"a rule of the server that deletes payloads after {_days(proposed)}"
    if is_folder:
        message, change = "only a sweep deletes payloads from a folder", f"R{sweep}"
    else:
        message = f"the store {name} does not report whether its server deletes payloads"
        change = f"Use {rule}, or r{sweep}" if isinstance(store, SupportsDelete) else f"Use {rule}"
    yield Finding("retention", Level.OK, f"{message}, while the topic deletes records", change, topic)


def _compared(ages: Lifetimes, name: str, topic: str, facts: TopicSettings) -> tuple[Level, str, str | None]:
    """A topic's retention, compared with the ages at which its payloads are deleted: level, message and remedy."""
    deletes = f"the store deletes payloads {'only on request' if ages.shortest is None else _after(ages.shortest)}"
    if facts.longest_ms is None or facts.latest_ms is None:
        keeps = f"the topic keeps records indefinitely{' (it is compacted)' if facts.compacted else ''}"
        if ages.shortest is None:
            return Level.OK, f"{deletes}, and {keeps}", None
        change = "Remove the store's rule for the topic, and run serde-chain sweep instead"
        return Level.ERROR, f"{deletes}, but {keeps}", change
    longest = timedelta(milliseconds=facts.longest_ms)
    proposed = propose_expiration(facts.longest_ms) or longest
    call = f'open_store("{name}", config).set_expiration("{topic}", timedelta(days={proposed / timedelta(days=1):g}))'
    change = f"Set its expiration to {_days(proposed)}: {call}"
    sweep = f"or run serde-chain sweep CONFIG {topic} regularly"
    # Which set_expiration does not change.
    others = "; remove other rules that delete its payloads earlier" if ages.rules else ""
    level = Level.WARNING
    # Kafka deletes whole segments: the oldest records of one live until it ends, and then for the retention.
    latest = max(proposed, _whole_days(facts.latest_ms))
    if ages.shortest is None:
        message = f"{deletes}, but the topic deletes records {_after(longest)}, whose payloads stay"
        change = f"{change}, {sweep}"
    elif ages.shortest < longest:
        level, message = (
            Level.ERROR,
            f"{deletes}, but the topic keeps records for {_days(longest)}: they lose their payloads",
        )
        change += others
    elif ages.longest is None:
        message = f"{deletes}, but some stay, and the topic deletes records {_after(longest)}"
        change = f"{ages.hint or change}, {sweep}"
    elif ages.shortest < longest * 1.2:
        message = f"{deletes}, shortly after the topic's retention of {_days(longest)}"
        message += "; Kafka deletes whole segments, later than that"
        change += others
    elif ages.longest > latest:
        message = f"the store deletes payloads {_after(ages.longest)}, much later than the topic deletes records, "
        message += _after(longest)
        change = f"{change}, if no other topic's payloads need the longer one; {sweep}"
    else:
        return Level.OK, f"payloads live for {_days(ages.shortest)}, longer than records", None
    return level, message, change


def _after(age: timedelta) -> str:
    return f"after {_days(age)}"


def _whole_days(milliseconds: int) -> timedelta:
    """A time in whole days, rounded up: rules of buckets have no smaller unit."""
    return timedelta(days=-(-milliseconds // _DAY_MS))


def _days(age: timedelta) -> str:
    days = f"{age.total_seconds() / 86_400:,.1f}".removesuffix(".0")
    return f"{days} day{'' if days == '1' else 's'}"
