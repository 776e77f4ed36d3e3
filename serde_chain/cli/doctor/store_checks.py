"""Checks of payload stores: tested permissions, lifetimes, clocks, and leftovers."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Final

from payload_stores.base import (
    PayloadStore,
    SupportsDelete,
    SupportsInfo,
    SupportsLeftoverCount,
    SupportsList,
    SupportsOptOut,
    SupportsPreparation,
)
from payload_stores.errors import PayloadStoreError
from payload_stores.local import LocalStore
from payload_stores.local.folders import MARKER
from payload_stores.middleware.base import Middleware
from payload_stores.registry import StoreItem
from serde_chain.cli.doctor.base import CheckContext, TopicSettings, change_for
from serde_chain.cli.doctor.lifetimes import lifetime
from serde_chain.cli.findings import Finding, Level
from serde_chain.cli.output import number
from serde_chain.errors import ConfigError
from serde_chain.stages.large_message.options import JOURNAL_PATH, STORE
from serde_chain.stages.large_message.stores import Stores

_STAYS: Final = " and read; it remains, since the store does not support deletion"
_PROBE: Final = b"a probe of serde-chain doctor, which deletes it"
_SKEW_S: Final = 60
# Maximum number of listed payloads of a topic: a check must stay quick.
_LISTED: Final = 100_000
_MOUNTS: Final = Path("/proc/self/mountinfo")
_OCTAL: Final = re.compile(r"\\([0-7]{3})")  # spaces in a mount point
_IN_MEMORY: Final = frozenset({"tmpfs", "ramfs"})
_SHARED: Final = frozenset({
    "9p", "afs", "beegfs", "ceph", "cifs", "glusterfs", "gpfs", "lustre", "nfs", "nfs4", "ocfs2", "smb3", "virtiofs",
    "fuse", "fuse.ceph", "fuse.glusterfs", "fuse.s3fs", "fuse.sshfs", "wekafs",
})  # fmt: skip


def stores(context: CheckContext) -> Iterator[Finding]:
    """Each topic's store; a store shared by several topics is checked once."""
    opened = Stores()
    names: dict[PayloadStore, str] = {}
    unusable: dict[PayloadStore, _UnusableError] = {}
    try:
        for topic in (*context.topics, *context.missing):
            # Both stages have the same store, unless one of them has its own options.
            specs = {opened.open(STORE.read(each), each): STORE.read(each) for each in context.stores_of(topic)}
            for store, spec in specs.items():
                name = names.setdefault(store, StoreItem.of(spec).label)
                if store in unusable and unusable[store].is_away:
                    yield replace(unusable[store].check, topic=topic)  # waiting for each topic would take long
                    continue
                try:
                    yield from _of_topic(store, name, topic, context)
                except _UnusableError as error:
                    # Further checks of it would fail for the same reason.
                    unusable[store] = error
                    yield error.check
        for store, name in names.items():
            if store not in unusable:
                yield from _leftovers(store, name)
    finally:
        opened.close()


class _UnusableError(Exception):
    """A step of a payload's test fails.

    Args:
        check: The result to report.
        is_away: Whether the store does not answer, whatever the topic.
    """

    def __init__(self, check: Finding, *, is_away: bool) -> None:
        super().__init__(check.message)
        self.check, self.is_away = check, is_away


@contextlib.contextmanager
def _step(what: str, permit: str, topic: str) -> Iterator[None]:
    """One step: its errors are reported as the store's.

    Args:
        what: The operation on the store.
        permit: The remedy if it is refused.
        topic: The topic.

    Raises:
        _UnusableError: The step fails.
    """
    try:
        yield
    except PayloadStoreError as error:
        message = f"cannot {what} the store: {error.message}"
        check = Finding("store", Level.ERROR, message, change_for(error, permit), topic)
        raise _UnusableError(check, is_away=error.transient) from error


