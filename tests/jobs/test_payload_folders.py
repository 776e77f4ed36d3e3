"""The names by which a sweep knows payloads."""

import time
import uuid
from pathlib import Path

import pytest

from payload_stores import open_store
from serde_chain.codec import Record
from serde_chain.jobs.finding import ReferenceFinder
from serde_chain.jobs.payload_folders import folders_of, names_in, names_of
from serde_chain.jobs.reference_plan import open_readers, plan_reading
from serde_chain.wire.kip1159 import MARKER, MAX_REFERENCE_BYTES


def test_all_that_may_be_a_topic_and_an_id_is_a_name() -> None:
    [name] = names_of("a/1")
    assert name in names_of("s3://bucket/pre/a/1", {"a"})
    assert name in names_of("file:///with%20blank/%61/1", {"a", "b"})
    assert len(names_of("s3://bucket/a/b/a/1", {"a", "b"})) == 4
    assert {*names_of("a/b/a/1"), *names_of("b/a/1"), name} < set(names_of("s3://bucket/a/b/a/1", {"a", "b"}))
    assert name not in names_of("s3://bucket/pre/xa/1", {"a"})
    assert name not in names_of("s3://bucket/pre/a/1", {"b"})
    assert all(-(1 << 63) <= each < 1 << 63 for number in range(100) for each in names_of(f"a/{number}", {"a"}))
    assert names_of("a/\ud800")  # of JSON, in which it can stand


@pytest.mark.parametrize(
    "query", ["?x=1", "#a", "?X-Amz-Credential=A/us-east-1/s3", "?t=a/1/b?c", "#/../../x", "?a#b/c"]
)
def test_queries_and_fragments_do_not_hide_a_payload(query: str) -> None:
    [name] = names_of("a/1")
    assert name in names_of(f"https://bucket/pre/a/1{query}", {"a"})
    assert name in names_of("file:///data?x/a/1", {"a"})
    assert len(names_of(f"a/1{query}")) == 1


def test_a_reference_with_the_topic_many_times_stays_small() -> None:
    plan = plan_reading({"value.deserializer": "large-message", "large.message.payload.store.class": "memory"}, ("t",))
    reference = b"memory:///" + b"t/" * ((MAX_REFERENCE_BYTES - 11) // 2) + b"1"
    readers = open_readers(plan.config)
    [[found]] = ReferenceFinder(plan, readers).find([Record("t", reference, headers=[(MARKER, b"true")])])
    for reader in readers.values():
        reader.close()
    assert len(found.names) == len(set(found.names)) == 64


def test_a_folder_knows_how_its_references_begin(tmp_path: Path) -> None:
    store = open_store("local", {"local.path": str(tmp_path)})
    ([folder], unable) = folders_of([store], ["t"])
    reference = store.publish("t", b"x")
    assert folder.root
    assert reference == folder.root + folder.id_of(reference)
    assert not unable


def test_all_ids_of_a_run_are_found() -> None:
    """Lengths of short references are letters in Avro: the references of an array are one run of a URL's characters."""
    ids = [str(uuid.UUID(int=number)) for number in range(100)]
    run = b"".join(b"ds3://b/alerts/%s" % each.encode() for each in ids)
    assert {names_of(f"alerts/{each}")[0] for each in ids} < names_in(run, {"alerts"})


@pytest.mark.parametrize("filler", [b"t/", b"../", b"/", b"%2F", b"?/"])
def test_an_endless_path_is_hashed_no_further_back_than_a_reference_reaches(filler: bytes) -> None:
    begun = time.process_time()
    ids = b"/%s" % str(uuid.UUID(int=1)).encode() * 64
    assert names_of(f"t{ids[:37].decode()}")[0] in names_in(filler * (1_500_000 // len(filler)) + b"/t" + ids, {"t"})
    assert time.process_time() - begun < 1
