"""The headers that stages declare to remove, by which Spark reads headers without values."""

from pathlib import Path
from typing import Any

import pytest

from serde_chain import DeserializerChain
from serde_chain.base import Deserializer, RemovedHeaders, removed_headers_of
from serde_chain.spark.chains.opened import open_chain
from serde_chain.spark.chains.plan import changed_columns, reads_apart
from serde_chain.stages.primitives import StringDeserializer

KIP = RemovedHeaders("large-message", frozenset({"large-message", "large-message-size", "large-message-digest"}))
COMPRESSION = frozenset({"__large.message.backed..compression", "__large.message.backed.compression"})
BAKDATA = RemovedHeaders("__large.message.backed.value", COMPRESSION | {"__large.message.backed.value"})


def plan(stages: Any, path: Path, **options: Any) -> Any:
    store = {"large.message.payload.store.class": "local", "local.path": str(path)}
    chain = open_chain({**store, **options, "value.deserializers": stages}, is_key=False)
    return None if chain is None else chain.whole


def test_stages_declare_what_they_remove(tmp_path: Path) -> None:
    assert plan("zstd, json", tmp_path).removes == ()
    second = BAKDATA._replace(unless=frozenset({"large-message"}))
    assert plan("large-message, zstd, json", tmp_path).removes == (KIP, second)
    flag = plan("large-message, bytes", tmp_path, **{"large.message.accept": "bakdata-flag"})
    assert flag.removes == (RemovedHeaders(None, COMPRESSION),)
    last = RemovedHeaders(None, COMPRESSION, frozenset({"large-message"}))
    assert plan("large-message, bytes", tmp_path, **{"large.message.accept": "kip1159, bakdata-flag"}).removes == (
        *(KIP, last),
    )


def test_keys_have_headers_of_their_own(tmp_path: Path) -> None:
    store = {"large.message.payload.store.class": "local", "local.path": str(tmp_path)}
    chain = open_chain({**store, "key.deserializers": "large-message, string"}, is_key=True)
    assert chain is not None
    assert [each.mark for each in chain.whole.removes or ()] == ["large-message-key", "__large.message.backed.key"]


class Undeclared(StringDeserializer):
    """May do anything with the headers."""

    def __call__(self, data: Any, ctx: Any = None, /) -> Any:
        return super().__call__(data, ctx)


class Own(Deserializer[bytes]):
    def __call__(self, data: Any, ctx: Any = None, /) -> Any:
        return data


@pytest.mark.parametrize("stage", [Undeclared, Own, lambda data, _ctx: data])
def test_other_stages_may_change_any_header(stage: Any) -> None:
    assert removed_headers_of([StringDeserializer()]) == ()
    made = stage() if isinstance(stage, type) else stage
    assert removed_headers_of([StringDeserializer(), made]) is None


def test_what_is_read_together(tmp_path: Path) -> None:
    """Self-describing chains, stored records, chains without payloads, and modes that report errors."""
    large = plan("large-message, bytes", tmp_path)
    assert reads_apart([large, None], "FAILFAST", counts=False)
    assert not reads_apart([large], "PERMISSIVE", counts=False)
    assert not reads_apart([large], "FAILFAST", counts=True)
    assert not reads_apart([plan("bytes", tmp_path)], "FAILFAST", counts=False)
    whole = plan("large-message, bytes", tmp_path, **{"large.message.accept": "kip1159, hop"})
    assert whole.removes is None
    assert not reads_apart([large, whole], "FAILFAST", counts=False)
    with DeserializerChain.from_config({"value.deserializers": "auto", "serde.chain.allow": "bytes"}) as chain:
        assert removed_headers_of(chain.stages) is None


def test_headers_that_no_stage_changes_stay_in_the_jvm(tmp_path: Path) -> None:
    columns = ("key", "value", "topic", "headers")

    def changed(stages: Any) -> tuple[str, ...]:
        return changed_columns(columns, plan(stages, tmp_path), None, "FAILFAST")

    assert changed("zstd, json") == ("value",)
    assert changed("large-message, json") == ("value", "headers")
    assert changed([Undeclared]) == ("value", "headers")
