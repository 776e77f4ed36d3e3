"""Stores whose methods take the KIP's arguments, all of the contract's, or something else."""

import functools
import pickle
from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

from payload_stores import ConfigError, PayloadStore, PublishContext, open_store
from payload_stores.kip1159 import KipStore
from payload_stores.memory import MemoryStore
from payload_stores.middleware import Cache, Deadline, Middleware, Mirror, Retry
from payload_stores.mirror import MirrorStore
from payload_stores.testing import PayloadStoreTests

CONTENT = PublishContext("content")


class Shelf:
    """Exactly KIP-1159's interface, with its Java names."""

    payloads: ClassVar[dict[str, bytes]] = {}
    configured: ClassVar[list[object]] = []
    closed: ClassVar[list[object]] = []

    def configure(self, configs: Mapping[str, object]) -> None:
        self.configured.append(configs["shelf.room"])

    def publish(self, topic: str, data: bytes) -> str:
        full_path = f"shelf/{topic}/{self.id(data)}"
        self.payloads[full_path] = data
        return full_path

    def download(self, fullPath: str) -> bytes:  # noqa: N803  the KIP's name
        return self.payloads[fullPath]

    def id(self, data: bytes) -> str:
        return f"{len(data)}-{hash(data)}"

    def close(self) -> None:
        self.closed.append(self)


def test_a_class_with_the_kips_methods_is_a_store() -> None:
    store = open_store({"class": Shelf, "shelf.room": "hall"}, {})
    assert Shelf.configured[-1] == "hall"
    reference = f"shelf/alerts/7-{hash(b'payload')}"
    for data in (b"payload", bytearray(b"payload"), memoryview(b"payload")):
        assert store.publish("alerts", data, CONTENT) == reference
        assert type(Shelf.payloads[reference]) is bytes
        assert store.download_verified(reference, size=7) == b"payload"
    assert store.id(b"payload", CONTENT) == f"7-{hash(b'payload')}"
    assert (store.scheme, store.owns(reference), store.follows_context) == ("shelf", True, False)
    store.close()
    assert len(Shelf.closed) == 1


def test_a_configured_instance_is_not_configured_again() -> None:
    shelf, before = Shelf(), len(Shelf.configured)
    store = pickle.loads(pickle.dumps(open_store(shelf, {})))  # noqa: S301  our own
    assert store.download(store.publish("alerts", b"payload")) == b"payload"
    assert len(Shelf.configured) == before


def test_only_publish_and_download_are_required() -> None:
    class Bare:
        def publish(self, topic: str, data: bytes) -> str:
            return data.decode()

        def download(self, full_path: str) -> bytes:
            return full_path.encode()

    store = open_store(Bare, {"large.message.max.payload.bytes": 3})
    assert store.publish("alerts", b"abc") == "abc"
    assert store.id(b"") != store.id(b"")
    with pytest.raises(Exception, match="more than the 3 that may be read"):
        store.download("abcd")
    store.close()


# The base class's publish, and other ways to define the three methods: each stores under the topic, with the id "7".


class Positional(MemoryStore):
    def publish(self, topic: str, data: Any, /) -> str:  # type: ignore[override]
        return super().publish(topic, data, PublishContext(payload_id="7"))


class OtherNames(MemoryStore):
    def publish(self, t: str, payload: Any) -> str:  # type: ignore[override]
        return super().publish(t, payload, PublishContext(payload_id="7"))

    def download(self, fullPath: str) -> bytes:  # noqa: N803
        return super().download(fullPath)


class OnlyNamed(MemoryStore):
    def publish(self, *, topic: str, data: Any) -> str:  # type: ignore[override]
        return super().publish(topic, data, PublishContext(payload_id="7"))

    def download(self, *, full_path: str) -> bytes:  # type: ignore[override]
        return super().download(full_path)


