"""Writes with the writers, and reads with the readers, what the vectors say."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Final
from unittest import mock

from payload_stores.ids import sha256_digest
from payload_stores.kafka.chunks import Publication, cut
from payload_stores.kafka.place import Place
from serde_chain import DeserializerChain, RecordContext, SerializerChain
from serde_chain.record import Header
from serde_chain.testing.services import S3Server
from tests.vectors import cases
from tests.vectors.cases import Vector
from tests.vectors.kafka_chunks import kafka_chunks

__all__ = ["FILES", "bucket", "build", "read", "text_of"]

VERSION: Final = 1
FILES: Final[Mapping[str, Callable[[], Iterator[Vector]]]] = {
    "kip1159": cases.kip1159,
    "large-fields": cases.large_fields,
    "bakdata": cases.bakdata,
    "hop": cases.hop,
    "foreign": cases.foreign,
    "kafka-references": cases.kafka_references,
    "kafka-chunks": kafka_chunks,
    "encrypt": cases.encrypt,
    "entry-metadata": cases.entry_metadata,
    "stages-of-a-chain": cases.describe,
    "dead-letters": cases.dead_letters,
}


@contextmanager
def bucket(server: S3Server) -> Iterator[tuple[Any, dict[str, str]]]:
    """The bucket that the vectors name, and the settings that they leave out."""
    client = server.client()
    if cases.BUCKET not in {found["Name"] for found in client.list_buckets()["Buckets"]}:
        server.create_bucket(cases.BUCKET)
    yield client, server.store_config(cases.BUCKET)


def build(name: str, client: Any, store: dict[str, str]) -> dict[str, Any]:
    """A file of vectors: those of writers are made by them."""
    write = _published if name == "kafka-chunks" else partial(_write, client=client, store=store)
    vectors = [write(vector) if vector.get("writes") else vector for vector in FILES[name]()]
    if name == "encrypt":
        vectors += cases.refused_envelopes(bytes.fromhex(vectors[0]["record"]))
    return {"specification": VERSION, "format": name, "vectors": vectors}


def text_of(file: dict[str, Any]) -> str:
    """A file's content: a vector for each line."""
    lines = ",\n    ".join(json.dumps(vector, ensure_ascii=False) for vector in file["vectors"])
    head = json.dumps({key: value for key, value in file.items() if key != "vectors"}, indent=2)
    return f'{head[:-2]},\n  "vectors": [\n    {lines}\n  ]\n}}\n'


def value_of(vector: Vector) -> Any:
    """What a user passes, and gets back."""
    return vector["value"] if "value" in vector else bytes.fromhex(vector["payload"])


def _write(vector: Vector, client: Any, store: dict[str, str]) -> Vector:
    headers: list[Header] = [(name, bytes.fromhex(value)) for name, value in vector.get("user_headers", ())]
    ctx = RecordContext(vector["topic"], vector["field"], headers)
    with ExitStack() as stack:
        if "random" in vector:
            random = map(bytes.fromhex, vector["random"])
            stack.enter_context(mock.patch.object(os, "urandom", side_effect=random))
        chain = SerializerChain.from_config({**vector["config"], **store}, is_key=vector["field"] == "key")
        stack.callback(chain.close)
        record = bytes(chain(value_of(vector), ctx))
    made = {**vector, "record": record.hex(), "headers": cases.hexed(ctx.headers)}
    # A topic's folder is in all of them.
    found = re.findall(rf"s3://{cases.BUCKET}/({vector['topic']}/[a-z0-9/-]+)", record.decode("latin-1"))
    objects = {key: client.get_object(Bucket=cases.BUCKET, Key=key)["Body"].read().hex() for key in found}
    return made | ({"objects": objects} if objects else {})


def _published(vector: Vector) -> Vector:
    """A payload's records, as the store kafka writes them from the offset in ``place`` on."""
    data = bytes.fromhex(vector["payload"])
    publication = Publication(vector["path"], vector["chunk_bytes"], vector["publication"])
    known = () if vector["stream"] else (len(data), sha256_digest(data))
    place, _, first = vector["place"].rpartition("/")
    records = [
        {"offset": at, "key": key.hex(), "value": bytes(value or b"").hex(), "headers": cases.hexed(headers)}
        for at, (key, value, headers) in enumerate(
            publication.records(cut(memoryview(data), vector["chunk_bytes"]), *known), int(first)
        )
    ]
    cluster, topic, partition = place.removeprefix("kafka://").split("/")
    location = Place(
        cluster, topic, int(partition), int(first), int(first) + len(records) - 1, tuple(vector["path"].split("/"))
    )
    return {**vector, "reference": location.url("kafka"), "records": records}


def read(vector: Vector, client: Any, store: dict[str, str]) -> tuple[Any, Any]:
    """What a reader makes of a record: the result and the headers."""
    for key, data in vector.get("objects", {}).items():
        client.put_object(Bucket=cases.BUCKET, Key=key, Body=bytes.fromhex(data))
    headers: list[Header] = [(name, bytes.fromhex(value)) for name, value in vector.get("headers", ())]
    key = bytes.fromhex(vector["key"]) if "key" in vector else None
    ctx = RecordContext(vector["topic"], vector["field"], headers, key=key)
    with DeserializerChain.from_config({**vector["config"], **store}, is_key=vector["field"] == "key") as chain:
        return chain(bytes.fromhex(vector["record"]), ctx), ctx.headers
