"""The inputs of the vectors: what a user configures, what a stage gets, and what a reader must say.

``python -m tests.vectors`` writes them, with the bytes, to ``serde_chain/testing/vectors``. Results of writing come
from our writers, and are then vectors for everybody's readers; results of reading are stated here.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tests.wire.test_foreign import LEGACY, POINTER

BUCKET: Final = "vectors"
TOPIC: Final = "alerts"
PAYLOAD: Final = b"M 51 in the store"
DIGEST: Final = "sha256:" + hashlib.sha256(PAYLOAD).hexdigest()
KEY: Final = f"{TOPIC}/{hashlib.sha256(PAYLOAD).hexdigest()}"
URL: Final = f"s3://{BUCKET}/{KEY}"
LARGE: Final = {
    "large.message.payload.store.class": "s3",
    "large.message.threshold.bytes": "10",
    "large.message.id": "content",
}
KEYS: Final = {"encryption.keys": f"k1 = {base64.b64encode(bytes(range(32))).decode()}", "encryption.key.id": "k1"}
GOLDEN: Final = Path(__file__).parents[1] / "data/golden/pulsar_entry_metadata.json"
SALT, NONCE = bytes(range(16)), bytes(range(100, 112))

CLUSTER: Final = "MkU3OEVBNTcwNTJENDM2Qk"

Vector = dict[str, Any]


def hexed(headers: Any) -> list[list[str | None]]:
    """Headers as a vector has them."""
    return [[name, None if value is None else value.hex()] for name, value in headers]


def case(name: str, stages: str, config: Any = None, *, field: str = "value", **more: Any) -> Vector:
    """A vector of a chain. What is not given is not there."""
    settings = {f"{field}.deserializers": ", ".join(reversed(stages.split(", "))), **(config or {})}
    for member in ("payload", "record", "result", "key"):
        if isinstance(more.get(member), bytes):
            more[member] = more[member].hex()
    for member in ("headers", "result_headers"):
        if member in more:
            more[member] = hexed(more[member])
    if "objects" in more:
        more["objects"] = {at: data.hex() for at, data in more["objects"].items()}
    return {"name": name, "topic": TOPIC, "field": field, "config": settings, **more}


def written(name: str, stages: str, config: Any = None, *, field: str = "value", **more: Any) -> Vector:
    """A vector whose bytes every writer makes of its payload; its reader gets the payload."""
    config = {f"{field}.serializers": stages, **(config or {})}
    return case(name, stages, config, field=field, writes=True, **more)


def kip1159() -> Iterator[Vector]:
    yield written("inline", "bytes, large-message", LARGE, payload=b"small")
    yield written("offloaded", "bytes, large-message", LARGE, payload=PAYLOAD)
    yield written("a key", "bytes, large-message", LARGE, field="key", payload=PAYLOAD)
    yield written(
        "with headers of the user", "bytes, large-message", LARGE, payload=PAYLOAD, user_headers=[["a", "31"]]
    )
    marker, there = ("large-message", b"true"), {KEY: PAYLOAD}
    read: Any = {"stages": "bytes, large-message", "config": LARGE}
    yield case(
        "a writer of the KIP alone", **read, record=URL.encode(), headers=[marker], objects=there, result=PAYLOAD
    )
    yield case(
        "marker in capitals",
        **read,
        record=URL.encode(),
        headers=[("large-message", b"TRUE")],
        objects=there,
        result=PAYLOAD,
    )
    yield case("marked as inline", **read, record=b"small", headers=[("large-message", b"false")], result=b"small")
    yield case(
        "the last header counts",
        **read,
        record=b"small",
        headers=[marker, ("large-message", b"false")],
        result=b"small",
    )
    size, digest = ("large-message-size", b"%d" % len(PAYLOAD)), ("large-message-digest", DIGEST.encode())
    for name, error, record, headers in (
        ("marker neither true nor false", "DecodeError", URL.encode(), [("large-message", b"yes")]),
        ("reference not UTF-8", "DecodeError", b"s3://vectors/\xff", [marker]),
        ("reference too long", "DecodeError", b"s3://vectors/" + b"x" * 8192, [marker]),
        ("size not a number", "DecodeError", URL.encode(), [marker, ("large-message-size", b"-1"), digest]),
        ("digest in capitals", "DecodeError", URL.encode(), [marker, size, (digest[0], DIGEST.upper().encode())]),
        ("digest of another algorithm", "DecodeError", URL.encode(), [marker, (digest[0], b"md5:" + b"0" * 32)]),
        ("another size", "PayloadIntegrityError", URL.encode(), [marker, ("large-message-size", b"7"), digest]),
        ("another digest", "PayloadIntegrityError", URL.encode(), [marker, size, (digest[0], b"sha256:" + b"0" * 64)]),
        ("payload gone", "PayloadNotFoundError", f"s3://{BUCKET}/{TOPIC}/gone".encode(), [marker]),
        ("another bucket", "UntrustedReferenceError", f"s3://other/{KEY}".encode(), [marker]),
        ("another scheme", "UntrustedReferenceError", b"file:///etc/passwd", [marker]),
        ("path upwards", "UntrustedReferenceError", f"s3://{BUCKET}/{TOPIC}/../secret".encode(), [marker]),
        ("path upwards, encoded", "UntrustedReferenceError", f"s3://{BUCKET}/{TOPIC}/%2E%2E/secret".encode(), [marker]),
        ("encoded slash", "UntrustedReferenceError", URL.replace(f"{TOPIC}/", f"{TOPIC}%2F").encode(), [marker]),
        ("scheme in capitals", "UntrustedReferenceError", URL.replace("s3:", "S3:").encode(), [marker]),
        ("query", "UntrustedReferenceError", f"{URL}?versionId=1".encode(), [marker]),
    ):
        yield case(name, **read, record=record, headers=headers, objects=there, error=error)


def large_fields() -> Iterator[Vector]:
    config = {**LARGE, "large.fields.paths": "stamp, sources[].stamp", "large.fields.min.bytes": "10"}
    text = PAYLOAD.decode()
    stages = "large-fields, json"
    yield written("a field", stages, config, value={"id": 1, "stamp": text})
    yield written("in an array", stages, config, value={"sources": [{"stamp": "small"}, {"stamp": text}]})
    yield written("small fields", stages, config, value={"id": 1, "stamp": "small"})
    entry = {"path": "stamp", "size": len(PAYLOAD), "digest": DIGEST}
    record = json.dumps({"id": 1, "stamp": URL}, separators=(",", ":")).encode()
    read: Any = {"stages": stages, "config": config, "record": record, "objects": {KEY: PAYLOAD}}

    def refused(name: str, header: Any, error: str = "DecodeError", **more: Any) -> Vector:
        text = header if isinstance(header, bytes) else json.dumps(header).encode()
        return case(name, **{**read, **more}, headers=[("large-fields", text)], error=error)

    yield case(
        "members in another order",
        **read,
        headers=[("large-fields", json.dumps([dict(reversed(entry.items()))]).encode())],
        value={"id": 1, "stamp": text},
    )
    yield refused("not JSON", b"[")
    yield refused("not an array", entry)
    yield refused("a path twice", [entry, entry])
    yield refused("another member", [{**entry, "url": URL}])
    yield refused("a member missing", [{"path": "stamp", "size": 1}])
    yield refused("a negative size", [{**entry, "size": -1}])
    yield refused("a size as text", [{**entry, "size": "17"}])
    yield refused("a digest in capitals", [{**entry, "digest": DIGEST.upper()}])
    yield refused("a malformed path", [{**entry, "path": "stamp..x"}])
    yield refused("a path that is not there", [{**entry, "path": "image"}])
    yield refused("another digest", [{**entry, "digest": "sha256:" + "0" * 64}], "PayloadIntegrityError")
    other = record.replace(BUCKET.encode(), b"other")
    yield refused("another bucket", [entry], "UntrustedReferenceError", record=other)


def bakdata() -> Iterator[Vector]:
    flag = {**LARGE, "large.message.format": "bakdata-flag", "large.message.accept": "bakdata-flag"}
    named = {**LARGE, "large.message.format": "bakdata-headers", "large.message.accept": "bakdata-headers"}
    stages = "bytes, large-message"
    for name, config in (("bakdata-flag", flag), ("bakdata-headers", named)):
        yield written(f"{name}, inline", stages, config, payload=b"small")
        yield written(f"{name}, offloaded", stages, config, payload=PAYLOAD)
        yield written(f"{name}, murmur3", stages, {**config, "large.message.id": "murmur3"}, payload=PAYLOAD)
        yield written(f"{name}, a key", stages, config, field="key", payload=PAYLOAD)
    place, mark = f"{TOPIC}/values/1", ("__large.message.backed.value", b"\x01")
    url = f"s3://{BUCKET}/{place}".encode()
    # Written by Apache Kafka 4.1's Compression: the frame, and the rest of Java's buffer.
    zipped = bytes.fromhex("1f8b08000000000000ffcb48cdc9c9070086a6103605") + bytes(3)
    for header in ("__large.message.backed..compression", "__large.message.backed.compression"):
        headers = [mark, (header, b"\x01")]
        yield case(
            f"gzip by the header {header}",
            stages,
            named,
            record=url,
            headers=headers,
            objects={place: zipped},
            result=b"hello",
        )
    there: Any = {"objects": {place: PAYLOAD}, "error": "DecodeError"}
    yield case("bakdata-flag, another flag", stages, flag, record=b"\x02" + url, **there)
    yield case("bakdata-flag, empty", stages, flag, record=b"", **there)
    yield case("bakdata-headers, another flag", stages, named, record=url, headers=[(mark[0], b"\x02")], **there)
    yield case("unknown compression", stages, named, record=url, headers=[mark, (header, b"\x09")], **there)
    yield case("URI not UTF-8", stages, named, record=b"\xff", headers=[mark], **there)
    yield case("URI too long", stages, named, record=url + b"x" * 8192, headers=[mark], **there)


def encrypt() -> Iterator[Vector]:
    siv = {**KEYS, "encryption.mode": "siv"}
    gcm: Any = {"random": [SALT.hex(), NONCE.hex()]}
    stages = "bytes, encrypt"
    yield written("gcm", stages, KEYS, payload=b"payload", **gcm)
    yield written("gcm, empty", stages, KEYS, payload=b"", **gcm)
    yield written("siv", stages, siv, payload=b"payload")
    yield written("siv, a key", stages, siv, field="key", payload=b"payload")


def refused_envelopes(record: bytes) -> Iterator[Vector]:
    """Changes of an envelope."""
    stages = "bytes, encrypt"

    def refused(name: str, data: bytes, error: str, **more: Any) -> Vector:
        return {**case(name, stages, KEYS, record=data, error=error), **more}

    yield refused("another topic", record, "DecryptionError", topic="other")
    yield {**case("another field", stages, KEYS, field="key", record=record, error="DecryptionError")}
    yield refused("a changed tag", record[:-1] + bytes([record[-1] ^ 1]), "DecryptionError")
    yield refused("a changed salt", record[:6] + bytes([record[6] ^ 1]) + record[7:], "DecryptionError")
    yield refused("an unknown key", record[:4] + b"k2" + record[6:], "UnknownKeyError")
    yield refused("an unknown version", b"\xce\x02" + record[2:], "DecodeError")
    yield refused("an unknown mode", record[:2] + b"\x03" + record[3:], "DecodeError")
    yield refused("a key id with a space", record[:4] + b"k " + record[6:], "DecodeError")
    yield refused("truncated", record[:40], "DecodeError")
    yield refused("not encrypted", b"payload", "DecodeError")
    yield refused("empty", b"", "DecodeError")


def entry_metadata() -> Iterator[Vector]:
    """Frames of Apache Pulsar, and malformed ones."""
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
    stages = "bytes, entry-metadata"
    for each in golden["positive"]:
        if "hex" in each["frame"] and "hex" in each["body"]:
            frame, body = bytes.fromhex(each["frame"]["hex"]), bytes.fromhex(each["body"]["hex"])
            yield case(f"Pulsar: {each['name']}", stages, record=frame, result=body)
    yield case("no frame", stages, record=b"payload", result=b"payload")
    yield case("another version", stages, record=bytes.fromhex("0e0300000000"), result=bytes.fromhex("0e0300000000"))
    required = {"entry.metadata.required": "true"}
    yield case("no frame, though required", stages, required, record=b"payload", error="DecodeError")
    for name, data in (
        ("magic alone", "0e02"),
        ("size truncated", "0e02000000"),
        ("size beyond the data", "0e0200000014 08fbd095ffbc31"),
        ("negative size", "0e02fffffffa 08fbd095ffbc31"),
        ("a number that goes on after the metadata", "0e0200000003 08fbd095ffbc31"),
        ("a group", "0e0200000002 0b0c"),
        ("a number beyond 64 bits", "0e020000000b 08ffffffffffffffffff02"),
    ):
        yield case(name, stages, required, record=bytes.fromhex(data), error="EntryMetadataError")


def describe() -> Iterator[Vector]:
    writes = {"serde.chain.describe": "true"}
    reads = {"value.deserializers": "auto", "serde.chain.allow": "json, string, large-message"}
    yield written("one stage", "string", {**LARGE, **writes, **reads}, value="M 51")
    yield written("two stages", "string, large-message", {**LARGE, **writes, **reads}, value=PAYLOAD.decode())
    for name, header in (
        ("an unknown version", b"2:json"),
        ("no version", b"json"),
        ("no stages", b"1:"),
        ("a stage that is not allowed", b"1:avro"),
        ("a stage that nobody has", b"1:nothing"),
        ("stages in an impossible order", b"1:large-message,json"),
        ("seventeen stages", b"1:" + b",".join([b"json"] * 17)),
        ("spaces", b"1:json, string"),
        ("bytes beyond ASCII", b"1:json\xff"),
    ):
        yield case(
            name, "json", {**LARGE, **reads}, record=b'{"id":1}', headers=[("serde-chain", header)], error="DecodeError"
        )
    yield case("no header", "json", {**LARGE, **reads}, record=b'{"id":1}', error="DecodeError")


def foreign() -> Iterator[Vector]:
    names = "aws-extended, cloudevents, eventbridge, kafscale, ticdc"
    accepts, stages = {**LARGE, "large.message.accept": names}, "bytes, large-message"
    sha256 = DIGEST.partition(":")[2]
    claim = {"id": 0, "_tidb": {"commitTs": 400, "claimCheckLocation": f"s3:/{BUCKET}/u.json"}}
    stored = json.dumps({"key": base64.b64encode(b"k").decode(), "value": base64.b64encode(PAYLOAD).decode()}).encode()
    opened = json.dumps({"ts": 400, "t": 1, "ccl": f"s3:/{BUCKET}/u.json"}).encode()
    part = {"topic": "alerts", "dataref": f"arn:aws:s3:::{BUCKET}/part", "datarefJsonPath": "$.detail.value"}
    event = {"id": "1", "specversion": "1.0", "type": "alert", "dataref": f"s3://{BUCKET}/1"}
    structured = [("content-type", b"application/cloudevents+json")]
    envelope = {"kfs_lfs": 1, "bucket": BUCKET, "key": "1", "size": len(PAYLOAD), "sha256": sha256}
    size = ("ExtendedPayloadSize", b"%d" % len(PAYLOAD))

    def aws(bucket: str = BUCKET, kind: str = POINTER) -> bytes:
        return json.dumps([kind, {"s3BucketName": bucket, "s3Key": "1"}]).encode()

    one: Any = {"objects": {"1": PAYLOAD}, "result": PAYLOAD}
    yield case("aws-extended", stages, accepts, record=aws(), headers=[size], **one)
    yield case("aws-extended, legacy", stages, accepts, record=aws(kind=LEGACY), **one)
    alone = json.dumps({"s3BucketName": BUCKET, "s3Key": "1"}).encode()
    yield case("aws-extended, the object alone", stages, accepts, record=alone, headers=[size], **one)
    yield case("kafscale", stages, accepts, record=json.dumps(envelope).encode(), **one)
    binary = [("ce_id", b"1"), ("ce_dataref", f"s3://{BUCKET}/1".encode())]
    yield case("cloudevents, binary", stages, accepts, record=b"", headers=binary, result_headers=binary[:1], **one)
    said = [("ce_id", b"1"), ("ce_specversion", b"1.0"), ("ce_type", b"alert")]
    yield case(
        "cloudevents, structured",
        stages,
        accepts,
        record=json.dumps(event).encode(),
        headers=structured,
        result_headers=said,
        **one,
    )
    yield case(
        "ticdc",
        stages,
        accepts,
        key=b"k",
        record=json.dumps(claim).encode(),
        objects={"u.json": stored},
        result=PAYLOAD,
    )
    yield case(
        "ticdc, open protocol",
        stages,
        accepts,
        key=b"\0\0\0\0\0\0\0\1" + len(opened).to_bytes(8, "big") + opened,
        record=b"row",
        objects={"u.json": stored},
        result=PAYLOAD,
    )
    yield case(
        "eventbridge",
        stages,
        accepts,
        record=json.dumps(part).encode(),
        objects={"part": b"[1,2]"},
        result=b'{"topic":"alerts","value":[1,2]}',
    )
    yield case("none of them", stages, accepts, record=b'{"id":1}', result=b'{"id":1}')
    there: Any = {"objects": {"1": PAYLOAD}}
    yield case(
        "aws-extended, another bucket", stages, accepts, record=aws("other"), error="UntrustedReferenceError", **there
    )
    yield case(
        "aws-extended, another size",
        stages,
        accepts,
        record=aws(),
        headers=[(size[0], b"1")],
        error="PayloadIntegrityError",
        **there,
    )
    yield case(
        "aws-extended, no key",
        stages,
        accepts,
        record=json.dumps([POINTER, {"s3BucketName": BUCKET}]).encode(),
        error="DecodeError",
        **there,
    )
    yield case(
        "kafscale, another digest",
        stages,
        accepts,
        record=json.dumps({**envelope, "sha256": "0" * 64}).encode(),
        error="PayloadIntegrityError",
        **there,
    )
    yield case(
        "kafscale, truncated", stages, accepts, record=json.dumps(envelope).encode()[:-1], error="DecodeError", **there
    )
    yield case("not accepted", stages, LARGE, record=aws(), result=aws())


def hop() -> Iterator[Vector]:
    """Placeholders alone: their records are on a server (docs/operators.md)."""
    url = "https://offload.example/msg/00010203-0405-4607-8809-0a0b0c0d0e0f"
    external = [("_id", bytes(range(16))), ("_sender", b"alice"), ("_format", b"external")]
    data = json.dumps({"url": url}).encode()

    def one(name: str, record: bytes, headers: Any, **more: Any) -> Vector:
        return {"name": name, "format": "hop", "record": record.hex(), "headers": hexed(headers), **more}

    yield one("a placeholder", data, external, reference=url)
    yield one("a test message", data, [*external[:2], ("_test", b"true"), external[2]], reference=url)
    yield one("format in capitals", data, [("_format", b"External")], reference=url)
    yield one("another format", data, [("_format", b"json")], reference=None)
    yield one("the first format counts", data, [("_format", b"json"), ("_format", b"external")], reference=None)
    yield one("no headers", data, [], reference=None)
    for name, record in (
        ("not JSON", b"{"),
        ("no URL", b"{}"),
        ("a URL that is no text", b'{"url": 1}'),
        ("an array", b"[]"),
        ("too long", data + b" " * 8192),
    ):
        yield one(name, record, external, error="DecodeError")


def kafka_references() -> Iterator[Vector]:
    """References of payloads in Kafka: ``kafka://cluster/payload topic/partition/first-last/topic/id``."""
    good = {
        "cluster": CLUSTER,
        "payload_topic": "alerts-payloads",
        "partition": 3,
        "first": 7,
        "last": 9,
        "key": "alerts/1",
    }
    yield {"name": "three chunks", "reference": f"kafka://{CLUSTER}/alerts-payloads/3/7-9/alerts/1", **good}
    yield {
        "name": "characters encoded",
        "reference": f"kafka://{CLUSTER}/alerts-payloads/3/7-9/alerts/a%20b",
        **good,
        "key": "alerts/a b",
    }
    for name, rest in (
        ("offsets in reverse", "alerts-payloads/3/9-7/alerts/1"),
        ("no offsets", "alerts-payloads/3/alerts/1"),
        ("a leading zero", "alerts-payloads/03/7-9/alerts/1"),
        ("a partition too large", "alerts-payloads/2147483648/7-9/alerts/1"),
        ("more chunks than possible", "alerts-payloads/3/0-4194304/alerts/1"),
        ("no id", "alerts-payloads/3/7-9/alerts"),
        ("path upwards", "alerts-payloads/3/7-9/alerts/../1"),
    ):
        yield {"name": name, "reference": f"kafka://{CLUSTER}/{rest}", "error": "UntrustedReferenceError"}


