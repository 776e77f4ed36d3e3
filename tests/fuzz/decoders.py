"""Every decoder, as a target for fuzzing: ``python -m tests.fuzz.decoders TARGET [SECONDS]``.

With atheris installed (``pip install atheris``, on Pythons that it supports) inputs follow the code's coverage; without
it they are mutations of what the serializers write. Whatever is raised but the documented errors is a finding. Stages
are called without the chain around them, which would make a documented error of any other.
"""

import random
import re
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import msgspec
import pyarrow as pa
import pydantic

from payload_stores.errors import PayloadStoreError
from serde_chain import DeserializerChain, RecordContext, SerializerChain
from serde_chain.catalogue import find_format
from serde_chain.errors import SerializationError
from serde_chain.schemas import schema_id
from serde_chain.schemas.schema_id import split_confluent, split_indexes
from serde_chain.stages.encryption import envelope
from serde_chain.stages.large_message.offload_codecs import NAMES, compressor, decompress
from serde_chain.stages.protobuf import proto_text
from serde_chain.stages.protobuf.schema import class_at
from serde_chain.wire import entry_metadata
from serde_chain.wire.reference_format import Reference
from tests.models.alerts import MODELS, VALUES
from tests.schemas import messages
from tests.stages.cases import STAGES
from tests.stages.protobuf.protobuf_messages import ALERT

DOCUMENTED = (SerializationError, PayloadStoreError)
SCHEMA = """{"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"},
    {"name": "more", "type": ["null", "R"]}, {"name": "tags", "type": {"type": "array", "items": "string"}}]}"""
GLUE = schema_id.encode_glue(UUID(int=1))
KEYS = STAGES["encrypt"].config
STORE = {"large.message.payload.store.class": "memory", "large.message.threshold.bytes": 100}
LIMIT = {"compression.max.output.bytes": 1 << 20}


class Packed(msgspec.Struct):
    id: int
    more: list["Packed"] = []


class Checked(pydantic.BaseModel):
    id: int
    more: list["Checked"] = []


@dataclass(frozen=True)
class Target:
    """A decoder.

    Attributes:
        decode: Takes any bytes; raises documented errors only.
        seeds: Bytes that it reads.
        errors: The documented errors.
    """

    decode: Callable[[bytes], object]
    seeds: tuple[bytes, ...]
    errors: tuple[type[Exception], ...] = DOCUMENTED


def chain(stage: str, *values: Any, **settings: Any) -> Target:
    config = {**STAGES[stage].config, **{key.replace("_", "."): value for key, value in settings.items()}}
    write = SerializerChain.from_config({"value.serializer": stage, **config})
    (read,) = DeserializerChain.from_config({"value.deserializer": stage, **config}).stages

    def decode(data: bytes) -> object:
        return read(data, RecordContext("t", "value", []))

    return Target(decode, tuple(write(value, RecordContext("t", "value", [])) for value in values))


def readers_of_avro() -> Target:
    """The compiled part, if it is installed, and fastavro: they read the same, and refuse the same."""
    schema = SCHEMA.replace('["null", "R"]', '["null", "double"]')
    value = {"id": 1, "more": 0.5, "tags": ["a", "bc"]}
    ways = [chain("avro", value, avro_schema=schema, avro_native=native) for native in ("auto", "off")]

    def decode(data: bytes) -> object:
        found = [_outcome(way, data) for way in ways]
        if repr(found[0]) != repr(found[1]):
            raise AssertionError(found)
        return found[0]

    return Target(decode, ways[0].seeds)


def in_frame(registry: str, *seeds: bytes) -> Target:
    """JSON in a registry's framing, which needs no answer of the registry."""
    settings = {"schema.registry.type": registry, "schema.registry.url": "http://127.0.0.1:1", **LIMIT}
    (read,) = DeserializerChain.from_config({"value.deserializer": "json", **settings}).stages
    return Target(lambda data: read(data, RecordContext("t", "value", [])), seeds)


def _outcome(target: Target, data: bytes) -> object:
    try:
        return target.decode(data)
    except target.errors as error:
        return re.sub(" at 0x[0-9a-f]+", "", str(error))


