"""Container files under another framing, and the reverse: the error names the setting."""

import io
from typing import Any

import fastavro
import pytest

from serde_chain import ConfigError, DecodeError, DeserializerChain, RecordContext

SCHEMA = {"type": "record", "name": "Alert", "fields": [{"name": "id", "type": "long"}]}


def container() -> bytes:
    file = io.BytesIO()
    fastavro.writer(file, SCHEMA, [{"id": 1}])
    return file.getvalue()


FRAMINGS: dict[str, dict[str, Any]] = {
    "none": {"avro.schema": SCHEMA},
    "single-object": {"avro.schema": SCHEMA, "avro.framing": "single-object"},
    "registry": {"schema.registry.url": "http://127.0.0.1:1"},
}


@pytest.mark.parametrize("framing", FRAMINGS)
def test_a_container_file_under_another_framing(framing: str) -> None:
    with DeserializerChain.from_config({"value.deserializer": "avro", **FRAMINGS[framing]}) as read:
        said = r"an Avro container file: set avro\.framing = container"
        with pytest.raises(DecodeError, match=said):
            read(container(), RecordContext("alerts", "value", []))
        with pytest.raises(DecodeError, match=said):
            read.to_arrow([container()], topic="alerts")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\0\0\0\0\1\2", r"is not an Avro object container file.*another framing\? See avro\.framing"),
        (container()[:-3], r"container file cannot be read: the file is truncated [^.]*$"),
        (container().replace(b"\x08null", b"\x08lz4x"), r"its codec is 'lz4x', and only null, .* are read [^.]*$"),
    ],
)
def test_what_is_no_readable_file(data: bytes, said: str) -> None:
    """The schema is in the file, so no other one is the reason."""
    config = {"value.deserializer": "avro", "avro.framing": "container"}
    with DeserializerChain.from_config(config) as read, pytest.raises(DecodeError, match=said):
        read(data, RecordContext("alerts", "value", []))


def test_a_reader_without_a_schema_gets_a_hint_about_files_with_schemas() -> None:
    with pytest.raises(ConfigError, match=r"for container files, which have their own, avro\.framing = container"):
        DeserializerChain.from_config({"value.deserializer": "avro"})
