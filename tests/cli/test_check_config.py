"""``serde-chain check-config``: mistakes with their lines, and the tree."""

import json
import os
import sys
import tomllib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from payload_stores.options import Option
from payload_stores.plugins import require
from serde_chain import Serializer
from serde_chain.cli.doctor.examine import examine
from serde_chain.cli.mistakes import check_config, mistakes
from serde_chain.cli.positions import lines_of
from serde_chain.cli.routed import threshold_of
from serde_chain.errors import ConfigError, MissingDependencyError
from tests.cli.conftest import run

TOML = """\
# ten mistakes
"bootstrap.servers" = "broker:9092"
"sasl.mechansim" = "PLAIN"
"linger.ms" = -4
"buffer.memory" = 33554432
"value.serializers" = [
    "avro",
    "zstdd",  # there is none
    "large-message",
]
"value.deserializers" = "large-message, zstd, avro"

[avro]
shema = '''
"key.serializer" = "this is text"
'''
[compression]
max.output.bytes = "many"
[large.message]
payload.store.class = "s3"
threshold.bytes = "few"
id = "ramdom"
[s3]
bukket = "payloads"
secret.key = "hush-hush"
"""
EXPECTED = {
    3: "'sasl.mechansim' is not a key of a stage",
    4: "refuses the value of 'linger.ms'",
    5: "'buffer.memory' is not a key of",
    6: "there is no stage 'zstdd'",
    14: "'avro.shema' is not a configuration key",
    18: "compression.max.output.bytes = 'many'",
    21: "large.message.threshold.bytes = 'few'",
    22: "large.message.id = 'ramdom'",
    24: "'s3.bukket' is not a configuration key",
    None: "s3.bucket is required",
}


def test_ten_mistakes_are_reported_with_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "client.toml"
    path.write_text(TOML)
    done = run("check-config", path, code=1)
    assert done.stdout == ""
    assert "hush" not in done.stderr
    lines = done.stderr.splitlines()
    for line, text in EXPECTED.items():
        begin = f"Error: line {line}: " if line else "Error: "
        assert [told for told in lines if told.startswith(begin) and text in told], (line, text, done.stderr)
    told = [json.loads(line) for line in run("check-config", "--json", path, code=1).stdout.splitlines()]
    assert len(told) == len(lines)
    numbers = [mistake["line"] for mistake in told if mistake["line"]]
    assert numbers == sorted(numbers)
    assert {mistake["line"] for mistake in told} >= EXPECTED.keys()


def test_doctor_finds_the_same(tmp_path: Path) -> None:
    path = tmp_path / "client.toml"
    path.write_text(TOML)
    told = [json.loads(line) for line in run("check-config", "--json", path, code=1).stdout.splitlines()]
    assert told == [finding.content for finding in examine(path, ["images"])]
    assert {(mistake["name"], mistake["level"]) for mistake in told} == {("configuration", "error")}
    assert told[0]["hint"] == told[0]["change"]