def columns() -> list[Any]:
    """Columns of types that nest, share values, or take no bytes."""
    runs = pa.RunEndEncodedArray.from_arrays([1, 3], [7, 8])
    kinds = pa.array([0, 1, 0], pa.int8())
    dense = pa.UnionArray.from_dense(kinds, pa.array([0, 0, 1], pa.int32()), [pa.array([1, 2]), pa.array(["s"])])
    return [
        pa.array([{"a": 1, "b": ["x"]}, None]),
        pa.array([[("k", 1)], [], None], pa.map_(pa.string(), pa.int8())),
        pa.array(["x" * 20, "y", None], pa.string_view()),
        pa.array([[1, 2], [3], None], pa.list_view(pa.int16())),
        pa.array([[1, 2], [3, 4]], pa.list_(pa.int8(), 2)),
        pa.array(["a", "b", "a"]).dictionary_encode(),
        pa.array([1, 2], pa.timestamp("ns", "UTC")),
        pa.nulls(3),
        runs,
        dense,
    ]


def marked(name: str, header: str) -> Target:
    """A format of large messages, with the input's first two bytes as a header's value."""
    found = find_format(name)

    def decode(data: bytes) -> object:
        return found.read(data[2:], RecordContext("t", "value", [(header, data[:2].rstrip(b"\xff"))]), is_key=False)

    return Target(decode, (b"\x00\xffpayload", b"\x01\xffs3://b/t/values/x"), (ValueError,))


def foreign(name: str, *seeds: bytes, header: str = "content-type") -> Target:
    """A format that is only read: key, header, placeholder and payload, with bytes between them that no UTF-8 has."""
    found = find_format(name)

    def decode(data: bytes) -> object:
        key, value, body, payload = (data.split(b"\xff", 3) + [b""] * 3)[:4]
        ctx = RecordContext("t", "value", [(header, value)], key=key)
        content = found.read(body, ctx, is_key=False)
        if content is None:
            return None
        restored = found.restore(body, payload, ctx) if isinstance(content, Reference) else content
        found.restore_headers(body, ctx, is_key=False)
        return restored, ctx.headers

    return Target(decode, seeds, (ValueError,))


def described(data: bytes) -> object:
    """A header of a self-describing chain, then the record."""
    header, _, body = data.partition(b"\n")
    settings = {"value.deserializers": "auto", "serde.chain.allow": "json, zstd, encrypt, string", **KEYS, **LIMIT}
    (read,) = DeserializerChain.from_config(settings).stages
    return read(body, RecordContext("t", "value", [("serde-chain", header)]))


