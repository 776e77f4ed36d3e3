"""Lists of the archive's messages, and servers that offer none. With clients: tests/hop/test_public_service.py."""

import uuid
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import bson
import pytest
from bson.binary import Binary

from payload_stores import (
    PayloadAccessDeniedError,
    PayloadNotFoundError,
    PayloadRetractedError,
    PayloadStoreError,
    PayloadStoreUnavailableError,
    StoredRecord,
    UntrustedReferenceError,
)
from payload_stores.hop import HopStore
from payload_stores.hop.retraction import MAX_LIST_BYTES, is_retracted
from serde_chain.testing.services import OffloadServer
from tests.payload_stores.hop.test_hop_http import ID, Server, document, says

MESSAGE = uuid.UUID(ID)
TIME = 1_760_000_000_000
RECORD = document(b"data", metadata={"headers": [], "timestamp": TIME})


@pytest.fixture
def opened() -> Iterator[Callable[..., HopStore]]:
    stores: list[HopStore] = []

    def make(url: str, retracted: str = "error", **more: Any) -> HopStore:
        store = HopStore()
        store.configure({"hop.offload.url": url, "hop.retracted": retracted, "hop.retry.attempts": 2, **more})
        stores.append(store)
        return store

    yield make
    for store in stores:
        store.close()


def listed(*marks: tuple[object, object]) -> bytes:
    messages = [
        {
            "metadata": {"topic": "t+oversized", "timestamp": TIME},
            "annotations": {"con_text_uuid": at, "retracted": mark},
        }
        for at, mark in marks
    ]
    return bson.encode({"messages": messages, "next": None, "prev": None})


@pytest.mark.parametrize(
    "at",
    [ID, ID.upper(), Binary(MESSAGE.bytes, 3), Binary(MESSAGE.bytes, 4), MESSAGE.bytes],
    ids=["text", "capitals", "legacy", "standard", "bytes"],
)
@pytest.mark.parametrize(("mark", "expected"), [(True, True), (False, False), ("true", None), (None, None)])
def test_a_list_says_it_of_one_message(at: object, mark: object, expected: bool | None) -> None:
    data = listed((str(uuid.uuid4()), not mark), (7, True), (at, mark))
    assert is_retracted([data], MESSAGE) is expected
    assert is_retracted([data[:9], data[9:]], MESSAGE) is expected
    assert is_retracted([listed()], MESSAGE) is None


def test_every_other_list_is_refused() -> None:
    data = listed((ID, True))
    for end in range(len(data)):
        with pytest.raises(ValueError, match="it "):
            is_retracted([data[:end]], MESSAGE)
    lists: tuple[Any, ...] = ({}, [1], [{}], [{"annotations": []}])
    for messages in lists:
        with pytest.raises(ValueError, match=r"messages|annotations"):
            is_retracted([bson.encode({"messages": messages})], MESSAGE)
    # The rest is never asked for.
    taken: list[bytes] = []

    def endless() -> Iterator[bytes]:
        while True:
            taken.append(b"")
            yield bytes(1 << 20)

    with pytest.raises(ValueError, match="more than"):
        is_retracted(endless(), MESSAGE)
    assert len(taken) <= MAX_LIST_BYTES // (1 << 20) + 1


def test_the_question(serve: Any, opened: Any) -> None:
    server = Server(says(200, RECORD), says(200, listed((ID, True))))
    with serve(server) as url, pytest.raises(PayloadRetractedError) as caught:
        opened(f"{url}/archive").download_record(f"{url}/archive/msg/{ID}")
    assert caught.value.reference == f"{url}/archive/msg/{ID}"
    assert caught.value.about_record
    assert [path for _, path, _, _ in server.requests] == [
        f"/archive/msg/{ID}",
        f"/archive/messages?start_time={TIME}&end_time={TIME + 1}&limit=1024&include_retracted=true&meta=true",
    ]


