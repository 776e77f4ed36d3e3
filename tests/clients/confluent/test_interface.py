"""All calls of the originals are there, and take what they take there."""

import ast
import inspect
import re
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from serde_chain import ConfigError, Consumer, Producer

PAIRS = [(Producer, confluent_kafka.Producer), (Consumer, confluent_kafka.Consumer)]


def public(cls: type) -> set[str]:
    special = {"__enter__", "__exit__", "__len__", "__bool__"}
    return {name for name in dir(cls) if not name.startswith("_") or name in special & cls.__dict__.keys()}


@pytest.mark.parametrize(("ours", "original"), PAIRS)
def test_every_call_is_there(ours: type, original: type) -> None:
    assert public(original) - public(ours) == set()


def documented(call: Any) -> list[str]:
    """Names of the parameters, out of the first line of a docstring such as ``.. py:function:: seek(partition)``."""
    found = re.search(r"py:function::\s*\w+\((.*)\)", call.__doc__ or "")
    names = re.split(r",", re.sub(r"[\[\]]", "", found[1])) if found else []
    return [name.split("=")[0].strip() for name in names if name.strip() and not name.strip().startswith("*")]


@pytest.mark.parametrize(("ours", "original"), PAIRS)
def test_parameters_have_the_originals_names(ours: type, original: type) -> None:
    for name in sorted(public(original) - {"__enter__", "__exit__", "__len__", "__bool__"}):
        parameters = list(inspect.signature(getattr(ours, name)).parameters)
        missing = [word for word in documented(getattr(original, name)) if word not in parameters]
        assert missing == [], f"{ours.__name__}.{name} lacks {missing}"


def in_stub(cls: type) -> dict[str, list[str]]:
    """The calls of a class in confluent_kafka's stub, and what may be passed to each by position, in this order."""
    stub = ast.parse(Path(confluent_kafka.__file__).with_name("cimpl.pyi").read_text())
    [body] = [node.body for node in stub.body if isinstance(node, ast.ClassDef) and node.name == cls.__name__]
    calls = [node for node in body if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")]
    return {call.name: [argument.arg for argument in (*call.args.posonlyargs, *call.args.args)][1:] for call in calls}


@pytest.mark.parametrize(("ours", "original"), PAIRS)
def test_positions_are_those_of_the_originals_stub(ours: type, original: type) -> None:
    calls = in_stub(original)
    assert {"poll", "list_topics", "produce" if ours is Producer else "subscribe"} <= calls.keys()
    for name, expected in calls.items():
        parameters = list(inspect.signature(getattr(ours, name)).parameters)[1:]
        assert parameters[: len(expected)] == expected, f"{ours.__name__}.{name}"


@pytest.mark.parametrize("client", [Producer, Consumer])
def test_a_wrong_configuration_is_said_before_anything_is_opened(client: Any) -> None:
    config = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}
    with pytest.raises(ConfigError, match=r"Did you mean value\.serializers"):
        client({**config, "value.serialisers": "json"})
    with pytest.raises(confluent_kafka.KafkaException, match="No such configuration property"):
        client({**config, "no.such.key": 1})
