"""Bytes that the reference implementations wrote; how is said in each file of tests/data/golden."""

import io
import json
import math
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from serde_chain import DeserializerChain, SerializerChain

GOLDEN = Path(__file__).parent.parent / "data" / "golden"


def records(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((GOLDEN / f"{name}.json").read_text())["records"]
    return found


def name_of(record: dict[str, Any]) -> str:
    return " ".join(str(record.get(part, ""))[:20] for part in ("stage", "codec", "name", "value", "payload")).strip()


@pytest.mark.parametrize("record", records("kafka_primitives"), ids=name_of)
def test_primitives_are_those_of_kafka(record: dict[str, Any]) -> None:
    value: Any = UUID(record["value"]) if record["stage"] == "uuid" else record["value"]
    expected = bytes.fromhex(record["hex"])
    assert SerializerChain.from_config({"value.serializer": record["stage"]})(value) == expected
    got = DeserializerChain.from_config({"value.deserializer": record["stage"]})(expected)
    if record["stage"] == "float":
        assert math.isnan(got) if math.isnan(value) else got == pytest.approx(value)
        assert SerializerChain.from_config({"value.serializer": "float"})(got) == expected
    else:
        assert got == value or (math.isnan(got) and math.isnan(value))
    assert str(got) == str(value) or record["stage"] == "float"  # the sign of zero


def unwrapped(value: Any) -> Any:
    """Avro's JSON encoding names the branch of a union; we do not."""
    if isinstance(value, dict):
        return unwrapped(value["Node"]) if list(value) == ["Node"] else {k: unwrapped(v) for k, v in value.items()}
    return value


@pytest.mark.parametrize("record", records("avro_java"), ids=name_of)
@pytest.mark.parametrize(("framing", "field"), [("none", "hex"), ("single-object", "single object")])
def test_avro_is_that_of_apache_avro(record: dict[str, Any], framing: str, field: str) -> None:
    schema = record["schema"] if isinstance(record["schema"], str) else json.dumps(record["schema"])
    config = {"avro.schema": schema, "avro.framing": framing, "value.serializer": "avro", "value.deserializer": "avro"}
    value, expected = unwrapped(record["value"]), bytes.fromhex(record[field])
    assert SerializerChain.from_config(config)(value) == expected
    assert DeserializerChain.from_config(config)(expected) == value


@pytest.mark.parametrize("record", records("compression_java"), ids=name_of)
@pytest.mark.parametrize("stage", ["own codec", "compress"])
def test_frames_of_javas_libraries_are_read(record: dict[str, Any], stage: str) -> None:
    payload = {"empty": b"", "hello": b"hello", "200000 zero bytes": bytes(200_000)}[record["payload"]]
    name = record["codec"] if stage == "own codec" else stage
    read = DeserializerChain.from_config({"value.deserializer": name})
    assert read(bytes.fromhex(record["hex"])) == payload


@pytest.mark.parametrize("payload", [b"", b"hello", bytes(200_000)], ids=["empty", "hello", "zeros"])
class TestPlainLibrariesReadOurFrames:
    def test_zstd(self, payload: bytes) -> None:
        import zstandard

        frame = SerializerChain.from_config({"value.serializer": "zstd"})(payload)
        assert zstandard.ZstdDecompressor().decompress(frame) == payload
        assert zstandard.frame_content_size(frame) == len(payload)

    def test_lz4(self, payload: bytes) -> None:
        import lz4.frame

        frame = SerializerChain.from_config({"value.serializer": "lz4"})(payload)
        assert lz4.frame.decompress(frame) == payload
        # Java's reader refuses linked blocks.
        assert lz4.frame.get_frame_info(frame)["block_linked"] is False

    def test_gzip(self, payload: bytes) -> None:
        import gzip

        frame = SerializerChain.from_config({"value.serializer": "gzip"})(payload)
        assert gzip.decompress(frame) == payload
        assert frame[4:8] == bytes(4)  # no timestamp: equal payloads, equal bytes

    def test_zlib(self, payload: bytes) -> None:
        import zlib

        read = DeserializerChain.from_config({"value.deserializer": "zlib"})
        assert zlib.decompress(SerializerChain.from_config({"value.serializer": "zlib"})(payload)) == payload
        for level in range(-1, 10):
            assert read(zlib.compress(payload, level)) == payload
        for window in range(9, 16):
            stream = zlib.compressobj(wbits=window)
            assert read(stream.compress(payload) + stream.flush()) == payload

    def test_snappy(self, payload: bytes) -> None:
        import cramjam

        frame = SerializerChain.from_config({"value.serializer": "snappy"})(payload)
        assert bytes(cramjam.snappy.decompress(frame)) == payload

    def test_fastavro(self, payload: bytes) -> None:
        import fastavro

        data = SerializerChain.from_config({"value.serializer": "avro", "avro.schema": "bytes"})(payload)
        assert fastavro.schemaless_reader(io.BytesIO(data), "bytes", None) == payload
