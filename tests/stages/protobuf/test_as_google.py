"""Generated files and messages: protoc compiles the first, google.protobuf writes the second, and ours are the same."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from serde_chain import DeserializerChain, RecordContext, SerializerChain
from tests.schemas.contexts import context_registry
from tests.stages.protobuf.protoc import compiled, pool_of
from tests.stages.protobuf.random_messages import as_json, as_rows, filled, is_flat, json_of, types_of
from tests.stages.protobuf.test_as_protoc import written_to
from tests.stages.protobuf.ugly_texts import UglyText

SEEDS: Final = range(1000, 1048)
REGISTERED: Final = 8


class Case(NamedTuple):
    """A generated file.

    Attributes:
        ugly: The file.
        types: The classes of its messages, by protoc.
        messages: Messages of each.
    """

    ugly: UglyText
    types: list[Any]
    messages: list[list[Any]]


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> list[Case]:
    return [case(seed, tmp_path_factory.mktemp("protos")) for seed in SEEDS]


def case(seed: int, folder: Path) -> Case:
    ugly, draw = UglyText(seed), random.Random(seed)
    pool = pool_of(compiled(written_to(folder, ugly.texts), [ugly.name], folder / "out"))
    types = types_of(pool, ugly.name)
    return Case(ugly, types, [[filled(kind, draw) for _ in range(3)] for kind in types])


def each(cases: list[Case]) -> Iterator[tuple[Any, list[Any], list[bytes]]]:
    """Classes, messages of them, and their bytes by google.protobuf."""
    for one in cases:
        for kind, messages in zip(one.types, one.messages, strict=True):
            yield kind, messages, [message.SerializeToString(deterministic=True) for message in messages]


def config(kind: Any, **more: object) -> dict[str, Any]:
    both = {"value.serializer": "protobuf", "value.deserializer": "protobuf", "protobuf.values": "dict"}
    return {**both, "protobuf.message.class": kind, **more}


def test_messages_and_dictionaries(cases: list[Case]) -> None:
    count = 0
    for kind, messages, expected in each(cases):
        write, read = SerializerChain.from_config(config(kind)), DeserializerChain.from_config(config(kind))
        as_message = DeserializerChain.from_config(config(kind, **{"protobuf.values": "message"}))
        assert list(map(write, messages)) == expected
        for message, data in zip(messages, expected, strict=True):
            count += 1
            value = read(data)
            assert as_json(value, kind.DESCRIPTOR) == json_of(message), kind.DESCRIPTOR.full_name
            assert write(value) == data
            assert as_message(data).SerializeToString(deterministic=True) == data
    assert count > 600


@pytest.mark.full
def test_columns(cases: list[Case]) -> None:
    count = 0
    for kind, _, data in each(cases):
        if not is_flat(kind) or not kind.DESCRIPTOR.fields:
            continue
        count += 1
        write, read = SerializerChain.from_config(config(kind)), DeserializerChain.from_config(config(kind))
        column = read.to_arrow([*data, None], topic="t")
        rows = [as_rows(read(each), kind.DESCRIPTOR) for each in data]
        assert repr(column.to_pylist()) == repr([*rows, None]), kind.DESCRIPTOR.full_name
        assert write.from_arrow(column, topic="t").values.to_pylist() == [*data, None], kind.DESCRIPTOR.full_name
    assert count > 100


@pytest.mark.full
def test_registered_texts_without_a_class(cases: list[Case]) -> None:
    with context_registry() as registry:
        for at, one in enumerate(cases[:REGISTERED]):
            topic = f"t{at}"
            registered: list[dict[str, Any]] = []
            for name, text in one.ugly.texts.items():
                subject = f"{topic}-value" if name == one.ugly.name else f"{topic}/{name}"
                registry.register(subject, text, "PROTOBUF", references=list(registered))
                registered.append({"name": name, "subject": subject, "version": 1})
            ctx = RecordContext(topic, "value", [])
            common = {"schema.registry.url": registry.url}
            with DeserializerChain.from_config(config(None, **common)) as read:
                for kind, messages in zip(one.types, one.messages, strict=True):
                    own = DeserializerChain.from_config(config(kind))
                    latest = {"use.latest.version": True, **common}
                    with SerializerChain.from_config(config(kind, **latest)) as write:
                        for message in messages:
                            data = message.SerializeToString(deterministic=True)
                            record = write(message, ctx)
                            assert record is not None
                            assert record.endswith(data)
                            assert repr(read(record, ctx)) == repr(own(data)), kind.DESCRIPTOR.full_name
