"""Payload stores with options of their own, and several of one kind."""

import io
import json
import pickle
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from payload_stores import ConfigError, PayloadNotFoundError, open_store
from payload_stores.memory import MemoryStore
from payload_stores.registry import ConfiguredStore
from payload_stores.s3 import S3Store
from serde_chain import DeserializerChain, PayloadHandle, RecordContext, SerializerChain, UntrustedReferenceError
from serde_chain.config import check_keys, load, resolve
from serde_chain.testing.services import S3Server
from tests.cli.conftest import run

STORE = "large.message.payload.store.class"
STORES = "large.message.payload.store.classes"
PAYLOAD = b"x" * 1000


def chains(config: dict[str, Any]) -> tuple[SerializerChain, DeserializerChain]:
    whole = {
        "value.serializers": "bytes, large-message",
        "value.deserializers": "large-message, bytes",
        "large.message.threshold.bytes": 10,
        **config,
    }
    return SerializerChain.from_config(whole), DeserializerChain.from_config(whole)


def written(chain: SerializerChain, payload: bytes = PAYLOAD) -> tuple[bytes, RecordContext]:
    ctx = RecordContext("alerts", "value", [])
    data = chain(payload, ctx)
    assert isinstance(data, bytes)
    return data, ctx


def folder(path: Path) -> dict[str, Any]:
    return {"class": "local", "local.path": str(path), "local.fsync": False}


def test_one_configuration_holds_two_buckets(s3_server: S3Server, bucket: str) -> None:
    new = s3_server.create_bucket()
    config = {
        **s3_server.store_config(bucket),
        STORE: {"class": "s3", "s3.bucket": new, "s3.prefix": "p/"},
        STORES: ["s3"],
    }
    old_writer, _ = chains({**config, STORE: "s3", STORES: ()})
    writer, reader = chains(config)
    for chain, place in ((old_writer, f"s3://{bucket}/alerts/"), (writer, f"s3://{new}/p/alerts/")):
        # A worker of Spark gets the chains pickled.
        copies = pickle.loads(pickle.dumps((chain, reader)))  # noqa: S301  our own bytes
        for sender, receiver in ((chain, reader), copies):
            data, ctx = written(sender)
            assert data.startswith(place.encode())
            assert receiver(data, ctx) == PAYLOAD
    old_writer.close()
    writer.close()
    reader.close()


def test_one_configuration_reads_two_folders(tmp_path: Path) -> None:
    old, _ = chains({STORE: folder(tmp_path / "old")})
    new, read = chains({STORE: folder(tmp_path / "new"), STORES: [folder(tmp_path / "old")]})
    for chain in (old, new):
        data, ctx = written(chain)
        assert read(data, ctx) == PAYLOAD


@pytest.mark.parametrize("fetch", ["eager", "lazy"])
def test_a_store_that_learns_by_asking_which_references_are_its_own(fetch: str) -> None:
    class OfOneOfTwoClusters(MemoryStore):
        has_asked = False

        def claim(self, reference: str) -> int:
            return int(not self.has_asked)

        def download(self, reference: str) -> bytes:
            self.has_asked = True
            raise self.untrusted(reference, "its cluster is another one")

        def open(self, reference: str) -> BinaryIO:
            return io.BytesIO(self.download(reference))

    writer, _ = chains({STORE: "memory"})
    data, ctx = written(writer)
    whole = {
        "value.deserializers": "large-message",
        "large.message.fetch": fetch,
        STORE: OfOneOfTwoClusters,
        STORES: ["memory"],
    }
    with DeserializerChain.from_config(whole) as read:
        value = read(data, ctx)
        if isinstance(value, PayloadHandle):
            with value.open() as file:
                value = file.read()
        assert value == PAYLOAD


def test_a_payload_that_is_gone_is_looked_for_in_its_own_store_alone(tmp_path: Path) -> None:
    new, read = chains({STORE: folder(tmp_path / "new"), STORES: [folder(tmp_path / "old")]})
    data, ctx = written(new)
    Path(data.decode().removeprefix("file://")).unlink()
    with pytest.raises(PayloadNotFoundError):
        read(data, ctx)


def test_a_reference_of_no_store_names_the_stores(tmp_path: Path) -> None:
    _, read = chains({STORE: folder(tmp_path / "new"), STORES: [folder(tmp_path / "old"), "memory"]})
    ctx = RecordContext("alerts", "value", [("large-message", b"true")])
    with pytest.raises(UntrustedReferenceError, match="belongs to none of the configured payload stores") as caught:
        read(b"file:///etc/passwd", ctx)
    assert "(file, file, memory)" in str(caught.value)
    assert STORES in str(caught.value.hint)
    assert "correct the store's address" in str(caught.value.hint)
    assert "large.message.trusted.references" in str(caught.value.hint)
    assert caught.value.about_record


def test_the_options_of_an_item_come_first(tmp_path: Path) -> None:
    store: Any = open_store({"class": "local", "local.path": str(tmp_path / "a")}, {"local.path": str(tmp_path / "b")})
    assert store.path == tmp_path / "a"
    store = open_store({"class": "local"}, {"local.path": str(tmp_path / "b"), "local.fsync": "false"})
    assert (store.path, store.fsync) == (tmp_path / "b", False)
    assert open_store({"class": "memory", "large.message.max.payload.bytes": 7}, {}).max_payload_bytes == 7


