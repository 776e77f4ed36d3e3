"""Payloads that a store refuses: one alone is the fault of its record, all of them are the store's."""

import os
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from payload_stores import PayloadAccessDeniedError, PayloadStore, PayloadStoreError, open_store
from payload_stores.memory import MemoryStore
from payload_stores.s3 import S3Store
from payload_stores.testing import FaultyStore
from serde_chain import DeserializerChain, RecordContext, SerializationError
from serde_chain.testing.services import S3Server
from tests.payload_stores.cases import s3_client
from tests.payload_stores.s3.test_s3_faults import answers


def about_record(store: PayloadStore, reference: str, *, after: str | None = None, topic: str = "topic") -> bool:
    """Whether a reader takes the refusal of a payload for its record's fault.

    Args:
        store: The store.
        reference: The payload that is refused.
        after: One that the reader has read before.
        topic: Topic of the record.
    """
    config = {"value.deserializers": "large-message", "large.message.payload.store.class": store}
    read = DeserializerChain.from_config(config)
    if after is not None:
        read(after.encode(), RecordContext(topic, "value", [("large-message", b"true")]))
    with pytest.raises(SerializationError) as caught:
        read(reference.encode(), RecordContext(topic, "value", [("large-message", b"true")]))
    assert not caught.value.transient
    return caught.value.about_record


@pytest.fixture
def store(s3_server: S3Server, bucket: str) -> Iterator[S3Store]:
    store = open_store("s3", {**s3_server.store_config(bucket), "s3.retry.attempts": 1})
    assert isinstance(store, S3Store)
    yield store
    store.close()


REFUSALS = [
    (403, "AccessDenied"),
    (403, "InvalidObjectState"),
    (400, "InvalidRequest"),  # encrypted with a key of the writer's (SSE-C)
    (400, "KMS.DisabledException"),
]


@pytest.mark.parametrize(("status", "code"), REFUSALS)
def test_one_object_that_is_refused(store: S3Store, status: int, code: str) -> None:
    refused, other = store.publish("topic", b"refused"), store.publish("topic", b"another")
    answers(store, "GetObject", status, code, lambda request: request.url.endswith(refused.rpartition("/")[2]))
    assert about_record(store, refused)
    answers(store, "ListObjectsV2", 403, "AccessDenied")
    assert not about_record(store, refused), "it is not known that others can be read"
    assert about_record(store, refused, after=other)


@pytest.mark.parametrize(("status", "code"), REFUSALS)
def test_all_objects_are_refused(store: S3Store, status: int, code: str) -> None:
    refused, other = store.publish("topic", b"refused"), store.publish("topic", b"another")
    config = {"value.deserializers": "large-message", "large.message.payload.store.class": store}
    with DeserializerChain.from_config(config) as read:
        ctx = RecordContext("topic", "value", [("large-message", b"true")])
        assert read(other.encode(), ctx) == b"another"
        answers(store, "GetObject", status, code)
        ctx = RecordContext("topic", "value", [("large-message", b"true")])
        with pytest.raises(SerializationError) as caught:
            read(refused.encode(), ctx)
    assert not caught.value.about_record


@pytest.mark.full
def test_a_folder_that_is_refused_to_readers_of_another_topic(store: S3Store) -> None:
    refused = store.publish("secret", b"refused")
    store.publish("secret", b"another")
    store.publish("topic", b"of the record's topic")
    answers(store, "GetObject", 403, "AccessDenied", lambda request: "/secret/" in request.url)
    assert about_record(store, refused)
    assert not about_record(store, refused, topic="secret")


@pytest.mark.parametrize("name", ["s3", "objects"])
def test_an_archived_object(s3_server: S3Server, bucket: str, name: str) -> None:
    config = s3_server.store_config(bucket) if name == "s3" else s3_server.objects_config(bucket)
    reader = open_store(name, config)
    good = reader.publish("topic", b"good")
    folder = good.removeprefix(f"s3://{bucket}/").rpartition("/")[0]
    with s3_client(s3_server, bucket) as client:
        client.put_object(Bucket=bucket, Key=f"{folder}/archived", Body=b"archived", StorageClass="GLACIER")
    assert about_record(reader, f"{good.rpartition('/')[0]}/archived")
    reader.close()


