"""The driver opens each chain of a configuration once, whatever a query needs of it."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from serde_chain import DeserializerChain
from serde_chain.spark import explain
from serde_chain.spark.chains.opened import open_chain
from serde_chain.spark.reading.engine import choose

SCHEMA = {"type": "record", "name": "Alert", "fields": [{"name": "stamp", "type": "bytes"}]}


@pytest.mark.parametrize("mode", ["FAILFAST", "PERMISSIVE"])
@pytest.mark.parametrize("keys", [{}, {"key.deserializers": "string"}])
def test_each_chain_is_opened_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: dict[str, str], mode: str
) -> None:
    """Of a configuration whose values, fields, engines and readers all depend on the chain."""
    config = {
        **keys,
        "value.deserializers": "large-message, avro, large-fields",
        "avro.schema": json.dumps(SCHEMA),
        "large.message.payload.store.class": "local",
        "local.path": str(tmp_path),
    }
    opened: list[bool] = []
    open_it = DeserializerChain.from_config

    def counted(config: Any, *, is_key: bool = False) -> DeserializerChain:
        opened.append(is_key)
        return open_it(config, is_key=is_key)

    monkeypatch.setattr(DeserializerChain, "from_config", counted)
    assert "fields: " in explain(config, mode=mode)
    assert opened == [False, *(True for _ in keys)]


def test_a_chain_that_only_fetches_fields(tmp_path: Path) -> None:
    """Of a type that the user passes: the engine says that Spark has no function for it."""
    store = {"large.message.payload.store.class": "local", "local.path": str(tmp_path)}
    given = pa.struct([("stamp", pa.binary())])
    chain = open_chain({**store, "value.deserializers": "large-fields"}, is_key=False, given=given)
    assert chain is not None
    choice = choose(chain, chain.whole, engine="auto", mode="FAILFAST", topics=())
    assert choice.reason == "Spark has no function for large-fields (1 of 1)"
