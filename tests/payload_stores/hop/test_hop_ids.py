"""Ids of the hop store: what they are made of, and what has them on the server already."""

import uuid
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any

import bson
import pytest

from payload_stores import PayloadStoreError, PublishContext, StoredRecord
from tests.payload_stores.hop.test_hop_http import Server, opened, says

__all__ = ["opened"]


def posted_id(server: Server) -> str:
    headers = dict(bson.decode(server.requests[0][3])["headers"])
    return str(uuid.UUID(bytes=headers["_id"]))


def test_deterministic_ids_are_of_the_whole_record(serve: Any, opened: Any) -> None:
    with serve(Server(says(201))) as url:
        store = opened(url)
        content = PublishContext("content")

        def published(topic: str = "t", value: bytes = b"v", key: bytes | None = b"k", **headers: bytes) -> str:
            given = (("_id", uuid.uuid4().bytes), *headers.items())
            return str(store.publish_record(topic, StoredRecord(value, given, key), content))

        same = {published(), published()}
        assert len(same) == 1
        others = {published("u"), published(value=b"w"), published(key=b"l"), published(key=None), published(a=b"")}
        assert len(others | same) == 6
        keyed = store.publish("t", b"v", PublishContext("keyed", key=b"k"))
        assert uuid.UUID(keyed.rpartition("/")[2]).version == 8
        with pytest.raises(PayloadStoreError, match="key"):
            store.publish("t", b"v", PublishContext("keyed"))


def stored(server: Server, **change: Any) -> Callable[[BaseHTTPRequestHandler], None]:
    """Answers with what was posted, changed."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        says(200, bson.encode({**bson.decode(server.requests[0][3]), **change}))(handler)

    return answer


RECORD = StoredRecord(bytes(1000), (("a", b"1"), ("empty", None)), b"k")


def test_a_record_that_is_there_already(serve: Any, opened: Any) -> None:
    # A random id that is taken is another record's, unless an attempt before this one took it.
    for context, first in ((PublishContext("content"), []), (None, [says(503)])):
        server = Server(*first, says(422))
        server.answers.append(stored(server))
        with serve(server) as url:
            reference = opened(url).publish_record("t", RECORD, context)
            assert reference == f"{url}/msg/{posted_id(server)}"
            assert [request[0] for request in server.requests][-2:] == ["POST", "GET"]


@pytest.mark.parametrize(
    "change",
    [
        {"message": bytes(999) + b"1"},
        {"message": bytes(999)},
        {"message": bytes(1_000_000)},
        {"headers": [["a", b"1"]]},
        {"headers": {"a": b"2"}},
        {"key": b"l"},
        {"key": None},
        {"metadata": {"key": b"l"}},
    ],
    ids=lambda change: str(change)[:30],
)
def test_another_record_under_a_predicted_id(serve: Any, opened: Any, change: Any) -> None:
    server = Server(says(422))
    server.answers.append(stored(server, **change))
    with serve(server) as url, pytest.raises(PayloadStoreError, match="the record's id is taken") as caught:
        opened(url).publish_record("t", RECORD, PublishContext("content"))
    assert not caught.value.transient
    assert [request[0] for request in server.requests] == ["POST", "GET"]


@pytest.mark.parametrize("answer", [says(403), says(404), says(200, b"junk"), says(200, b"")])
def test_what_has_the_id_cannot_be_seen(serve: Any, opened: Any, answer: Any) -> None:
    with serve(Server(says(422), answer)) as url, pytest.raises(PayloadStoreError, match="HTTP 422") as caught:
        opened(url).publish("t", b"1", PublishContext("content"))
    assert type(caught.value) is PayloadStoreError


def test_comparing_is_tried_again(serve: Any, opened: Any) -> None:
    server = Server(says(422), says(503), says(422))
    server.answers.append(stored(server))
    with serve(server) as url:
        assert opened(url).publish("t", b"1", PublishContext("content")).startswith(url)
