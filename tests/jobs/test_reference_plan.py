"""Which stages read references, by the configuration of either side."""

from typing import Any

import pytest

from serde_chain.errors import ConfigError
from serde_chain.jobs.reference_plan import plan_reading

STORE = {"large.message.payload.store.class": "memory"}


def plan(**config: Any) -> Any:
    return plan_reading({**STORE, **{key.replace("_", "."): value for key, value in config.items()}}, ("t",))


def heads(planned: Any) -> tuple[Any, Any]:
    return planned.config["value.deserializers"], planned.config["key.deserializers"]


def test_a_consumers_stages_up_to_large_message() -> None:
    planned = plan(value_deserializers="entry-metadata, large-message, zstd", key_deserializer="string")
    value, key = heads(planned)
    assert [stage["class"] for stage in value] == ["entry-metadata", "large-message"]
    assert key == [{"class": "large-message", "large.message.accept": ["kip1159", "bakdata-headers"]}]
    assert planned.with_stores == ("value",)
    assert planned.markers is not None
    assert len(planned.markers) >= 6


def test_a_producers_stages_the_other_way_round() -> None:
    writer = {"class": "large-message", "large.message.format": "bakdata-flag", "large.message.id": "content"}
    value, key = heads(plan(value_serializers=["json", writer, "entry-metadata"]))
    assert [stage["class"] for stage in value] == ["entry-metadata", "large-message"]
    assert value[-1]["large.message.accept"] == ["kip1159", "bakdata-headers", "bakdata-flag"]
    assert "large.message.id" not in value[-1]
    # Keys were not named, and are not marked in their bytes.
    assert key[0]["large.message.accept"] == ["kip1159", "bakdata-headers"]


@pytest.mark.parametrize("accept", ["bakdata-headers", "kip1159", "bakdata-flag"])
def test_what_headers_mark_is_read_whatever_the_configuration_accepts(accept: str) -> None:
    value, key = heads(plan(value_deserializers="large-message", large_message_accept=accept))
    assert {accept, "kip1159", "bakdata-headers"} == set(value[-1]["large.message.accept"])
    assert {"kip1159", "bakdata-headers"} == set(key[-1]["large.message.accept"])


def test_keys_and_values_with_stores_of_their_own() -> None:
    of_keys = {"class": "large-message", "large.message.payload.store.class": "memory", "large.message.grace.ms": 5}
    assert plan(value_serializers="json, large-message", key_serializers=["bytes", of_keys]).with_stores == (
        "value",
        "key",
    )
    assert plan(key_serializers="bytes, large-message").with_stores == ("key",)


def test_what_cannot_be_known() -> None:
    with pytest.raises(ConfigError, match="no stage of the configuration"):
        plan(value_serializers="json")
    with pytest.raises(ConfigError, match="has no registered name by which the stage"):
        plan(value_serializers=["large-message", Wrapper()])


class Wrapper:
    """A stage of which only the writer's side is known."""

    def __call__(self, data: Any, ctx: Any = None) -> Any:
        return data


def test_keys_of_one_side_stay_with_it() -> None:
    """The store is the values' alone, and it is what reads placeholders of keys that headers mark."""
    config = {
        "value.serializers": "avro, large-message",
        "value.avro.schema": '"string"',
        "value.large.message.payload.store.class": "memory",
        "value.large.message.fetch": "lazy",
    }
    assert plan_reading(config, ("t",)).with_stores == ("value",)
    shared = {**config, "key.serializers": "string, large-message", "key.large.message.payload.store.class": "memory"}
    assert plan_reading(shared, ("t",)).with_stores == ("value",)
    own = {**shared, "key.large.message.payload.store.class": "local", "key.local.path": "/tmp"}  # noqa: S108
    assert plan_reading(own, ("t",)).with_stores == ("value", "key")
