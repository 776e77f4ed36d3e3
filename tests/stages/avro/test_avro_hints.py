"""fastavro's hint ``-type``, which names the branch of a union, with and without validation."""

from typing import Any

import numpy as np
import pytest

from serde_chain import DeserializerChain, EncodeError, SerializerChain


def record(name: str, /, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": key, "type": kind} for key, kind in fields.items()]}


def leaves() -> list[Any]:
    return [record("L1", name="string"), record("L2", name="string")]


def root(**more: Any) -> dict[str, Any]:
    fields = {
        "one": leaves(),
        "many": {"type": "array", "items": ["null", "L1", "L2"]},
        "by": ["null", {"type": "map", "values": ["L1", "L2"]}],
        "plain": "L1",
        "inner": ["null", record("Inner", leaf=["L1", "L2"])],
    }
    return {**record("Root", **fields), **more}


VALIDATE = ["false", "true", "strict", "strict-allow-default"]


def value(space: str, *, pairs: bool) -> dict[str, Any]:
    def leaf(name: str) -> Any:
        return (space + name, {"name": "x"}) if pairs else {"-type": space + name, "name": "x"}

    return {
        "one": leaf("L2"),
        "many": [leaf("L2"), None, leaf("L1")],
        "by": {"k": leaf("L2")},
        "plain": {"name": "x"},
        "inner": {"leaf": leaf("L2")},
    }


@pytest.mark.parametrize("space", ["", "a.b."])
@pytest.mark.parametrize("validate", VALIDATE)
def test_hints_are_as_pairs(validate: str, space: str) -> None:
    schema = root(namespace="a.b") if space else root()
    config = {"value.serializer": "avro", "avro.schema": schema, "avro.validate": validate}
    write = SerializerChain.from_config(config)
    given = value(space, pairs=False)
    assert write(given) == write(value(space, pairs=True))
    assert given == value(space, pairs=False)
    found = DeserializerChain.from_config({"value.deserializer": "avro", "avro.schema": schema})(write(given))
    assert found["inner"] == {"leaf": {"name": "x"}}


@pytest.mark.parametrize("validate", VALIDATE[1:])
def test_a_hint_of_the_records_own_name_is_left_out(validate: str) -> None:
    schema = root()
    write = SerializerChain.from_config({"value.serializer": "avro", "avro.schema": schema, "avro.validate": validate})
    given = {**value("", pairs=True), "plain": {"name": "x", "-type": "L1"}, "-type": "Root"}
    assert write(given) == write(value("", pairs=True))


@pytest.mark.parametrize("validate", VALIDATE)
def test_other_hints_are_refused(validate: str) -> None:
    write = SerializerChain.from_config({"value.serializer": "avro", "avro.schema": root(), "avro.validate": validate})
    for wrong in ({"one": {"-type": "L3", "name": "x"}}, {"one": {"-type": "L2", "name": 5}}):
        with pytest.raises(EncodeError):
            write({**value("", pairs=False), **wrong})


@pytest.mark.parametrize("validate", VALIDATE)
@pytest.mark.parametrize("wrong", [{"-type": np.zeros(2), "name": "x"}, (np.zeros(2), {"name": "x"})])
def test_a_hint_that_is_no_text_is_refused(wrong: Any, validate: str) -> None:
    """NumPy's arrays are compared item by item."""
    write = SerializerChain.from_config({"value.serializer": "avro", "avro.schema": root(), "avro.validate": validate})
    for place in ({"one": wrong}, *([{"plain": wrong}] if isinstance(wrong, dict) else [])):
        with pytest.raises(EncodeError, match="the value does not match the schema"):
            write({**value("", pairs=False), "inner": 7, **place})


@pytest.mark.parametrize("validate", VALIDATE)
def test_deep_values_of_recursive_schemas(validate: str) -> None:
    node = record("Node", next=["null", "Node", record("Other", next=["null", "Node", "Other"])])
    config = {"value.serializer": "avro", "avro.schema": node, "avro.validate": validate}
    write = SerializerChain.from_config(config)
    chained: dict[str, Any] = {"next": None}
    for _ in range(50):
        chained = {"next": {"-type": "Other", **chained}}
    data = write(chained)
    assert data.count(b"\x04") == 50
    looped: dict[str, Any] = {}
    looped["next"] = looped
    with pytest.raises(EncodeError):
        write(looped)
