"""The wheel in an environment that has nothing else: the core needs no third-party package."""

import json
import os
import subprocess
import zipfile
from collections.abc import Callable
from importlib.metadata import version as version_of
from pathlib import Path

import pytest
from cyclonedx.model.bom import Bom
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from tests.environments import Environment, build_wheel, install_wheel

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def python(installed: Callable[[str], Environment]) -> Path:
    """The interpreter of an environment with the wheel, without any extra, and without pip."""
    return installed("serde-chain").python


def run(python: Path, program: str) -> str:
    """Run a program away from the repository; what it printed."""
    done = subprocess.run([python, "-I", "-c", program], cwd="/", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_holds_both_packages_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0].partition("-")[0] for name in names} == {"serde_chain", "payload_stores"}
    assert {name for name in names if name.endswith("py.typed")} == {"serde_chain/py.typed", "payload_stores/py.typed"}
    assert {"serde_chain/testing/services/ivy.xml", "serde_chain/testing/services/jars.sha256"} <= set(names)
    assert len([name for name in names if name.startswith("serde_chain/testing/vectors/")]) == 11
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_the_wheel_says_what_it_is_made_of(wheel: Path) -> None:
    """PEP 770: a bill of materials that names this version, and the crates of the compiled part if it has it."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if ".dist-info/sboms/" in name)
        text = archive.read(name).decode()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    bom = Bom.from_json(json.loads(text))  # type: ignore[attr-defined]  # made by a decorator
    assert bom.metadata.component is not None
    assert str(bom.metadata.component.purl) == f"pkg:pypi/serde-chain@{version_of('serde-chain')}"
    assert bool(bom.components) == ("-abi3-" in wheel.name)


def test_a_wheel_for_this_platform_or_a_pure_one(wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first where cargo runs; both work."""
    (tmp_path / "cargo").symlink_to("/bin/false")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    pure = build_wheel(tmp_path / "wheels")
    assert pure.name.endswith("-py3-none-any.whl")
    for each in {wheel, pure}:
        environment = install_wheel(tmp_path / each.stem, each)
        program = "from serde_chain.stages.avro.native import library; print(library() is not None)"
        assert run(environment.python, program) == f"{'-abi3-' in each.name}\n"


def test_a_chain_of_the_core_works_without_any_other_package(python: Path) -> None:
    program = """
from serde_chain import DeserializerChain, RecordContext, SerializerChain
store = {"large.message.payload.store.class": "memory", "large.message.threshold.bytes": 10}
context = RecordContext(topic="topic", field="value", headers=[])
serialize = SerializerChain.from_config({"value.serializers": "string, gzip, large-message", **store})
deserialize = DeserializerChain.from_config({"value.deserializers": "large-message, gzip, string", **store})
data = serialize("hello " * 100, context)
assert len(context.headers) > 0
print(deserialize(data, context) == "hello " * 100)
"""
    assert run(python, program) == "True\n"


@pytest.mark.parametrize(
    ("config", "extra"),
    [
        ({"value.serializers": "avro", "avro.schema": '"string"'}, "avro"),
        ({"value.serializers": "json"}, "json"),
        ({"value.serializers": "string, zstd"}, "compression"),
        ({"value.serializers": "string, lz4"}, "compression"),
        ({"value.serializers": "string, snappy"}, "compression"),
        (
            {
                "value.serializers": "bytes, large-message",
                "large.message.payload.store.class": "memory",
                "large.message.format": "bakdata-flag",
                "large.message.id": "murmur3",
            },
            "bakdata",
        ),
        (
            {
                "value.serializers": "string, large-message",
                "large.message.payload.store.class": "s3",
                "s3.bucket": "bucket",
            },
            "s3",
        ),
        (
            {
                "value.serializers": "string, large-message",
                "large.message.payload.store.class": "objects",
                "objects.url": "gs://bucket/",
            },
            "objects",
        ),
    ],
    ids=["avro", "json", "zstd", "lz4", "snappy", "bakdata", "s3", "objects"],
)
def test_a_missing_extra_is_named(python: Path, config: dict[str, str], extra: str) -> None:
    program = f"""
import serde_chain
context = serde_chain.RecordContext(topic="topic", field="value", headers=[])
try:
    serde_chain.SerializerChain.from_config({config!r})("x" * 2_000_000, context)
except serde_chain.MissingDependencyError as error:
    print(error)
"""
    assert f"pip install 'serde-chain[{extra}]'" in run(python, program)


def test_a_missing_part_of_a_shared_namespace_is_named_in_full(python: Path) -> None:
    program = """
import serde_chain
try:
    serde_chain.SerializerChain.from_config({"value.serializers": "protobuf", "protobuf.message.class": "a.B"})
except serde_chain.MissingDependencyError as error:
    print(error)
"""
    assert run(python, program) == "google.protobuf is not installed. pip install 'serde-chain[protobuf]'\n"


@pytest.mark.parametrize(
    "line",
    ["from serde_chain.testing import SerializerTests", "from payload_stores.testing import PayloadStoreTests"],
)
def test_suites_name_their_extra(python: Path, line: str) -> None:
    program = f"""
from payload_stores import MissingDependencyError
try:
    {line}
except MissingDependencyError as error:
    print(error)
"""
    assert run(python, program) == "pytest is not installed. pip install 'serde-chain[testing]'\n"


@pytest.mark.parametrize("name", ["Producer", "Consumer"])
def test_clients_name_their_extra(python: Path, name: str) -> None:
    program = f"""
import serde_chain
try:
    serde_chain.{name}({{"bootstrap.servers": "127.0.0.1:1", "group.id": "group"}})
except serde_chain.MissingDependencyError as error:
    print(error)
"""
    assert "pip install 'serde-chain[kafka]'" in run(python, program)


def test_all_names_are_imported_with_a_star(python: Path) -> None:
    program = """
from serde_chain import *
print(SerializerChain.__name__, "Producer" in globals())
"""
    assert run(python, program) == "SerializerChain False\n"


def test_services_name_their_extra(python: Path) -> None:
    program = """
from serde_chain.testing import services
for name in ("KafkaBroker", "S3Server", "spark_session"):
    try:
        getattr(services, name)
    except services.ServiceMissingError as error:
        print(error)
"""
    lines = run(python, program).splitlines()
    assert len(lines) == 3
    assert all("pip install 'serde-chain[services]'" in line for line in lines)


def test_the_command_names_its_extra(python: Path) -> None:
    command = python.parent / "serde-chain"
    done = subprocess.run([command, "--help"], cwd="/", capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "pip install 'serde-chain[cli]'" in done.stderr
    assert "Traceback" not in done.stderr
