"""Routes: store, threshold and more by the topic of a record (``large.message.route.<name>.…``)."""

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from payload_stores import ConfigError, UntrustedReferenceError, open_store
from payload_stores.memory import MemoryStore
from payload_stores.testing import FaultyStore
from serde_chain import Consumer, DeserializerChain, Producer, RecordContext, SerializerChain
from serde_chain.base import SupportsOffload
from serde_chain.clients.client_chains import ClientChains, delete_payload
from serde_chain.clients.client_limits import ClientLimits, TopicLimit
from serde_chain.config import load
from serde_chain.stages.large_message.options import OF_READERS, OF_ROUTES, OF_WRITERS
from serde_chain.testing.services import KafkaBroker, S3Server
from serde_chain.transfer import Transfer, finish
from tests.cli.conftest import run

STORE = "large.message.payload.store.class"
STORES = "large.message.payload.store.classes"
IMAGES = "large.message.route.images."
CHAINS = {"value.serializers": "bytes, large-message", "value.deserializers": "large-message, bytes"}


@pytest.fixture(autouse=True)
def _empty() -> Iterator[None]:
    MemoryStore.clear()
    yield
    MemoryStore.clear()


@pytest.fixture
def config(tmp_path: Path) -> dict[str, Any]:
    """Two folders: images above 10 bytes go to one, all else above 100 bytes to the other."""
    for name in ("plain", "images"):
        (tmp_path / name).mkdir()
    return {
        **CHAINS,
        STORE: "local",
        "local.fsync": False,
        "local.path": str(tmp_path / "plain"),
        "large.message.threshold.bytes": 100,
        IMAGES + "topics": "images-*, cutouts",
        IMAGES + "local.path": str(tmp_path / "images"),
        IMAGES + "threshold.bytes": "10",
    }


def record(topic: str, key: bytes | None = None) -> RecordContext:
    return RecordContext(topic, "value", [], key)


def place_of(chain: SerializerChain, topic: str, size: int) -> str:
    """The folder that a payload went to; empty if it stayed in the record."""
    data = chain(bytes(size), record(topic))
    assert isinstance(data, bytes)
    return data.decode().split("/")[-3] if data.startswith(b"file://") else ""


@pytest.mark.parametrize(
    ("topic", "size", "place"),
    [
        ("images-1", 11, "images"),
        ("images-1", 10, ""),
        ("cutouts", 11, "images"),
        ("cutouts2", 11, ""),
        ("images", 11, ""),
        ("alerts", 100, ""),
        ("alerts", 101, "plain"),
    ],
)
def test_store_and_threshold_by_topic(config: dict[str, Any], topic: str, size: int, place: str) -> None:
    chain = SerializerChain.from_config(config)
    assert place_of(chain, topic, size) == place
    assert place_of(pickle.loads(pickle.dumps(chain)), topic, size) == place  # noqa: S301  our own bytes


def test_readers_read_all_routes_beside_their_own_stores(config: dict[str, Any], tmp_path: Path) -> None:
    old = {**CHAINS, STORE: "local", "local.path": str(tmp_path / "old"), "large.message.threshold.bytes": 0}
    (tmp_path / "old").mkdir()
    reads = DeserializerChain.from_config({**config, STORES: [{"class": "local", "local.path": old["local.path"]}]})
    for writer in (config, old):
        chain = SerializerChain.from_config(writer)
        for topic in ("images-1", "alerts"):
            ctx = record(topic)
            data = chain(bytes(200), ctx)
            ctx.topic = "elsewhere"  # a mirror may have another name for it
            assert reads(data, ctx) == bytes(200)
    ctx = RecordContext("images-1", "value", [("large-message", b"true")])
    with pytest.raises(UntrustedReferenceError, match=r"file, file, file"):
        reads(f"file://{tmp_path}/other/images-1/1".encode(), ctx)


def test_a_batch_reads_all_routes(config: dict[str, Any]) -> None:
    chain = SerializerChain.from_config(config)
    contexts = [record("images-1"), record("alerts")]
    values = [chain(bytes([number]) * 200, ctx) for number, ctx in enumerate(contexts)]
    read = DeserializerChain.from_config(config)
    column = read.to_arrow(values, [ctx.headers for ctx in contexts], topic="images-1")
    assert column.to_pylist() == [bytes(200), b"\1" * 200]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (("first.topics = *-raw", "second.topics = images-*"), "first"),
        (("second.topics = images-*", "first.topics = *-raw"), "second"),
    ],
)
def test_the_first_route_of_a_file_counts(tmp_path: Path, lines: tuple[str, ...], expected: str) -> None:
    path = tmp_path / "client.properties"
    ids = [f"large.message.route.{name}.local.path = {tmp_path / name}" for name in ("second", "first")]
    path.write_text(
        "\n".join(
            [
                "value.serializers = bytes, large-message",
                f"{STORE} = local",
                f"local.path = {tmp_path / 'plain'}",
                "large.message.threshold.bytes = 0",
                *ids,
                *(f"large.message.route.{line}" for line in lines),
            ]
        )
    )
    for name in ("plain", "first", "second"):
        (tmp_path / name).mkdir()
    assert place_of(SerializerChain.from_config(path), "images-raw", 1) == expected


