"""Every store runs the conformance suite."""

import contextlib
import importlib
import itertools
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import pytest

from payload_stores import PayloadInfo, PayloadStoreError, PublishContext, open_store
from payload_stores.base import Buffer
from payload_stores.local import LocalStore
from payload_stores.memory import MemoryStore
from payload_stores.options import Option, text
from payload_stores.references import object_path
from payload_stores.registry import STORES, ConfiguredStore
from payload_stores.testing import PayloadStoreTests
from tests.payload_stores import test_memory
from tests.payload_stores.cases import CASES
from tests.payload_stores.local import test_local


def test_no_store_is_left_out() -> None:
    assert set(CASES) == set(STORES.builtins)


@pytest.mark.parametrize("name", CASES)
def test_the_suite_is_run(name: str) -> None:
    module, _, cls = CASES[name].suite.partition(":")
    suite = getattr(importlib.import_module(f"tests.payload_stores.{module}"), cls)
    assert issubclass(suite, PayloadStoreTests)
    named, tested = (ConfiguredStore.of(spec, {}).target for spec in (name, suite.store_class))
    assert tested is named
    # hop's server keeps records in its own way, which tests/hop reads with hop's own client.
    assert (suite.raw_read is not PayloadStoreTests.raw_read) == (name != "hop")
    # What cannot be listed or deleted has nothing to compare.
    assert (suite.raw_write is not PayloadStoreTests.raw_write) == (name != "hop")
    tests = [name for name in dir(PayloadStoreTests) if name.startswith("test_")]
    assert [name for name in tests if not callable(getattr(suite, name))] == []


class Overwriting(MemoryStore):
    """Writes over what is there, as into a file that is not truncated."""

    def publish(self, topic: str, data: Buffer, context: PublishContext | None = None) -> str:
        path = object_path(self, topic, data, context)
        before = self._payloads.get(path, (b"",))[0]
        self._payloads[path] = bytes(data) + before[len(data) :], datetime.now(UTC)
        return self.roots.url(path)


class Relying(MemoryStore):
    """Relies on whatever has the content's id."""

    def publish(self, topic: str, data: Buffer, context: PublishContext | None = None) -> str:
        path = object_path(self, topic, data, context)
        return self.roots.url(path) if path in self._payloads else super().publish(topic, data, context)


class Misplacing(MemoryStore):
    """Says another reference than it gives."""

    def reference(self, topic: str, payload_id: str) -> str | None:
        return f"memory:///{topic}/other/{payload_id}"


class ListingAll(MemoryStore):
    """Lists under whatever names there are."""

    def list(self, topic: str, *, prefix: str = "", before: datetime | None = None) -> Iterator[PayloadInfo]:
        for path, (data, modified) in [*self._payloads.items()]:
            yield PayloadInfo("memory:///" + "/".join(path), len(data), modified)


@pytest.mark.parametrize(
    ("store", "test"),
    [
        (Overwriting, "test_nothing_is_left_of_a_longer_payload"),
        (Relying, "test_content_that_was_damaged_is_not_relied_on"),
        (Misplacing, "test_a_reference_that_is_known_before"),
        (ListingAll, "test_what_is_listed_can_be_deleted"),
    ],
)
def test_a_fault_is_found(store: type[MemoryStore], test: str) -> None:
    MemoryStore.clear()
    arguments = (b"junk",) if test.startswith("test_content") else ()
    getattr(test_memory.TestMemoryStore(), test)(MemoryStore(), *arguments)
    MemoryStore.clear()
    with pytest.raises((AssertionError, PayloadStoreError)):
        getattr(test_memory.TestMemoryStore(), test)(store(), *arguments)
    MemoryStore.clear()


class Unlimited(MemoryStore):
    """Reads payloads of any size."""

    def check_size(self, size: int, reference: str) -> None:
        pass