def _of_topic(store: PayloadStore, name: str, topic: str, context: CheckContext) -> Iterator[Finding]:
    """The checks of a topic's payloads, in a store with this name in the configuration."""
    if store.scheme == "memory":
        message = "the store memory is private to one process: no other process can read the topic's large records"
        change = f"Set {STORE.name} to a store that other processes reach: s3, objects, kafka, hop or local"
        yield Finding("store", Level.ERROR, message, change, topic)
        return
    if isinstance(store, SupportsOptOut) and (why := store.why_not()) is not None:
        yield Finding("store", Level.WARNING, f"the store {name} accepts no payloads: {why}", None, topic)
        return
    if (local := _local(store)) is not None:
        yield from _folder(local, topic, context)
    if isinstance(store, SupportsPreparation):
        with _step("ask", "Permit describing it", topic):
            missing = store.unprepared(topic)
        if missing is not None:
            message = f"not tested: the first payload creates {missing}, which does not exist yet"
            yield Finding("store", Level.OK, message, topic=topic)
            return
    yield from _probe(store, name, topic) if context.writes and context.tries else _listed(store, name, topic, context)
    facts = context.facts(topic) if topic in context.topics else None
    if facts is not None:
        yield from lifetime(store, name, topic, facts, is_folder=_local(store) is not None)
        yield from _left(store, topic, facts)


def _probe(store: PayloadStore, name: str, topic: str) -> Iterator[Finding]:
    """Publish, download and, if supported, delete a tiny payload."""
    with _step("publish to", "Permit writing", topic):
        reference = store.publish(topic, _PROBE)
    try:
        with _step("download from", "Permit reading", topic):
            store.download_verified(reference, size=len(_PROBE))
            modified = _modified(store, topic, reference)
    except BaseException:  # Ctrl-C too
        with contextlib.suppress(PayloadStoreError):  # the failed read is the error to report
            _delete(store, reference)
        raise
    with _step("delete from", "Permit deletion: payloads of failed records are deleted", topic):
        _delete(store, reference)
    if modified is not None:
        yield from _clock(modified, topic)
    done = ", read and deleted" if isinstance(store, SupportsDelete) else _STAYS
    yield Finding("store", Level.OK, f"a payload was written to the store {name}{done}", topic=topic)


def _delete(store: PayloadStore, reference: str) -> None:
    if isinstance(store, SupportsDelete):
        store.delete(reference)


def _listed(store: PayloadStore, name: str, topic: str, context: CheckContext) -> Iterator[Finding]:
    """A request that changes nothing: it lists the topic's payloads, or asks for one that does not exist."""
    if isinstance(store, SupportsList):
        with _step("list", "Permit listing", topic):
            next(iter(store.list(topic)), None)
        message = f"the store {name} answers"
    else:
        message = f"the store {name} cannot list payloads"
    if context.writes:
        message += "; writing was not tested: --write does"
    yield Finding("store", Level.OK, message, topic=topic)


def _local(store: PayloadStore) -> LocalStore | None:
    """The local store in others, such as one with retries."""
    while isinstance(store, Middleware):
        store = store.store
    return store if isinstance(store, LocalStore) else None


def _folder(store: LocalStore, topic: str, context: CheckContext) -> Iterator[Finding]:
    """Whether this user may write to the folder, and whether others see it."""
    marker = store.path / MARKER
    if context.writes and os.access(marker, os.F_OK) and not os.access(marker, os.W_OK | os.X_OK):
        change = "Permit writing in it, or correct local.path"
        check = Finding("store", Level.ERROR, f"this user may not write to the folder {store.path}", change, topic)
        raise _UnusableError(check, is_away=False)
    kind = file_system(store.path)
    if kind in _IN_MEMORY:
        message = f"the folder {store.path} is in memory ({kind}): a reboot deletes its payloads"
        yield Finding("store", Level.WARNING, message, "Set local.path to a folder on a disk", topic)
    elif kind is not None and kind not in _SHARED and not _is_here(context):
        message = f"the folder {store.path} is on a disk of this machine ({kind}), and the brokers are elsewhere"
        change = f"If clients run on other machines, mount a shared file system there, or set {STORE.name} = s3"
        yield Finding("store", Level.WARNING, message, change, topic)