def test_a_store_that_refuses_for_a_while_is_asked_once(tmp_path: Path) -> None:
    store = FaultyStore(open_store("local", {"local.path": str(tmp_path)}))
    references = [store.publish("topic", b"payload") for _ in range(2)]
    store.fail(PayloadAccessDeniedError("no"), times=100)
    assert not about_record(store, references[0])
    assert len(store.calls) < 20


@pytest.mark.parametrize("kind", ["socket", "pipe", "folder", "link"])
def test_what_is_no_file(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store("local", {"local.path": str(tmp_path)})
    store.publish("topic", b"good")
    at = tmp_path / "topic" / "other"
    with socket.socket(socket.AF_UNIX) as listener:
        match kind:
            case "socket":
                monkeypatch.chdir(at.parent)  # the path of a socket has at most 107 bytes
                listener.bind(at.name)
            case "pipe":
                os.mkfifo(at)
            case "folder":
                at.mkdir()
            case "link":
                at.symlink_to("/etc/passwd")
        assert about_record(store, at.as_uri())


READER = """
import ctypes
import struct
import sys
# For root, too, modes count then: without the capabilities that pass over them (capset(2), version 3).
ctypes.CDLL(None).capset(struct.pack("=Ii", 0x20080522, 0), struct.pack("=6I", *[0] * 6))
from serde_chain import DeserializerChain, RecordContext, SerializationError
read = DeserializerChain.from_config({
    "value.deserializers": "large-message", "large.message.payload.store.class": "local", "local.path": sys.argv[1]
})
for reference in sys.argv[2:]:
    try:
        read(reference.encode(), RecordContext("topic", "value", [("large-message", b"true")]))
        print("read")
    except SerializationError as error:
        print("record" if error.about_record else "world", type(error.__cause__).__name__)
"""


def read_by_another(folder: Path, *references: str) -> list[str]:
    """What becomes of references in another process."""
    arguments = [sys.executable, "-c", READER, str(folder), *references]
    return subprocess.run(arguments, check=True, capture_output=True, text=True).stdout.splitlines()


def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    store = open_store("local", {"local.path": str(tmp_path)})
    refused, good = (store.publish("topic", data) for data in (b"refused", b"good"))
    Path(refused.removeprefix("file://")).chmod(0)
    assert read_by_another(tmp_path, refused, good) == ["record PayloadAccessDeniedError", "read"]
    below = tmp_path / "topic" / "below"
    below.mkdir(mode=0)
    assert read_by_another(tmp_path, (below / "1").as_uri()) == ["record PayloadAccessDeniedError"]
    Path(good.removeprefix("file://")).chmod(0)
    # As where the umask of all writers is wrong.
    assert read_by_another(tmp_path, refused) == ["world PayloadAccessDeniedError"]
    below.chmod(0o755)


class Careless(MemoryStore):
    """A third party's store that raises its library's exceptions."""

    failure: Any = None

    def download(self, reference: str) -> bytes:
        if not isinstance(self.failure, Exception):
            result: bytes = self.failure
            return result
        raise self.failure


@pytest.mark.parametrize(
    ("failure", "transient"),
    [
        (sqlite3.OperationalError("database is locked"), False),
        (KeyError("payload"), False),
        (None, False),
        ("text", False),
        (ConnectionResetError("reset by peer"), True),
    ],
    ids=repr,
)
@pytest.mark.parametrize("how", ["record", "batch"])
def test_an_exception_of_a_stores_library_says_nothing_about_the_record(
    failure: Any, transient: bool, how: str
) -> None:
    store = Careless()
    store.configure({})
    reference = store.publish("topic", b"payload")
    headers: list[Any] = [("large-message", b"true")]
    store.failure = failure
    chain = DeserializerChain.from_config(
        {"value.deserializers": "large-message", "large.message.payload.store.class": store}
    )
    read = {
        "record": lambda: chain(reference.encode(), RecordContext("topic", "value", headers)),
        "batch": lambda: chain.to_arrow([reference.encode()], [headers], topic="topic"),
    }
    with pytest.raises(SerializationError, match="the store failed: ") as caught:
        read[how]()
    assert isinstance(caught.value, PayloadStoreError)
    assert (caught.value.about_record, caught.value.transient) == (False, transient)
    assert caught.value.context["reference"] == reference
