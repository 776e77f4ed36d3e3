"""Reports of records that need nothing else: each is checked, or known to have been swallowed by an interrupt."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException

from serde_chain import Producer
from serde_chain.clients.confluent.delivery_reports import CheckedReports
from serde_chain.testing.services import KafkaBroker
from tests.chaos.points import interrupted
from tests.interrupts import interrupted_at

FILES = ("serde_chain/clients/confluent/delivery_reports",)


class Client:
    """Keeps reports until it is polled; what an exception leaves of a report is gone, as in confluent_kafka."""

    def __init__(self) -> None:
        self.reports: list[Any] = []
        self.refuses: Exception | None = None
        self.offset: int | None = 7

    def produce(self, topic: str, *arguments: Any) -> None:
        if self.refuses is not None:
            raise self.refuses
        offset: dict[str, Any] = {} if self.offset is None else {"offset": self.offset}
        self.reports.append((arguments[3], confluent_kafka.Message(topic=topic, partition=0, **offset)))

    def serve(self) -> None:
        while self.reports:
            callback, message = self.reports.pop(0)
            callback(None, message)

    def __len__(self) -> int:
        return len(self.reports)


def checked(client: Client, failed: list[Any], on_delivery: Any = None) -> CheckedReports:
    return CheckedReports(
        client, client.produce, on_delivery, lambda topic, error: failed.append((topic, error.name()))
    )


def test_nothing_fails_where_nothing_is_interrupted() -> None:
    client, failed = Client(), list[Any]()
    reports = checked(client, failed)
    for callback in (None, lambda *_: None):
        reports.produce("t", b"v", on_delivery=callback)
        reports.recover()  # still at the client
    client.serve()
    reports.recover()
    assert failed == []


@pytest.mark.parametrize("refusal", [BufferError("full"), KafkaException(KafkaError(KafkaError._STATE))])
def test_what_the_client_refuses_has_no_report(refusal: Exception) -> None:
    client, failed, told = Client(), list[Any](), list[Any]()
    reports = checked(client, failed)
    client.refuses = refusal
    for callback in (None, lambda *report: told.append(report)):
        with pytest.raises(type(refusal)):
            reports.produce("t", b"v", on_delivery=callback)
    reports.recover()
    assert failed == told == []


def test_a_report_without_an_offset_is_a_failure() -> None:
    client, failed, told = Client(), list[Any](), list[Any]()
    client.offset = None
    reports = checked(client, failed)
    reports.produce("none", b"v")
    reports.produce("one", b"v", on_delivery=lambda error, _message: told.append(error.name()))
    client.serve()
    assert failed == [("none", "OUT_OF_ORDER_SEQUENCE_NUMBER"), ("one", "OUT_OF_ORDER_SEQUENCE_NUMBER")]
    assert told == ["OUT_OF_ORDER_SEQUENCE_NUMBER"]


@pytest.mark.parametrize("offset", [7, None])
@pytest.mark.parametrize("has_callback", [True, False])
def test_a_report_is_checked_or_known_to_be_swallowed_wherever_an_interrupt_comes(
    offset: int | None, *, has_callback: bool
) -> None:
    point, is_over, failures = 1, False, 0
    while not is_over:
        client, failed = Client(), list[Any]()
        client.offset = offset
        calls: Counter[str] = Counter()
        reports = checked(client, failed)
        on_delivery = (lambda _error, message: calls.update([message.topic()])) if has_callback else None  # noqa: B023
        is_accepted = False
        try:
            with interrupted(point):
                reports.produce("t", b"v", on_delivery=on_delivery)
                is_accepted = True
                client.serve()
            is_over = True
        except KeyboardInterrupt:
            point += 1
        client.serve()
        reports.recover()
        if is_accepted and has_callback:
            assert calls == {"t": 1}
        if is_accepted and offset is None:
            assert failed
        failures += bool(failed)
        count = len(failed)
        reports.recover()
        assert len(failed) == count  # settled
        reports.produce("next", b"v", on_delivery=on_delivery)
        client.serve()
        reports.recover()
        assert calls["next"] == has_callback
    assert point > 2
    assert failures


def test_a_transaction_with_a_swallowed_report_is_not_committed(broker: KafkaBroker, topic: str) -> None:
    with Producer({**broker.client_config(), "transactional.id": topic}) as producer:
        producer.init_transactions(30)
        for is_interrupted in (True, False):
            producer.begin_transaction()
            producer.produce(topic, b"v")
            if is_interrupted:
                with pytest.raises(KeyboardInterrupt), interrupted_at(0, FILES):
                    producer.flush(30)
                with pytest.raises(KafkaException, match="swallowed the report") as caught:
                    producer.commit_transaction(30)
                assert caught.value.args[0].txn_requires_abort()
                producer.abort_transaction(30)
            else:
                producer.commit_transaction(30)


def test_a_callback_is_called_although_an_interrupt_swallowed_its_report(broker: KafkaBroker, topic: str) -> None:
    told: list[Any] = []
    with Producer({**broker.client_config(), "enable.idempotence": True}) as producer:
        for key in (b"a", b"b"):
            producer.produce(topic, b"v", key, on_delivery=lambda error, message: told.append((error, message.key())))
        with suppress(KeyboardInterrupt), interrupted_at(0, FILES):
            producer.flush(30)
        assert producer.flush(30) == 0
    assert sorted((key, error and error.name()) for error, key in told) == [(b"a", "_INTR"), (b"b", None)]


@pytest.mark.parametrize("chains", [{}, {"value.serializers": "bytes, large-message"}], ids=["checked", "offloaded"])
def test_a_thread_in_a_callback_is_recognized(broker: KafkaBroker, topic: str, chains: dict[str, Any]) -> None:
    """There ``poll`` would end the process. Another thread may poll meanwhile."""
    store = {"large.message.payload.store.class": "memory", "large.message.threshold.bytes": 1} if chains else {}
    config = {**broker.client_config(), "log_level": 0, "enable.idempotence": True, **chains, **store}
    found: list[bool] = []
    with Producer(config) as producer, ThreadPoolExecutor(1) as others:

        def delivered(error: Any, _message: Any) -> None:
            assert error is None
            is_calling = producer._outbox.is_calling
            found.extend([is_calling(), others.submit(is_calling).result()])

        with Producer(config) as another:
            outside: list[bool] = []
            other = another._outbox.is_calling

            def delivered_beside(error: Any, message: Any) -> None:
                delivered(error, message)
                outside.append(other())

            producer.produce(topic, b"v", on_delivery=delivered_beside)
            assert producer.flush(30) == 0
        assert (found, outside) == ([True, False], [False])
        assert not producer._outbox.is_calling()
