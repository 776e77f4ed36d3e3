"""Schemas that refer to many others: in bounded number, without recursion, within one deadline; and strange answers."""

import json
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from serde_chain import DeserializerChain, RecordContext, SchemaRegistryError, SerializerChain
from serde_chain.schemas import deadline
from serde_chain.schemas.schema_references import MOST_REFERENCES, collected
from tests.http_servers import reply, serve

FRAMED = b"\0\0\0\0\1\2"
APICURIO = {"schema.registry.type": "apicurio"}


class Chained:
    """A registry in which each schema refers to the next one; both interfaces.

    Attributes:
        length: Number of schemas in the chain.
        pause_s: Seconds before each answer.
        asked: Number of requests.
        url: Its address.
    """

    def __init__(self) -> None:
        self.length, self.pause_s, self.asked, self.url = 3, 0.0, 0, ""
        self.shape = "chain"

    def _next(self, number: int) -> list[int]:
        if self.shape == "cycle":
            return [(number + 1) % self.length]
        if self.shape == "wide":
            return list(range(1, self.length)) if number == 0 else []
        return [number + 1] if number + 1 < self.length else []

    @staticmethod
    def _schema(number: int) -> str:
        return json.dumps({"type": "record", "name": f"R{number}", "fields": [{"name": "id", "type": "int"}]})

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        self.asked += 1
        time.sleep(self.pause_s)
        path = unquote(urlsplit(request.path).path)
        if path.startswith(("/ids", "/groups")):
            self._apicurio(request, path)
            return
        number = int(path.split("/")[2].partition("-")[0]) if path.startswith("/subjects") else 0
        references = [{"name": f"R{at}", "subject": str(at), "version": 1} for at in self._next(number)]
        found = {"id": number + 1, "version": 1, "schema": self._schema(number), "references": references}
        reply(request, 200, json.dumps(found).encode())

    def _apicurio(self, request: BaseHTTPRequestHandler, path: str) -> None:
        number = int(path.split("/")[4].partition("-")[0]) if path.startswith("/groups") else 0
        if path.endswith("/branch=latest"):
            reply(request, 200, json.dumps({"globalId": 1, "contentId": 1, "version": "1"}).encode())
        elif path.endswith("/references"):
            found: Any = [
                {"name": f"R{at}", "groupId": "g", "artifactId": str(at), "version": "1"} for at in self._next(number)
            ]
            reply(request, 200, json.dumps(found).encode())
        else:
            reply(request, 200, self._schema(number).encode())


@pytest.fixture
def chained() -> Iterator[Chained]:
    registry = Chained()
    with serve(registry.answer) as registry.url:
        yield registry


def read(url: str, **settings: object) -> Any:
    with DeserializerChain.from_config({"value.deserializer": "avro", "schema.registry.url": url, **settings}) as chain:
        return chain(FRAMED, RecordContext("alerts", "value", []))


def write_latest(url: str, **settings: object) -> Any:
    config = {"value.serializer": "avro", "schema.registry.url": url, "use.latest.version": True, **settings}
    with SerializerChain.from_config(config) as chain:
        return chain({"id": 1}, RecordContext("0", "value", []))


@pytest.mark.full
@pytest.mark.parametrize("settings", [{}, APICURIO], ids=["confluent", "apicurio"])
@pytest.mark.parametrize("shape", ["chain", "wide"])
def test_too_many_references_cost_one_record(chained: Chained, shape: str, settings: dict[str, str]) -> None:
    chained.shape, chained.length = shape, 1200
    with pytest.raises(SchemaRegistryError, match=f"more than {MOST_REFERENCES} others") as caught:
        read(chained.url, **settings)
    assert caught.value.about_record
    assert not caught.value.transient
    assert chained.asked < 2 * MOST_REFERENCES + 10


@pytest.mark.parametrize("settings", [{}, APICURIO], ids=["confluent", "apicurio"])
@pytest.mark.parametrize("shape", ["chain", "wide", "cycle"])
def test_some_references_are_read(chained: Chained, shape: str, settings: dict[str, str]) -> None:
    chained.shape, chained.length = shape, 40
    assert read(chained.url, **settings) == {"id": 1}
    assert chained.asked <= 2 * 40 + 2


