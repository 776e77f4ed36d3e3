"""Errors: what they say, what they are, and that they survive pickling."""

import copy
import gzip
import pickle
from collections.abc import Callable
from email.message import Message
from urllib.error import HTTPError

import pytest

import payload_stores
import serde_chain
from serde_chain import (
    ConfigError,
    DecodeError,
    DeserializerChain,
    JournalError,
    PayloadNotFoundError,
    PayloadStoreUnavailableError,
    RecordContext,
    SerializationError,
    TopicLimitError,
    UntrustedReferenceError,
)
from serde_chain.errors import ContextualError, PayloadStoreError, in_chain, is_about_record

KINDS = [
    getattr(serde_chain, name)
    for name in dir(serde_chain)
    if isinstance(getattr(serde_chain, name), type) and issubclass(getattr(serde_chain, name), ContextualError)
]


def travelled(error: ContextualError) -> ContextualError:
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert isinstance(copy, ContextualError)
    return copy


@pytest.mark.parametrize("kind", KINDS)
def test_every_error_survives_pickling(kind: type[ContextualError]) -> None:
    context = dict.fromkeys(kind.context_fields, "here")
    error = kind("it failed", hint="Do this", **context)
    error.__cause__ = ValueError("why")
    arrived = travelled(error)
    assert type(arrived) is kind
    assert str(arrived) == str(error)
    assert arrived.context == context
    assert repr(arrived.__cause__) == "ValueError('why')"


@pytest.mark.parametrize("kind", [kind for kind in KINDS if issubclass(kind, PayloadStoreError)])
def test_a_stores_error_in_a_chain_is_both_kinds(kind: type[PayloadStoreError]) -> None:
    original = kind("it failed", hint="Do this", store="s3", reference="s3://b/t/1")
    error = in_chain(original)
    for arrived in (error, travelled(error), travelled(travelled(error))):
        assert isinstance(arrived, SerializationError)
        assert isinstance(arrived, kind)
        assert type(arrived).__name__ == kind.__name__
        assert arrived.add_context(stage="large-message (1 of 1)").stage == "large-message (1 of 1)"
        assert (arrived.store, arrived.reference, arrived.transient) == ("s3", "s3://b/t/1", kind.transient)
        assert isinstance(arrived.__cause__, kind)
        assert not isinstance(arrived.__cause__, SerializationError)
    assert error.__cause__ is original


def test_only_what_was_out_of_reach_is_transient() -> None:
    transient = [kind for kind in KINDS if getattr(kind, "transient", False)]
    assert transient == [JournalError, PayloadStoreUnavailableError, TopicLimitError]


def test_faults_of_a_record_differ_from_outages() -> None:
    about_records = {kind.__name__ for kind in KINDS if kind.about_record}
    assert about_records == {
        "DecodeError",
        "DecryptionError",
        "EncodeError",
        "ForeignFormatError",
        "MessageTooLargeError",
        "PayloadIntegrityError",
        "PayloadNotFoundError",
        "PayloadRetractedError",
        "PayloadTooLargeError",
        "UnknownKeyError",
        "UntrustedReferenceError",
    } & {kind.__name__ for kind in KINDS}
    assert {"DecodeError", "PayloadNotFoundError", "UntrustedReferenceError"} <= about_records


@pytest.mark.parametrize("travel", [travelled, copy.copy, copy.deepcopy])
def test_what_one_error_says_of_itself_travels_with_it(travel: Callable[[ContextualError], ContextualError]) -> None:
    refused = serde_chain.SchemaRegistryError("no answer")
    refused.transient = True
    unknown = serde_chain.SchemaRegistryError("no such schema")
    unknown.about_record = True
    missing = PayloadNotFoundError("no such bucket")
    missing.about_record = False
    for error in (refused, unknown, missing, in_chain(missing)):
        arrived = travel(error)
        assert (arrived.transient, arrived.about_record) == (error.transient, error.about_record)


