"""Files of the driver: which ones is said by the options of the stages, those of third parties included."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from payload_stores.memory import MemoryStore
from payload_stores.options import Option, path_or_content
from serde_chain import ConfigError
from serde_chain.base import Buffer, Deserializer
from serde_chain.record import Context
from serde_chain.spark import decode, deserialize
from serde_chain.spark.chains.portable import load

ALPHABET: Option[Any] = Option("cipher.alphabet.file", path_or_content, None, file=True, doc="26 letters, from a to z")


class Substitution(Deserializer[str]):
    """A stage that Spark does not know, with a table in a file."""

    options = (ALPHABET,)

    def configure(self, config: Mapping[str, object], is_key: bool) -> None:
        super().configure(config, is_key)
        alphabet = ALPHABET.read(config)
        letters = alphabet if isinstance(alphabet, bytes) else Path(alphabet).read_bytes()
        self._table = bytes.maketrans(letters, b"abcdefghijklmnopqrstuvwxyz")

    def arrow_type(self) -> pa.DataType:
        return pa.string()

    def __call__(self, data: Buffer | None, ctx: Context | None = None, /) -> str | None:
        return None if data is None else bytes(data).translate(self._table).decode()


@pytest.fixture
def alphabet(tmp_path: Path) -> Path:
    path = tmp_path / "alphabet"
    path.write_bytes(b"zyxwvutsrqponmlkjihgfedcba")
    return path


@pytest.mark.parametrize("in_the_item", [False, True])
def test_a_file_of_a_third_partys_stage_is_read_on_the_driver(
    spark: SparkSession, alphabet: Path, in_the_item: bool
) -> None:
    option = {ALPHABET.name: str(alphabet)}
    config: dict[str, Any] = (
        {"value.deserializers": [{"class": Substitution, **option}]}
        if in_the_item
        else {"value.deserializer": Substitution, **option}
    )
    column = deserialize("value", None, config)
    transform = decode(config)
    alphabet.unlink()  # the workers are on other machines
    frame = spark.createDataFrame([(b"svool",), (None,)], "value binary").coalesce(1)
    assert [row[0] for row in frame.select(column).collect()] == ["hello", None]
    assert [row["value"] for row in frame.transform(transform).collect()] == ["hello", None]


def test_which_file_cannot_be_read(tmp_path: Path) -> None:
    missing = str(tmp_path / "none")
    for config in (
        {"value.deserializer": Substitution, ALPHABET.name: missing},
        {"key.deserializers": [{"class": Substitution, ALPHABET.name: missing}, "string"]},
    ):
        with pytest.raises(ConfigError, match=rf"cipher\.alphabet\.file = '{missing}' cannot be read"):
            load(config)


def test_a_key_that_no_stage_declares_is_no_file(alphabet: Path) -> None:
    config = {"value.deserializer": "string", ALPHABET.name: str(alphabet)}
    assert load(config) == config


def test_a_path_that_is_its_content_already_stays() -> None:
    config = {"value.deserializer": Substitution, ALPHABET.name: b"zyxwvutsrqponmlkjihgfedcba"}
    assert load(config) == config


class Required(Substitution):
    options = (ALPHABET.changed(required=True),)


class TableStore(MemoryStore):
    """A store with a file of its own."""

    options = (ALPHABET.changed(required=True),)


@pytest.mark.parametrize(
    "place",
    [
        lambda option: {"key.deserializers": [{"class": Required, **option}], "value.deserializer": "string"},
        lambda option: {"value.deserializers": [{"class": Required}], **option},
        lambda option: {
            "value.deserializers": "large-message, string",
            "large.message.payload.store.class": {"class": TableStore, **option},
        },
        lambda option: {
            "value.deserializers": "large-message, string",
            "large.message.payload.store.class": "memory",
            "large.message.payload.store.classes": ["memory", {"class": TableStore, **option}],
        },
        lambda option: {
            "value.deserializers": [
                {"class": "large-message", "large.message.payload.store.class": {"class": TableStore, **option}},
                "string",
            ],
        },
        lambda option: {
            "key.deserializer": Substitution,
            "value.deserializer": "string",
            **{f"key.{name}": value for name, value in option.items()},
        },
    ],
    ids=["item", "required elsewhere", "store", "stores", "store of an item", "of one side"],
)
def test_files_are_read_wherever_the_option_stands(alphabet: Path, place: Callable[[Any], Any]) -> None:
    assert load(place({ALPHABET.name: str(alphabet)})) == place({ALPHABET.name: alphabet.read_bytes()})


def test_relative_paths_of_a_configuration_file_count_from_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "r.avsc").write_text('"string"')
    config = tmp_path / "etc" / "client.toml"
    config.write_text(
        '"value.deserializers" = ["large-message", "avro"]\n"avro.schema.file" = "r.avsc"\n'
        '"large.message.payload.store.class" = "local"\n"local.path" = "payloads"\n'
    )
    monkeypatch.chdir(tmp_path)
    loaded = load(config)
    assert loaded["avro.schema.file"] == b'"string"'
    assert loaded["local.path"] == str(tmp_path / "etc" / "payloads")  # a worker has another current folder
