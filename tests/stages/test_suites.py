"""Every stage runs the conformance suite."""

import importlib

import pytest

from serde_chain.testing import SerializerTests
from tests.stages.cases import STAGES


@pytest.mark.parametrize("name", STAGES)
def test_the_suite_is_run(name: str) -> None:
    module, _, cls = STAGES[name].suite.partition(":")
    suite = getattr(importlib.import_module(f"tests.{module}"), cls)
    assert issubclass(suite, SerializerTests)
    assert suite.stage == name
    tests = [test for test in dir(SerializerTests) if test.startswith("test_")]
    assert [test for test in tests if not callable(getattr(suite, test))] == []
