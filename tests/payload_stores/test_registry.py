"""Opening a store: classes that do not follow the contract of stores."""

import pickle
from collections.abc import Mapping
from typing import Any

import pytest

from payload_stores import ConfigError, PayloadStore, open_store
from payload_stores.memory import MemoryStore
from payload_stores.middleware import Middleware
from payload_stores.options import UNDECLARED, Option, text
from payload_stores.registry import ConfiguredStore


class NeedsArguments(MemoryStore):
    def __init__(self, room: str) -> None:
        raise AssertionError(room)


class OnlyPublishes(PayloadStore):
    scheme = "shelf"

    def publish(self, topic: str, data: Any, context: Any = None) -> str:
        raise NotImplementedError


class StageSignature(MemoryStore):
    def configure(self, config: Mapping[str, object], is_key: bool) -> None:  # type: ignore[override]
        raise AssertionError


class NoTuple(MemoryStore):
    options = Option("shelf.room", text, "")  # type: ignore[assignment]


class NoOptions(MemoryStore):
    options = ("shelf.room",)  # type: ignore[assignment]


class SchemeLater(MemoryStore):
    scheme = "My_Store"

    def configure(self, config: Mapping[str, object]) -> None:
        super().configure(config)
        self.scheme = "my-store+2.0"


@pytest.mark.parametrize(
    ("cls", "message"),
    [
        (NeedsArguments, r"NeedsArguments cannot be made without arguments: .*'room'.*configure\(config\)"),
        (Middleware, r"Middleware cannot be made without .* A middleware is passed as an instance, around its store"),
        (OnlyPublishes, r"^OnlyPublishes does not implement download\. Define it in the class"),
        (StageSignature, r"StageSignature\.configure does not accept .*Define configure\(self, config\)"),
        (NoTuple, r"NoTuple\.options is not a tuple of options .*has a comma"),
        (NoOptions, r"NoOptions\.options is not a tuple of options"),
    ],
)
def test_a_class_that_does_not_follow_the_contract_is_refused(cls: type[PayloadStore], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        open_store(cls, {})


def test_options_are_checked_without_opening() -> None:
    with pytest.raises(ConfigError, match=r"NoTuple\.options is not a tuple"):
        _ = ConfiguredStore.of(NoTuple, {}).options


@pytest.mark.parametrize("scheme", ["my_store", "MyStore", "1st", "", None, "shelf:", "a b"])
def test_a_scheme_that_no_reference_can_have_is_refused(scheme: Any) -> None:
    cls = type("Shelf", (MemoryStore,), {"scheme": scheme})
    with pytest.raises(ConfigError, match=r"Shelf\.scheme is .*lower-case letters.*\(RFC 3986\)"):
        open_store(cls, {})


def test_a_store_without_a_scheme_is_refused() -> None:
    class Shelf(PayloadStore):
        def publish(self, topic: str, data: Any, context: Any = None) -> str:
            raise NotImplementedError

        def download(self, reference: str) -> bytes:
            raise NotImplementedError

    with pytest.raises(ConfigError, match=r"Shelf\.scheme is None"):
        open_store(Shelf, {})


def test_configure_may_set_the_scheme() -> None:
    assert open_store(SchemeLater, {}).scheme == "my-store+2.0"


class Shelf(MemoryStore):
    scheme = "shelf"
    options = (Option("shelf.room", text, ""), Option("client.shelf", text, ""), *MemoryStore.options)


@pytest.mark.parametrize(
    ("store", "config", "hint"),
    [
        ("local", {"local.pth": "/srv"}, r"'local.pth' is not a configuration key .*Did you mean local.path\?"),
        (Shelf, {"shelf.rom": "1"}, r"'shelf.rom' .*Did you mean shelf.room\?"),
        (Shelf, {"shelf.zzzzzzzzzz": "1"}, r"'shelf.zzzzzzzzzz' .*Known under shelf. are shelf.room"),
    ],
)
def test_a_misspelt_key_of_the_store_is_refused(store: Any, config: Mapping[str, object], hint: str) -> None:
    with pytest.raises(ConfigError, match=hint) as caught:
        open_store(store, config)
    assert caught.value.key in config


@pytest.mark.parametrize("config", ["s3.toml", None, ["s3.bucket"]])
def test_a_configuration_is_a_mapping(config: Any) -> None:
    for store in ("s3", MemoryStore, MemoryStore()):
        with pytest.raises(ConfigError, match=r"is a mapping of dotted keys, not (str|NoneType|list)\. .*load\(path\)"):
            open_store(store, config)


def test_keys_of_others_are_not_refused() -> None:
    others = {"client.id": "a", "local.path": "/", "large.message.threshold.bytes": 1, "avro.schema": "int", "x": 1}
    open_store(Shelf, {**others, "shelf.room": "1"}).close()
    open_store(Shelf, {"shelf.of.a.subclass": "1"}, check_keys=False).close()


def test_a_store_that_declares_none_of_its_options_keeps_them_as_a_copy() -> None:
    # Spark's workers get the classes of a program with copies of their attributes.
    class Copied(MemoryStore):
        options = (pickle.loads(pickle.dumps(UNDECLARED)),)  # noqa: S301  of this process

    stores = [ConfiguredStore.of({"class": Copied, "shelf.room": room}, {}) for room in "12"]
    assert [store.made_of()[1] for store in stores] == [{"shelf.room": "1"}, {"shelf.room": "2"}]
    assert Copied.options[0].changed(doc="other") != UNDECLARED