@pytest.mark.parametrize("target", ["s3", "payload_stores.s3.S3Store", S3Store])
def test_a_class_is_named_in_any_way(target: object) -> None:
    store = ConfiguredStore.of({"class": target, "s3.prefix": "p/"}, {})
    assert store.target is S3Store
    options = {option.name: option.required for option in store.options}
    assert (options["s3.bucket"], options["s3.region"], options["large.message.trusted.references"]) == (
        True,
        False,
        False,
    )
    store = ConfiguredStore.of({"class": target, "s3.bucket": "b"}, {})
    options = {option.name: option.required for option in store.options}
    assert not options["s3.bucket"]


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ({"class": "s3", "s3.bukket": "hush"}, "s3 has no option 's3.bukket'.*Did you mean s3.bucket?"),
        ({"class": "s3", "bucket": "hush"}, "s3 has no option 'bucket'.*Did you mean s3.bucket?"),
        ({"class": "s3", "local.path": "hush"}, "s3 has no option 'local.path'"),
        ({"clas": "s3", "s3.secret.key": "hush"}, "a payload store with the keys clas, s3.secret.key names no class"),
        ({"s3.secret.key": "hush"}, 'names no class.*Write {"class": "s3", …}'),
        ({"class": "s4", "s3.secret.key": "hush"}, "no payload store 's4'"),
        ({"class": {"a": "hush"}}, "a dict is not a payload store"),
        ({"class": MemoryStore(), "local.path": "hush"}, "MemoryStore is an instance; options not allowed"),
        ({"class": "s3", "s3.bucket": "b", "s3.request.timeout.ms": "x"}, "s3.request.timeout.ms = 'x': expected"),
    ],
)
def test_a_wrong_item_is_refused(item: dict[str, object], message: str) -> None:
    for config in ({STORE: item}, {STORE: "memory", STORES: [item]}):
        with pytest.raises(ConfigError, match=message) as caught:
            DeserializerChain.from_config({"value.deserializers": "large-message, bytes", **config})
        assert "hush" not in str(caught.value)
    with pytest.raises(ConfigError, match=message):
        open_store(item, {})


def test_keys_of_items_are_not_keys_of_the_client(tmp_path: Path) -> None:
    config = {"value.serializers": "bytes, large-message", STORE: folder(tmp_path), "linger.ms": 5}
    check_keys(config)
    assert resolve(config).client == {"linger.ms": 5}


TOML = """
"value.serializers" = "bytes, large-message"
"value.deserializers" = "large-message, bytes"
"hop.offload.url" = "https://offload.example"
[large.message]
payload.store.class = {class = "local", local.path = "%s", local.fsync = false}
payload.store.classes = [{class = "s3", s3 = {bucket = "archive", secret.key = "hush-hush", access.key = "a"}}, "hop"]
"""


def test_items_in_toml(tmp_path: Path) -> None:
    path = tmp_path / "client.toml"
    path.write_text(TOML % (tmp_path / "payloads"))
    config = load(path)
    assert config[STORE] == {"class": "local", "local.path": str(tmp_path / "payloads"), "local.fsync": False}
    assert config[STORES] == [
        {"class": "s3", "s3.bucket": "archive", "s3.secret.key": "hush-hush", "s3.access.key": "a"}, "hop",
    ]  # fmt: skip
    write, read = chains(config)
    data, ctx = written(write)
    assert data.startswith((tmp_path / "payloads").as_uri().encode())
    assert read(data, ctx) == PAYLOAD
    assert "hush" not in repr((write, read, write.stages, read.stages))
    write.close()
    read.close()


@pytest.mark.full
def test_check_config_shows_items_without_their_secrets(tmp_path: Path) -> None:
    path = tmp_path / "client.toml"
    path.write_text(TOML % (tmp_path / "payloads"))
    shown = json.loads(run("check-config", "--json", path).stdout)
    (_, large), (read, _) = shown["chains"]["value.serializers"], shown["chains"]["value.deserializers"]
    expected = {"class": "local", "local.path": str(tmp_path / "payloads"), "local.fsync": False}
    assert large["settings"][STORE] == read["settings"][STORE] == expected
    assert read["settings"][STORES] == [
        {"class": "s3", "s3.bucket": "archive", "s3.secret.key": "********", "s3.access.key": "********"}, "hop",
    ]  # fmt: skip
    table = run("check-config", path).stdout
    assert "hush" not in table
    assert "{class = s3, s3.bucket = archive" in " ".join(table.split())


def test_check_config_names_a_misspelt_key_of_an_item(tmp_path: Path) -> None:
    path = tmp_path / "client.toml"
    path.write_text((TOML % tmp_path).replace("bucket", "bukket"))
    done = run("check-config", path, code=1)
    assert "s3 has no option 's3.bukket'" in done.stderr
    assert "Did you mean s3.bucket?" in done.stderr
    assert "hush" not in done.stderr
