"""Records and addresses that are made to break the pages, or to keep them busy."""

import gzip
import html
import http.client
import json
import os
import re
import signal
import struct
import subprocess
import sys
import threading
import time
import zlib
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import confluent_kafka
import msgpack
import pytest
from confluent_kafka.admin import AdminClient

from payload_stores.errors import PayloadStoreUnavailableError
from serde_chain import Producer, SerializerChain
from serde_chain.cli.browse.preview import MOST_BYTES, Previews
from serde_chain.cli.browse.questions import Questions
from serde_chain.cli.browse.rendering import templates
from serde_chain.cli.browse.topic import AbandonedError, Page, Patience, Readers, Topic
from serde_chain.cli.fits import picture
from serde_chain.cli.outline import as_json
from serde_chain.cli.records import RecordUnavailableError
from serde_chain.cli.selection import Selection
from serde_chain.testing.services import KafkaBroker
from tests.cli.browse.conftest import OpenPages, png, produce
from tests.cli.conftest import COMMAND, environment

# Faults and attacks; the ordinary way has tests of its own.
pytestmark = pytest.mark.full

DEEP = 900


def test_a_value_that_is_nested_too_deeply(
    open_pages: OpenPages, broker: KafkaBroker, config: dict[str, Any], topic: str
) -> None:
    config["value.deserializers"] = "json"
    producer = confluent_kafka.Producer(broker.client_config())
    for depth in (DEEP, 10_000):
        producer.produce(topic, b"[" * depth + b"]" * depth)
    producer.flush(30)
    ask = open_pages(config, topic)
    # Newer Pythons write all that orjson reads.
    for offset, is_read in enumerate((sys.version_info >= (3, 12), False)):
        page = ask(f"/records/0/{offset}")
        assert page.status == 200
        assert ('class="problem"' in page.text) is not is_read
        assert "|[[[[[[[[" in page.text  # its bytes are shown
        assert ask(f"/records/0/{offset}/value").status == (200 if is_read else 404)


