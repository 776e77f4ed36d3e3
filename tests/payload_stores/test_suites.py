"""Every store runs the conformance suite."""

import importlib

import pytest

from payload_stores.registry import STORES, store_class
from payload_stores.testing import PayloadStoreTests
from tests.payload_stores.cases import CASES


def test_no_store_is_left_out() -> None:
    assert set(CASES) == set(STORES.builtins)


@pytest.mark.parametrize("name", CASES)
def test_the_suite_is_run(name: str) -> None:
    module, _, cls = CASES[name].suite.partition(":")
    suite = getattr(importlib.import_module(f"tests.payload_stores.{module}"), cls)
    assert issubclass(suite, PayloadStoreTests)
    assert store_class(suite.store_class) is store_class(name)
    # hop's server keeps records in its own way, which tests/hop reads with hop's own client.
    assert (suite.raw_read is not PayloadStoreTests.raw_read) == (name != "hop")
    tests = [name for name in dir(PayloadStoreTests) if name.startswith("test_")]
    assert [name for name in tests if not callable(getattr(suite, name))] == []
