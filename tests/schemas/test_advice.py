"""Records of another framing: the error names the setting that reads them."""

from typing import Any

import pytest

from serde_chain import DecodeError, DeserializerChain, RecordContext

CONFLUENT = b"\0\0\0\0\x07{}"
GLUE = b"\x03\0" + bytes(16) + b"{}"
GLUE_ZLIB = b"\x03\x05" + bytes(16) + b"{}"
GUID = b"\x01" + bytes(16) + b"{}"
REGISTRY = {"schema.registry.url": "http://127.0.0.1:1"}
GLUE_REGISTRY = {"schema.registry.type": "glue", "glue.region": "eu-west-1"}


def refusal(stage: str, data: bytes, config: dict[str, Any]) -> DecodeError:
    with DeserializerChain.from_config({"value.deserializer": stage, **config}) as read:
        with pytest.raises(DecodeError) as caught:
            read(data, RecordContext("alerts", "value", []))
        assert caught.value.about_record
        with pytest.raises(DecodeError) as in_batch:
            read.to_arrow([data], topic="alerts")
        assert in_batch.value.hint == caught.value.hint
        return caught.value


@pytest.mark.parametrize(("data", "name"), [(CONFLUENT, "confluent"), (GLUE, "glue"), (GLUE_ZLIB, "glue")])
def test_json_without_framing(data: bytes, name: str) -> None:
    assert refusal("json", data, {}).hint == f"The bytes begin like a schema id: set json.framing = {name}"


@pytest.mark.parametrize("data", [b"nan", b"", b"\0\0\0\0", b"\x03\0{}"])
def test_other_bytes_are_no_schema_ids(data: bytes) -> None:
    assert "schema id" not in (refusal("json", data, {}).hint or "")


def test_json_framed_twice_is_not_told_to_set_what_is_set() -> None:
    assert refusal("json", CONFLUENT[:5] + CONFLUENT, {**REGISTRY, "json.framing": "confluent"}).hint is None


@pytest.mark.parametrize("stage", ["avro", "json", "protobuf"])
def test_records_of_another_registry(stage: str) -> None:
    framing = {f"{stage}.framing": "confluent"}
    assert "is schema.registry.type = glue meant?" in str(refusal(stage, GLUE, {**REGISTRY, **framing}))
    assert "is schema.registry.type = confluent meant?" in str(
        refusal(stage, CONFLUENT, {**GLUE_REGISTRY, f"{stage}.framing": "glue"})
    )
    for data in (b"{}", b"", b"\0\0"):
        assert f"without a schema registry? See {stage}.framing" in str(refusal(stage, data, {**REGISTRY, **framing}))


def test_message_indexes_of_old_clients() -> None:
    """Confluent's Python client wrote them so with ``use.deprecated.format``, its only form before 1.8.2."""
    for indexes in (b"\x01\x01", b"\x01\0", b"\x02\x01\x01"):
        said = str(refusal("protobuf", b"\0\0\0\0\x07" + indexes + b"\x0a\x01x", REGISTRY))
        assert "use.deprecated.format of Confluent's Python client" in said
