"""FastStream's broker with chains, on the real Kafka broker."""

import asyncio
import gzip
import logging
import ssl
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from aiokafka.errors import KafkaConnectionError
from confluent_kafka import Producer
from faststream import AckPolicy
from faststream.kafka import TestKafkaBroker
from faststream.kafka.annotations import KafkaMessage
from faststream.security import SASLPlaintext

from serde_chain import ConfigError, DecodeError, MissingDependencyError
from serde_chain.clients.faststream import KafkaBroker
from serde_chain.clients.faststream_security import security_of
from serde_chain.testing import services
from tests.certificates import Authority

SECONDS = 60
LARGE: dict[str, Any] = {"name": "M 51", "pixels": "ff" * 10_000}


@pytest.fixture
def config(broker: services.KafkaBroker, tmp_path: Path) -> dict[str, Any]:
    return {
        **broker.client_config(),
        "value.serializers": "gzip, large-message",
        "value.deserializers": "large-message, gzip",
        "large.message.payload.store.class": "local",
        "large.message.threshold.bytes": 20,
        "local.path": str(tmp_path / "payloads"),
    }


class Readers:
    """A subscriber that keeps what it gets.

    Args:
        broker: FastStream's broker.
        topic: The topic.
    """

    def __init__(self, broker: KafkaBroker, topic: str) -> None:
        self.found: asyncio.Queue[tuple[Any, dict[str, str]]] = asyncio.Queue()

        @broker.subscriber(topic, group_id=topic, auto_offset_reset="earliest", ack_policy=AckPolicy.ACK)
        async def handle(body: Any, message: KafkaMessage) -> None:
            headers = {name: value for name, value in message.headers.items() if name == "band"}
            await self.found.put((body, headers))

    async def get(self) -> tuple[Any, dict[str, str]]:
        return await asyncio.wait_for(self.found.get(), SECONDS)


@contextmanager
def told(text: str, tell: Callable[[], object]) -> Iterator[None]:
    """Call a function when a text is logged."""

    def note(record: logging.LogRecord) -> bool:
        if text in record.getMessage():
            tell()
        return True

    log = logging.getLogger("serde_chain")
    log.addFilter(note)
    try:
        yield
    finally:
        log.removeFilter(note)


def test_there_and_back(config: dict[str, Any], topic: str, tmp_path: Path) -> None:
    """Also after a stop and another start."""

    async def main() -> None:
        broker = KafkaBroker(config)
        readers = Readers(broker, topic)
        for band in ("g", "r"):
            async with asyncio.timeout(SECONDS):
                await broker.start()
                await broker.publish(LARGE, topic=topic, headers={"band": band})
                assert await readers.get() == (LARGE, {"band": band})
                await broker.stop()

    asyncio.run(main())
    assert len([path for path in (tmp_path / "payloads").rglob("*") if path.is_file()]) == 2


async def waiting(broker: KafkaBroker, topic: str, folder: Path) -> Readers:
    """Start a broker with a large record whose store is away; returns when the record waits."""
    readers = Readers(broker, topic)
    await broker.connect()
    await broker.publish(LARGE, topic=topic)
    (folder / "payloads").rename(folder / "away")
    waits = asyncio.Event()
    with told("a record waits", waits.set):
        await broker.start()
        await asyncio.wait_for(waits.wait(), SECONDS)
    return readers


def test_an_unreadable_record_is_passed_and_another_waits_for_its_store(
    config: dict[str, Any], topic: str, tmp_path: Path
) -> None:
    raw = Producer({"bootstrap.servers": config["bootstrap.servers"]})
    raw.produce(topic, b"no gzip")
    assert raw.flush(30) == 0

    async def main() -> None:
        broker = KafkaBroker(config)
        readers = await waiting(broker, topic, tmp_path)
        assert readers.found.empty()
        (tmp_path / "away").rename(tmp_path / "payloads")
        assert await readers.get() == (LARGE, {})
        await broker.stop()

    asyncio.run(main())


