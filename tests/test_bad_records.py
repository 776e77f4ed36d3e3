"""What batches of bad records cost, counted: each takes so many steps, however many there are."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from serde_chain import DeserializerChain, RecordContext
from serde_chain.arrow import Batch, batch
from serde_chain.stages.avro.arrow.batch import AvroBatch
from serde_chain.stages.avro.stage import AvroDeserializer

SCHEMA = '{"type": "record", "name": "R", "fields": [{"name": "n", "type": "long"}]}'
COUNT = 2000


@pytest.mark.parametrize("stages", ["avro", "zstd, avro"])
def test_an_error_is_placed_once(monkeypatch: pytest.MonkeyPatch, stages: str) -> None:
    calls: Counter[str] = Counter()

    def counted(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **options: Any) -> Any:
            calls[name] += 1
            return call(*args, **options)

        return run

    monkeypatch.setattr(batch, "RecordContext", counted("contexts", RecordContext))
    monkeypatch.setattr(DeserializerChain, "_error", counted("placed", DeserializerChain._error))
    with DeserializerChain.from_config({"value.deserializers": stages, "avro.schema": SCHEMA}) as read:
        found = read.read_batch(Batch([b"\xff"] * COUNT, [[("trace", b"1")]] * COUNT, topic="t"))
    assert list(found.errors) == list(range(COUNT))
    assert [(error.topic, error.row) for error in found.errors.values()] == [("t", row) for row in range(COUNT)]
    assert {error.stage for error in found.errors.values()} == {read.labels[0]}
    assert calls["placed"] == COUNT
    # Stages that see records one by one need them; what has failed does not.
    assert calls["contexts"] <= (1 if stages == "avro" else COUNT)


class Counted:
    """``pyarrow.compute``, with a count of the values that its functions were given."""

    def __init__(self, compute: Any) -> None:
        self._compute = compute
        self.values = 0

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def run(values: Any, *args: Any, **options: Any) -> Any:
            self.values += len(values)
            return getattr(self._compute, name)(values, *args, **options)

        return run


def test_schemas_are_looked_for_once_however_many_are_named() -> None:
    config = {"value.deserializer": "avro", "avro.schema": SCHEMA, "avro.framing": "single-object"}
    with DeserializerChain.from_config(config) as read:
        [stage] = read.stages
        assert isinstance(stage, AvroDeserializer)
        records = Batch([b"\xc3\x01" + at.to_bytes(8, "little") for at in range(COUNT)], topic="t")
        records.compute = counted = Counted(records.compute)
        AvroBatch(stage)(records)
    assert len(records.errors) == COUNT
    assert counted.values < 20 * COUNT
