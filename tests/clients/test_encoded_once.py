"""A value above the threshold is encoded once, by every client: no stage before ``large-message`` runs twice."""

from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest

from payload_stores.options import Option, text
from serde_chain import Producer, RecordContext, SerializerChain
from serde_chain.base import PlainSerializer
from serde_chain.builders import SerializerChainBuilder
from serde_chain.testing.services import KafkaBroker
from tests.clients.test_same_records import CLIENTS as CLIENTS_OF_RECORDS
from tests.clients.test_same_records import Sent

CALLS = Option("counting.path", text, "")
SMALL, LARGE = b"small", Random(44).randbytes(5000)


class Counting(PlainSerializer[bytes]):
    """Writes a byte into a file for each call: workers of Spark are other processes."""

    options = (CALLS,)

    def configure(self, config: Mapping[str, object], is_key: bool) -> None:
        super().configure(config, is_key)
        path = CALLS.read(config)

        def plain(data: bytes) -> bytes:
            with open(path, "ab") as calls:  # noqa: PTH123  as for any stage's own file
                calls.write(b".")
            return data

        self.plain: Callable[[bytes], bytes] = plain


def encode(chain: SerializerChain, topic: str, sent: list[Sent]) -> None:
    with chain:
        for value, key, headers in sent:
            chain(value, RecordContext(topic, "value", headers, None if key is None else key.encode()))


def with_chain(config: dict[str, Any], topic: str, sent: list[Sent], _spark: Any) -> None:
    encode(SerializerChain.from_config(config), topic, sent)


def with_builder(config: dict[str, Any], topic: str, sent: list[Sent], _spark: Any) -> None:
    encode(SerializerChainBuilder().build(config, is_key=False)[0], topic, sent)


CLIENTS = {"chain": with_chain, "builder": with_builder, **CLIENTS_OF_RECORDS}


def config_of(folder: Path, broker: KafkaBroker, side: str = "value") -> dict[str, Any]:
    counting = f"{Counting.__module__}.{Counting.__qualname__}"
    return {
        **broker.client_config(),
        f"{side}.serializers": [{"class": counting, CALLS.name: str(folder / "calls")}, "zstd", "large-message"],
        "large.message.payload.store.class": "local",
        "local.path": str(folder / "payloads"),
        "large.message.threshold.bytes": 1000,
    }


@pytest.mark.parametrize(
    "client", [pytest.param(name, marks=[pytest.mark.spark] if name == "Spark" else []) for name in CLIENTS]
)
def test_each_client_encodes_a_large_value_once(
    client: str, topic: str, broker: KafkaBroker, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """With Spark, a query by workers that are new."""
    spark = request.getfixturevalue("spark") if client == "Spark" else None
    # Different ones: Spark's ids are those of the content.
    values = [SMALL, LARGE, SMALL[1:], LARGE[1:], LARGE[2:], LARGE[3:]]
    sent: list[Sent] = [(value, key, []) for value, key in zip(values, ["M 51", "k" * 2000] * 3, strict=True)]
    CLIENTS[client](config_of(tmp_path, broker), topic, sent, spark)
    assert len((tmp_path / "calls").read_bytes()) == len(sent)
    payloads = [file for file in (tmp_path / "payloads").rglob("*") if file.is_file()]
    assert len(payloads) == 4


def test_a_large_key_is_encoded_once(topic: str, broker: KafkaBroker, tmp_path: Path) -> None:
    with Producer(config_of(tmp_path, broker, "key")) as producer:
        for key in (SMALL, LARGE, LARGE[:900]):
            producer.produce(topic, b"value", key)
        assert producer.flush(30) == 0
    assert len((tmp_path / "calls").read_bytes()) == 3


def test_a_buffer_of_the_last_stage_is_copied_and_not_made_again(
    tmp_path: Path, topic: str, broker: KafkaBroker
) -> None:
    config: dict[str, Any] = config_of(tmp_path, broker)
    config["value.serializers"] = config["value.serializers"][:1]
    with Producer(config) as producer:
        producer.produce(topic, bytearray(b"M 51"))
        assert producer.flush(30) == 0
    assert (tmp_path / "calls").read_bytes() == b"."