@pytest.mark.parametrize("is_batch", [False, True])
def test_headers_that_are_no_text(config: dict[str, Any], topic: str, *, is_batch: bool) -> None:
    """FastStream's own parser fails at them."""
    headers: list[tuple[str, str | bytes | None]] = [("id", b"\xc3\x28"), ("none", None), ("band", b"g")]
    raw = Producer({"bootstrap.servers": config["bootstrap.servers"]})
    raw.produce(topic, gzip.compress(b'{"a": 1}'), headers=headers)
    assert raw.flush(30) == 0

    async def main() -> None:
        broker = KafkaBroker(config)
        found: asyncio.Queue[tuple[Any, Any, Any]] = asyncio.Queue()

        async def handle(body: Any, message: KafkaMessage) -> None:
            await found.put((body, message.headers, message.raw_message))

        options: dict[str, Any] = {"group_id": topic, "auto_offset_reset": "earliest", "batch": is_batch}
        broker.subscriber(topic, ack_policy=AckPolicy.ACK, **options)(handle)

        await broker.start()
        body, texts, record = await asyncio.wait_for(found.get(), SECONDS)
        await broker.stop()
        assert (body[0] if is_batch else body) == {"a": 1}
        assert texts == {"band": "g"}
        assert record[0].headers == (headers[2],) if is_batch else record.headers == tuple(headers)

    asyncio.run(main())


class Absent:
    """A stage whose package is installed later.

    Attributes:
        is_there: Whether it is installed.
    """

    def __init__(self) -> None:
        self.is_there = False

    def __call__(self, data: Any, ctx: Any) -> Any:
        if not self.is_there:
            raise MissingDependencyError("lz4 is not installed")
        return data


def test_a_record_waits_for_a_package(config: dict[str, Any], topic: str) -> None:
    stage = Absent()

    async def main() -> None:
        broker = KafkaBroker({**config, "value.serializers": "bytes", "value.deserializers": [stage]})
        readers = Readers(broker, topic)
        waits = asyncio.Event()
        with told("a record waits", waits.set):
            await broker.start()
            await broker.publish("text", topic=topic)
            await asyncio.wait_for(waits.wait(), SECONDS)
        stage.is_there = True
        assert await readers.get() == ("text", {})
        await broker.stop()

    asyncio.run(main())


def test_batches(config: dict[str, Any], topic: str, caplog: pytest.LogCaptureFixture) -> None:
    """Each record is decoded; a batch of undecodable ones alone is an error, and the next one arrives."""
    raw = Producer({"bootstrap.servers": config["bootstrap.servers"]})

    async def main() -> None:
        broker = KafkaBroker(config)
        found: asyncio.Queue[list[Any]] = asyncio.Queue()
        failed = asyncio.Event()

        @broker.subscriber(topic, group_id=topic, auto_offset_reset="earliest", ack_policy=AckPolicy.ACK, batch=True)
        async def handle(bodies: list[Any]) -> None:
            await found.put(bodies)

        async def get(count: int) -> list[Any]:
            bodies: list[Any] = []
            while len(bodies) < count:
                bodies += await asyncio.wait_for(found.get(), SECONDS)
            return bodies

        await broker.connect()
        await broker.publish(LARGE, topic=topic)
        raw.produce(topic, b"no gzip")
        assert raw.flush(30) == 0
        await broker.publish("text", topic=topic)
        await broker.start()
        assert await get(2) == [LARGE, "text"]
        with told("left out", failed.set):
            raw.produce(topic, b"no gzip either")
            assert raw.flush(30) == 0
            await asyncio.wait_for(failed.wait(), SECONDS)
        await broker.publish("more", topic=topic)
        assert await get(1) == ["more"]
        await broker.stop()

    asyncio.run(main())
    assert caplog.text.count("left out of its batch") == 2
    assert "no gzip" not in caplog.text


def test_a_parser_of_yours_gets_decoded_records(config: dict[str, Any], topic: str) -> None:
    seen: list[bytes] = []

    async def parse(record: Any, original: Callable[[Any], Awaitable[Any]]) -> Any:
        seen.append(bytes(record.value))
        return await original(record)

    async def main() -> None:
        broker = KafkaBroker(config, parser=parse)
        readers = Readers(broker, topic)
        async with broker:
            await broker.start()
            await broker.publish("text", topic=topic)
            assert await readers.get() == ("text", {})

    asyncio.run(main())
    assert seen == [b"text"]


def test_faststreams_own_test_broker(config: dict[str, Any], topic: str) -> None:
    """With the real broker chains are used; without it, only a broker without chains can read."""

    async def main(config: dict[str, Any], *, with_real: bool) -> None:
        broker = KafkaBroker(config)
        readers = Readers(broker, topic)
        async with TestKafkaBroker(broker, with_real=with_real):
            await broker.publish(LARGE, topic=topic)
            assert await readers.get() == (LARGE, {})

    asyncio.run(main(config, with_real=True))
    asyncio.run(main({}, with_real=False))
    with pytest.raises(DecodeError):
        asyncio.run(main(config, with_real=False))