class OwnOption(MemoryStore):
    """A further parameter with a default is not the context."""

    def publish(self, topic: str, data: Any, copies: int = 1, *, name: str = "7") -> str:  # type: ignore[override]
        assert copies == 1
        return super().publish(topic, data, PublishContext(payload_id=name))


class Static(MemoryStore):
    @staticmethod
    def publish(topic: str, data: Any) -> str:  # type: ignore[override]
        return open_store("memory", {}).publish(topic, data, PublishContext(payload_id="7"))


class OfClass(MemoryStore):
    @classmethod
    def publish(cls, topic: str, data: Any) -> str:  # type: ignore[override]
        return open_store("memory", {}).publish(topic, data, PublishContext(payload_id="7"))


class OnlyId(MemoryStore):
    """The KIP's own way to change ids; the inherited publish calls it with the context."""

    def id(self, data: Any) -> str:  # type: ignore[override]
        return str(len(data))


class Mixin:
    def id(self, data: Any) -> str:
        return str(len(data))


class Mixed(Mixin, MemoryStore):  # type: ignore[misc]
    pass


def logged(function: Any) -> Any:
    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        return function(*arguments, **named)

    return call


def narrow(function: Any) -> Any:
    @functools.wraps(function)
    def call(self: Any, topic: str, data: Any) -> Any:
        return function(self, topic, data)

    return call


class Narrowed(MemoryStore):
    """The decorator takes less than the function in it."""

    @narrow
    def publish(self, topic: str, data: Any, context: Any = PublishContext(payload_id="7")) -> str:  # noqa: B008
        return super().publish(topic, data, context)


class Decorated(MemoryStore):
    @logged
    def publish(self, topic: str, data: Any) -> str:
        return super().publish(topic, data, PublishContext(payload_id="7"))


class Below(Positional):
    def download(self, reference: str) -> bytes:
        return super().download(reference)


WITHOUT_CONTEXT = [Positional, OtherNames, OnlyNamed, OwnOption, Static, OfClass, Decorated, Narrowed, Below]


@pytest.mark.parametrize("cls", [*WITHOUT_CONTEXT, OnlyId, Mixed])
@pytest.mark.parametrize("made", ["opened", "instance", "cached", "retried", "in time"])
def test_what_a_method_does_not_take_is_not_passed(cls: type[PayloadStore], made: str) -> None:
    opened = open_store(cls if made == "opened" else cls(), {})
    layers: dict[str, Any] = {"cached": lambda: Cache(opened, 100), "retried": lambda: Retry(opened)}
    store: PayloadStore = layers.get(made, lambda: opened)()
    store = Deadline(store, 10_000) if made == "in time" else store
    for context in (None, CONTENT, PublishContext("keyed", key=b"k")):
        reference = store.publish("alerts", b"payload", context)
        assert reference == "memory:///alerts/7"
        assert store.download(reference) == store.download_verified(reference, size=7) == b"payload"
    assert store.follows_context is (cls not in WITHOUT_CONTEXT)
    assert open_store(opened, {}) is opened


class All(MemoryStore):
    seen: ClassVar[list[object]] = []

    def publish(self, *arguments: Any, **named: Any) -> str:
        self.seen.append(arguments[2] if len(arguments) > 2 else named.get("context"))
        return super().publish(*arguments, **named)


class Named(MemoryStore):
    seen: ClassVar[list[object]] = []

    def publish(self, topic: str, data: Any, **named: Any) -> str:  # type: ignore[override]
        self.seen.append(named.get("context"))
        return super().publish(topic, data, **named)


class NamedContext(MemoryStore):
    seen: ClassVar[list[object]] = []

    def publish(self, topic: str, data: Any, *, context: PublishContext | None = None) -> str:  # type: ignore[override]
        self.seen.append(context)
        return super().publish(topic, data, context)


class OtherName(MemoryStore):
    seen: ClassVar[list[object]] = []

    def publish(self, topic: str, data: Any, ctx: Any = None) -> str:
        self.seen.append(ctx)
        return super().publish(topic, data, ctx)


