"""chain.begin: I/O is told before it is done, done where the caller likes, and gone on with in the record's thread."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.serialization import MessageField, SerializationContext

from payload_stores import PayloadNotFoundError, PayloadStoreUnavailableError
from payload_stores.memory import MemoryStore
from serde_chain import DeserializerChain, EncodeError, RecordContext, SerializationError, Serializer, SerializerChain
from serde_chain.base import SupportsOffload
from serde_chain.clients.client_limits import ClientLimits, TopicLimit
from serde_chain.stages.large_message.write import LargeMessageSerializer
from serde_chain.transfer import Question, Transfer, answered, finish, then

LARGE = b"x" * 2000


class Watched(MemoryStore):
    """Notes in which threads it is called."""

    calls: list[tuple[str, threading.Thread]]
    is_away = False

    def publish(self, topic: str, data: Any, context: Any = None) -> str:
        self.calls.append(("publish", threading.current_thread()))
        if self.is_away:
            raise PayloadStoreUnavailableError("the store is away", store="memory")
        return super().publish(topic, data, context)

    def download(self, reference: str) -> bytes:
        self.calls.append(("download", threading.current_thread()))
        return super().download(reference)


@pytest.fixture
def store() -> Iterator[Watched]:
    store = Watched()
    store.configure({})
    store.calls = []
    yield store
    store.close()


def config(store: Watched, **more: object) -> dict[str, object]:
    return {
        "value.serializers": "bytes, large-message",
        "value.deserializers": "large-message, bytes",
        "large.message.payload.store.class": store,
        "large.message.threshold.bytes": 1000,
        **more,
    }


def record() -> RecordContext:
    return RecordContext("t", "value", [("user", b"1")])


def test_a_small_record_needs_no_transfer(store: Watched) -> None:
    chain = SerializerChain.from_config(config(store))
    assert chain.begin(b"small", record()) == b"small"
    assert chain.begin(None, record()) is None


def test_nothing_is_published_before_the_transfer_runs(store: Watched) -> None:
    chain, ctx = SerializerChain.from_config(config(store)), record()
    step = chain.begin(LARGE, ctx)
    assert isinstance(step, Transfer)
    assert (store.calls, ctx.headers, step.size) == ([], [("user", b"1")], len(LARGE))
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(step.run()))
    thread.start()
    thread.join(10)
    assert [name for name, _ in store.calls] == ["publish"]
    assert ctx.headers == [("user", b"1")], "a transfer touches no record"
    placeholder = step.resume(results[0])
    assert placeholder.startswith(b"memory://")
    assert ("large-message", b"true") in (ctx.headers or [])

    reader = DeserializerChain.from_config(config(store))
    fetching = reader.begin(placeholder, ctx)
    assert isinstance(fetching, Transfer)
    assert [name for name, _ in store.calls] == ["publish"]
    assert (fetching.size, fetching.key is not None) == (len(LARGE), True)
    assert fetching.resume(fetching.run()) == LARGE
    assert ctx.headers == [("user", b"1")]


def test_calling_a_chain_runs_its_transfers_on_the_spot(store: Watched) -> None:
    ctx = record()
    placeholder = SerializerChain.from_config(config(store))(LARGE, ctx)
    assert DeserializerChain.from_config(config(store))(placeholder, ctx) == LARGE


def test_one_run_serves_all_with_the_same_key(store: Watched) -> None:
    first, second = record(), record()
    chain = SerializerChain.from_config(config(store, **{"large.message.id": "content"}))
    placeholders = [chain(LARGE, ctx) for ctx in (first, second)]
    reader = DeserializerChain.from_config(config(store))
    steps = [reader.begin(data, ctx) for data, ctx in zip(placeholders, (first, second), strict=True)]
    assert steps[0].key == steps[1].key
    # Another stage may trust other stores, so it does not share what this one fetches.
    again = RecordContext("t", "value", first.headers)
    other = DeserializerChain.from_config(config(store)).begin(placeholders[0], again)
    assert other.key != steps[0].key
    payload = steps[0].run()
    assert [step.resume(payload) for step in steps] == [LARGE, LARGE]


def test_work_keeps_no_deadline_of_its_own(store: Watched) -> None:
    step = SerializerChain.from_config(config(store)).begin(LARGE, record())
    step.work()
    assert store.calls == [("publish", threading.current_thread())], "no other thread keeps the time"


def test_errors_of_a_transfer_have_their_place(store: Watched) -> None:
    store.is_away = True
    chain = SerializerChain.from_config(config(store))
    step = chain.begin(LARGE, record())
    with pytest.raises(SerializationError, match=r"topic=t, field=value, stage=large-message \(2 of 2\)") as caught:
        step.run()
    assert not caught.value.about_record
    assert isinstance(caught.value.__cause__, PayloadStoreUnavailableError)


def test_errors_of_what_comes_after_a_transfer_have_their_place(store: Watched) -> None:
    ctx = record()
    placeholder = SerializerChain.from_config(config(store))(b"\xff" * 2000, ctx)
    reader = DeserializerChain.from_config(config(store, **{"value.deserializers": "large-message, string"}))
    step = reader.begin(placeholder, ctx)
    payload = step.run()
    with pytest.raises(SerializationError, match=r"stage=string \(2 of 2\)"):
        step.resume(payload)


class Topics:
    """Limits that are not known before they were asked for."""

    def __init__(self, limit: TopicLimit) -> None:
        self.asked: list[str] = []
        self.limit = limit

    def known(self, topic: str) -> TopicLimit | None:
        return self.learn(topic) if topic in self.asked else None

    def forget(self, topic: str) -> None:
        raise AssertionError(topic)

    def learn(self, topic: str) -> TopicLimit:
        self.asked.append(topic)
        return self.limit


def test_a_limit_is_asked_for_before_anything_is_published(store: Watched) -> None:
    chain = SerializerChain.from_config(config(store, **{"large.message.threshold.bytes": "auto"}))
    topics = Topics(TopicLimit(15_000, compacted=True))
    limited = chain.with_limits(ClientLimits(1_000_000, 0, topics, is_key=False))
    assert limited.begin(b"too small for a question", record()) == b"too small for a question"
    question = limited.begin(LARGE * 10, record())
    assert isinstance(question, Transfer)
    assert (topics.asked, store.calls) == ([], [])
    upload = question.resume(question.run())
    assert isinstance(upload, Transfer)
    assert store.calls == []
    assert upload.resume(upload.run()).startswith(b"memory://")
    assert limited.begin(b"small", record()) == b"small"


def test_a_described_chain_gives_its_transfers(store: Watched) -> None:
    settings = config(
        store,
        **{"serde.chain.describe": True, "serde.chain.allow": "bytes, large-message", "value.deserializers": "auto"},
    )
    ctx = record()
    placeholder = SerializerChain.from_config(settings)(LARGE, ctx)
    step = DeserializerChain.from_config(settings).begin(placeholder, ctx)
    assert isinstance(step, Transfer)
    assert (step.size, step.key is not None) == (len(LARGE), True)
    assert "serde-chain" in dict(ctx.headers or [])
    assert step.resume(step.run()) == LARGE
    assert ctx.headers == [("user", b"1")]


class Doubling(Serializer[bytes]):
    """A stage of another author that waits for something, twice."""

    class Wait(Transfer[int]):
        def __init__(self, go_on: Any) -> None:
            self.go_on = go_on

        def run(self) -> int:
            return 2

        def resume(self, result: int, /) -> Any:
            return self.go_on(result)

    takes = gives = None

    def begin(self, data: bytes, _ctx: Any, /) -> Any:
        return self.Wait(lambda times: self.Wait(lambda again: data * times * again))

    def __call__(self, data: Any, ctx: Any = None, /) -> Any:
        return None if data is None else finish(self.begin(data, ctx))


def test_stages_of_others_may_wait_more_than_once() -> None:
    def upper(data: bytes, _ctx: Any) -> bytes:
        return data.upper()

    chain = SerializerChain([Doubling(), upper])
    step: Any = chain.begin(b"a", record())
    steps = 0
    while isinstance(step, Transfer):
        step, steps = step.resume(step.run()), steps + 1
    assert (step, steps) == (b"AAAA", 2)
    assert chain(b"b", record()) == b"BBBB"


def test_a_subclass_that_overrides_the_call_is_called() -> None:
    class Other(Doubling):
        def __call__(self, data: Any, ctx: Any = None, /) -> Any:
            return b"other"

    assert SerializerChain([Other()])(b"a", record()) == b"other"


def test_a_subclass_that_overrides_begin_is_asked_of_small_records_too(store: Watched) -> None:
    class Marking(LargeMessageSerializer):
        def begin(self, data: Any, ctx: Any, /) -> Any:
            return then(super().begin(data, ctx), lambda given: given + b"!")

    stage = Marking()
    stage.configure(config(store), is_key=False)
    chain = SerializerChain([stage])
    assert chain.plain is None
    ctx = RecordContext("t", "value")
    assert chain(b"small", ctx) == stage(b"small", ctx) == b"small!"


def test_then_goes_on_now_or_later() -> None:
    assert then(1, lambda data: data + 1) == 2
    assert finish(then(Doubling.Wait(lambda n: n), lambda data: data + 1)) == 3


def test_a_call_waits_for_answers_that_lead_to_answers() -> None:
    question = Question(lambda: b"answer", bytes.upper, key="k", within_call=True)
    step = answered(answered(question, lambda data: data + b"!"), lambda data: [data])
    assert finish(step) == [b"ANSWER!"]


def test_nothing_is_published_for_a_record_that_cannot_bear_headers(store: Watched) -> None:
    chain = SerializerChain.from_config(config(store))
    foreign = SerializationContext("t", MessageField.VALUE)
    with pytest.raises(EncodeError, match="without a list of headers"):
        chain(LARGE, foreign)
    assert store.calls == []


def test_the_mark_of_what_stays_in_the_record_counts_for_the_limit(store: Watched) -> None:
    flags = {"large.message.format": "bakdata-flag", "large.message.threshold.bytes": 1048576}
    room = 600
    limits = ClientLimits(room + 36, 0, None, is_key=False)
    chain = SerializerChain.from_config(config(store, **flags))
    limited = chain.with_limits(limits)
    context = RecordContext("t", "value")
    assert limited(b"x" * (room - 1), context) == b"\0" + b"x" * (room - 1)
    assert store.calls == []
    assert limited(b"x" * room, context).startswith(b"\1")


def test_only_hop_asks_whether_the_user_may_see_the_limit(store: Watched) -> None:
    chain = SerializerChain.from_config(config(store, **{"large.message.threshold.bytes": "auto"}))
    limits = ClientLimits(1000, 0, Topics(TopicLimit(denied=True)), is_key=False)
    assert finish(chain.with_limits(limits).begin(LARGE, record())).startswith(b"memory://")


@pytest.mark.parametrize(("ids", "alone"), [("random", True), ("content", False)])
def test_a_driver_learns_what_it_may_delete(store: Watched, ids: str, *, alone: bool) -> None:
    chain = SerializerChain.from_config(config(store, **{"large.message.id": ids}))
    step = chain.begin(LARGE, record())
    assert isinstance(step, Transfer)
    place = step.places()
    result = step.run()
    reference = bytes(finish(step.resume(result))).decode()
    assert place == step.made(result) == ((reference,) if alone else ())
    (stage,) = [stage for stage in chain.stages if isinstance(stage, SupportsOffload)]
    assert stage.owns(reference)
    stage.delete(reference)
    stage.delete(reference)
    with pytest.raises(PayloadNotFoundError):
        store.download(reference)


def test_ids_that_a_store_makes_of_payloads_may_be_shared() -> None:
    class ByLength(Watched):
        def id(self, data: Any, context: Any = None) -> str:
            return f"by-length/{len(data)}"

    store = ByLength()
    store.configure({})
    store.calls = []
    step = SerializerChain.from_config(config(store)).begin(LARGE, record())
    assert isinstance(step, Transfer)
    assert step.places() == ()
    assert step.made(step.run()) == ()


def test_what_cannot_be_undone_does_not_hide_the_error(caplog: pytest.LogCaptureFixture) -> None:
    class Made(Transfer[str]):
        def run(self) -> str:
            return "memory:///alerts/1"

        def made(self, result: str, /) -> tuple[str, ...]:
            return (result,)

        def resume(self, result: str, /) -> Any:
            raise EncodeError("a later stage failed")

    def undo(_reference: str) -> None:
        raise KeyError("the store's own error")

    with pytest.raises(EncodeError, match="a later stage failed"):
        finish(Made(), undo)
    [logged] = caplog.records
    assert "the store's own error" in logged.getMessage()
    [error] = logged.args or ()
    assert isinstance(error, KeyError)
    assert error.__traceback__ is None, "its frames hold the payload, and logs keep their records"