def dead_letters() -> Iterator[Vector]:
    """Headers of dead letters, and what they say of the record."""

    def letter(**facts: Any) -> Any:
        return [(f"serde-chain-error-{name}", str(value).encode()) for name, value in facts.items()]

    facts: Any = {
        "kind": "DecodeError",
        "message": "truncated",
        "stage": "json (1 of 1)",
        "topic": TOPIC,
        "partition": 3,
        "offset": 7,
        "timestamp": 1_700_000_000_123,
    }
    place = {name: facts[name] for name in ("topic", "partition", "offset", "timestamp")}
    own = [("user", b"1")]
    yield {
        "name": "all facts",
        "headers": hexed([*own, *letter(**facts)]),
        "origin": place,
        "own_headers": hexed(own),
        "dropped": [],
    }
    short = {name: facts[name] for name in ("topic", "partition", "offset")}
    yield {
        "name": "position alone",
        "headers": hexed(letter(**short)),
        "origin": {**short, "timestamp": None},
        "own_headers": [],
        "dropped": [],
    }
    yield {
        "name": "without its value",
        "headers": hexed(letter(**facts, dropped="value, headers")),
        "origin": place,
        "own_headers": [],
        "dropped": ["value", "headers"],
    }
    again = [*letter(topic="first", partition=0, offset=1), *letter(**short)]
    yield {
        "name": "twice a dead letter",
        "headers": hexed(again),
        "origin": {**short, "timestamp": None},
        "own_headers": hexed(again[:3]),
        "dropped": [],
    }
    for name, headers in (
        ("no topic", letter(partition=3, offset=7)),
        ("no offset", letter(topic=TOPIC, partition=3)),
        ("a negative offset", letter(topic=TOPIC, partition=3, offset=-1)),
        ("an offset with a sign", letter(topic=TOPIC, partition=3, offset="+7")),
        ("no headers", []),
    ):
        yield {"name": name, "headers": hexed(headers), "error": "ValueError"}
