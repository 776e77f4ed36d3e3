"""Arrays and tables as values, as people see them."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from serde_chain import Producer
from serde_chain.cli.outline import as_json, as_line
from serde_chain.testing.services import KafkaBroker
from tests.cli.conftest import run


def test_arrays_and_tables_are_a_line() -> None:
    value = {"weight": np.zeros((1000, 1000), "f4"), "tags": pa.table({"flux": [1.5] * 2000, "band": ["g"] * 2000})}
    expected = {"weight": "<float32 array, shape (1000, 1000)>", "tags": "<table, 2,000 rows of flux, band>"}
    assert as_json(value) == expected
    assert as_line(value["tags"]) == '"<table, 2,000 rows of flux, band>"'


def test_long_names_are_cut() -> None:
    assert len(as_line(pa.table({"x" * 10_000: [1]}))) < 200
    assert len(as_line(np.zeros(1, [(f"field {number}", "i1") for number in range(1000)]))) < 200


@pytest.mark.full
def test_arrays_and_tables_become_files(broker: KafkaBroker, topic: str, tmp_path: Path) -> None:
    config = {**broker.client_config(), "key.serializer": "string", "key.deserializer": "string"}
    image = np.arange(12, dtype="f4").reshape(3, 4)
    table = pa.table({"flux": [1.5, 2.5]})
    tensors = {"weight": image, "bias": np.ones(2, "f8")}
    written = {}
    for stage, value in (("npy", image), ("arrow", table), ("safetensors", tensors)):
        with Producer({**config, "value.serializer": stage}) as producer:
            producer.produce(topic, value, stage)
    for at, stage in enumerate(("npy", "arrow", "safetensors")):
        path = tmp_path / f"{stage}.toml"
        settings = {**config, "value.deserializer": stage}
        path.write_text("".join(f'"{name}" = "{setting}"\n' for name, setting in settings.items()))
        more = ("--offsets", at, "--output", tmp_path / "files")
        written[stage] = [Path(line) for line in run("consume", path, topic, *more).stdout.splitlines()]
    [npy], [arrow], [json, *weights] = written.values()
    assert (npy.name, arrow.suffix, json.suffix) == (f"{topic}-0-0-npy.npy", ".arrow", ".json")
    np.testing.assert_array_equal(np.load(npy, allow_pickle=False), image)
    assert pa.ipc.open_file(arrow.read_bytes()).read_all().equals(table)
    assert sorted(path.name.rpartition("safetensors")[2] for path in weights) == [".bias.npy", ".weight.npy"]
    for path in weights:
        np.testing.assert_array_equal(np.load(path), tensors[path.name.split(".")[-2]])