@pytest.mark.parametrize(
    "test",
    [
        "test_a_payload_above_the_limit_is_not_downloaded",
        "test_open_refuses_what_download_refuses",
        "test_a_payload_larger_than_published_is_not_fetched",
    ],
)
def test_a_store_that_checks_no_size_is_named_the_method(test: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for cls in (MemoryStore, Unlimited):
        MemoryStore.clear()
        suite = type("Suite", (test_memory.TestMemoryStore,), {"store_class": cls})()
        with contextlib.ExitStack() as stack:
            if cls is Unlimited:
                stack.enter_context(
                    pytest.raises(pytest.fail.Exception, match=r"call self\.check_size\(size, reference\)")
                )
            if test.startswith("test_open"):
                suite.test_open_refuses_what_download_refuses(open_store(cls, {}), {})
            elif test.endswith("fetched"):
                suite.test_a_payload_larger_than_published_is_not_fetched(open_store(cls, {}), monkeypatch, large=False)
            else:
                suite.test_a_payload_above_the_limit_is_not_downloaded({}, large=False)
    MemoryStore.clear()


class IgnoringHosts(MemoryStore):
    """Reads all references from its own place."""

    def download(self, reference: str) -> bytes:
        path = reference.partition("://")[2].partition("/")[2]
        return super().download(f"memory:///{path}") if self.owns(reference) else super().download(reference)


class Sharing(LocalStore):
    """Keeps its settings in its class."""

    _shared: ClassVar[dict[str, Any]] = {}

    def configure(self, config: Mapping[str, object]) -> None:
        super().configure(config)
        self._shared.update(vars(self))
        self.__dict__ = self._shared


def test_a_store_that_ignores_the_host_of_a_trusted_reference_is_found() -> None:
    test = test_memory.TestMemoryStore.test_a_trusted_reference_of_another_place_is_not_read_from_the_own
    for cls in (MemoryStore, IgnoringHosts):
        MemoryStore.clear()
        suite = type("Suite", (test_memory.TestMemoryStore,), {"store_class": cls})()
        with contextlib.ExitStack() as stack:
            if cls is IgnoringHosts:
                stack.enter_context(pytest.raises(pytest.fail.Exception, match="returns the prefix too"))
            test(suite, open_store(cls, {}), {})
    MemoryStore.clear()


def test_a_store_that_shares_its_settings_is_found(tmp_path: Path) -> None:
    test = test_local.TestLocalStore.test_stores_of_different_configurations_share_no_state
    config, other_config = ({"local.path": str(tmp_path / name)} for name in ("one", "two"))
    for cls in (LocalStore, Sharing):
        suite = type("Suite", (test_local.TestLocalStore,), {"store_class": cls})()
        with contextlib.ExitStack() as stack:
            if cls is Sharing:
                stack.enter_context(pytest.raises((AssertionError, pytest.fail.Exception)))
            test(suite, open_store(cls, config), config, other_config)


class Undeclaring(LocalStore):
    """Reads options that it does not list."""

    options = ()  # type: ignore[assignment]


def test_undeclared_options_are_found(tmp_path: Path) -> None:
    test, config = test_local.TestLocalStore.test_the_options_that_it_reads_are_declared, {"local.path": str(tmp_path)}
    test(test_local.TestLocalStore(), config)
    with pytest.raises(AssertionError, match=r"Undeclaring reads local\.fsync, local\.path, not in its `options`"):
        test(type("Suite", (test_local.TestLocalStore,), {"store_class": Undeclaring})(), config)


class Shelf:
    """A store of KIP-1159's interface alone, which declares no options."""

    scheme = "shelf"

    def configure(self, config: Mapping[str, object]) -> None:
        Option("shelf.path", text, "").read(config)

    def publish(self, topic: str, data: bytes) -> str:
        raise NotImplementedError

    def download(self, reference: str) -> bytes:
        raise NotImplementedError

    def close(self) -> None:
        """Nothing to do."""


class Around(MemoryStore):
    """Opens another store with settings of its own."""

    def configure(self, config: Mapping[str, object]) -> None:
        super().configure(config)
        open_store("local", {"local.path": config["around.path"]}).close()

    options = (*MemoryStore.options, Option("around.path", text, ""))


@pytest.mark.parametrize(("kind", "key"), [(Shelf, "shelf.path"), (Around, "around.path")])
def test_options_that_need_no_declaration_are_not_refused(kind: type, key: str, tmp_path: Path) -> None:
    suite = type("Suite", (test_memory.TestMemoryStore,), {"store_class": kind})()
    suite.test_the_options_that_it_reads_are_declared({key: str(tmp_path)})


class OnePage(MemoryStore):
    """Lists a page of three, and no more."""

    def list(self, topic: str, *, prefix: str = "", before: datetime | None = None) -> Iterator[PayloadInfo]:
        yield from itertools.islice(super().list(topic, prefix=prefix, before=before), 3)


def test_a_lost_page_is_found() -> None:
    suite = type("Suite", (test_memory.TestMemoryStore,), {"page_size": 3})()
    MemoryStore.clear()
    suite.test_a_list_of_several_pages(MemoryStore())
    MemoryStore.clear()
    with pytest.raises(AssertionError, match="7 payloads, and 3 listed, by pages of 3"):
        suite.test_a_list_of_several_pages(OnePage())
    MemoryStore.clear()