def test_a_cause_that_cannot_travel_becomes_its_text() -> None:
    class ForeignError(Exception):
        def __init__(self, one: int, two: int) -> None:
            super().__init__(f"{one} {two}")

    error = DecodeError("it failed")
    error.__cause__ = ForeignError(1, 2)
    assert repr(travelled(error).__cause__) == "RuntimeError('ForeignError: 1 2')"


def test_the_record_does_not_travel() -> None:
    error = DecodeError("it failed", topic="t", partition=1, offset=2)
    error.record = lambda: None
    arrived = travelled(error)
    assert isinstance(arrived, DecodeError)
    assert (arrived.record, arrived.topic, arrived.partition, arrived.offset) == (None, "t", 1, 2)


def test_an_error_about_what_is_no_unicode_text_can_be_printed() -> None:
    config = {
        "value.deserializers": "large-message, bytes",
        "large.message.payload.store.class": "hop",
        "large.message.accept": "hop",
        "hop.offload.url": "https://offload.example.org",
        "hop.username": "alice",
        "hop.password": "secret",
    }
    ctx = RecordContext("t", "value", [("_format", b"external")])
    with DeserializerChain.from_config(config) as chain, pytest.raises(UntrustedReferenceError) as refused:
        chain(b'{"url": "https://offload.example.org/msg/\\ud800"}', ctx)
    assert b"reference=https://offload.example.org/msg/\\ud800" in str(refused.value).encode()


def test_what_is_known_stays_when_more_is_added() -> None:
    error = DecodeError("it failed", stage="inner").add_context(stage="outer", topic="t", unheard_of="ignored")
    assert str(error) == "it failed [topic=t, stage=inner]"
    with pytest.raises(TypeError, match="no context"):
        DecodeError("it failed", unheard_of="refused")


def test_built_in_kinds_catch_them_too() -> None:
    assert issubclass(ConfigError, ValueError)
    assert issubclass(serde_chain.MissingDependencyError, ImportError)
    assert serde_chain.PayloadNotFoundError is payload_stores.PayloadNotFoundError is PayloadNotFoundError


def raised_from(error: Exception, cause: BaseException | None) -> Exception:
    error.__cause__ = cause
    return error


def test_what_other_packages_raise_is_the_records_fault_unless_a_service_or_the_machine_is_at_fault() -> None:
    from confluent_kafka.schema_registry.error import SchemaRegistryError
    from httpx2 import ConnectError, HTTPStatusError, Request, Response

    world = [
        ConnectionRefusedError(111, "refused"),
        TimeoutError(),
        MemoryError(),
        PermissionError(13, "denied"),
        ConnectError("refused"),
        SchemaRegistryError(401, 401, "who are you"),
        SchemaRegistryError(404, -1, "another server's page"),
        PayloadStoreUnavailableError("down"),
    ]
    records = [
        ValueError("bad"),
        gzip.BadGzipFile("Not a gzipped file"),
        SchemaRegistryError(404, 40403, "Schema not found"),
        PayloadNotFoundError("gone"),
    ]
    for error in world:
        assert not is_about_record(error)
        assert not is_about_record(raised_from(RuntimeError("wrapped"), error))
    for error in records:
        assert is_about_record(error)
        assert is_about_record(raised_from(RuntimeError("wrapped"), error))
    for status, is_the_records in ((400, True), (404, True), (401, False), (403, False), (429, False), (503, False)):
        answer = Response(status, request=Request("GET", "http://localhost/"))
        refused = HTTPStatusError("refused", request=answer.request, response=answer)
        plain = HTTPError("http://localhost/", status, "refused", Message(), None)
        assert [is_about_record(refused), is_about_record(plain)] == [is_the_records] * 2
        plain.close()
    circle = ValueError("round")
    assert is_about_record(raised_from(circle, raised_from(ValueError("and round"), circle)))
