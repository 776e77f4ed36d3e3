"""A payload that does not arrive is an error, not a figure."""

from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError

from benchmarks.payloads import _Clients


class Refusing:
    """A producer whose records are refused after the first ones."""

    def __init__(self, accepted: int) -> None:
        self._accepted = accepted

    def produce(self, topic: str, value: bytes, on_delivery: Callable[[KafkaError | None, None], None]) -> None:
        self._accepted -= 1
        on_delivery(None if self._accepted >= 0 else KafkaError(KafkaError.UNKNOWN), None)

    def flush(self, timeout: float) -> int:
        return 0


class Silent(Refusing):
    """A producer that reports nothing in time."""

    def produce(self, topic: str, value: bytes, on_delivery: Callable[[KafkaError | None, None], None]) -> None:
        pass


@pytest.mark.parametrize("producer", [Refusing(0), Refusing(2), Silent(3)])
def test_a_payload_that_is_not_delivered_is_an_error(producer: Refusing) -> None:
    with pytest.raises(RuntimeError, match="not all of 3 payloads were delivered"):
        _Clients({"topic": "payloads"}).send(producer, b"payload", 3)


def test_payloads_that_are_delivered() -> None:
    _Clients({"topic": "payloads"}).send(Refusing(3), b"payload", 3)
