"""The examples in docstrings run, and everything public has one."""

import doctest
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import payload_stores.base
import payload_stores.middleware
import payload_stores.options
import payload_stores.references
import serde_chain.base
import serde_chain.spark
import serde_chain.stamp
import serde_chain.testing
from payload_stores import PayloadStore, open_store
from payload_stores.base import CAPABILITIES
from payload_stores.hop import HopStore
from payload_stores.ids import payload_id, sha256_digest
from payload_stores.local import LocalStore
from payload_stores.memory import MemoryStore
from payload_stores.s3 import S3Store
from serde_chain import Consumer, DeserializerChain, Producer, SerializerChain
from serde_chain.arrow import Batch
from serde_chain.wire import entry_metadata

_ROOT = Path(serde_chain.__file__).parent.parent
_PUBLIC: tuple[Any, ...] = (
    serde_chain,
    serde_chain.spark,
    serde_chain.stamp,
    serde_chain.testing,
    payload_stores,
    payload_stores.middleware,
    payload_stores.options,
    payload_stores.references,
)


# The two contracts fit on two screens each; one example in the docstring of the package shows all of it.
STORE, STAGE = "payload_stores.base.store", "serde_chain.base.stage"


def _modules() -> Iterator[str]:
    """Every module that has examples."""
    for package in ("payload_stores", "serde_chain"):
        for path in sorted((_ROOT / package).rglob("*.py")):
            if ">>> " in path.read_text(encoding="utf-8"):
                yield ".".join(path.relative_to(_ROOT).with_suffix("").parts).removesuffix(".__init__")


def _public() -> Iterator[Any]:
    """Public functions and classes but the errors, and the methods that a user's own code calls or overrides."""
    for module in _PUBLIC:
        for name in module.__all__:
            member = getattr(module, name)
            is_class = inspect.isclass(member) and not issubclass(member, BaseException)
            if (inspect.isfunction(member) or is_class) and member.__module__ not in {STORE, STAGE}:
                yield member
    yield from (Batch, HopStore, LocalStore, MemoryStore, S3Store)
    yield from (payload_id, sha256_digest)
    yield from (entry_metadata.frame, entry_metadata.peek, entry_metadata.strip)
    for name, member in inspect.getmembers(PayloadStore, inspect.isfunction):
        if not name.startswith("_") and member.__module__ != STORE:
            yield member
    yield from (SerializerChain.from_config, SerializerChain.begin)
    yield from (DeserializerChain.to_arrow, DeserializerChain.read_batch, DeserializerChain.read_parts)
    yield from (Producer.produce, Producer.produce_batch)
    yield from (Consumer.poll, Consumer.consume, Consumer.consume_arrow)


def test_one_example_calls_all_that_the_contract_of_a_store_has() -> None:
    """With the store for tests."""
    parts = [part for part in CAPABILITIES if isinstance(open_store("memory", {}), part)]
    methods = {
        name
        for part in (PayloadStore, *parts)
        for name, member in inspect.getmembers(part, inspect.isfunction)
        if not name.startswith("_") and member.__module__ == STORE
    }
    assert len(methods) >= 16
    called = set(re.findall(r"store\.(\w+)\(", payload_stores.base.__doc__ or ""))
    assert methods - called == set()


def test_one_example_has_every_public_class_of_the_contract_of_a_stage() -> None:
    classes = {name for name in dir(serde_chain) if getattr(serde_chain, name).__module__ == STAGE}
    assert classes == {"Data", "Deserializer", "Serializer", "StagePair"}
    shown = (serde_chain.base.__doc__ or "").partition("Example:")[2]
    assert {name for name in classes if not re.search(rf"\b{name}\b", shown)} == set()


@pytest.mark.parametrize("name", [*_modules()])
def test_examples_run(name: str) -> None:
    module = importlib.import_module(name)
    assert any(test.examples for test in doctest.DocTestFinder(exclude_empty=True).find(module))
    assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize("member", [*_public()], ids=lambda member: f"{member.__module__}.{member.__qualname__}")
def test_everything_public_has_an_example(member: Any) -> None:
    assert "Example:\n" in (member.__doc__ or "")
