"""Models with everything else that a chain has: keys, encryption, compression, stores, tables."""

import base64
from typing import Any

import pyarrow as pa
import pytest

from payload_stores.memory import MemoryStore
from serde_chain import DecodeError, DeserializerChain, RecordContext, SerializerChain
from serde_chain.arrow import Batch
from tests.models.alerts import Band
from tests.models.crossed import MODELS, OfDataclasses, Positive

ENCRYPTED = {"encryption.keys": f"k1 = {base64.b64encode(bytes(32)).decode()}", "encryption.key.id": "k1"}
LARGE = {"large.message.payload.store.class": "memory", "large.message.threshold.bytes": "10"}
CHAINS: dict[str, tuple[str, dict[str, Any]]] = {
    "encrypt": ("avro, encrypt", ENCRYPTED),
    "encrypt, deterministic": ("avro, encrypt", {**ENCRYPTED, "encryption.mode": "siv"}),
    "container": ("avro, zstd", {"avro.framing": "container"}),
    "compress, encrypt, large-message": ("avro, zstd, encrypt, large-message", {**ENCRYPTED, **LARGE}),
    "described": ("avro, zstd", {"serde.chain.describe": "true"}),
}
EACH_MODEL = pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)


def chains(
    model: Any, stages: str, config: dict[str, Any], side: str = "value"
) -> tuple[SerializerChain, DeserializerChain]:
    lists = {f"{side}.serializers": stages, f"{side}.deserializers": ", ".join(reversed(stages.split(", ")))}
    config = {**config, **lists, f"{side}.avro.type": model}
    is_key = side == "key"
    write = SerializerChain.from_config(config, is_key=is_key)
    return write, DeserializerChain.from_config(config, is_key=is_key)


def context(side: str = "value") -> RecordContext:
    return RecordContext("alerts", side, [])


@pytest.fixture(autouse=True)
def empty_store() -> Any:
    MemoryStore.clear()
    yield
    MemoryStore.clear()


@EACH_MODEL
@pytest.mark.parametrize("name", CHAINS)
def test_values(name: str, model: Any) -> None:
    stages, config = CHAINS[name]
    write, read = chains(model, stages, config)
    value = model(id=7, band=Band.RED, note="secret" * 20)
    ctx = context()
    data, headers = write(value, ctx), list(ctx.headers or ())
    assert read(data, ctx) == value
    # As columns, as without a class; and what tables write, readers get as objects.
    assert read.to_arrow([data], [headers], topic="alerts", columns=["band"]).to_pylist() == [{"band": "r"}]
    made = write.from_arrow(pa.table({"id": [8], "band": ["g"], "note": ["n" * 50]}), topic="alerts")
    (row,), (own,) = made.values.to_pylist(), made.headers.to_pylist() if made.headers is not None else [None]
    ctx = RecordContext("alerts", "value", [(each["key"], each["value"]) for each in own or ()])
    assert read(row, ctx) == model(id=8, band=Band.GREEN, note="n" * 50)


@EACH_MODEL
def test_keys(model: Any) -> None:
    write, read = chains(model, "avro, encrypt", {**ENCRYPTED, "encryption.mode": "siv"}, "key")
    first, again = (write(model(id=7, note="secret"), context("key")) for _ in range(2))
    assert first == again
    assert b"secret" not in first
    assert read(first, context("key")) == model(id=7, note="secret")


def test_a_side_of_its_own() -> None:
    config = {
        "key.serializers": "avro",
        "value.serializers": "avro",
        "key.avro.type": Positive,
        "avro.type": OfDataclasses,
    }
    with SerializerChain.from_config(config, is_key=True) as key, SerializerChain.from_config(config) as value:
        assert key(Positive(id=1)) == value(OfDataclasses(1))


def test_a_row_that_the_class_refuses_is_a_row_as_columns() -> None:
    """Columns have the schema, not the checks of a class."""
    write, _ = chains(OfDataclasses, "avro", {})
    _, read = chains(Positive, "avro", {})
    data = [write(OfDataclasses(number)) for number in (1, -1)]
    with pytest.raises(DecodeError, match="Positive refuses the record: id"):
        read(data[1])
    result = read.read_batch(Batch(data, topic="alerts"))
    assert ([row["id"] for row in result.values.to_pylist()], dict(result.errors)) == ([1, -1], {})
