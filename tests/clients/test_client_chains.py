"""What a client makes of its configuration, before it meets a broker."""

from typing import Any

import pytest

from serde_chain import DeserializerChain, SerializerChain
from serde_chain.clients.client_chains import MAX_BLOCK, ClientChains, warn_of_other_side

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
    setup = ClientChains.of(config, chain, MAX_BLOCK)
    warn_of_other_side(setup, chain.side)
    setup.close()
    assert [record.levelname for record in caplog.records] == (["WARNING"] if told else [])
    assert told in caplog.text