def _is_here(context: CheckContext) -> bool:
    """Whether the brokers run on this machine, as in development."""
    servers = str(context.config.settings.get("bootstrap.servers", "")).split(",")
    hosts = {server.strip().rpartition("://")[2].rpartition(":")[0] for server in servers}
    return hosts <= {"localhost", "127.0.0.1", "[::1]"}


def file_system(path: Path, mounts: Path = _MOUNTS) -> str | None:
    """The type of the file system of a folder, such as ``ext4`` or ``nfs4``.

    Args:
        path: The folder.
        mounts: The list of mounts; only Linux has it.

    Returns:
        The type; None if it is unknown.
    """
    try:
        lines = mounts.read_text(errors="surrogateescape").splitlines()
        resolved = path.resolve()
    except OSError:
        return None
    found = None
    longest = -1
    for line in lines:
        # proc(5), /proc/pid/mountinfo: the mount point is the fifth field, and the type follows the separator.
        before, _, after = line.partition(" - ")
        point = Path(_OCTAL.sub(lambda code: chr(int(code[1], 8)), before.split()[4]))
        if resolved.is_relative_to(point) and len(point.parts) >= longest:
            found, longest = after.split()[0], len(point.parts)
    return found


def _modified(store: PayloadStore, topic: str, reference: str) -> datetime | None:
    """A payload's time of writing, by the store's clock; None if the store does not report it."""
    if isinstance(store, SupportsInfo):
        return store.info(reference).modified
    if isinstance(store, SupportsList):
        name = reference.rpartition("/")[2]
        return next((info.modified for info in store.list(topic, prefix=name) if info.reference == reference), None)
    return None


def _clock(modified: datetime, topic: str) -> Iterator[Finding]:
    """The store's clock, by a payload written just now."""
    skew = (modified - datetime.now(UTC)).total_seconds()
    if abs(skew) > _SKEW_S:
        yield Finding(
            "store clock",
            Level.WARNING,
            f"the store's clock is {abs(skew):,.0f} s {'ahead of' if skew > 0 else 'behind'} this machine's",
            "Set both by NTP: signatures and the ages of payloads depend on them",
            topic,
        )


def _leftovers(store: PayloadStore, name: str) -> Iterator[Finding]:
    """Leftovers of killed writers, which listings do not show."""
    if not isinstance(store, SupportsLeftoverCount):
        return
    try:
        count = store.count_leftovers()
    except PayloadStoreError as error:
        # No client needs this permission (S3: s3:ListBucketMultipartUploads).
        yield Finding("leftovers", Level.OK, f"unfinished uploads were not counted: {error.message}")
        return
    if count:
        message = f"{number(count, 'upload')} to the store {name} started more than a day ago and never ended"
        change = f'Remove them by open_store("{name}", config).remove_leftovers(), or by a lifecycle rule'
        yield Finding("leftovers", Level.WARNING, message, change)
    else:
        yield Finding("leftovers", Level.OK, f"the store {name} has no unfinished uploads")


def _left(store: PayloadStore, topic: str, facts: TopicSettings) -> Iterator[Finding]:
    """Payloads older than any record can be."""
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
        yield Finding(
            "orphans",
            Level.WARNING,
            f"the store has {number(len(old), 'payload')}{more} ({number(sum(old), 'byte')}) older than twice the "
            "topic's retention, probably orphans",
            f"Run serde-chain sweep CONFIG {topic}, which reads the records",
            topic,
        )
    else:
        yield Finding("orphans", Level.OK, "no payload is older than the records can be", topic=topic)


def journal(context: CheckContext) -> Iterator[Finding]:
    """Leftovers of a killed producer in its journal."""
    path = next((JOURNAL_PATH.read(config) for config in context.stores), None)
    if path is None or not Path(path).exists():
        return
    from serde_chain.clients.journal import Journal

    try:
        with Journal(path) as opened:
            left = len(opened.left)
    except ConfigError as error:
        yield Finding("journal", Level.OK, f"it was not checked: {error.message}")
        return
    if left:
        message = f"a killed producer has left {number(left, 'payload')} without a record"
        yield Finding("journal", Level.WARNING, message, "Start the producer: it deletes them")
    else:
        yield Finding("journal", Level.OK, "a killed producer has left nothing")
