"""Checks of payload stores: permissions tried for real, lifetimes, clocks, and what is left over."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Final

from payload_stores import propose_expiration
from payload_stores.base import (
    PayloadStore,
    SupportsDelete,
    SupportsExpiration,
    SupportsInfo,
    SupportsLeftoverCount,
    SupportsList,
    SupportsOptOut,
    SupportsPreparation,
)
from payload_stores.errors import PayloadAccessDeniedError, PayloadStoreError
from payload_stores.registry import StoreItem
from serde_chain.cli.doctor.base import Check, Level, Look, TopicFacts, number
from serde_chain.errors import ConfigError
from serde_chain.stages.large_message.options import JOURNAL_PATH, STORE
from serde_chain.stages.large_message.stores import Stores

__all__ = ["journal", "stores"]

_STAYS: Final = " and read; it stays, since the store cannot delete"
_PROBE: Final = b"a probe of serde-chain doctor, which deletes it"
_SKEW_S: Final = 60
# What is listed of a topic at most: a look is to stay quick.
_LISTED: Final = 100_000


def stores(look: Look) -> Iterator[Check]:
    """Each topic's store; one that several topics share is one."""
    opened = Stores()
    names: dict[PayloadStore, str] = {}
    unusable: dict[PayloadStore, _UnusableError] = {}
    try:
        for topic in (*look.topics, *look.missing):
            config = look.large_messages_of(topic)
            if config is None:
                continue
            spec = STORE.read(config)
            store = opened.open(spec, config)
            name = names.setdefault(store, StoreItem.of(spec).label)
            if store in unusable and unusable[store].is_away:
                yield replace(unusable[store].check, topic=topic)  # a wait for each topic would be long
                continue
            try:
                yield from _of_topic(store, name, topic, look)
            except _UnusableError as error:
                # What else is asked of it would fail for the same reason.
                unusable[store] = error
                yield error.check
        for store, name in names.items():
            if store not in unusable:
                yield from _leftovers(store, name)
    finally:
        opened.close()


class _UnusableError(Exception):
    """A step on the way of a payload fails.

    Args:
        check: What is told of it.
        is_away: Whether the store does not answer, whatever the topic.
    """

    def __init__(self, check: Check, *, is_away: bool) -> None:
        super().__init__(check.message)
        self.check, self.is_away = check, is_away


@contextlib.contextmanager
def _step(what: str, permit: str, topic: str) -> Iterator[None]:
    """One step: its errors are told as those of the store.

    Args:
        what: What is done with the store.
        permit: What to change where it is refused.
        topic: The topic.

    Raises:
        _UnusableError: It fails.
    """
    try:
        yield
    except PayloadStoreError as error:
        message = f"cannot {what} the store: {error.message}"
        check = Check("store", Level.ERROR, message, _change(error, permit), topic)
        raise _UnusableError(check, is_away=error.transient) from error


def _of_topic(store: PayloadStore, name: str, topic: str, look: Look) -> Iterator[Check]:
    """What there is to say of a topic's payloads, in a store that the configuration calls by this name."""
    if store.scheme == "memory":
        change = f"Set {STORE.name} to a store that other processes reach"
        yield Check("store", Level.WARNING, "the store memory is of one process: others read nothing", change, topic)
        return
    if isinstance(store, SupportsOptOut) and (why := store.why_not()) is not None:
        yield Check("store", Level.WARNING, f"the store {name} takes no payloads: {why}", None, topic)
        return
    if isinstance(store, SupportsPreparation):
        with _step("ask", "Permit describing it", topic):
            missing = store.unprepared(topic)
        if missing is not None:
            message = f"nothing was tried: the first payload creates {missing}, which is not there"
            yield Check("store", Level.OK, message, topic=topic)
            return
    yield from _probe(store, name, topic) if look.writes else _listed(store, name, topic)
    facts = look.facts(topic) if topic in look.topics else None
    if facts is not None:
        yield from _lifetime(store, topic, facts)
        yield from _left(store, topic, facts)


def _probe(store: PayloadStore, name: str, topic: str) -> Iterator[Check]:
    """Publish, download and, where the store can, delete a tiny payload."""
    with _step("publish to", "Permit writing", topic):
        reference = store.publish(topic, _PROBE)
    try:
        with _step("download from", "Permit reading", topic):
            store.download_verified(reference, size=len(_PROBE))
            modified = _modified(store, topic, reference)
    except BaseException:  # Ctrl-C as well
        with contextlib.suppress(PayloadStoreError):  # that it cannot be read is what is wrong
            _delete(store, reference)
        raise
    with _step("delete from", "Permit deleting: payloads of records that fail are deleted", topic):
        _delete(store, reference)
    if modified is not None:
        yield from _clock(modified, topic)
    done = ", read and deleted" if isinstance(store, SupportsDelete) else _STAYS
    yield Check("store", Level.OK, f"a payload was written to the store {name}{done}", topic=topic)


def _delete(store: PayloadStore, reference: str) -> None:
    if isinstance(store, SupportsDelete):
        store.delete(reference)


def _listed(store: PayloadStore, name: str, topic: str) -> Iterator[Check]:
    """A reader's configuration only lists."""
    if isinstance(store, SupportsList):
        with _step("list", "Permit listing", topic):
            next(iter(store.list(topic)), None)
        yield Check("store", Level.OK, f"the store {name} answers", topic=topic)


def _change(error: PayloadStoreError, permit: str, *, otherwise: str | None = None) -> str:
    """What to change: a permission is not what a bucket that is missing needs, or a server that is down."""
    if isinstance(error, PayloadAccessDeniedError):
        return f"{error.hint}. If they are right: {permit[0].lower()}{permit[1:]}" if error.hint else permit
    return error.hint or otherwise or permit