def test_connecting_again(config: dict[str, Any], topic: str, tmp_path: Path) -> None:
    """A failed attempt releases what the next one needs."""
    journaled = {**config, "large.message.journal.path": str(tmp_path / "journal")}

    async def main() -> None:
        broker = KafkaBroker(journaled, "127.0.0.1:1")
        for _ in range(2):
            with pytest.raises(KafkaConnectionError):
                await broker.connect()
        await broker.stop()
        await broker.stop()
        there = KafkaBroker(journaled)
        readers = Readers(there, topic)
        await there.start()
        await there.publish(LARGE, topic=topic)
        assert await readers.get() == (LARGE, {})
        await there.stop()

    asyncio.run(main())


def test_a_wrong_configuration() -> None:
    with pytest.raises(ConfigError, match="zst"):
        KafkaBroker({"value.deserializers": "zst"})


def test_a_stop_does_not_wait_for_a_store_that_is_away(config: dict[str, Any], topic: str, tmp_path: Path) -> None:
    """The record is not committed: the next start delivers it."""

    async def main() -> None:
        broker = KafkaBroker(config)
        readers = await waiting(broker, topic, tmp_path)
        broker.config.broker_config.graceful_timeout = 10 * SECONDS  # of FastStream, for the handler
        await asyncio.wait_for(broker.stop(), SECONDS)
        assert readers.found.empty()
        (tmp_path / "away").rename(tmp_path / "payloads")
        await broker.start()
        assert await readers.get() == (LARGE, {})
        await broker.stop()

    asyncio.run(main())


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_login_of_the_configuration(
    config: dict[str, Any], broker: services.KafkaBroker, topic: str, mechanism: str
) -> None:
    user = next(iter(broker.users))
    config |= broker.client_config(user, mechanism=mechanism)

    async def main() -> None:
        with_login = KafkaBroker(config)
        readers = Readers(with_login, topic)
        await with_login.start()
        await with_login.publish(LARGE, topic=topic)
        assert await readers.get() == (LARGE, {})
        await with_login.stop()
        refused = KafkaBroker({**config, "sasl.password": "another"})
        with pytest.raises(KafkaConnectionError):
            await refused.connect()
        await refused.stop()

    asyncio.run(main())


def test_security_is_translated_or_refused(tmp_path: Path) -> None:
    login = {"sasl.mechanism": "PLAIN", "sasl.username": "ada", "sasl.password": "secret"}
    assert security_of({"bootstrap.servers": "localhost:9092", "security.protocol": "plaintext"}) is None
    plain = security_of({"security.protocol": "sasl_plaintext", **login})
    assert isinstance(plain, SASLPlaintext)
    assert (plain.username, plain.password, plain.use_ssl, plain.ssl_context) == ("ada", "secret", False, None)

    authority = Authority()
    certificate, key = authority.issue("ada")
    files = {"ssl.ca.location": authority.certificate, "ssl.certificate.location": certificate, "ssl.key.location": key}
    paths: dict[str, object] = {}
    for name, content in files.items():
        path = tmp_path / name
        path.write_text(content)
        paths[name] = str(path)
    tls = security_of({"security.protocol": "ssl", **paths})
    assert tls is not None
    assert tls.use_ssl
    context = tls.ssl_context
    assert context is not None
    assert (context.check_hostname, context.verify_mode, len(context.get_ca_certs())) == (True, ssl.CERT_REQUIRED, 1)
    lenient = security_of(
        {
            "security.protocol": "SSL",
            "ssl.ca.pem": authority.certificate,
            "ssl.endpoint.identification.algorithm": "none",
        }
    )
    assert lenient is not None
    assert lenient.ssl_context is not None
    assert (lenient.ssl_context.check_hostname, lenient.ssl_context.verify_mode) == (False, ssl.CERT_REQUIRED)

    for settings, problem in (
        ({"security.protocol": "sasl_ssl"}, r"sasl\.mechanism = GSSAPI is not translated.*security="),
        ({"security.protocol": "sasl_ssl", **login, "sasl.password": None}, r"sasl\.password is required"),
        ({"sasl.oauthbearer.method": "oidc"}, r"sasl\.oauthbearer\.method has no counterpart.*security="),
        ({"security.protocol": "tls"}, r"security\.protocol is none of"),
        ({"security.protocol": "ssl", "ssl.ca.location": str(tmp_path / "none")}, "cannot be read: No such file"),
        ({"security.protocol": "ssl", **paths, "ssl.key.location": paths["ssl.ca.location"]}, "cannot be read"),
    ):
        with pytest.raises(ConfigError, match=problem) as raised:
            KafkaBroker({**settings, "value.serializers": "gzip"})
        assert "secret" not in str(raised.value)
