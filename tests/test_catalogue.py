"""How stages are found: short names, Java names, dotted paths, classes, instances, callables, entry points."""

import copy
import functools
import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from payload_stores.options import Option, text
from serde_chain import (
    ConfigError,
    Data,
    Deserializer,
    DeserializerChain,
    EncodeError,
    RecordContext,
    Serializer,
    SerializerChain,
    StagePair,
)
from serde_chain.catalogue import DESERIALIZERS, SERIALIZERS
from serde_chain.stages.compression.stage import ZstdDeserializer, ZstdSerializer

KAFKA = "org.apache.kafka.common.serialization."


class Upper(Serializer[Any]):
    """Not in the registry; has a setting of its own."""

    takes = Data.BYTES

    def configure(self, config: Mapping[str, object], is_key: bool) -> None:
        super().configure(config, is_key)
        self.suffix = str(config.get("upper.suffix", "")).encode() + (b"!" if is_key else b"")

    def __call__(self, data: Any, ctx: Any = None, /) -> Any:
        return bytes(data).upper() + self.suffix


def reverse(data: bytes, _ctx: Any) -> bytes:
    return data[::-1]


class NeedsArguments(Serializer[Any]):
    def __init__(self, what: str) -> None:
        self.what = what

    def __call__(self, data: Any, ctx: Any = None, /) -> Any:
        return data


class WithoutCall(Serializer[Any]):
    takes = Data.BYTES


class OneArgument(Upper):
    def configure(self, config: Mapping[str, object]) -> None:  # type: ignore[override]
        raise AssertionError


class WrongInside(Upper):
    def configure(self, config: Mapping[str, object], is_key: bool) -> None:
        raise TypeError("of the stage itself")


class NoTuple(Upper):
    options = Option("upper.suffix", text, "")  # type: ignore[assignment]


class NoOptions(Upper):
    options = ("upper.suffix",)  # type: ignore[assignment]


class TextKinds(Upper):
    takes = "bytes"  # type: ignore[assignment]


def serialize(*items: object, **config: object) -> bytes:
    result: bytes = SerializerChain.from_config({"value.serializers": list(items), **config})(b"abc")
    return result


def test_all_built_in_names_are_there_in_both_directions() -> None:
    assert set(SERIALIZERS.builtins) - {"describe"} == set(DESERIALIZERS.builtins) - {"auto"}
    for catalogue, base in ((SERIALIZERS, Serializer), (DESERIALIZERS, Deserializer)):
        for name in catalogue.builtins:
            found = catalogue.find(name)
            assert isinstance(found, type)
            assert issubclass(found, base)


@pytest.mark.parametrize(
    "item", [Upper, f"{__name__}.Upper", f"{__name__}:Upper", {"class": Upper}, {"class": f"{__name__}.Upper"}]
)
def test_a_class_is_found(item: object) -> None:
    sys.modules.setdefault(__name__, sys.modules[Upper.__module__])
    assert serialize(item, **{"upper.suffix": "?"}) == b"ABC?"


def test_instances_and_callables_are_used_as_they_are() -> None:
    upper = Upper()
    upper.configure({"upper.suffix": "."}, is_key=False)
    assert serialize(upper, reverse) == b".CBA"
    assert serialize(reverse, lambda data, _ctx: data + b"x") == b"cbax"


def test_an_instance_that_was_never_configured_says_so() -> None:
    expected = r"no attribute 'suffix' .*Call configure\(config, is_key\) .* or use SerializerChain\.from_config"
    with pytest.raises(EncodeError, match=expected) as caught:
        SerializerChain([Upper()])(b"abc")
    assert not caught.value.about_record  # no record can be written


def test_other_missing_attributes_are_not_blamed_on_the_configuration() -> None:
    class WithoutSettings(Serializer[Any]):
        def __call__(self, data: Any, ctx: Any = None, /) -> Any:
            return data.missing

    upper = Upper()
    upper.configure({}, is_key=False)
    del upper.suffix
    for stage in (upper, WithoutSettings(), lambda data, _ctx: data.missing):
        with pytest.raises(EncodeError, match="no attribute") as caught:
            SerializerChain([stage])(b"abc")
        assert caught.value.hint is None
        assert caught.value.about_record


