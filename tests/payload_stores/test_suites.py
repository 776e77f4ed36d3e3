"""Every store runs the conformance suite."""

import importlib

import pytest

from payload_stores.registry import STORES, store_class
from payload_stores.testing import PayloadStoreTests

SUITES = {
    "memory": "test_memory:TestMemoryStore",
    "local": "local.test_local:TestLocalStore",
    "s3": "s3.test_s3:TestS3Store",
    "objects": "objects.test_objects:TestObjectsStore",
    "hop": "hop.test_hop:TestHopStore",
    "kafka": "kafka.test_kafka:TestKafkaStore",
    "mirror": "test_mirror:TestMirrorStore",
}


def test_no_store_is_left_out() -> None:
    assert set(SUITES) == set(STORES.builtins)


@pytest.mark.parametrize("name", SUITES)
def test_the_suite_is_run(name: str) -> None:
    module, _, cls = SUITES[name].partition(":")
    suite = getattr(importlib.import_module(f"tests.payload_stores.{module}"), cls)
    assert issubclass(suite, PayloadStoreTests)
    assert store_class(suite.store_class) is store_class(name)
    # hop's server keeps records in its own way, which tests/hop reads with hop's own client.
    assert (suite.raw_read is not PayloadStoreTests.raw_read) == (name != "hop")
    tests = [name for name in dir(PayloadStoreTests) if name.startswith("test_")]
    assert [name for name in tests if not callable(getattr(suite, name))] == []
