"""What a client makes of its configuration, before it meets a broker."""

from collections.abc import Mapping
from typing import Any, cast

import pytest

from payload_stores.options import Option, text
from serde_chain import Data, DeserializerChain, Serializer, SerializerChain
from serde_chain.cli.mistakes import check_config, mistakes
from serde_chain.clients.client_chains import ClientChains, warn_of_other_side
from serde_chain.codec import RecordCodec
from serde_chain.config import resolve
from serde_chain.errors import ConfigError

WRITES = {"value.serializers": "json, zstd"}
READS = {"value.deserializers": "zstd, json"}


@pytest.mark.parametrize(
    ("chain", "config", "told"),
    [
        (DeserializerChain, WRITES, "a chain for value.serializers and none for value.deserializers"),
        (
            SerializerChain,
            {"value.deserializer": "json"},
            "for value.deserializers and none for value.serializers",
        ),
        (DeserializerChain, {"key.serializer": "string", **READS}, ""),
        (SerializerChain, {**WRITES, **READS}, ""),
        (DeserializerChain, {}, ""),
    ],
)
def test_a_configuration_of_the_other_side_is_reported(
    chain: Any, config: dict[str, Any], told: str, caplog: pytest.LogCaptureFixture
) -> None:
    setup = ClientChains.of_writer(config) if chain is SerializerChain else ClientChains.of_reader(config)
    warn_of_other_side(setup, chain.side)
    setup.close()
    assert [record.levelname for record in caplog.records] == (["WARNING"] if told else [])
    assert told in caplog.text


class Asked(Serializer[bytes]):
    """Counts how often its options are determined."""

    takes = Data.BYTES
    options = (Option("asked.word", text, "none"),)
    times = 0

    @classmethod
    def options_for(cls, config: Mapping[str, object]) -> tuple[Option[Any], ...]:
        cls.times += 1
        return cls.options

    def __call__(self, data: bytes | None, ctx: object = None, /) -> bytes | None:
        return data


@pytest.mark.parametrize(
    ("read", "times"),
    [
        (lambda config: SerializerChain.from_config(config).close(), 1),
        (lambda config: ClientChains.of_writer(config).close(), 1),
        (lambda config: RecordCodec(config).close(), 1),
        (mistakes, 1),
        (check_config, 1),
    ],
)
def test_a_configuration_is_read_once(read: Any, times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Asked, "times", 0)
    read({"value.serializers": [Asked, "large-message"], "large.message.payload.store.class": "memory"})
    assert Asked.times == times


class Taking(Asked):
    """Takes its option out of the mapping."""

    def configure(self, config: Mapping[str, object], is_key: bool) -> None:
        self.word = cast("dict[str, object]", config).pop("asked.word")


class Choosing(Taking):
    """Takes it out when it is asked for its options, too."""

    @classmethod
    def options_for(cls, config: Mapping[str, object]) -> tuple[Option[Any], ...]:
        cast("dict[str, object]", config).pop("asked.word")
        return super().options_for(config)


def test_a_stage_may_change_the_settings_that_decide_on_its_options() -> None:
    resolved = resolve({"value.serializers": [Choosing], "asked.word": "some"})
    assert cast("Any", SerializerChain.from_config(resolved).stages[0]).word == "some"


def test_keys_of_a_resolved_configuration_are_checked() -> None:
    """``resolve`` does not check them."""
    resolved = resolve({"value.serializers": "json, large-message", "large.message.treshold.bytes": "1"})
    with pytest.raises(ConfigError, match=r"large\.message\.treshold\.bytes"):
        ClientChains.of_writer(resolved)


def test_a_stage_may_change_the_settings_that_it_gets() -> None:
    resolved = resolve({"value.serializers": [Taking], "asked.word": "some"})
    chains = [SerializerChain.from_config(resolved) for _ in range(2)]
    assert [chain.stages[0].word for chain in chains] == ["some", "some"]


def test_a_clients_defaults_stay_its_own() -> None:
    config: dict[str, Any] = {
        "value.serializers": "large-message",
        "value.deserializers": "large-message",
        "large.message.payload.store.class": "memory",
        "max.block.ms": 20_000,
        "max.poll.interval.ms": 90_000,
    }
    resolved = resolve(config)
    for read, timeout_ms in ((ClientChains.of_writer, 20_000), (ClientChains.of_reader, 60_000)):
        setup = read(resolved)
        chain = cast("Any", setup.value)
        assert [stage.timeout_ms for stage in chain.stages] == [timeout_ms]
        setup.close()
    assert resolved.settings == config