def test_a_stage_knows_whether_it_is_for_keys() -> None:
    assert SerializerChain.from_config({"key.serializers": [Upper]}, is_key=True)(b"abc") == b"ABC!"


def test_options_of_one_stage_come_first() -> None:
    def size(item: object) -> int:
        chain = SerializerChain.from_config({"value.serializers": [item], "compression.level": 0})
        return len(chain(bytes(10_000)))

    assert size("gzip") > 10_000
    assert size({"class": "gzip", "compression.level": "9"}) < 100


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("zstandard", r"there is no stage 'zstandard'.*Did you mean zstd\?"),
        ("nothing.like.This", r"the stage 'nothing\.like\.This' cannot be imported: No module named 'nothing'"),
        (KAFKA + "StringSerialzer", rf"cannot be imported.*Did you mean {KAFKA}StringSerializer\?"),
        ("json.NoSuchThing", r"the stage 'json\.NoSuchThing' cannot be imported: .*NoSuchThing"),
        ("json:", r"cannot be imported"),
        ({"level": 3}, r"names no class.*Write \{\"class\""),
        ({"class": "zstd", "level": 3}, r"zstd has no option 'level'.*Did you mean compression\.level\?"),
        ({"class": "zstd", "compression.levle": 3}, r"zstd has no option 'compression\.levle'.*compression\.level\?"),
        ({"class": reverse, "any": 1}, r"reverse is an instance; options not allowed"),
        (NeedsArguments, r"NeedsArguments cannot be made without arguments: .*'what'"),
        (object(), r"object is not a serializer"),
        (17, r"int is not a serializer"),
        (None, r"NoneType is not a serializer"),
        (ZstdDeserializer, r"ZstdDeserializer is a deserializer, but a serializer is needed here"),
        (ZstdDeserializer(), r"ZstdDeserializer is a deserializer"),
        (KAFKA + "StringDeserializer", r"StringDeserializer is a deserializer, but a serializer is needed"),
        ("serde_chain.stages.json.stage.JsonDeserializer", r"is a deserializer, but a serializer is needed"),
        ("", r"there is no stage ''"),
        ("ZSTD", r"there is no stage 'ZSTD'.*Did you mean zstd\?"),
        (WithoutCall, r"^WithoutCall does not implement __call__\. Define it in the class"),
        (OneArgument, r"OneArgument\.configure does not accept .*Define configure\(self, config, is_key\)"),
        (NoTuple, r"NoTuple\.options is not a tuple of options .*has a comma"),
        (NoOptions, r"NoOptions\.options is not a tuple of options"),
        (TextKinds, r"TextKinds .*declares takes = 'bytes'.*Declare Data\.BYTES"),
    ],
)
def test_what_is_no_stage_is_refused(item: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        serialize(item)


def test_an_error_of_the_stages_own_configure_is_raised_unchanged() -> None:
    with pytest.raises(TypeError, match="of the stage itself"):
        serialize(WrongInside)


def test_a_path_to_a_class_of_the_other_direction_gets_a_hint() -> None:
    with pytest.raises(ConfigError, match=r"is a deserializer.*StagePair\(serializer, deserializer\)"):
        serialize("serde_chain.stages.json.stage.JsonDeserializer")


def test_a_stage_from_bytes_to_bytes_declares_it() -> None:
    with pytest.raises(ConfigError, match=r"it takes objects.*declares takes and gives in its class"):
        serialize("json", type("Silent", (Upper,), {"takes": Data.OBJECT}))


def test_a_serializer_that_returns_something_else_is_named() -> None:
    with pytest.raises(EncodeError, match=r"the stage before it, <lambda> \(1 of 2\), returned str"):
        serialize(lambda data, _ctx: data.decode(), "zstd")


def test_a_serializer_is_no_deserializer() -> None:
    for item in (ZstdSerializer, KAFKA + "StringSerializer"):
        with pytest.raises(ConfigError, match="is a serializer, but a deserializer is needed here"):
            DeserializerChain.from_config({"value.deserializer": item})


@pytest.mark.parametrize(
    ("java", "value"),
    [
        ("String", "text"), ("ByteArray", b"a"), ("Bytes", b"a"), ("ByteBuffer", b"a"), ("Integer", 1), ("Long", 2),
        ("Float", 0.5), ("Double", 0.1),
    ],
)  # fmt: skip
def test_kafkas_class_names_are_aliases(java: str, value: object) -> None:
    config = {"value.serializer": f"{KAFKA}{java}Serializer", "value.deserializer": f"{KAFKA}{java}Deserializer"}
    assert DeserializerChain.from_config(config)(SerializerChain.from_config(config)(value)) == value


def test_java_class_names_of_the_other_stages_are_aliases() -> None:
    for name, java in {
        "uuid": KAFKA + "UUIDSerializer",
        "large-message": KAFKA + "largemessage.Serializer",
        "avro": "io.confluent.kafka.serializers.KafkaAvroSerializer",
        "json": "io.confluent.kafka.serializers.json.KafkaJsonSchemaSerializer",
    }.items():
        assert SERIALIZERS.find(java) is SERIALIZERS.find(name)
        assert DESERIALIZERS.find(java.replace("Serializer", "Deserializer")) is DESERIALIZERS.find(name)


# Entry points


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A distribution with two modules, of which one cannot be imported."""
    (tmp_path / "their_stages.py").write_text(
        "from serde_chain import Data, Deserializer, Serializer, StagePair\n"
        "class Write(Serializer):\n"
        "    takes = Data.BYTES\n"
        "    def __call__(self, data, ctx=None, /):\n        return data[::-1]\n"
        "class Read(Deserializer):\n"
        "    gives = Data.BYTES\n"
        "    def __call__(self, data, ctx=None, /):\n        return data[::-1]\n"
        "PAIR = StagePair(Write, Read)\n"
    )
    (tmp_path / "their_broken.py").write_text("raise RuntimeError('must not be loaded')\n")
    info = tmp_path / "their_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[serde_chain.stages]\nreverse = their_stages:PAIR\nbroken = their_broken:PAIR\njson = their_broken:PAIR\n"
        "gone = their_stages:GONE\nmodule = their_stages\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for module in ("their_stages", "their_broken"):
        sys.modules.pop(module, None)


@pytest.mark.usefixtures("installed")
def test_a_registered_pair_is_found_and_nothing_else_is_loaded() -> None:
    config = {"value.serializers": "reverse, zstd", "value.deserializers": "zstd, reverse"}
    write, read = SerializerChain.from_config(config), DeserializerChain.from_config(config)
    assert type(write.stages[0]).__name__ == "Write"
    assert read(write(b"abc")) == b"abc"
    assert "their_broken" not in sys.modules


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("broken", r"registered by the package their-package as their_broken:PAIR, cannot be imported: must not be lo"),
        ("gone", r"registered by the package their-package as their_stages:GONE, cannot be imported: .*'GONE'"),
        ("module", r"registered by the package their-package as their_stages, is a module .* their_stages:NAME"),
    ],
)
def test_a_registered_stage_that_cannot_be_loaded_is_named_with_its_package(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=f"the stage '{name}', {message}"):
        SerializerChain.from_config({"value.serializer": name})


def test_a_stage_installed_after_a_failed_attempt_is_found(installed: Path) -> None:
    config = {"value.serializer": "late"}
    with pytest.raises(ConfigError, match="there is no stage 'late'"):
        SerializerChain.from_config(config)
    info = installed / "late_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: late-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[serde_chain.stages]\nlate = their_stages:PAIR\n")
    assert SerializerChain.from_config(config)(b"abc") == b"cba"


@pytest.mark.usefixtures("installed")
def test_shadowing_a_built_in_stage_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'json' that their_broken:PAIR registers would shadow the built-in one"):
        SerializerChain.from_config({"value.serializer": "json"})


@pytest.mark.usefixtures("installed")
def test_registered_names_are_suggested() -> None:
    with pytest.raises(ConfigError, match=r"Did you mean reverse\?") as caught:
        SerializerChain.from_config({"value.serializer": "revers"})
    assert str(caught.value).count("json,") == 1  # also registered


def test_two_packages_with_the_same_name_are_refused(installed: Path) -> None:
    info = installed / "other_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[serde_chain.stages]\nreverse = other_stages:PAIR\n")
    with pytest.raises(ConfigError, match=r"several packages register the stage 'reverse': .*other_stages:PAIR"):
        SerializerChain.from_config({"value.serializer": "reverse"})


class DataOnly(Serializer[bytes]):
    """Its call lacks the context."""

    takes = Data.BYTES

    def __call__(self, data: Any) -> Any:  # type: ignore[override]
        return data


class Asynchronous(Deserializer[bytes]):
    async def __call__(self, data: Any, ctx: Any = None, /) -> Any:  # type: ignore[override]
        return data


@functools.wraps(json.dumps)
def wrapper(data: Any, _ctx: Any = None, /) -> bytes:
    return json.dumps(data).encode()


class Annotated(Serializer[bytes]):
    """Its signature cannot be read, as with Python 3.14 one with names that are imported for type checkers."""

    takes = Data.BYTES

    def __call__(self, data: Any, ctx: Any = None, /) -> Any:
        return wrapper(data)

    __call__.__signature__ = "?"  # type: ignore[attr-defined]


@pytest.mark.parametrize("stage", [wrapper, Annotated(), functools.partial(wrapper)])
def test_a_stage_that_can_be_called_is_taken_whatever_its_signature(stage: Any) -> None:
    assert SerializerChain([stage])(1, RecordContext("t", "value"))


def test_the_list_of_a_stage_that_cannot_be_called_is_named() -> None:
    with pytest.raises(ConfigError) as raised:
        SerializerChain.from_config({"key.serializers": [lambda data: data]}, is_key=True)
    assert raised.value.key == "key.serializers"


@pytest.mark.parametrize(
    ("chain", "stage", "message"),
    [
        (SerializerChain, functools.partial(lambda data: data), "cannot be called with data and context"),
        (SerializerChain, DataOnly, "DataOnly cannot be called with data and context"),
        (SerializerChain, DataOnly(), "DataOnly cannot be called with data and context"),
        (SerializerChain, lambda data: data, "<lambda> cannot be called with data and context"),
        (DeserializerChain, Asynchronous, "Asynchronous is a coroutine function"),
        (DeserializerChain, Asynchronous().__call__, "is a coroutine function"),
    ],
)
def test_a_stage_that_cannot_be_called_is_refused_with_the_configuration(chain: Any, stage: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        chain.from_config({f"value.{'' if chain is SerializerChain else 'de'}serializers": [stage]})


def test_a_pair_can_stand_in_a_list() -> None:
    pair = StagePair(ZstdSerializer, ZstdDeserializer)
    write = SerializerChain.from_config({"value.serializers": ["bytes", pair]})
    read = DeserializerChain.from_config({"value.deserializers": [pair, "bytes"]})
    assert read(write(b"abc")) == b"abc"


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ((ZstdDeserializer, ZstdSerializer), "ZstdDeserializer is a deserializer, in the place of the serializer"),
        ((ZstdDeserializer(), bytes), "ZstdDeserializer is a deserializer, in the place of the serializer"),
        ((bytes, ZstdSerializer), "ZstdSerializer is a serializer, in the place of the deserializer"),
    ],
)
def test_a_swapped_pair_is_refused_where_it_is_written(items: tuple[object, object], message: str) -> None:
    with pytest.raises(TypeError, match=rf"{message}: write StagePair\(serializer, deserializer\)"):
        StagePair(*items)


def test_a_pair_is_a_tuple_that_can_be_pickled() -> None:
    pair = StagePair(ZstdSerializer, deserializer=ZstdDeserializer)
    copied = copy.copy(pair)  # by the same rules
    assert copied == pair == (ZstdSerializer, ZstdDeserializer)
    assert type(copied) is StagePair


def test_a_value_of_the_wrong_type_is_refused_not_converted() -> None:
    with pytest.raises(EncodeError, match=r"string takes str, not int \[stage=string \(1 of 1\)\]"):
        SerializerChain.from_config({"value.serializer": "string"})(1)