@pytest.mark.parametrize(
    ("answer", "kind", "count"),
    [
        (says(404), None, 1),
        (says(405), None, 1),
        (says(501), None, 1),
        (says(200, bson.encode({"messages": []})), None, 1),
        (says(200, b"no list"), PayloadStoreError, 1),
        (says(403), PayloadAccessDeniedError, 1),
        (says(500), PayloadStoreError, 1),
        (says(503), PayloadStoreUnavailableError, 2),
    ],
)
def test_answers_to_the_question(
    serve: Any,
    opened: Any,
    answer: Callable[[BaseHTTPRequestHandler], None],
    kind: type[PayloadStoreError] | None,
    count: int,
) -> None:
    """A server that does not know is no reason to withhold records; one that fails is, and it is not the record's."""
    server = Server(says(200, RECORD), answer)
    with serve(server) as url:
        store = opened(url)
        if kind is None:
            assert store.download(f"{url}/msg/{ID}") == b"data"
        else:
            with pytest.raises(kind) as caught:
                store.download(f"{url}/msg/{ID}")
            assert type(caught.value) is kind
            assert not caught.value.about_record
    assert len(server.requests) == 1 + count


def test_only_the_archives_word_counts(serve: Any, opened: Any) -> None:
    record = document(metadata={"headers": [["_retracted", b"true"], ["a", b"1"]], "timestamp": TIME})
    server = Server(says(200, record), says(200, listed((ID, False))), says(200, record), says(200, listed((ID, True))))
    with serve(server) as url:
        store = opened(url, "flag")
        assert store.download_record(f"{url}/msg/{ID}").headers == (("a", b"1"),)
        assert store.download_record(f"{url}/msg/{ID}").headers == (("a", b"1"), ("_retracted", b"true"))


def test_no_question_for_records_without_a_time_and_of_other_servers(serve: Any, opened: Any) -> None:
    server = Server(says(200, document()))
    with serve(server) as url:
        assert opened(url).download(f"{url}/msg/{ID}") == b"data"
        other = opened("http://127.0.0.1:9", **{"large.message.trusted.references": f"{url}/msg"})
        assert other.download(f"{url}/msg/{ID}") == b"data"
        with pytest.raises(UntrustedReferenceError, match="own endpoint"):
            other.retract(f"{url}/msg/{ID}")
    assert [path for _, path, _, _ in server.requests] == [f"/msg/{ID}"] * 2


def test_a_raw_file_is_another_name_of_the_record(serve: Any, opened: Any) -> None:
    """As archive-api 1.3.1 cuts raw files off: of 1010 bytes, in chunks of 1024, 1006 arrived, with status 200."""
    server = Server(says(200, document()))
    with serve(server) as url:
        store = opened(url, "ignore")
        assert store.owns(f"{url}/msg/{ID}/raw_file/image.fits.gz")
        assert store.download(f"{url}/msg/{ID}/raw_file/image.fits.gz") == b"data"
        for name in ("", "a/b", "a?b", "a#b", "a b", "%2e", "x\n"):
            with pytest.raises(UntrustedReferenceError):
                store.download(f"{url}/msg/{ID}/raw_file/{name}")
        with pytest.raises(UntrustedReferenceError):
            store.download(f"{url}/msg/{ID}/retraction/image.fits")
    assert [path for _, path, _, _ in server.requests] == [f"/msg/{ID}"]


def test_our_own_server_offers_no_retractions(opened: Any) -> None:
    with OffloadServer() as server:
        user = {"hop.username": "alice", "hop.password": "alice-secret", "hop.scram.mechanism": "SCRAM-SHA-256"}
        store = opened(server.url, "flag", **user)
        reference = store.publish_record("images", StoredRecord(b"data"))
        assert store.download_record(reference).value == b"data"
        with pytest.raises(PayloadNotFoundError, match="does not offer retractions"):
            store.retract(reference)