def test_routes_in_toml(tmp_path: Path) -> None:
    path = tmp_path / "client.toml"
    path.write_text(f"""
"value.serializers" = "bytes, large-message"
[large.message]
payload.store.class = "memory"
threshold.bytes = 0
[large.message.route.images]
topics = ["images-*", "cutouts"]
payload.store.class = {{class = "local", local.path = "{tmp_path}"}}
id = "content"
""")
    assert load(path)[IMAGES + "payload.store.class"] == {"class": "local", "local.path": str(tmp_path)}
    chain = SerializerChain.from_config(path)
    first, second = (chain(b"same", record("cutouts")) for _ in range(2))
    assert first == second
    assert first.startswith(tmp_path.as_uri().encode())
    assert chain(b"same", record("alerts")).startswith(b"memory:///alerts/")


def test_a_route_comes_before_what_the_store_has_by_itself(tmp_path: Path) -> None:
    """Two buckets of one account: the item of the whole configuration names the other one."""
    for name in ("plain", "images"):
        (tmp_path / name).mkdir()
    config = {
        **CHAINS,
        STORE: {"class": "local", "local.path": str(tmp_path / "plain"), "local.fsync": False},
        "large.message.threshold.bytes": 0,
        IMAGES + "topics": "images",
        IMAGES + "local.path": str(tmp_path / "images"),
    }
    chain = SerializerChain.from_config(config)
    assert (place_of(chain, "images", 1), place_of(chain, "alerts", 1)) == ("images", "plain")


def test_stores_that_are_configured_alike_are_opened_once(config: dict[str, Any], tmp_path: Path) -> None:
    for number in range(3):
        config[f"large.message.route.r{number}.topics"] = f"topic-{number}"
        config[f"large.message.route.r{number}.large.message.threshold.bytes"] = number
    config["large.message.route.r2.local.fsync"] = True
    for stage in (SerializerChain.from_config(config).stages[1], DeserializerChain.from_config(config).stages[0]):
        assert [store.owns((tmp_path / "plain/t/1").as_uri()) for store in stage._stores.all] == [True, False, True]


def test_key_chains_have_routes_too(config: dict[str, Any]) -> None:
    config |= {"key.serializers": "bytes, large-message", "key.deserializers": "large-message, bytes"}
    write, read = (chain.from_config(config, is_key=True) for chain in (SerializerChain, DeserializerChain))
    ctx = RecordContext("images-1", "key", [])
    data = write(b"x" * 50, ctx)
    assert data == write(b"x" * 50, RecordContext("images-1", "key", []))
    assert b"/images/images-1/" in data
    assert read(data, ctx) == b"x" * 50
    assert write(b"x" * 50, RecordContext("alerts", "key", [])) == b"x" * 50