def _modified(store: PayloadStore, topic: str, reference: str) -> datetime | None:
    """When a payload was written, by the store's clock; None where it does not tell."""
    if isinstance(store, SupportsInfo):
        return store.info(reference).modified
    if isinstance(store, SupportsList):
        name = reference.rpartition("/")[2]
        return next((info.modified for info in store.list(topic, prefix=name) if info.reference == reference), None)
    return None


def _clock(modified: datetime, topic: str) -> Iterator[Check]:
    """The store's clock, by a payload that was written just now."""
    skew = (modified - datetime.now(UTC)).total_seconds()
    if abs(skew) > _SKEW_S:
        yield Check(
            "store clock",
            Level.WARNING,
            f"the store's clock is {abs(skew):,.0f} s {'ahead of' if skew > 0 else 'behind'} this machine's",
            "Set both by NTP: signatures and the ages of payloads are counted by them",
            topic,
        )


def _lifetime(store: PayloadStore, topic: str, facts: TopicFacts) -> Iterator[Check]:
    """Whether payloads live as long as the records that refer to them."""
    if not isinstance(store, SupportsExpiration):
        return
    try:
        age = store.expiration(topic)
    except PayloadStoreError as error:
        change = _change(
            error,
            "Permit reading the store's lifecycle rules (S3: s3:GetLifecycleConfiguration)",
            otherwise="Make sure that the store keeps payloads for longer than the topic keeps records",
        )
        yield Check(
            "retention",
            Level.WARNING,
            f"the store does not tell when it deletes payloads: {error.message}",
            change,
            topic,
        )
        return
    longest = facts.longest_ms
    if age is None:
        yield Check("retention", Level.OK, "the store deletes no payloads by itself", topic=topic)
    elif longest is None:
        yield Check(
            "retention",
            Level.ERROR,
            f"the store deletes payloads after {_days(age)}, and the topic keeps records for ever"
            f"{' (it is compacted)' if facts.compacted else ''}",
            "Remove the store's rule for the topic, and run serde-chain sweep instead",
            topic,
        )
    elif age < timedelta(milliseconds=longest):
        yield Check(
            "retention",
            Level.ERROR,
            f"the store deletes payloads after {_days(age)}, and the topic keeps records for "
            f"{_days(timedelta(milliseconds=longest))}: they lose their payloads",
            _proposal(longest),
            topic,
        )
    elif age < timedelta(milliseconds=longest * 1.2):
        yield Check(
            "retention",
            Level.WARNING,
            f"the store deletes payloads after {_days(age)}, shortly after the topic's retention of "
            f"{_days(timedelta(milliseconds=longest))}; Kafka deletes whole segments, later than that",
            _proposal(longest),
            topic,
        )
    else:
        yield Check("retention", Level.OK, f"payloads live for {_days(age)}, longer than records", topic=topic)


def _proposal(retention_ms: int) -> str:
    age = propose_expiration(retention_ms)
    return "Have the store keep payloads" if age is None else f"Set the store's expiration to {_days(age)} or more"


def _days(age: timedelta) -> str:
    days = f"{age.total_seconds() / 86_400:,.1f}".removesuffix(".0")
    return f"{days} day{'' if days == '1' else 's'}"


def _leftovers(store: PayloadStore, name: str) -> Iterator[Check]:
    """What killed writers have left, which no listing shows."""
    if not isinstance(store, SupportsLeftoverCount):
        return
    try:
        count = store.count_leftovers()
    except PayloadStoreError as error:
        # The permission is one that no client needs (S3: s3:ListBucketMultipartUploads).
        yield Check("leftovers", Level.OK, f"unfinished uploads were not counted: {error.message}")
        return
    if count:
        message = f"{number(count, 'upload')} to the store {name} began more than a day ago, and never ended"
        change = f'Remove them by open_store("{name}", config).remove_leftovers(), or by a lifecycle rule'
        yield Check("leftovers", Level.WARNING, message, change)
    else:
        yield Check("leftovers", Level.OK, f"no upload to the store {name} is unfinished")


def _left(store: PayloadStore, topic: str, facts: TopicFacts) -> Iterator[Check]:
    """Payloads that are older than any record can be."""
    longest = facts.longest_ms
    if longest is None or not isinstance(store, SupportsList):
        return
    before = datetime.now(UTC) - 2 * timedelta(milliseconds=longest) - timedelta(milliseconds=store.grace_ms)
    try:
        old = [info.size for info in islice(store.list(topic, before=before), _LISTED)]
    except (PayloadStoreError, OverflowError):
        return
    if old:
        more = " or more" if len(old) == _LISTED else ""
        yield Check(
            "orphans",
            Level.WARNING,
            f"the store has {number(len(old), 'payload')}{more} ({number(sum(old), 'byte')}) older than twice the "
            "topic's retention, probably in no record",
            f"Run serde-chain sweep CONFIG {topic}, which looks into the records",
            topic,
        )
    else:
        yield Check("orphans", Level.OK, "no payload is older than the records can be", topic=topic)


def journal(look: Look) -> Iterator[Check]:
    """What a killed producer has left in its journal."""
    config: Mapping[str, object] | None = look.large_messages
    path = None if config is None else JOURNAL_PATH.read(config)
    if path is None or not Path(path).exists():
        return
    from serde_chain.clients.journal import Journal

    try:
        with Journal(path) as opened:
            left = len(opened.left)
    except ConfigError as error:
        yield Check("journal", Level.OK, f"it was not looked into: {error.message}")
        return
    if left:
        message = f"a producer that was killed has left {number(left, 'payload')} without a record"
        yield Check("journal", Level.WARNING, message, "Start the producer: it deletes them")
    else:
        yield Check("journal", Level.OK, "nothing is left of a killed producer")