def targets() -> dict[str, Target]:
    """All decoders, by name."""
    alert = {"id": 7, "tags": ["a"], "scores": {"b": 0.5}, "parent": {"id": 8}}
    framed = entry_metadata.frame(b"payload", broker_timestamp=1_700_000_000_123, index=300)
    sealed = chain("encrypt", b"payload").seeds
    documents = chain("json", {"id": [1, 2.5, None, "a"]})
    numbers = replace(documents, seeds=(*documents.seeds, b'{"a": [NaN, -Infinity]}', b"-12345678901234567890123"))
    return {
        # Stages behind another one turn bytes into bytes.
        **{name: chain(name, *((b"",) if row.before else ()), *row.values, **LIMIT) for name, row in STAGES.items()},
        "avro": chain(
            "avro", {"id": 1, "more": {"id": 2, "more": None, "tags": []}, "tags": ["a"]}, avro_schema=SCHEMA
        ),
        "avro file": chain(
            "avro", {"id": 1, "more": None, "tags": ["a"]}, avro_schema=SCHEMA, avro_framing="container"
        ),
        **{
            f"avro of {library}": chain("avro", cls(**VALUES), avro_type=cls, avro_schema=None)
            for library, cls in MODELS.items()
        },
        "json of msgspec": chain("json", Packed(1, [Packed(2)]), json_type=Packed),
        "json of pydantic": chain("json", Checked(id=1, more=[Checked(id=2)]), json_type=Checked),
        "readers of avro": readers_of_avro(),
        "arrow of many types": chain("arrow", *(pa.table({"a": column}) for column in columns())),
        "protobuf": chain("protobuf", alert, protobuf_message_class=ALERT, protobuf_values="dict"),
        "json": numbers,
        **{
            f"offloaded {name}": Target(
                lambda data, codec=name: decompress(codec, data, 1 << 20),  # type: ignore[misc]
                (compressor(name)(b"payload" * 50) + bytes(3),),
            )
            for name in NAMES
        },
        "encrypt siv": chain("encrypt", b"payload", encryption_mode="siv"),
        "peek": Target(entry_metadata.peek, (framed,)),
        "strip": Target(entry_metadata.strip, (framed,)),
        "envelope": Target(lambda data: envelope.key_of(envelope.split(data).head), sealed, (ValueError,)),
        "schema id": Target(
            lambda data: split_indexes(data, split_confluent(data)[1]), (b"\0\0\0\0\1\4\2\2",), (ValueError,)
        ),
        "ref": Target(lambda data: schema_id.split_ref(data, 0), (b"\4\n\2M1",), (ValueError,)),
        "rank": Target(lambda data: schema_id.split_rank(data, 0), (b"\x81\1",), (ValueError,)),
        "glue": in_frame("glue", GLUE + b"[1]", b"\3\5" + GLUE[2:] + zlib.compress(b'{"a": [1]}' * 9)),
        "apicurio": in_frame("apicurio", b"\0\0\0\0\1[1]", b"\0" + (1).to_bytes(8, "big") + b"[1]"),
        "proto": Target(
            lambda data: class_at([proto_text.parse("f.proto", data.decode(errors="replace"))], (0,)),
            (messages.TEXT.encode(), b'syntax = "proto2"; message M { optional group G = 1 { extensions 4 to max; } }'),
            (ValueError,),
        ),
        "kip1159": marked("kip1159", "large-message"),
        "hop": marked("hop", "_format"),
        "bakdata-flag": marked("bakdata-flag", "__large.message.backed.compression"),
        "bakdata-headers": marked("bakdata-headers", "__large.message.backed.value"),
        "aws-extended": foreign(
            "aws-extended",
            b'k\xff12\xff["com.amazon.sqs.javamessaging.MessageS3Pointer", {"s3BucketName": "bucket", "s3Key": "a"}]',
            b'k\xff12\xff{"s3BucketName": "bucket", "s3Key": "a"}',
            header="ExtendedPayloadSize",
        ),
        "cloudevents": foreign(
            "cloudevents",
            b'k\xffapplication/cloudevents+json\xff{"id": "1", "n": 5, "dataref": "s3://bucket/1"}\xffpayload',
            b'k\xffapplication/cloudevents+json\xff{"id": "1", "data": {"a": [1]}, "datacontenttype": "text/json"}',
        ),
        "eventbridge": foreign(
            "eventbridge",
            b'k\xffx\xff{"value": [{}], "dataref": "arn:aws:s3:::b-c/1", "datarefPath": "$.detail.value[0].a"}\xff{}',
        ),
        "kafscale": foreign(
            "kafscale",
            b'k\xffx\xff{"kfs_lfs": 1, "bucket": "bucket", "key": "k", "size": 7, "sha256": "%s"}' % (b"0" * 64),
        ),
        "ticdc": foreign(
            "ticdc",
            b'k\xffx\xff{"_tidb": {"claimCheckLocation": "s3:/bucket/1"}}\xff{"key":"aw==","value":"dmFsdWU="}',
            b'\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\x16{"ccl":"s3:/bucket/1"}\xffx\xffrow\xff{"key":null,"value":null}',
        ),
        "auto": Target(described, (b'1:json\n{"id": 7}', b"1:string\ntext", b"1:json,zstd\n")),
    }


def mutations(seeds: tuple[bytes, ...], source: random.Random) -> Iterator[bytes]:
    """Endless variations of some bytes."""
    while True:
        data = bytearray(source.choice(seeds))
        for _ in range(source.randrange(1, 6)):
            at, size = source.randrange(len(data) + 1), source.choice((1, 1, 1, 2, 4, 8, 40))
            noise = (
                source.randbytes(size)
                if source.random() < 0.7
                else bytes([source.choice((0, 1, 127, 128, 255))]) * size
            )
            match source.randrange(4):
                case 0:
                    data[at : at + size] = noise
                case 1:
                    data[at:at] = noise
                case 2:
                    del data[at : at + size]
                case _:
                    data[at:at] = data[: source.randrange(len(data) + 1)][-200:]
        yield bytes(data[:10_000])


def one(target: Target, data: bytes) -> None:
    """Decode one input."""
    try:
        target.decode(data)
    except target.errors:
        return


def main(name: str, seconds: float) -> None:
    """Fuzz one target."""
    target = targets()[name]
    try:
        import atheris  # type: ignore[import-untyped]
    except ImportError:
        source, until, count = random.Random(), time.monotonic() + seconds, 0
        for data in mutations(target.seeds, source):
            if time.monotonic() > until:
                break
            try:
                one(target, data)
            except BaseException:
                print(f"input: {data!r}", file=sys.stderr)  # noqa: T201, the finding
                raise
            count += 1
        print(f"{name}: {count:,} inputs")  # noqa: T201, the output
        return
    atheris.Setup([sys.argv[0], f"-max_total_time={seconds:g}"], lambda data: one(target, data))
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 60)