@pytest.mark.parametrize("cls", [All, Named, NamedContext, OtherName])
def test_what_a_method_takes_is_passed(cls: Any) -> None:
    store = open_store(cls, {})
    store.publish("alerts", b"payload", CONTENT)
    assert cls.seen == [CONTENT]
    assert store.follows_context


def test_methods_that_take_everything_are_called_as_they_are() -> None:
    class Full(MemoryStore):
        def publish(self, topic: str, data: Any, context: PublishContext | None = None) -> str:
            return super().publish(topic, data, context)

    publish, identify = Full.publish, MemoryStore.id
    assert open_store(Full, {}).publish.__func__ is publish  # type: ignore[attr-defined]
    assert vars(Full)["publish"] is publish
    assert MemoryStore.id is identify is PayloadStore.id


def test_a_function_of_c_without_a_signature_gets_all_of_its_contract() -> None:
    class OfC:
        publish = staticmethod(max)
        download = staticmethod(bytes.fromhex)

    class Whole(MemoryStore):
        publish = staticmethod(max)  # type: ignore[assignment]

    # The message names one of the arguments, of two or of three.
    with pytest.raises(TypeError, match="'bytes' and 'str'"):
        KipStore(OfC(), "OfC").publish("alerts", b"", CONTENT)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="'bytes' and 'str'"):
        open_store(Whole, {}).publish("alerts", b"", CONTENT)
    assert KipStore(OfC(), "OfC").download("00") == b"\0"  # type: ignore[arg-type]
    assert not KipStore(OfC(), "OfC").follows_context  # type: ignore[arg-type]


def undecorated(function: Any) -> Any:
    """A decorator that does not say what the function takes."""

    def call(*arguments: Any) -> Any:
        return function(*arguments)

    return call


def with_options(function: Any) -> Any:
    def call(self: Any, topic: str, data: bytes, **named: Any) -> Any:
        return function(self, topic, data, **named)

    return call


@pytest.mark.parametrize("decorator", [undecorated, with_options])
def test_a_decorator_does_not_make_the_kips_publish_take_a_context(decorator: Any) -> None:
    cls = type("Wrapped", (Shelf,), {"publish": decorator(Shelf.publish), "id": undecorated(Shelf.id)})
    store = open_store(cls, {"shelf.room": "hall"})
    assert store.download(store.publish("alerts", b"payload", CONTENT)) == b"payload"
    assert store.id(b"payload", CONTENT) == store.id(b"payload")
    assert not store.follows_context


def tls(_self: object, topic: str, data: bytes, ssl_context: Any = None) -> str:
    assert ssl_context is None
    return f"memory:///{topic}/{len(data)}"


def numbered(_self: object, topic: str, data: bytes, _part: int = 1) -> str:
    assert _part == 1
    return f"memory:///{topic}/{len(data)}"


@pytest.mark.parametrize("base", [MemoryStore, Shelf])
@pytest.mark.parametrize("publish", [tls, numbered])
def test_another_optional_parameter_gets_no_context(base: Any, publish: Any) -> None:
    store = open_store(type("Own", (base,), {"publish": publish}), {"shelf.room": "hall"})
    assert store.publish("alerts", b"payload", CONTENT) == "memory:///alerts/7"
    assert not store.follows_context


async def coroutine(_self: object, topic: str, data: bytes) -> str:
    return f"{topic}{len(data)}"


class Asynchronous:
    async def __call__(self, topic: str, data: bytes) -> str:
        return f"{topic}{len(data)}"


def generator(_self: object, topic: str, data: bytes) -> Any:
    yield f"{topic}{len(data)}"


async def async_generator(_self: object, topic: str, data: bytes) -> Any:
    yield f"{topic}{len(data)}"


