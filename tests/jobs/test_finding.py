"""What records refer to, as jobs see it."""

import tracemalloc
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from serde_chain import RecordContext, SerializerChain
from serde_chain.codec import Record
from serde_chain.jobs.finding import ReferenceFinder
from serde_chain.jobs.reference_plan import WHOLE, open_readers, plan_reading

PAYLOAD = 4 << 20
COUNT = 16


def test_an_audit_holds_no_more_payloads_than_a_reader_may(tmp_path: Path) -> None:
    config = {
        "value.serializers": "bytes, large-message",
        "large.message.payload.store.class": "local",
        "large.message.downloads.max.bytes": 2 * PAYLOAD,
        "local.path": str(tmp_path),
    }
    records: list[Record] = []
    with SerializerChain.from_config(config) as chain:
        for at in range(COUNT):
            headers: Any = []
            value = chain(bytes([at]) * PAYLOAD, RecordContext("t", "value", headers))
            records.append(Record("t", value, None, headers, 0, None, at))
    next(path for path in tmp_path.rglob("*") if path.is_file()).write_bytes(b"short")
    plan = replace(plan_reading(config, ("t",)), check=WHOLE)
    with ExitStack() as stack:
        readers = open_readers(plan.config)
        for reader in readers.values():
            stack.callback(reader.close)
        finder = ReferenceFinder(plan, readers)
        finder.find(records[:1])  # modules are loaded once
        tracemalloc.start()
        stack.callback(tracemalloc.stop)
        found = finder.find(records)
        _, peak = tracemalloc.get_traced_memory()
    assert len(found) == COUNT
    assert [entry.kind for entries in found for entry in entries if entry.kind] == ["PayloadIntegrityError"]
    # The bound, and one payload that is being checked.
    assert peak < 3.5 * PAYLOAD


def test_the_key_of_a_tombstone_is_read(tmp_path: Path) -> None:
    config = {
        "key.serializers": "bytes, large-message",
        "large.message.payload.store.class": "local",
        "large.message.threshold.bytes": 0,
        "local.path": str(tmp_path),
    }
    headers: Any = []
    with SerializerChain.from_config(config, is_key=True) as chain:
        key = chain(b"key", RecordContext("t", "key", headers))
    with ExitStack() as stack:
        readers = open_readers(plan_reading(config, ("t",)).config)
        for reader in readers.values():
            stack.callback(reader.close)
        [[found]] = ReferenceFinder(plan_reading(config, ("t",)), readers).find([Record("t", None, key, headers)])
    assert found.reference is not None
    assert found.reference.url == key.decode()