@pytest.mark.parametrize("settings", [{}, APICURIO], ids=["confluent", "apicurio"])
@pytest.mark.parametrize("use", ["reader", "latest"])
def test_all_references_have_one_deadline(
    chained: Chained, use: str, settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deadline, "_DEADLINE_S", 0.5)
    chained.length, chained.pause_s = 900, 0.02
    started = time.monotonic()
    work = read if use == "reader" else write_latest
    with pytest.raises(SchemaRegistryError, match=r"no complete answer within 0\.5 s") as caught:
        work(chained.url, **settings)
    assert caught.value.transient
    assert not caught.value.about_record
    assert time.monotonic() - started < 10  # of 18 s


def test_a_question_that_is_given_up_asks_no_more(chained: Chained, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadline, "_DEADLINE_S", 0.2)
    chained.length, chained.pause_s = 900, 0.02
    with pytest.raises(SchemaRegistryError):
        read(chained.url)
    until = time.monotonic() + 10
    before = -1
    while chained.asked != before and time.monotonic() < until:
        before = chained.asked
        time.sleep(0.1)
    assert chained.asked < 100


def test_a_chain_of_any_length_is_followed() -> None:
    texts = {at: (str(at), [at + 1] if at < 50_000 else []) for at in range(1, 50_001)}
    assert list(collected([1], texts.__getitem__, most=50_000)) == list(range(50_000, 0, -1))


def test_schemas_that_several_refer_to_come_first_and_once() -> None:
    refers = {"a": ["b", "c"], "b": ["c"], "c": ["d"], "d": ["b"]}
    found = list(collected(["a"], lambda name: (name, refers[name])))
    assert sorted(found) == ["a", "b", "c", "d"]
    assert found[-1] == "a"


STRANGE = {
    "a list": [],
    "a text": "schema",
    "a number": 7,
    "nothing": None,
    "no schema": {},
    "a schema that is a number": {"schema": 7},
    "a schema that is null": {"schema": None},
    "references that are a number": {"schema": '"int"', "references": 7},
    "a reference without a subject": {"schema": '"int"', "references": [{"name": "a"}]},
    "a reference with a version that is a text": {
        "schema": '"int"',
        "references": [{"name": "a", "subject": "a", "version": "one"}],
    },
    "rules that are a number": {"schema": '"int"', "ruleSet": 7},
    "a rule of an unknown mode": {"schema": '"int"', "ruleSet": {"domainRules": [{"name": "a", "mode": "X"}]}},
    "an error that is a list": (404, []),
}


@pytest.mark.parametrize("name", STRANGE)
@pytest.mark.parametrize("use", ["reader", "latest"])
def test_what_no_registry_answers_is_neither_an_outage_nor_about_a_record(name: str, use: str) -> None:
    answer: Any = STRANGE[name]
    status, body = answer if isinstance(answer, tuple) else (200, answer)
    with serve(lambda request: reply(request, status, json.dumps(body).encode())) as url:
        work = read if use == "reader" else write_latest
        with pytest.raises(SchemaRegistryError) as caught:
            work(url)
    assert not caught.value.transient
    assert not caught.value.about_record


@pytest.mark.parametrize("body", ["[]", "7", '{"versions": 7}', '{"version": 7}', '"text"', "null"])
def test_what_apicurio_never_answers(body: str) -> None:
    with serve(lambda request: reply(request, 200, body.encode())) as url:
        config = {"schema.registry.url": url, **APICURIO, "value.serializer": "avro", "avro.schema": '"int"'}
        for more in ({}, {"use.latest.version": True}, {"auto.register.schemas": False}):
            with (
                SerializerChain.from_config({**config, **more}) as write,
                pytest.raises(SchemaRegistryError) as caught,
            ):
                write(1, RecordContext("alerts", "value", []))
            assert not caught.value.transient
            assert not caught.value.about_record