WRONG: list[tuple[str, Any, str]] = [
    ("publish", lambda _self: "", r"it does not take topic"),
    ("publish", lambda _self, topic: topic, r"it does not take data"),
    ("publish", lambda _self, data, topic: (topic, data), r"it takes data in the place of topic"),
    (
        "publish",
        lambda _self, topic, data, context, room: (topic, data, context, room),
        r"it requires room, which the contract does not have",
    ),
    ("publish", lambda _self, topic, data, *, room: (topic, data, room), r"it requires room"),
    ("publish", coroutine, r"it is a coroutine function"),
    ("publish", Asynchronous(), r"it is a coroutine function"),
    ("publish", generator, r"it is a generator function"),
    ("publish", async_generator, r"it is a generator function"),
    ("publish", None, r"it is not callable"),
    ("download", lambda _self: b"", r"it does not take reference"),
    ("download", lambda _self, reference, size: (reference, size), r"it requires size"),
    ("id", lambda _self: "", r"it does not take data"),
]


@pytest.mark.parametrize("base", [MemoryStore, Shelf])
@pytest.mark.parametrize(("method", "function", "message"), WRONG)
def test_a_signature_that_cannot_work_is_refused_when_the_store_is_opened(
    base: Any, method: str, function: Any, message: str
) -> None:
    if function is None and base is Shelf:
        pytest.skip("without the method it has not the KIP's interface")
    cls = type("Wrong", (base,), {method: function})
    for store in (cls, cls()):
        with pytest.raises(ConfigError, match=rf"^Wrong\.{method} cannot .*: {message}") as caught:
            open_store(store, {"shelf.room": "hall"})
        assert f"as in KIP-1159 {method}(self, " in str(caught.value.hint)


@pytest.mark.parametrize("base", [MemoryStore, Shelf])
def test_settings_are_not_read_by_a_coroutine(base: Any) -> None:
    async def configure(_self: object, _config: Mapping[str, object]) -> None:
        """Nothing would call it."""

    with pytest.raises(ConfigError, match=r"Wrong\.configure is a coroutine function"):
        open_store(type("Wrong", (base,), {"configure": configure}), {"shelf.room": "hall"})


def test_a_method_of_an_instance_is_checked_too() -> None:
    store = MemoryStore()
    store.publish = lambda topic, data: f"{topic}{data}"  # type: ignore[assignment, misc, method-assign]
    with pytest.raises(ConfigError, match="set on an instance or a class and does not take the context"):
        open_store(store, {})


@pytest.mark.parametrize("wrong", [dict, "builtins.dict", object(), 7, Shelf.publish])
def test_what_lacks_the_kips_methods_is_no_store(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="is not a payload store") as caught:
        open_store(wrong, {})
    assert "KIP-1159" in str(caught.value.hint)


def test_a_store_that_chooses_its_ids_cannot_be_mirrored() -> None:
    for secondary in (Positional(), Shelf()):
        with pytest.raises(ConfigError, match="cannot be mirrored"):
            Mirror(MemoryStore(), secondary)
    with pytest.raises(ConfigError, match="cannot be mirrored"):
        open_store(MirrorStore, {"mirror.primary": Positional, "mirror.secondary": "memory"})


def test_a_middleware_may_take_less_too() -> None:
    class Counted(Middleware):
        def publish(self, topic: str, data: Any) -> str:  # type: ignore[override]
            return super().publish(topic, data)

    store: PayloadStore = Counted(Shelf())
    assert store.download(store.publish("alerts", b"payload", CONTENT)) == b"payload"
    assert not store.follows_context
    assert Counted(MemoryStore()).follows_context is False
    assert Middleware(MemoryStore()).follows_context is True


class Conforming(MemoryStore):
    """A whole store whose publish and download are the KIP's."""

    def publish(self, topic: str, data: Any) -> str:  # type: ignore[override]
        return super().publish(topic, data)

    def download(self, full_path: str) -> bytes:
        return super().download(full_path)


class TestConforming(PayloadStoreTests):
    """The suite passes over the ids that such a store is not asked for."""

    store_class = Conforming
    extra_memory = None

    @pytest.fixture
    def config(self) -> Mapping[str, object]:
        MemoryStore.clear()
        return {}
