"""The schemas of models, in place of the models."""

import json
from typing import Any

import pytest

from serde_chain import ConfigError, SerializerChain
from serde_chain.spark.chains.portable import load
from tests.models.crossed import OfDataclasses, Positive

AVRO: dict[str, Any] = {"value.serializers": "avro", "avro.type": OfDataclasses}


def test_workers_get_no_class() -> None:
    item = {"class": "avro", "avro.type": Positive}
    for config in (AVRO, {**AVRO, "avro.type": f"{__name__}.OfDataclasses"}, {"value.serializers": [item]}):
        loaded = load(config)
        assert "OfDataclasses" not in str([value for value in loaded.values() if isinstance(value, type)])
        with SerializerChain.from_config(loaded) as write, SerializerChain.from_config(config) as other:
            row = {"id": 1, "band": "g", "note": None}
            assert write(row) == other(row)
            assert write.stages[0].value_schema.text == other.stages[0].value_schema.text


def test_a_side_keeps_its_own() -> None:
    loaded = load({**AVRO, "key.serializers": "avro", "key.avro.schema": '"int"'})
    assert "key.avro.reader.schema" not in loaded
    assert loaded["key.avro.schema"] == '"int"'
    assert json.loads(str(loaded["value.avro.schema"]))["name"] == "OfDataclasses"
    assert not any(name.endswith("avro.type") for name in loaded)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({**AVRO, "avro.schema": '"int"'}, "avro.type and avro.schema exclude each other"),
        ({**AVRO, "avro.type": int}, "avro.type is not a model"),
        ({"value.serializers": "json", "json.type": Positive, "json.schema": "{}"}, "exclude each other"),
    ],
)
def test_wrong_configurations(config: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load(config)