class Limits:
    """Topics as a broker knows them: those with ``small`` in their names take 50,000 bytes."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def known(self, topic: str) -> TopicLimit | None:
        return self.learn(topic) if topic in self.asked else None

    def learn(self, topic: str) -> TopicLimit:
        self.asked.append(topic)
        return TopicLimit(50_000 if "small" in topic else 1_048_588, compacted=False)

    def forget(self, topic: str) -> None:
        """Nothing changes."""


def test_a_route_alone_may_negotiate(config: dict[str, Any]) -> None:
    config[IMAGES + "threshold.bytes"] = "auto"
    topics = Limits()
    chain = SerializerChain.from_config(config)
    chain = chain.with_limits(ClientLimits(1_000_000, 0, topics, is_key=False))
    (stage,) = [stage for stage in chain.stages if isinstance(stage, SupportsOffload)]
    assert stage.negotiates
    assert (place_of(chain, "images-small", 40_000), place_of(chain, "images-small", 60_000)) == ("", "images")
    assert place_of(chain, "images-large", 60_000) == ""
    assert set(topics.asked) == {"images-small", "images-large"}
    assert (place_of(chain, "small", 100), place_of(chain, "small", 101)) == ("", "plain")
    assert "small" not in topics.asked


def test_small_records_without_headers_take_the_short_way_for_all_topics(config: dict[str, Any]) -> None:
    stage = SerializerChain.from_config(config).stages[1]
    assert stage.plain(bytes(10)) == bytes(10)
    with pytest.raises(Exception, match="requires the record"):
        stage.plain(bytes(11))
    (limited,) = SerializerChain([stage]).with_limits(ClientLimits(1_000_000, 0, None, is_key=False)).stages
    with pytest.raises(Exception, match="requires the record"):
        limited.plain(bytes(11))


def test_a_threshold_of_a_route_is_compared_with_the_client(config: dict[str, Any]) -> None:
    config[IMAGES + "threshold.bytes"] = 2_000_000
    chain = SerializerChain.from_config(config)
    with pytest.raises(ConfigError, match=r"in the route images: large.message.threshold.bytes \(2000000\)"):
        chain.with_limits(ClientLimits(1_000_000, 0, None, is_key=False))


def test_the_times_of_all_routes_are_compared_with_the_client(config: dict[str, Any]) -> None:
    config |= {IMAGES + "store.timeout.ms": 70_000, "max.block.ms": 60_000}
    with pytest.raises(ConfigError, match=r"70000 ms.*max.block.ms"):
        ClientChains.of_writer(config)


def test_a_payload_without_a_record_is_deleted_from_its_routes_store(config: dict[str, Any], tmp_path: Path) -> None:
    chain = SerializerChain.from_config(config)
    step = chain.begin(bytes(50), record("images-1"))
    assert isinstance(step, Transfer)
    planned = step.places()
    result = step.run()
    (reference,) = step.made(result)
    assert (reference,) == planned
    path = Path(reference.removeprefix("file://"))
    assert path.exists()
    stages = [stage for stage in chain.stages if isinstance(stage, SupportsOffload)]
    delete_payload(stages, reference)
    assert not path.exists()
    assert not stages[0].owns((tmp_path / "elsewhere/t/1").as_uri())


def test_a_record_that_was_refused_is_offloaded_to_its_routes_store(config: dict[str, Any]) -> None:
    stage = SerializerChain.from_config(config).stages[1]
    assert b"/images/images-1/" in finish(stage.offload(b"small", record("images-1")))
    assert b"/plain/alerts/" in finish(stage.offload(b"small", record("alerts")))


def test_what_is_inline_is_said_in_the_format_of_the_route(config: dict[str, Any]) -> None:
    config[IMAGES + "format"] = "bakdata-flag"
    stage = SerializerChain.from_config(config).stages[1]
    assert not stage.is_inline(b"\0data", record("images-1"))
    assert stage.is_inline(b"\0data", record("alerts"))
    assert SerializerChain.from_config(config).plain is None  # the flag stands before small payloads too


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"treshold.bytes": 1}, "Did you mean large.message.route.images.threshold.bytes?"),
        ({"large.message.treshold.bytes": 1}, "Did you mean large.message.route.images.large.message.threshold.bytes?"),
        ({"local.pth": "x"}, "Did you mean large.message.route.images.local.path?"),
        ({"s3.bucket": "x"}, "name it by large.message.route.images.payload.store.class"),
        ({"large.message.threshold.bytes": 1}, "is set twice, with and without the inner large.message"),
        ({"payload.store.class": "s4"}, "no payload store 's4'"),
        ({"payload.store.class": "s3", "local.path": None}, "in the route images: s3.bucket is required"),
        ({"topics": ""}, "large.message.route.images.topics names no topic"),
        ({"topics": None}, "large.message.route.images.topics is required"),
        ({"topic": "x"}, "Did you mean large.message.route.images.topics?"),
        ({"linger.ms": 5}, "Under a route stand keys of its store, and those of large-message"),
        *(
            ({option.name.removeprefix("large.message."): "1"}, "a setting that all topics share")
            for option in {*OF_WRITERS, *OF_READERS} - {*OF_ROUTES}
        ),
    ],
)
def test_what_is_wrong_with_a_route_is_refused(config: dict[str, Any], extra: dict[str, Any], message: str) -> None:
    config |= {IMAGES + name: value for name, value in extra.items()}
    config = {key: value for key, value in config.items() if value is not None}
    for chain in (SerializerChain, DeserializerChain):
        with pytest.raises(ConfigError) as caught:
            chain.from_config(config)
        assert message in str(caught.value)


def test_keys_of_stores_that_are_not_used_do_not_matter(config: dict[str, Any]) -> None:
    route = {
        "topics": "plates", "payload.store.class": "objects",
        "objects.url": "s3://payloads/", "objects.access_key_id": "key", "objects.secret_access_key": "secret",
    }  # fmt: skip
    plates = {f"large.message.route.plates.{key}": value for key, value in route.items()}
    SerializerChain.from_config({**config, **plates, "kafka.sasl.username": "alice"}).close()


def test_a_wrong_value_is_refused(config: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"in the route images: large.message.threshold.bytes = 'many'") as caught:
        SerializerChain.from_config({**config, IMAGES + "threshold.bytes": "many"})
    assert caught.value.key == IMAGES + "large.message.threshold.bytes"


def test_wide_and_narrow_prefixes(s3_server: S3Server, bucket: str) -> None:
    """The store with the longest prefix reads, in whatever order the stores are named."""
    seen = {}
    stores = {}
    for prefix in ("", "pre/", "pre/images/"):
        own = {"s3.prefix": prefix} if prefix else {}
        store = FaultyStore(open_store("s3", {**s3_server.store_config(bucket), **own}))
        seen[store.publish("alerts", b"payload" * 10)] = prefix
        stores[prefix] = store
    for order in (["", "pre/", "pre/images/"], ["pre/images/", "", "pre/"]):
        chain = DeserializerChain.from_config(
            {
                "value.deserializers": "large-message",
                STORE: stores[order[0]],
                STORES: [stores[prefix] for prefix in order[1:]],
            }
        )
        for reference, prefix in seen.items():
            for store in stores.values():
                store.calls.clear()
            assert chain(reference.encode(), RecordContext("alerts", "value", [("large-message", b"true")]))
            assert [name for name, store in stores.items() if store.calls] == [prefix]


def test_two_stores_through_the_broker(broker: KafkaBroker, topic: str, config: dict[str, Any], tmp_path: Path) -> None:
    config |= {**broker.client_config(), "group.id": topic, "auto.offset.reset": "earliest"}
    config["large.message.route.all.topics"] = f"{topic[:-1]}?"
    config["large.message.route.all.payload.store.class"] = "memory"
    with Producer(config) as producer:
        for size in (50, 200):
            producer.produce(topic, bytes(size))
        assert producer.flush(30) == 0
    with Consumer(config) as consumer:
        consumer.subscribe([topic])
        assert [message.value() for message in consumer.consume(2, 30)] == [bytes(50), bytes(200)]
    assert len(MemoryStore._payloads) == 1
    assert [*(tmp_path / "plain").iterdir(), *(tmp_path / "images").iterdir()] == []


@pytest.mark.full
def test_check_config_shows_which_topic_goes_where(config: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    config |= {
        "large.message.route.secret.topics": "secret-*",
        "large.message.route.secret.payload.store.class": "s3",
        "large.message.route.secret.s3.bucket": "archive",
        "large.message.route.secret.s3.secret.key": "hush-hush",
        "large.message.route.secret.s3.access.key": "hush-hush",
    }
    path.write_text("\n".join(f"{key} = {value}" for key, value in config.items()))
    shown = json.loads(run("check-config", "--json", path, "images-1", "secret-1", "alerts").stdout)
    assert [name for name, _ in shown["routes"].items()] == ["images", "secret"]
    topics = shown["topics"]
    assert [(topics[topic]["route"], topics[topic]["store"], topics[topic]["threshold"]) for topic in topics] == [
        ("images", "local", 10),
        ("secret", "s3", 100),
        (None, "local", 100),
    ]
    assert topics["images-1"]["settings"] == {"local.path": str(tmp_path / "images")}
    table = run("check-config", path, "images-1").stdout
    assert "large messages, by topic" in table
    assert "images-*, cutouts" in table
    assert "hush" not in table + json.dumps(shown)
    narrow = run("check-config", path, columns=80).stdout
    assert f"{IMAGES}threshold.bytes" in "".join(narrow.replace("│", "").split())  # broken into lines, not cut off
    config[IMAGES + "large.message.threshold.bytes"] = 11
    path.write_text("\n".join(f"{key} = {value}" for key, value in config.items()))
    stderr = run("check-config", path, code=1).stderr
    assert stderr.count("Error: ") == 1
    assert f"{IMAGES}large.message.threshold.bytes is set twice" in stderr
    del config[IMAGES + "large.message.threshold.bytes"]
    config["local.path"] = str(tmp_path / "later")
    path.write_text("\n".join(f"{key} = {value}" for key, value in config.items()))
    assert not run("check-config", path).stderr  # a folder that the first payload creates is no mistake
    del config[IMAGES + "topics"]
    path.write_text("\n".join(f"{key} = {value}" for key, value in config.items()))
    assert "large.message.route.images.topics is required" in run("check-config", path, code=1).stderr