def test_a_record_that_is_too_large_is_not_decoded(
    open_pages: OpenPages, broker: KafkaBroker, config: dict[str, Any], topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serde_chain.cli.browse.app.MOST_BYTES", 100_000)
    config["value.deserializers"] = "json"
    producer = confluent_kafka.Producer(broker.client_config())
    producer.produce(topic, json.dumps("x" * 200_000).encode())
    producer.flush(30)
    page = open_pages(config, topic)("/records/0/0").text
    assert "the value has 200,002 bytes, but" in page
    assert "00000000  22 78" in page


@pytest.mark.full
def test_an_object_of_very_many_items(
    open_pages: OpenPages, broker: KafkaBroker, config: dict[str, Any], topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config["value.deserializers"] = "json"
    producer = confluent_kafka.Producer(broker.client_config())
    producer.produce(topic, b"[" + b"[[]," * 100_000 + b"[]" + b"]" * 100_001)
    producer.produce(topic, b"[" + b"[]," * 200_000 + b"{}]")
    producer.flush(30)
    shown: list[Any] = []
    threads: list[threading.Thread] = []

    def for_the_page(value: Any, of_bytes: Any = None, room: Any = None) -> Any:
        shown.append(value)
        return as_json(value, of_bytes, room)

    def for_the_file(value: Any) -> Any:
        threads.append(threading.current_thread())
        return as_json(value)

    monkeypatch.setattr("serde_chain.cli.outline.as_json", for_the_page)
    monkeypatch.setattr("serde_chain.cli.files.as_json", for_the_file)
    ask = open_pages(config, topic)
    assert 'class="problem"' in ask("/records/0/0").text
    page = ask("/records/0/1")
    assert page.status == 200
    assert 100_000 < len(page.text) < 220_000
    assert 100_000 < len(shown) < 100_100
    assert len(json.loads(ask("/records/0/1/value").body)) == 200_001
    assert threading.main_thread() not in threads  # other pages are answered meanwhile
    assert threads


def test_a_few_bytes_do_not_become_millions_of_objects(
    open_pages: OpenPages, broker: KafkaBroker, config: dict[str, Any], topic: str
) -> None:
    config["value.deserializers"] = "zstd, json"
    config["value.serde.max.parts"] = 10**9  # of readers, which have the memory for it
    producer = confluent_kafka.Producer(broker.client_config())
    record = SerializerChain.from_config({"value.serializer": "zstd"})(b"[" + b"[]," * 1_100_000 + b"[]]")
    assert len(record) < 1000
    producer.produce(topic, record)
    producer.flush(30)
    page = open_pages(config, topic)("/records/0/0")
    assert page.status == 200
    assert "more than 1000000 parts" in page.text


def test_a_store_that_hangs_is_asked_about_a_record_once(
    open_pages: OpenPages, config: dict[str, Any], topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(config, topic, (None, {"noise": os.urandom(2000).hex()}))
    both = threading.Barrier(2)

    def hang(*_arguments: object) -> Any:
        both.wait(30)
        raise PayloadStoreUnavailableError("the payload store did not finish")

    monkeypatch.setattr("serde_chain.cli.browse.payloads.Payloads.head", hang)
    monkeypatch.setattr("serde_chain.cli.browse.payloads.Payloads.see", hang)
    page = open_pages(config, topic)("/records/0/0")
    assert (page.status, "the payload store did not finish" in page.text) == (200, True)


def test_stores_are_asked_a_few_questions_at_a_time(
    open_pages: OpenPages, config: dict[str, Any], topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(config, topic, *((None, {"noise": os.urandom(2000).hex()}) for _ in range(24)))
    several, lock = threading.Barrier(8), threading.Lock()
    running: list[int] = [0]

    def see(*_arguments: object) -> bool:
        with lock:
            running.append(running[-1] + 1)
        several.wait(30)
        with lock:
            running.append(running[-1] - 1)
        return True

    monkeypatch.setattr("serde_chain.cli.browse.payloads.Payloads.see", see)
    assert open_pages(config, topic)("/?check=1").text.count(">resolves</span>") == 24
    assert max(running) == 8


def test_stores_are_not_asked_once_the_time_is_up() -> None:
    questions = Questions(None)  # type: ignore[arg-type]  # which would fail
    answers = questions.asked("alerts", {"s3://bucket/a": 5}, Patience(0), heads=True)
    assert answers == {"s3://bucket/a": (("not asked: the time is up", "unknown"), None)}
    gone = Patience(60)
    gone.is_over = True
    with pytest.raises(AbandonedError):
        questions.asked("alerts", {"s3://bucket/a": 5}, gone)


def test_the_wait_for_another_record_ends_with_patience(config: dict[str, Any]) -> None:
    with closing(Previews(config)) as previews, previews._turn(Patience(60)):
        with pytest.raises(RecordUnavailableError, match="did not arrive within 0 s"):
            previews.read(None, Patience(0))
        gone = Patience(60)
        gone.is_over = True
        with pytest.raises(AbandonedError):
            previews.read(None, gone)


def page_of(broker: KafkaBroker, topic: str, wanted: Selection, patience: Patience) -> Page:
    with closing(Readers(broker.client_config(), 30)) as readers:
        return Topic(readers, topic, ("kip1159",)).page(wanted, patience)


def test_the_search_for_a_key_ends_with_patience(broker: KafkaBroker, topic: str) -> None:
    producer = confluent_kafka.Producer(broker.client_config())
    for number in range(30):
        producer.produce(topic, b"x", str(number))
    producer.flush(30)
    patience = Patience(60)
    patience.is_over = True
    with pytest.raises(AbandonedError):
        page_of(broker, topic, Selection(key=b"none has it"), patience)


def test_the_search_for_a_key_is_bounded_in_bytes(
    broker: KafkaBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serde_chain.cli.browse.topic._MOST_BYTES", 100_000)
    producer = confluent_kafka.Producer(broker.client_config())
    for number in range(300):
        producer.produce(topic, bytes(10_000), str(number))
    producer.flush(30)
    page = page_of(broker, topic, Selection(key=b"none has it"), Patience(60))
    assert page.looked_at == 25
    assert page.older is not None


@pytest.mark.parametrize(
    "address",
    [
        f"/records/0/{'9' * 5000}",
        f"/records/{'9' * 5000}/0",
        f"/records/0/{10**30}",
        f"/records/{10**30}/0",
        "/records/0/-1",
        "/records/0/0/image?field=" + "x" * 5000,
        "/records/0/0%0A",
        "/%2e%2e/%2e%2e/etc/passwd",
    ],
)
def test_places_that_cannot_be(open_pages: OpenPages, broker: KafkaBroker, topic: str, address: str) -> None:
    assert open_pages(broker.client_config(), topic)(address).status == 404


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("partition=-1", 400),
        ("partition=nan", 400),
        ("partition=1e30", 400),
        (f"partition={10**30}", 400),
        (f"partition={2**31 - 1}", 404),
        (f"partition={'9' * 5000}", 400),
        ("offsets=-5", 200),  # up to 5
        (f"offsets={10**30}", 400),
        ("offsets=9999999999999999999", 404),
        ("from=nan", 400),
        ("from=-1", 400),
        ("from=999999999999999", 200),
        ("from=9999-12-31T23:59", 200),
        ("from=0001-01-01T00:00%2B23:59", 200),
        ("at=-1:-1&to=newer", 200),
        ("at=0:9999999999999999999&to=newer", 200),
        ("at=" + "0:1," * 5000 + "0:1", 200),
        ("to=sideways", 200),
        ("key=%00%ff%1b", 200),
        ("check=1&check=2", 200),
        ("x" * 20_000, 200),
    ],
)
def test_odd_questions(open_pages: OpenPages, broker: KafkaBroker, topic: str, query: str, status: int) -> None:
    confluent_kafka.Producer(broker.client_config()).produce(topic, b"x")
    assert open_pages(broker.client_config(), topic)(f"/?{query}").status == status


def test_a_topic_that_is_deleted_meanwhile(open_pages: OpenPages, broker: KafkaBroker, topic: str) -> None:
    producer = confluent_kafka.Producer(broker.client_config())
    producer.produce(topic, b"x")
    producer.flush(30)
    ask = open_pages(broker.client_config(), topic)
    assert ask("/").status == 200
    admin = AdminClient(broker.client_config())
    [deleted] = admin.delete_topics([topic]).values()
    deleted.result(30)
    deadline = time.monotonic() + 60
    while topic in admin.list_topics(timeout=30).topics:
        assert time.monotonic() < deadline
    for address in ("/", "/?check=1", "/records/0/0", "/records/0/0/value"):
        page = ask(address)
        assert (page.status, "Unknown topic" in page.text) == (404, True)


def test_half_of_a_surrogate_pair(
    open_pages: OpenPages, broker: KafkaBroker, config: dict[str, Any], topic: str
) -> None:
    digest = f"sha256:{64 * '0'}"
    header = json.dumps([{"path": "\ud800", "size": 1, "digest": digest}]).encode()
    producer = confluent_kafka.Producer(broker.client_config())
    producer.produce(topic, b"{}", headers=[("large-fields", header)])
    producer.flush(30)
    ask = open_pages({**config, "value.deserializers": "json, large-fields"}, topic)
    for address in ("/", "/?check=1", "/records/0/0"):
        page = ask(address)
        assert page.status == 200
        assert "a path has half of a surrogate pair" in page.text
    other = png(8, 8, lambda _x, _y: 7)
    image = png(8, 8, lambda _x, _y: 9)
    # As a stage of one's own reads them.
    value = {"a\ud801": other, "a\ud800 &?": image}
    ask = open_pages({**config, "value.deserializers": [lambda _data, _ctx: value]}, topic)
    for address in ("/", "/records/0/0", "/search?contains=a"):
        assert ask(address).status == 200
    sources = re.findall(r'<img src="([^"]+)"', ask("/records/0/0").text)
    assert [ask(html.unescape(source)).body for source in sources] == [other, image]
    assert ask("/records/0/0/image?field=%ff%ed%a0").status == 404


def bomb(width: int, height: int) -> bytes:
    """The beginning of a picture that would be large; a browser makes room for all of it."""
    head = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR" + head + struct.pack(">I", zlib.crc32(b"IHDR" + head))


def test_pictures_with_too_many_pixels_are_not_shown(open_pages: OpenPages, config: dict[str, Any], topic: str) -> None:
    config |= {"value.serializers": "bytes", "value.deserializers": "bytes"}
    cut = png(8, 8, lambda _x, _y: 0)[:20]
    pictures = (bomb(50_000, 50_000), b"GIF89a\xff\xff\xff\xff" + bytes(20), cut, b"\xff\xd8\xff", bomb(8, 8))
    produce(config, topic, *((None, picture) for picture in pictures))
    ask = open_pages(config, topic)
    for offset in range(2):
        page = ask(f"/records/0/{offset}").text
        assert "<img" not in page
        assert "save</a>" in page
        assert ask(f"/records/0/{offset}/image?field=").headers["content-disposition"].startswith("attachment")
    assert "<img" in ask("/records/0/4").text


def test_only_the_head_of_a_payload(
    open_pages: OpenPages, config: dict[str, Any], topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("serde_chain.cli.browse.app.blocks")
    produce(config, topic, (None, {"noise": os.urandom(2000).hex()}))
    answer = open_pages(config, topic)("/records/0/0/payload", method="HEAD")
    assert (answer.status, answer.body) == (200, b"")
    assert answer.headers["content-disposition"].endswith('.zst"')


@pytest.mark.full
def test_a_signal_ends_it_in_order_while_payloads_come(broker: KafkaBroker, topic: str, tmp_path: Path) -> None:
    (tmp_path / "client.toml").write_text(
        f'"bootstrap.servers" = "{broker.bootstrap_servers}"\n"value.serializers" = "bytes, large-message"\n'
        f'"value.deserializers" = "large-message, bytes"\n"large.message.payload.store.class" = "local"\n'
        f'"local.path" = "{tmp_path}"\n'
    )
    with Producer(tmp_path / "client.toml") as producer:
        producer.produce(topic, bytes(4 * MOST_BYTES))
    for number in (signal.SIGTERM, signal.SIGINT):
        pipe = subprocess.PIPE
        # uvicorn leaves connections that it has cut off to the garbage collector.
        unclosed = ("-W", "ignore:unclosed transport:ResourceWarning")
        command = [*COMMAND[:-2], *unclosed, *COMMAND[-2:], "browse", str(tmp_path / "client.toml"), topic]
        with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment()) as process:
            try:
                assert process.stdout is not None
                link = urlsplit(process.stdout.readline().strip())
                assert link.port is not None
                server = http.client.HTTPConnection("127.0.0.1", link.port, timeout=60)
                server.request("GET", f"/?{link.query}")
                entry = server.getresponse()
                entry.read()
                cookie = str(entry.headers["set-cookie"]).partition(";")[0]
                server.request("GET", f"/topics/{topic}/records/0/0/payload", headers={"cookie": cookie})
                answer = server.getresponse()
                assert answer.read(4) == bytes(4)  # and no more
                process.send_signal(number)
                rest, errors = process.communicate(timeout=60)
                server.close()
            finally:
                process.kill()
        assert (process.returncode, rest, errors) == (0, "", ""), number


IMAGES = 20


def fits_bomb(width: int = 1000, height: int = 1000) -> bytes:
    """A gzipped FITS image of a KB or so, which claims a million pixels."""
    cards = {"SIMPLE": "T", "BITPIX": 8, "NAXIS": 2, "NAXIS1": width, "NAXIS2": height}
    head = "".join(f"{f'{name:<8}= {value:>20}':<80}" for name, value in cards.items()) + f"{'END':<80}"
    return gzip.compress(head.ljust(2880).encode() + bytes(width * height), mtime=0)


def test_pictures_are_drawn_alone_when_they_are_asked_for_and_in_threads(
    open_pages: OpenPages, broker: KafkaBroker, config: dict[str, Any], topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two records with twenty of them kept the event loop busy for half a minute."""
    config["value.deserializers"] = "msgpack"
    image = fits_bomb(500, 500)
    assert len(image) < 2000
    producer = confluent_kafka.Producer(broker.client_config())
    for _ in range(2):
        producer.produce(topic, msgpack.packb({f"cutout{at}": image for at in range(IMAGES)}))
    producer.flush(30)
    drawn: list[threading.Thread] = []
    rendered: list[threading.Thread] = []

    def noted_picture(data: bytes) -> bytes | None:
        drawn.append(threading.current_thread())
        return picture(data)

    def noted_summary(value: object) -> str:
        rendered.append(threading.current_thread())
        return type(value).__name__

    monkeypatch.setattr("serde_chain.cli.browse.preview.picture", noted_picture)
    templates_of_pages = templates()
    templates_of_pages.filters["summary"] = noted_summary
    monkeypatch.setattr("serde_chain.cli.browse.app.templates", lambda: templates_of_pages)
    ask = open_pages(config, topic)
    for place in ("", "/search?contains=cutout", "/newer?at="):
        assert ask(place).text.count("<img") == 2, place
    assert ask("/records/0/0").text.count("<img") == IMAGES
    assert drawn == []
    answer = ask("/records/0/0/image?field=.cutout7")
    assert (answer.status, answer.body[:4]) == (200, b"\x89PNG")
    assert len(drawn) == 1
    assert rendered
    assert threading.main_thread() not in {*drawn, *rendered}


def test_images_of_more_pixels_than_their_bytes_allow_are_only_saved(
    open_pages: OpenPages, broker: KafkaBroker, config: dict[str, Any], topic: str
) -> None:
    config["value.deserializers"] = "msgpack"
    producer = confluent_kafka.Producer(broker.client_config())
    producer.produce(topic, msgpack.packb({"cutout": fits_bomb()}))
    producer.flush(30)
    ask = open_pages(config, topic)
    assert "<img" not in ask("").text
    assert "<img" not in ask("/records/0/0").text
    assert ask("/records/0/0/image?field=.cutout").body == fits_bomb()
