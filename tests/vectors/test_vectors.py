"""The vectors that the package ships, written and read by our own chains."""

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from payload_stores import open_store
from payload_stores.errors import PayloadStoreError
from payload_stores.kafka.place import Place
from serde_chain import RecordContext, SerializationError
from serde_chain.catalogue import find_format
from serde_chain.clients.dead_letters import read_dead_letter
from serde_chain.testing.services import S3Server
from tests.vectors import cases
from tests.vectors.__main__ import FOLDER
from tests.vectors.build import FILES, bucket, build, read, text_of, value_of
from tests.vectors.independent import READERS

OF_CHAINS = set(FILES) - {"hop", "kafka-references", "dead-letters"}


@pytest.fixture(scope="module")
def place(s3_server: S3Server) -> Iterator[tuple[Any, dict[str, str]]]:
    """The client of the vectors' bucket, and its settings."""
    with bucket(s3_server) as found:
        yield found


def vectors(*names: str) -> pytest.MarkDecorator:
    found = [
        (name, vector)
        for name in sorted(names)
        for vector in json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))["vectors"]
    ]
    ids = [f"{name}: {vector['name']}" for name, vector in found]
    return pytest.mark.parametrize("vector", [vector for _, vector in found], ids=ids)


def headers_of(vector: Any, member: str = "headers") -> Any:
    return [(name, bytes.fromhex(value)) for name, value in vector.get(member, ())]


@pytest.mark.parametrize("name", FILES)
def test_the_files_are_what_the_writers_write(name: str, place: Any) -> None:
    client, store = place
    assert (FOLDER / f"{name}.json").read_text(encoding="utf-8") == text_of(build(name, client, store))


def test_every_file_has_records_that_are_read_and_ones_that_are_refused() -> None:
    assert {path.stem for path in FOLDER.glob("*.json")} == FILES.keys()
    for path in FOLDER.glob("*.json"):
        found = json.loads(path.read_text(encoding="utf-8"))["vectors"]
        assert len({vector["name"] for vector in found}) == len(found)
        assert {"error" in vector for vector in found} == {True, False}, path.name


@vectors(*OF_CHAINS)
def test_readers_of_chains(vector: Any, place: Any) -> None:
    client, store = place
    if "error" in vector:
        with pytest.raises((SerializationError, PayloadStoreError)) as caught:
            read(vector, client, store)
        assert type(caught.value).__name__ == vector["error"]
        return
    result, headers = read(vector, client, store)
    expected = bytes.fromhex(vector["result"]) if "result" in vector else value_of(vector)
    assert result == expected
    assert headers == headers_of(vector, "result_headers") + headers_of(vector, "user_headers")


def _independent(name: str) -> Any:
    return [
        pytest.param(name, vector, id=f"{name}: {vector['name']}")
        for vector in json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))["vectors"]
        # The metadata's own numbers are not what that reader looks at.
        if not (name == "entry-metadata" and vector["name"] in {"a group", "a number beyond 64 bits"})
        and "goes on" not in vector["name"]
    ]


@pytest.mark.parametrize(("name", "vector"), [each for name in READERS for each in _independent(name)])
def test_readers_that_were_written_from_the_pages(name: str, vector: Any) -> None:
    if "error" in vector:
        with pytest.raises((ValueError, KeyError)):
            READERS[name](vector)
        return
    expected = bytes.fromhex(vector["result"]) if "result" in vector else value_of(vector)
    assert READERS[name](vector) == expected


@vectors("hop")
def test_placeholders_of_hop(vector: Any) -> None:
    ctx = RecordContext("alerts", "value", headers_of(vector))
    if "error" in vector:
        with pytest.raises(ValueError, match="placeholder"):
            find_format("hop").read(bytes.fromhex(vector["record"]), ctx, is_key=False)
        return
    found: Any = find_format("hop").read(bytes.fromhex(vector["record"]), ctx, is_key=False)
    assert (None if found is None else found.url) == vector["reference"]


@vectors("kafka-references")
def test_references_of_payloads_in_kafka(vector: Any) -> None:
    with closing(open_store("kafka", {"bootstrap.servers": "127.0.0.1:1", "log_level": 0})) as store:
        if "error" in vector:
            with pytest.raises(PayloadStoreError) as caught:
                Place.of(store, vector["reference"])
            assert type(caught.value).__name__ == vector["error"]
            return
        place = Place.of(store, vector["reference"])
        assert place.url("kafka") == vector["reference"]
    members = ("cluster", "payload_topic", "partition", "first", "last")
    assert place[:5] == tuple(vector[member] for member in members)
    assert place.key == vector["key"]


@vectors("dead-letters")
def test_headers_of_dead_letters(vector: Any) -> None:
    if "error" in vector:
        with pytest.raises(ValueError, match="header serde-chain-error-"):
            read_dead_letter(headers_of(vector))
        return
    letter = read_dead_letter(headers_of(vector))
    assert letter.origin._asdict() == vector["origin"]
    assert letter.headers == headers_of(vector, "own_headers")
    assert list(letter.dropped) == vector["dropped"]


def test_the_version_is_that_of_the_page() -> None:
    page = (cases.GOLDEN.parents[3] / "docs/specification.md").read_text(encoding="utf-8")
    for path in FOLDER.glob("*.json"):
        version = json.loads(path.read_text(encoding="utf-8"))["specification"]
        assert f"version {version} of the specification" in page
        assert f"`{path.name}`" in page
