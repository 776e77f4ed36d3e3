"""Jobs know the payloads of fields: those in use stay, missing ones are reported, all of them move."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from payload_stores.base import PayloadStore
from serde_chain import ConfigError, DeserializerChain, Producer, RecordContext, SerializerChain
from serde_chain.errors import JobError
from serde_chain.jobs import MigrateReport
from serde_chain.jobs.migration_plan import plan_migration
from serde_chain.jobs.reference_plan import plan_reading
from serde_chain.testing.services import KafkaBroker
from serde_chain.wire.large_fields import HEADER
from tests.jobs.conftest import Audit, Config, Migrate, Sweep, payload, stored
from tests.jobs.test_migrate import read

if TYPE_CHECKING:
    from tests.conftest import NewTopic

STAMPS = {"type": "array", "items": "bytes"}
SCHEMA = {
    "type": "record",
    "name": "Alert",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "cutout", "type": ["null", "bytes"]},
        {"name": "note", "type": "string"},
        {"name": "stamps", "type": STAMPS},
    ],
}


@pytest.fixture
def config(config: Config) -> Config:
    """Chains that move single fields, and then what is still too large as a whole."""
    return {
        **config,
        "value.serializers": "large-fields, avro, zstd, large-message",
        "value.deserializers": "large-message, zstd, avro, large-fields",
        "avro.schema": json.dumps(SCHEMA),
        "avro.framing": "none",
        "large.fields.paths": "cutout, stamps[]",
        "large.fields.min.bytes": 500,
        "large.message.threshold.bytes": 1000,
    }


def with_two_names_exchanged() -> Any:
    """A schema that reads the same bytes, but not the same fields."""
    names = {"cutout": "note", "note": "cutout"}
    fields: Any = SCHEMA["fields"]
    return {**SCHEMA, "fields": [{**field, "name": names.get(field["name"], field["name"])} for field in fields]}


def alert(number: int, *, cutout: bytes | None = None, stamps: tuple[bytes, ...] = (), note: str = "") -> Any:
    return {"id": number, "cutout": cutout, "note": note, "stamps": list(stamps)}


def incompressible(number: int) -> str:
    """A text that is too large for a record even if compressed."""
    return "".join(f"{number * 7919**power % 9973:04d}" for power in range(1, 900))


def produce(config: Config, topic: str, *values: Any, key: bytes | None = None) -> None:
    with Producer(config) as producer:
        for value in values:
            producer.produce(topic, value, key)


def put_alerts(config: Config, topic: str) -> None:
    """Records without payloads, with one field, with two, with a field and as a whole, as a whole; and a tombstone."""
    produce(
        config,
        topic,
        alert(0, cutout=b"small"),
        alert(1, cutout=payload(1)),
        alert(2, cutout=payload(2), stamps=(payload(3), b"small", payload(4))),
        alert(3, cutout=payload(5), note=incompressible(3)),
        alert(4, note=incompressible(4)),
        None,
    )


PAYLOADS = 7


def test_a_sweep_leaves_what_fields_refer_to(sweep: Sweep, config: Config, topic: str, store: PayloadStore) -> None:
    """Three sweeps."""
    put_alerts(config, topic)
    used = stored(store, topic)
    assert len(used) == PAYLOADS
    orphans = {store.publish(topic, payload(number)) for number in (10, 11)}
    config["large.fields.fetch"] = "lazy"  # of readers
    report = sweep(config, topic, grace_ms=0, delete=True)
    assert (report.live, report.listed, report.orphans, report.deleted) == (PAYLOADS, PAYLOADS + 2, 2, 2)
    assert not orphans & stored(store, topic)
    assert stored(store, topic) == used
    # A producer's configuration, and one that has no stage for whole values.
    of_producer = {key: value for key, value in config.items() if key != "value.deserializers"}
    for other in (of_producer, {**config, "value.deserializers": "zstd, avro, large-fields"}):
        assert sweep(other, topic, grace_ms=0, delete=True).deleted == 0
    assert stored(store, topic) == used


def test_records_with_the_header_that_cannot_be_decoded_end_a_sweep(
    sweep: Sweep, config: Config, topic: str, store: PayloadStore
) -> None:
    put_alerts(config, topic)
    used = {*stored(store, topic), store.publish(topic, payload(10))}
    other = {"type": "record", "name": "Alert", "fields": [{"name": "n", "type": {"type": "array", "items": "int"}}]}
    for wrong, reason in (
        ({"value.deserializers": "large-message"}, "no stage of the configuration reads"),
        ({"value.deserializers": "large-message, zstd, avro"}, "no stage of the configuration reads"),
        ({"avro.schema": json.dumps(other)}, "unreadable"),
        ({"avro.schema": json.dumps(with_two_names_exchanged())}, "cutout, which has no reference"),
    ):
        with pytest.raises(JobError, match=reason):
            sweep({**config, **wrong}, topic, grace_ms=0, delete=True)
    assert stored(store, topic) == used


def test_a_malformed_header_protects_nothing_and_ends_no_sweep(
    sweep: Sweep, config: Config, topic: str, store: PayloadStore
) -> None:
    put_alerts(config, topic)
    used = stored(store, topic)
    with Producer({key: value for key, value in config.items() if not key.startswith("value.")}) as producer:
        producer.produce(topic, b"foreign", headers=[(HEADER, b"{")])
    store.publish(topic, payload(10))
    report = sweep(config, topic, grace_ms=0, delete=True)
    assert report.deleted == 1
    assert "1 unreadable" in report.warnings[-1]
    assert stored(store, topic) == used


@pytest.mark.parametrize("chain", ["large-message", "large-message, zstd, avro, large-fields"])
def test_a_whole_value_beside_a_malformed_header_is_in_use(
    sweep: Sweep, audit: Audit, *, config: Config, topic: str, store: PayloadStore, chain: str
) -> None:
    """Readers without ``large-fields`` pass over the header."""
    config["value.deserializers"] = chain
    whole = {**config, "value.serializers": "bytes, large-message"}
    with Producer(whole) as producer:
        for number in range(3):
            producer.produce(topic, payload(number) * 2, headers=[(HEADER, b"{")] if number == 2 else None)
    used = stored(store, topic)
    assert len(used) == 3
    store.publish(topic, payload(10))
    report = sweep(config, topic, grace_ms=0, delete=True)
    assert (report.live, report.deleted) == (3, 1)
    assert "1 unreadable" in report.warnings[-1]
    assert stored(store, topic) == used
    checked, [problem] = audit(config, topic)
    assert (checked, problem.offset, problem.kind) == (3, 2, "DecodeError")


# A reader's stages, and the writer's, whose header is damaged.
HIDDEN: dict[str, dict[str, str]] = {
    "compressed": {"value.serializers": "large-fields, avro, zstd", "value.deserializers": "zstd, avro, large-fields"},
    "compressed and encrypted": {
        "value.serializers": "large-fields, json, gzip, encrypt",
        "value.deserializers": "encrypt, gzip, json, large-fields",
        "large.fields.serializers": "encrypt",
    },
    "moved": {},
    "described": {
        "value.serializers": "large-fields, avro, zstd",
        "serde.chain.describe": "true",
        "value.deserializers": "auto",
        "serde.chain.allow": "zstd, avro, large-fields",
    },
}
KEYS = {"encryption.key.id": "a", "encryption.keys": "a=MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="}


@pytest.mark.parametrize("name", HIDDEN)
def test_what_fields_name_stays_beside_a_malformed_header(  # noqa: PLR0917, fixtures
    sweep: Sweep, config: Config, topic: str, store: PayloadStore, broker: KafkaBroker, name: str
) -> None:
    """Readers without ``large-fields`` find references in the fields, which are compressed here."""
    config |= HIDDEN[name]
    if "encrypted" in name:
        config |= KEYS
        config["large.fields.paths"] = "cutout"
    value = alert(1, cutout=payload(1), stamps=(payload(2),), note=incompressible(1) if name == "moved" else "")
    if "json" in config["value.serializers"]:
        value = {"cutout": "x" * 600}
    with (
        SerializerChain.from_config(config) as chain,
        Producer(broker.client_config()) as producer,
    ):
        for number in range(2):
            headers: Any = []
            data = chain(value, RecordContext(topic, "value", headers))
            damaged = [(key, b"[{" if key == HEADER and number else content) for key, content in headers]
            producer.produce(topic, data, headers=damaged)
    used = stored(store, topic)
    assert len(used) == {"compressed and encrypted": 2, "moved": 6}.get(name, 4)
    store.publish(topic, payload(10))
    report = sweep(config, topic, grace_ms=0, delete=True)
    assert report.deleted == 1
    assert "1 unreadable" in report.warnings[-1]
    assert stored(store, topic) == used


def test_a_record_without_the_rest_of_its_value_protects_nothing(
    sweep: Sweep, audit: Audit, config: Config, topic: str, store: PayloadStore
) -> None:
    put_alerts(config, topic)
    used = stored(store, topic)
    whole, field = references(config, topic, 3)
    Path(whole.removeprefix("file://")).unlink()  # as after an aborted transaction
    assert audit(config, topic)[1][0].kind == "PayloadNotFoundError"
    report = sweep(config, topic, grace_ms=0, delete=True)
    assert report.deleted == 1
    assert "1 unreadable" in report.warnings[-1]
    assert stored(store, topic) == used - {whole, field}


@pytest.mark.parametrize("payloads", [True, False])
def test_an_audit_needs_no_keys_of_fields(*, audit: Audit, config: Config, topic: str, payloads: bool) -> None:
    config["large.fields.serializers"] = "encrypt"
    config |= {"encryption.key.id": "a", "encryption.keys": "a=MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="}
    put_alerts(config, topic)
    without_keys = {key: value for key, value in config.items() if not key.startswith("encryption.")}
    assert audit(without_keys, topic, payloads=payloads) == (PAYLOADS, [])
    gone, changed = sorted(
        references(config, topic, 2), key=lambda url: Path(url.removeprefix("file://")).stat().st_size
    )[:2]
    Path(gone.removeprefix("file://")).unlink()
    damaged = Path(changed.removeprefix("file://"))
    damaged.write_bytes(bytes(damaged.stat().st_size))
    count, problems = audit(without_keys, topic, payloads=payloads)
    found = {problem.reference: problem.kind for problem in problems}
    assert found == {gone: "PayloadNotFoundError", **({changed: "PayloadIntegrityError"} if payloads else {})}
    assert count == PAYLOADS


def references(config: Config, topic: str, at: int) -> list[str]:
    """The references in a record."""
    with DeserializerChain.from_config(config) as reader:
        raw = {key: value for key, value in config.items() if not key.startswith("value.")}
        [partition] = read(raw, topic)
        _, value, headers, _ = partition[at]
        return [each.url for each in reader.references_in(value, RecordContext(topic, "value", headers))]


def test_a_migration_moves_fields_once(
    *, migrate: Migrate, config: Config, new_topic: "NewTopic", tmp_path: Path, store: PayloadStore
) -> None:
    """Four migrations."""
    source, copy = new_topic(1), new_topic(1)
    target = {**config, "local.path": str(tmp_path / "target"), "large.fields.min.bytes": 500}
    put_alerts(config, source)
    config["large.fields.fetch"] = "lazy"  # of readers
    checkpoint = tmp_path / "checkpoint"
    assert migrate(config, target, source, copy, checkpoint=checkpoint) == MigrateReport(6, 4, 0)
    moved = files(tmp_path / "target")
    assert len(moved) == PAYLOADS
    assert migrate(config, target, source, copy, checkpoint=checkpoint) == MigrateReport(0, 0, 0)
    assert files(tmp_path / "target") == moved
    del config["large.fields.fetch"]
    before = read(config, source)
    for reference in stored(store, source):
        Path(reference.removeprefix("file://")).unlink()
    assert read(target, copy) == before
    # From fields to whole values and back.
    for at, chain in enumerate(("avro, zstd, large-message", "large-fields, avro, gzip")):
        reverse = ", ".join(chain.split(", ")[::-1])
        other = {**target, "value.serializers": chain, "value.deserializers": reverse}
        place = new_topic(1)
        migrate(target, other, copy, place, checkpoint=tmp_path / f"checkpoint-{at}")
        assert read(other, place) == before
        copy, target = place, other


def files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


def test_fields_and_bytes_cannot_be_migrated_into_each_other(config: Config) -> None:
    whole = {**config, "value.serializers": "large-message", "value.deserializers": "large-message"}
    for source, target, side in ((whole, config, "value.deserializers"), (config, whole, "value.serializers")):
        with pytest.raises(ConfigError, match="do not lead to objects") as caught:
            plan_migration(source, target, "a", "b")
        assert caught.value.key == side


def test_keys_of_payloads_are_required_only_where_records_are_encrypted(config: Config) -> None:
    config["large.fields.serializers"] = "encrypt"
    assert HEADER in (plan_reading(config, ("t",)).markers or ())
    config["value.deserializers"] = "large-message, encrypt, avro, large-fields"
    with pytest.raises(ConfigError, match="encryption"):
        plan_reading(config, ("t",))