def test_deserializers_that_do_not_reverse_the_serializers_are_warned_of(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text(
        "bootstrap.servers = 127.0.0.1:1\nvalue.serializers = json, zstd\nvalue.deserializers = json\n"
        "enable.idempotence = true\nmessage.timeout.ms = 1000\n"
    )
    warnings = run("check-config", path).stderr.splitlines()
    assert warnings[1] == (
        "Warning: value.serializers has json, zstd, and value.deserializers reverses json. "
        "Set value.deserializers = zstd, json"
    )
    # The broker is not needed for that.
    names = [(finding.name, finding.level) for finding in examine(path, ["images"], timeout_s=1)]
    assert names == [
        ("configuration", "ok"), ("delivery", "warning"), ("deserializers", "error"), ("broker", "error"),
    ]  # fmt: skip


def test_doctor_tells_no_reader_of_the_producers_delivery(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text(
        "bootstrap.servers = 127.0.0.1:1\nvalue.deserializers = json\n"
        "enable.idempotence = true\nmessage.timeout.ms = 1000\n"
    )
    names = [finding.name for finding in examine(path, ["images"], timeout_s=1)]
    assert names == ["configuration", "broker"]


def test_lines_of_properties(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("# a\nvalue.serializers = json, \\\n  zstd\n\njson.shema: {}\njson.shema = []\n")
    assert lines_of(path, path.read_text()) == {"value.serializers": 2, "json.shema": 6}
    [line] = run("check-config", path, code=1).stderr.splitlines()
    assert line.startswith("Error: line 6: 'json.shema' is not a configuration key")


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_lines_of_files_from_elsewhere(tmp_path: Path, mark: bytes, end: bytes) -> None:
    properties = (
        b"# \xc2\x85\xe2\x80\xa8\x0c",
        b"client.id = me, \\",
        b" and more",
        b"value.serializers = zstdd",
        b"Linger.MS = 5",
    )
    (tmp_path / "client.properties").write_bytes(mark + end.join(properties))
    toml = (
        b"# \xc2\x85\xe2\x80\xa8",
        b'"client.id" = """',
        b'[x]"""',
        b'"value.serializers" = "zstdd"',
        b'"Linger.MS" = 5',
    )
    for path in (tmp_path / "client.properties", tmp_path / "client.toml"):
        if path.suffix == ".toml":
            if end == b"\r":
                continue  # no end of a line there
            path.write_bytes(mark + end.join(toml))
        mistakes = check_config(path).mistakes
        assert [(mistake.where["line"], mistake.where["key"]) for mistake in mistakes] == [
            (4, "value.serializers"),
            (5, "Linger.MS"),
        ]
        assert "Did you mean linger.ms?" in mistakes[1].text


def test_lines_of_tables(tmp_path: Path) -> None:
    path = tmp_path / "client.toml"
    text = (
        "# a\n[avro]\nschema = '''\n[json]\n'''\n\n[avro.reader]  # b\nschema = 'x'\n[large]\nmessage.id = 1\n"
        "message.grace = [\n {ms = 1},\n]\n[[large.list]]\na = 1\n[[large.list]]\nb = 1\n"
    )
    lines = lines_of(path, text)
    assert {key: line for key, line in lines.items() if "." in key} == {
        "avro.schema": 3,
        "avro.reader": 7,
        "avro.reader.schema": 8,
        "large.message": 10,
        "large.message.id": 10,
        "large.message.grace": 11,
        "large.list": 14,
    }
    assert (lines["ms"], lines["a"], lines["b"]) == (11, 15, 17)


def test_a_long_file_is_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, read = tmp_path / "client.toml", 0
    loads = tomllib.loads

    def counted(text: str) -> dict[str, Any]:
        nonlocal read
        read += len(text)
        return loads(text)

    monkeypatch.setattr("serde_chain.cli.positions.tomllib.loads", counted)
    text = "[json]\n" + "".join(f"key{number} = {number}\n" for number in range(2000))
    assert lines_of(path, text)["json.key1999"] == 2001
    assert read < 3 * len(text)


@pytest.mark.parametrize("command", ["check-config", "doctor"])
def test_a_configuration_out_of_a_pipe(command: str, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    text = "value.serializers = zstd\nbootstrap.servers = 127.0.0.1:1\n"
    with ThreadPoolExecutor(1) as thread:
        written = thread.submit(pipe.write_text, text)
        topic = ["images", "--timeout", 0.2] if command == "doctor" else []
        shown = run(command, pipe, *topic, code=int(command == "doctor")).stdout
        assert written.result(60) == len(text)
    assert ("zstd" if command == "check-config" else "error    broker") in shown


def test_lines_of_stages_with_options(tmp_path: Path) -> None:
    path = tmp_path / "client.toml"
    path.write_text('"value.serializers" = [\n "json",\n {class = "zstd", "compression.level" = "high"},\n]\n')
    assert lines_of(path, path.read_text())["compression.level"] == 1
    done = run("check-config", path, code=1)
    assert done.stderr.startswith("Error: line 1: compression.level = 'high'")


def test_defaults_that_depend_on_more_than_the_key(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("value.deserializers = large-message, bytes\nlarge.message.payload.store.class = memory\n")
    shown = run("check-config", path, columns=200).stdout
    assert "large.message.downloads.max.bytes = 268435456 (default; 67108864 in Spark)\n" in shown
    assert "large.message.accept = kip1159, bakdata-headers (default; with the store hop, hop too)\n" in shown
    path.write_text("value.serializers = bytes, large-message\nlarge.message.payload.store.class = memory\n")
    shown = run("check-config", path, columns=200).stdout
    assert "large.message.id = random (default; content if the client sees that the topic is compacted)\n" in shown


@pytest.mark.full
@pytest.mark.parametrize(
    ("registry", "shown", "hidden"),
    [
        ({}, (), ("schema.registry.type", "auto.register", "glue.", "apicurio.")),
        ({"schema.registry.url": "http://r"}, ("auto.register.schemas = true",), ("glue.", "apicurio.")),
        (
            {"schema.registry.type": "glue", "glue.region": "eu-west-1", "json.schema": "{}"},
            ("glue.compression = none",),
            ("apicurio.",),
        ),
    ],
)
def test_defaults_of_other_registries_are_not_shown(
    tmp_path: Path, registry: dict[str, str], shown: tuple[str, ...], hidden: tuple[str, ...]
) -> None:
    path = tmp_path / "client.properties"
    path.write_text("".join(f"{key} = {value}\n" for key, value in {"value.serializers": "json", **registry}.items()))
    done = run("check-config", path).stdout
    assert all(text in done for text in shown)
    assert not any(text in done for text in hidden)


@pytest.mark.full
@pytest.mark.parametrize("columns", [40, 200])
def test_chains_routes_and_stores_are_a_tree(tmp_path: Path, columns: int) -> None:
    path = tmp_path / "client.properties"
    path.write_text(
        "value.serializers = json, zstd, large-message\nlarge.message.payload.store.class = memory\n"
        "large.message.route.images.topics = images-*\nlarge.message.route.images.payload.store.class = s3\n"
        "large.message.route.images.s3.bucket = payloads\nbootstrap.servers = broker:9092\n"
    )
    shown = run("check-config", path, "images-1", columns=columns).stdout
    assert max(map(len, shown.splitlines())) <= columns
    if columns == 40:
        return
    assert shown.startswith(
        "client.properties\n├── value.serializers\n│   ├── 1 json: object → bytes\n"
        "│   ├── 2 zstd: bytes → bytes\n│   │   └── compression.min.bytes = 0 (default)\n"
    )
    assert "├── large messages, by topic\n│   ├── images-*: route images\n│   │   ├── store = s3\n" in shown
    assert "│   └── all others\n│       ├── store = memory\n│       └── threshold = 999964\n" in shown
    assert "├── these topics\n│   └── images-1: route images\n│       ├── store = s3\n" in shown
    assert "└── for the Kafka client\n    └── bootstrap.servers = broker:9092\n" in shown


@pytest.mark.parametrize(
    ("settings", "threshold"),
    [
        ({}, 999_964),  # librdkafka sends no more, whatever the KIP's default
        ({"message.max.bytes": 5_000_000}, 1_048_576),
        ({"large.message.threshold.bytes": 1000}, 1000),
        ({"large.message.threshold.bytes": "auto"}, "auto"),
        ({"large.message.format": "hop"}, "auto"),  # hop's clients learn the limit
    ],
)
def test_the_threshold_is_the_one_that_counts(settings: dict[str, object], threshold: object) -> None:
    assert threshold_of(settings) == threshold


def test_auto_says_which_clients_cannot_ask(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text(
        "value.serializers = bytes, large-message\nlarge.message.payload.store.class = memory\n"
        "large.message.threshold.bytes = auto\n"
    )
    words = "auto (the topic's limit; kafka-python and bare chains cannot ask)"
    shown = run("check-config", path, "images", columns=200).stdout
    assert f"large.message.threshold.bytes = {words}\n" in shown
    assert f"threshold = {words}\n" in shown
    assert "cannot ask" not in run("check-config", "--json", path).stdout


def test_what_a_stage_refuses_by_itself_is_reported_beside_other_mistakes(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text(
        "value.serializers = avro, encrypt, large-message\n"
        "key.serializers = strng, encrypt\n"
        "avro.framing = none\n"
        "large.message.payload.store.class = s3\n"
    )
    lines = run("check-config", path, code=1).stderr.splitlines()
    assert [line for line in lines if "encryption.key" in line]
    assert [line for line in lines if "s3.bucket is required" in line]
    assert [line for line in lines if "'strng'" in line]
    assert [line for line in lines if "avro.schema" in line]
    assert len(set(lines)) == len(lines)


def test_a_package_that_is_missing_is_reported_beside_other_mistakes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    _, wrong = mistakes({"value.serializers": "strng, encrypt", "encryption.keys": "k = env:KEY"})
    assert [type(error) for error in wrong] == [ConfigError, MissingDependencyError]
    assert "serde-chain[encryption]" in str(wrong[1])


class Tagged(Serializer[bytes]):
    """Requires a package as soon as its options are determined."""

    @classmethod
    def options_for(cls, config: Mapping[str, object]) -> tuple[Option[Any], ...]:
        require("absent_package", "tags")
        return cls.options

    def __call__(self, data: bytes | None, ctx: object = None, /) -> bytes | None:
        return data


def test_a_package_that_the_options_require_is_reported_once() -> None:
    _, wrong = mistakes({"value.serializers": [Tagged], "linger.ms": -4})
    assert [type(error) for error in wrong] == [MissingDependencyError, ConfigError]


def test_lines_of_a_configuration_in_bakdatas_keys(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text(
        "value.serializer = com.bakdata.kafka.LargeMessageSerializer\n"
        "large.message.max.byte.size = few\n"
        "large.message.base.path = s3://payloads/\n"
        "large.message.s3.path.style.access = perhaps\n"
    )
    told = [json.loads(line) for line in run("check-config", "--json", path, code=1).stdout.splitlines()]
    assert [(mistake["line"], mistake["key"]) for mistake in told] == [
        (2, "large.message.threshold.bytes"),
        (4, "s3.path.style.access"),
    ]
    path.write_text("# Java's\nlarge.message.gs.host = example.org\n")
    assert run("check-config", path, code=1).stderr.startswith("Error: line 2: large.message.gs.host cannot be")
    [check] = examine(path, ["images"])
    assert check.text.startswith("line 2: large.message.gs.host cannot be")


def test_a_record_schema_of_keys_and_values_is_warned_of(tmp_path: Path) -> None:
    schema = '{"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}'
    path = tmp_path / "client.toml"
    chains = '"key.deserializer" = "avro"\n"value.deserializers" = "zstd, avro"\n'
    path.write_text(f"{chains}\"avro.schema\" = '{schema}'\n")
    done = run("check-config", path)
    told = "avro.schema names one record schema for the deserializers of keys and of values. Set key.avro.schema and"
    assert f"Warning: {told} value.avro.schema" in done.stderr
    for fine in (f"\"key.avro.schema\" = 'long'\n\"value.avro.schema\" = '{schema}'\n", "\"avro.schema\" = 'long'\n"):
        path.write_text(chains + fine)
        done = run("check-config", path)
        assert "Warning" not in done.stderr
    path.write_text(f"{chains}\"avro.schema\" = 'long'\n\"key.avro.schema.file\" = 'nowhere.avsc'\n")
    assert "Error: line 4: " in run("check-config", path, code=1).stderr


@pytest.mark.full
@pytest.mark.parametrize(
    ("settings", "warns"),
    [
        ("enable.idempotence=true\nmessage.timeout.ms=30000", True),
        ("enable.idempotence=true\nmessage.timeout.ms=300000", False),
        ("enable.idempotence=true\nmessage.timeout.ms=0", False),
        ("enable.idempotence=true", False),
        ("message.timeout.ms=30000", False),
        ("transactional.id=t\nenable.idempotence=true\nmessage.timeout.ms=30000", False),
    ],
)
def test_an_idempotent_producer_that_gives_up_soon(tmp_path: Path, settings: str, *, warns: bool) -> None:
    path = tmp_path / "client.properties"
    path.write_text(f"bootstrap.servers=localhost:9092\nvalue.serializers=json\n{settings}\n")
    result = run("check-config", path)
    assert result.returncode == 0
    assert ("message.timeout.ms (30 s)" in result.stderr) is warns


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"value.serializers": "absent.package.Mask, zstd"}, ["'absent.package.Mask' cannot be imported"]),
        ({"value.serializers": "mask"}, ["there is no stage 'mask'"]),
        (
            {"value.serializers": "large-message", "large.message.payload.store.class": "absent.Shelf"},
            ["'absent.Shelf' cannot be imported"],
        ),
        ({"value.serializers": "zstdd"}, ["there is no stage 'zstdd'", "'mask.byte' is not a key of"]),
    ],
    ids=["path", "name", "store", "misspelt"],
)
def test_keys_of_a_missing_stage_are_no_second_mistake(settings: dict[str, object], expected: list[str]) -> None:
    _, found = mistakes({"bootstrap.servers": "broker:9092", "mask.byte": 1, **settings})
    wrong = list(map(str, found))
    assert len(wrong) == len(expected)
    assert all(text in message for text, message in zip(expected, wrong, strict=True))


def test_a_key_of_the_client_is_checked_beside_a_missing_stage() -> None:
    _, wrong = mistakes({"value.serializers": "absent.package.Mask", "linger.ms": -4})
    assert [error.context.get("key") for error in wrong] == ["value.serializers", "linger.ms"]


def test_a_file_that_the_client_will_not_find(tmp_path: Path) -> None:
    (tmp_path / "key.pem").touch()
    files = {"ssl.ca.location": f"{tmp_path}/ca.pem", "ssl.key.location": f"{tmp_path}/key.pem"}
    _, errors = mistakes({"security.protocol": "SSL", **files, "https.ca.location": "probe"})
    assert [error.message for error in errors] == [f"ssl.ca.location = {tmp_path}/ca.pem: there is no such file"]


@pytest.mark.full
def test_the_store_of_fields_and_their_mistakes(tmp_path: Path) -> None:
    path = tmp_path / "client.toml"
    text = '"value.serializers" = "{}"\n"large.fields.paths" = "cutout"\n"large.fields.min.bytes" = {}\n'
    store = f'"large.message.payload.store.class" = "local"\n"local.path" = "{tmp_path}"\n'
    path.write_text(text.format("large-fields, json", 100) + store)
    done = run("check-config", path, "images")
    assert "large-fields: object → object" in done.stdout
    assert "large.fields.min.bytes = 100" in done.stdout
    content = json.loads(run("check-config", path, "images", "--json").stdout)
    assert content["topics"] == {"images": {"route": None, "topics": ["all others"], "store": "local", "settings": {}}}
    path.write_text(text.format("json, large-fields", -1) + store)
    mistaken = run("check-config", path, code=1).stderr
    assert "large-fields (2 of 2) cannot come after json (1 of 2)" in mistaken
    assert "line 3: large.fields.min.bytes" in mistaken
