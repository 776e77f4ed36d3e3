"""``serde-chain produce`` and ``consume`` as a user calls them."""

import base64
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from payload_stores import SupportsDelete, open_store
from serde_chain import Consumer
from serde_chain.cli.files import save
from serde_chain.testing.services import KafkaBroker
from serde_chain.wire.kip1159 import MARKER
from tests.cli.conftest import COMMAND, environment, run, run_process
from tests.conftest import NewTopic

SCHEMA = (
    '{"type": "record", "name": "Image", "fields": [{"name": "name", "type": "string"},'
    ' {"name": "pixels", "type": "bytes"}]}'
)
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
# Not long ago: the broker deletes what is older than its retention.
BEGIN = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=1)
BEGIN_MS = int(BEGIN.timestamp()) * 1000
Configure = Callable[..., Path]


@pytest.fixture
def configure(broker: KafkaBroker, tmp_path: Path) -> Configure:
    """Writes a configuration whose large messages go to a folder, which is there."""
    store = open_store("local", {"local.path": str(tmp_path / "payloads")})
    assert isinstance(store, SupportsDelete)
    store.delete(store.publish("first", b""))

    def write(writes: str, reads: str, **more: object) -> Path:
        config = {
            **broker.client_config(),
            "value.serializers": writes,
            "value.deserializers": reads,
            "large.message.payload.store.class": "local",
            "local.path": tmp_path / "payloads",
            "large.message.threshold.bytes": 1000,
            **more,
        }
        path = tmp_path / "client.properties"
        path.write_text("".join(f"{key} = {value}\n" for key, value in config.items()))
        return path

    return write


@pytest.fixture
def plain(configure: Configure) -> Path:
    return configure("bytes, large-message", "large-message, bytes")


@pytest.fixture
def avro(configure: Configure) -> Path:
    return configure("avro, zstd, large-message", "large-message, zstd, avro", **{"avro.schema": SCHEMA})


def consumed(*arguments: object, code: int = 0) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run("consume", *arguments, "--json", code=code).stdout.splitlines()]


@pytest.mark.full
def test_files_go_there_and_back(plain: Path, topic: str, tmp_path: Path) -> None:
    folder = tmp_path / "files"
    (folder / "m51").mkdir(parents=True)
    contents = {"a.bin": os.urandom(500), "large.bin": os.urandom(3_000_000), "m51/b.png": PNG * 10, "note.txt": b"hi"}
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    sent = run("produce", plain, topic, folder, "--name-as-key", "--header", "band=g", "--json")
    total = sum(map(len, contents.values()))
    assert json.loads(sent.stdout) == {"topic": topic, "sent": 4, "failed": 0, "bytes": total}
    records = consumed(plain, topic)
    assert [record["key"] for record in records] == sorted(contents)
    assert all(record["headers"] == [["band", "g"]] for record in records)
    out = tmp_path / "out"
    out.mkdir()
    saved = consumed(plain, topic, "--output", out)
    assert {s["key"]: Path(s["file"]).read_bytes() for s in saved} == contents
    assert {s["key"]: Path(s["file"]).name for s in saved} == {
        name: f"{topic}-0-{at}-{name.replace('/', '_')}" for at, name in enumerate(sorted(contents))
    }
    assert [s["bytes"] for s in saved] == [len(contents[s["key"]]) for s in saved]
    assert {path.name for path in out.iterdir()} == {Path(s["file"]).name for s in saved}


def test_what_is_piped_in_is_streamed(plain: Path, topic: str, tmp_path: Path) -> None:
    content = os.urandom(1 << 20) * 48
    process = subprocess.Popen(
        [*COMMAND, "produce", str(plain), topic, "-", "--key", "big"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(),
    )
    out, _ = process.communicate(content, timeout=100)
    assert process.returncode == 0
    assert out.decode() == f"1 record, {len(content):,} bytes, sent to {topic}\n"
    run("consume", plain, topic, "--output", tmp_path)
    [saved] = tmp_path.glob(f"{topic}-0-0-big*")
    assert hashlib.sha256(saved.read_bytes()).digest() == hashlib.sha256(content).digest()


def test_lines_become_what_the_chain_takes(avro: Path, topic: str) -> None:
    lines = '{"name": "M 51", "pixels": {"base64": "/9g="}}\n\n{"name": "M 87", "pixels": {"base64": ""}}\n'
    assert run("produce", avro, topic, stdin=lines).stdout == f"2 records, {len(lines) - 3} bytes, sent to {topic}\n"
    assert run("consume", avro, topic).stdout.splitlines() == [
        '{"name": "M 51", "pixels": "<2 bytes>"}',
        '{"name": "M 87", "pixels": "<0 bytes>"}',
    ]
    [record, _] = consumed(avro, topic)
    assert record["value"] == {"name": "M 51", "pixels": {"base64": "/9g="}}


def test_records_go_from_topic_to_topic(configure: Configure, topic: str, new_topic: NewTopic) -> None:
    path = configure(
        "avro, large-message", "large-message, avro", **{"avro.schema": SCHEMA, "key.serializer": "string"}
    )
    record = {
        "key": "M 51",
        "headers": [["band", "g"], ["raw", {"base64": "/w=="}]],
        "value": {"name": "M 51", "pixels": {"base64": "AAAA"}},
        "timestamp_ms": BEGIN_MS,
    }
    run("produce", path, topic, "--records", stdin=json.dumps(record) + '\n{"key": "M 51", "value": null}\n')
    first = run("consume", path, topic, "--json").stdout
    other = new_topic()
    run("produce", path, other, "--records", stdin=first)
    copied = consumed(path, other)
    assert {name: copied[0][name] for name in record} == record
    assert copied[1]["value"] is None
    assert [{**one, "topic": topic} for one in copied] == [json.loads(line) for line in first.splitlines()]


@pytest.mark.full
def test_keys_in_lines_and_partitions(configure: Configure, new_topic: NewTopic) -> None:
    path = configure("string", "string", **{"key.serializer": "integer", "key.deserializer": "integer"})
    topic = new_topic(3)
    run("produce", path, topic, "--key-separator", ":", "--partition", 2, stdin="7:a:b\n8:c\n")
    assert [(r["partition"], r["key"], r["value"]) for r in consumed(path, topic)] == [(2, 7, "a:b"), (2, 8, "c")]
    done = run("produce", path, topic, "--key-separator", ":", stdin="9:d\nnone\n", code=1)
    assert "[file=-, line=2]" in done.stderr
    assert done.stdout.startswith("1 record, ")


@pytest.mark.full
@pytest.mark.parametrize(
    ("arguments", "stdin", "expected"),
    [
        (["--lines"], "{", "the content is not JSON"),
        (["--lines"], "[" * 100_000, "the content is nested too deeply"),
        (["--records"], "[]", "the line is not a record as printed by consume --json"),
        (["--records"], '{"value": {}, "headers": [1]}', "its headers are not pairs"),
        ([], '{"name": 1}', "[file=-, line 1]"),
        ([], '{"name": "M 51", "pixels": "text"}', 'write {"base64": "…"}'),
        ([], '{"name": "M 51", "pixels": {"base64": "!"}}', "a field cannot be read"),
        (["--records"], '{"value": {"base64": "!"}}', "a field cannot be read"),
        (["--records"], '{"value": {}, "headers": [["a", 5]]}', "its headers are not pairs"),
        (["--records"], '{"value": {}, "timestamp_ms": "now"}', "its timestamp_ms is not a whole number"),
        (["--records"], f'{{"value": {{}}, "timestamp_ms": {10**30}}}', "its timestamp_ms is not a whole number"),
        (["--records"], "[" * 100_000, "the line is nested too deeply"),
        (["--records"], '{"value": {"name": "", "pixels": {"base64": ""}}, "key": {"a": 1}}', "[file=-, line 1]"),
    ],
)
def test_bad_input_is_reported_with_its_line(
    avro: Path, topic: str, arguments: list[str], stdin: str, expected: str
) -> None:
    done = run("produce", avro, topic, *arguments, stdin=stdin, code=1)
    [line] = done.stderr.splitlines()
    assert line.startswith("Error: ")
    assert expected in line
    assert done.stdout == f"0 records, 0 bytes, sent to {topic}\n"


@pytest.mark.full
def test_options_that_contradict_each_other_are_wrong_usage(plain: Path, topic: str) -> None:
    for arguments in (["--name-as-key"], [str(plain), "--key-separator", ":"], ["--key", "a", "--key-separator", ":"]):
        run("produce", plain, topic, *arguments, code=2)
    run("produce", plain, topic, "--header", "band", code=2)
    run("consume", plain, topic, "--offsets", "5..", "--from", 0, code=2)
    for wrong in ("7..5", "x", "..", ""):
        run("consume", plain, topic, "--offsets", wrong, code=2)
    run("consume", plain, topic, "--from", "yesterday", code=2)
    for command in ("produce", "consume"):
        run(command, plain, topic, "--partition", 2**31, code=2)


@pytest.fixture
def counted(plain: Path, topic: str) -> str:
    """A topic with the records 0 to 19, one a millisecond from BEGIN on, and the keys k0 and k1."""
    lines = (json.dumps({"key": f"k{n % 2}", "value": str(n), "timestamp_ms": BEGIN_MS + n}) for n in range(20))
    run("produce", plain, topic, "--records", stdin="\n".join(lines))
    return topic


@pytest.mark.full
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--offsets", "5..7"], [5, 6, 7]),
        (["--offsets", "5-7"], [5, 6, 7]),
        (["--offsets", "18.."], [18, 19]),
        (["--offsets", "..1"], [0, 1]),
        (["--offsets", "7"], [7]),
        (["--from", str(BEGIN_MS + 18)], [18, 19]),
        (["--from", (BEGIN + timedelta(milliseconds=19)).isoformat()], [19]),
        (["--from", str(BEGIN_MS // 1000)], list(range(20))),
        (["--from", str(BEGIN_MS // 1000 + 1)], []),
        (["--from", "0", "--count", "1"], [0]),
        (["--from", "2999-01-01"], []),
        (["--from", "1960-01-01", "--count", "1"], [0]),
        (["--last", "2"], [18, 19]),
        (["--last", "100", "--count", "1"], [0]),
        (["--count", "3"], [0, 1, 2]),
        (["--key", "k1", "--count", "2"], [1, 3]),
        (["--key", "k1", "--last", "2"], [17, 19]),
        (["--key", "none"], []),
    ],
    ids=lambda value: str(value[0]) if value and isinstance(value[0], str) else "",
)
def test_records_are_selected(plain: Path, counted: str, options: list[str], expected: list[int]) -> None:
    assert [record["offset"] for record in consumed(plain, counted, *options)] == expected


@pytest.mark.full
def test_several_partitions_are_read_to_their_ends(plain: Path, new_topic: NewTopic) -> None:
    topic = new_topic(3)
    run("produce", plain, topic, stdin="\n".join(map(str, range(300))))
    records = consumed(plain, topic)
    assert sorted(int(r["value"]) for r in records) == list(range(300))
    by_partition = [[r["offset"] for r in records if r["partition"] == p] for p in range(3)]
    assert by_partition == [list(range(len(offsets))) for offsets in by_partition]
    assert len(consumed(plain, topic, "--last", 1)) == sum(map(bool, by_partition))
    assert {r["partition"] for r in consumed(plain, topic, "--partition", 1)} <= {1}
    run("consume", plain, topic, "--partition", 3, code=1)


@pytest.mark.parametrize("size", [10, 5000])
def test_a_file_as_standard_input_is_counted(plain: Path, topic: str, tmp_path: Path, size: int) -> None:
    (tmp_path / "file").write_bytes(bytes(size))
    with (tmp_path / "file").open("rb") as file:
        command = [*COMMAND, "produce", str(plain), topic, "-"]
        done = subprocess.run(command, stdin=file, capture_output=True, env=environment(), check=True, timeout=100)
    assert done.stdout.decode() == f"1 record, {size:,} bytes, sent to {topic}\n"


def test_what_is_piped_in_is_counted_without_a_stream(avro: Path, topic: str) -> None:
    content = '{"name": "M 51", "pixels": {"base64": ""}}'
    assert (
        run("produce", avro, topic, "-", stdin=content).stdout == f"1 record, {len(content)} bytes, sent to {topic}\n"
    )


@pytest.mark.full
def test_raw_is_without_a_download(plain: Path, topic: str, tmp_path: Path) -> None:
    run("produce", plain, topic, "-", stdin="a" * 5000)
    [payload] = [
        found for found in (tmp_path / "payloads").rglob("*") if found.is_file() and not found.name.startswith(".")
    ]
    payload.unlink()
    [record] = consumed(plain, topic, "--raw")
    assert [name for name, _ in record["headers"]]
    [failed] = consumed(plain, topic, code=1)
    assert "It was deleted from local.path" in failed["error"]
    assert failed["offset"] == 0


@pytest.mark.full
def test_records_of_no_chain_are_reported_and_passed_over(broker: KafkaBroker, avro: Path, topic: str) -> None:
    run("produce", avro, topic, stdin='{"name": "M 51", "pixels": {"base64": ""}}')
    producer = confluent_kafka.Producer(broker.client_config())
    for value in (b"nonsense", b"", b"\xff" * 100, b"\x28\xb5\x2f\xfd\x00"):
        producer.produce(topic, value)
    producer.produce(topic, None)
    producer.flush(30)
    done = run("consume", avro, topic, code=1)
    assert done.stdout.splitlines() == ['{"name": "M 51", "pixels": "<0 bytes>"}', "null"]
    *errors, last = done.stderr.splitlines()
    assert len(errors) == 4
    assert all(error.startswith("Error: ") and f"topic={topic}" in error and "offset=" in error for error in errors)
    assert last == "Error: 4 of 6 records are undecodable"
    assert run("consume", avro, topic, "--offsets", "1", code=1).stderr.endswith("1 of 1 record is undecodable\n")
    records = consumed(avro, topic, code=1)
    assert ["error" in record for record in records] == [False, True, True, True, True, False]


@pytest.mark.full
@pytest.mark.skipif(sys.version_info >= (3, 12), reason="what orjson reads can be written by json, however deep")
def test_a_value_that_cannot_be_shown_is_reported_and_passed_over(
    broker: KafkaBroker, configure: Configure, topic: str, tmp_path: Path
) -> None:
    producer = confluent_kafka.Producer(broker.client_config())
    for value in (b"[" * 700 + b"]" * 700, b"1"):
        producer.produce(topic, value)
    producer.flush(30)
    for output in ([], ["--output", tmp_path]):
        done = run("consume", configure("json", "json"), topic, *output, code=1)
        assert len(done.stdout.splitlines()) == 1
        assert done.stderr.startswith("Error: the value cannot be shown: ")
        assert f"[topic={topic}, partition=0, offset=0]" in done.stderr
    for more in (["--decode"], ["--payload", tmp_path]):
        [line] = run("inspect", configure("json", "json"), topic, *more, code=1).stderr.splitlines()
        assert line == f"Error: the value is nested too deeply to be shown [topic={topic}, partition=0, offset=0]"


def test_a_payload_that_is_gone_is_reported_and_the_others_are_saved(plain: Path, topic: str, tmp_path: Path) -> None:
    run("produce", plain, topic, stdin="first" * 1000 + "\n" + "second" * 1000)
    [gone] = [path for path in (tmp_path / "payloads" / topic).iterdir() if path.read_bytes().startswith(b"first")]
    gone.unlink()
    done = run("consume", plain, topic, "--output", tmp_path, code=1)
    assert "offset=0" in done.stderr
    assert (tmp_path / f"{topic}-0-1.txt").read_text() == "second" * 1000


@pytest.mark.full
def test_a_record_does_not_control_the_terminal(broker: KafkaBroker, configure: Configure, topic: str) -> None:
    producer = confluent_kafka.Producer(broker.client_config())
    producer.produce(topic, b"\x1b]0;title\x07 and \xc2\x9b2J", headers=[("\x1b]1", b"")])
    producer.produce(topic, b"\x1b]2", headers=[(MARKER, b"true")])
    producer.flush(30)
    text = configure("string", "string")
    assert run("consume", text, topic, "--count", 1).stdout == "\\u001b]0;title\\u0007 and \\u009b2J\n"
    shown = run("inspect", "--config", text, "--topic", topic, "--offsets", "0..1", "--decode").stdout
    errors = run("consume", configure("bytes, large-message", "large-message, bytes"), topic, code=1).stderr
    for output, begin in ((shown, "0;title"), (shown, "1"), (shown, "2"), (errors, "2")):
        assert f"\\u001b]{begin}" in output
        assert "\x1b" not in output


@pytest.mark.parametrize("key", [b"../../" * 100, b"a\0b", b"."])
def test_names_of_files_fit_into_a_folder(key: bytes, tmp_path: Path) -> None:
    class Message:
        def __init__(self, value: object) -> None:
            self.value = lambda: value

        topic, partition, offset, key = lambda _: "t" * 249, lambda _: 10**9, lambda _: 2**62, lambda _: key

    saved = save(Message({"a" * 300: PNG, "b/c": PNG, "b_C": PNG}), tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted([saved.path, *saved.images])
    assert len({str(image).lower() for image in saved.images}) == 3


@pytest.mark.full
def test_images_among_the_fields_are_files_of_their_own(avro: Path, topic: str, tmp_path: Path) -> None:
    value = {"name": "../../M 51", "pixels": {"base64": base64.b64encode(PNG * 20).decode()}}
    run("produce", avro, topic, "--key", "../../etc/passwd", stdin=json.dumps(value))
    out = tmp_path / "out"
    out.mkdir()
    [saved] = consumed(avro, topic, "--output", out)
    assert {path.name for path in out.iterdir()} == {
        f"{topic}-0-0-_.._etc_passwd.json",
        f"{topic}-0-0-_.._etc_passwd.pixels.png",
    }
    [image] = saved["images"]
    assert Path(image).read_bytes() == PNG * 20
    assert json.loads(Path(saved["file"]).read_text()) == value
    [seen] = [
        json.loads(line)
        for line in run(*("inspect", avro, topic, "--payload", tmp_path / "one.json", "--json")).stdout.splitlines()
    ]
    assert seen["saved"] == str(tmp_path / "one.json")
    decoded = run("inspect", avro, topic, "--last", 1, "--decode").stdout
    assert "<5,280 bytes>" in decoded


# A look changes nothing


@pytest.mark.full
def test_a_look_joins_no_group_and_commits_nothing(broker: KafkaBroker, plain: Path, counted: str) -> None:
    with plain.open("a") as file:
        file.write(f"group.id = readers-{counted}\nserde.error.policy = dead-letter\nserde.dead.letter.topic = dead\n")
    with Consumer({**broker.client_config(), "group.id": f"readers-{counted}"}) as consumer:
        consumer.commit(offsets=[TopicPartition(counted, 0, 7)], asynchronous=False)
        assert len(consumed(plain, counted)) == 20
        run("inspect", plain, counted, "--decode")
        [place] = consumer.committed([TopicPartition(counted, 0)], timeout=30)
        assert place.offset == 7
    admin = AdminClient(broker.client_config())  # held until the answer is there
    groups = admin.list_consumer_groups().result(30)
    assert "serde-chain" not in {group.group_id for group in groups.valid}


@pytest.mark.full
def test_reading_a_topic_is_enough(broker: KafkaBroker, counted: str, tmp_path: Path) -> None:
    broker.allow("bob", ["READ"], topic=counted)
    path = tmp_path / "bob.properties"
    path.write_text("".join(f"{key} = {value}\n" for key, value in broker.client_config("bob").items()))
    assert len(consumed(path, counted)) == 20
    run("inspect", path, counted)


# How it ends


@pytest.mark.full
def test_following_ends_with_ctrl_c(plain: Path, counted: str) -> None:
    process = subprocess.Popen(
        [*COMMAND, "consume", str(plain), counted, "--last", "1", "--follow"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "19\n"
    run("produce", plain, counted, stdin="20")
    assert process.stdout.readline() == "20\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "Interrupted\n")


@pytest.mark.full
def test_what_was_read_is_sent_at_ctrl_c(plain: Path, topic: str) -> None:
    process = subprocess.Popen(
        [*COMMAND, "produce", str(plain), topic],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    assert process.stdin is not None
    process.stdin.write("a\nb\n")
    process.stdin.flush()
    deadline = time.monotonic() + 60
    while len(consumed(plain, topic)) < 2:
        assert time.monotonic() < deadline
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "Interrupted\n")
    assert out == f"2 records, 2 bytes, sent to {topic}\n"


@pytest.mark.full
def test_a_closed_pipe_ends_it_without_a_word(plain: Path, counted: str) -> None:
    run("produce", plain, counted, stdin="\n".join("x" * 500 for _ in range(2000)))
    commands = (["consume", plain, counted], ["consume", plain, counted, "--json"], ["check-config", plain])
    for command in (
        *commands,
        ["inspect", plain, counted, "--offsets", "0.."],
        ["doctor", plain, counted],
        ["doctor", plain, counted, "--json"],
        ["replay", plain, counted, "--dry-run"],
        ["stamp", plain, "--check", counted],
    ):
        process = subprocess.Popen(
            [*COMMAND, *map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
        )
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        process.stderr.close()
        assert process.wait(60) == 141


def test_a_terminal_of_40_columns(plain: Path, counted: str) -> None:
    shown = run("inspect", plain, counted, "--decode", columns=40).stdout
    assert max(map(len, shown.splitlines())) <= 40
    assert counted in shown.replace("\n", "").replace(" ", "")


@pytest.mark.full
def test_a_broker_or_a_store_that_is_not_there_is_one_line(plain: Path, counted: str, tmp_path: Path) -> None:
    """Each command waits until its deadlines have passed."""
    away = tmp_path / "away.properties"
    away.write_text("bootstrap.servers = 127.0.0.1:1\nvalue.serializers = bytes\nvalue.deserializers = bytes\n")
    for command in (["produce", away, "t", away], ["consume", away, "t"]):
        [line] = run_process(*command, "--timeout", 2, code=1).stderr.splitlines()
        assert line.startswith("Error: the broker did not answer")
        assert "Connection refused" in line
    away.write_text("bootstrap.servers = 127.0.0.1:1\nvalue.deserializers = byts\n")
    [line] = run_process("consume", away, "t", code=1).stderr.splitlines()
    assert line.startswith("Error: there is no stage 'byts'")
    [line] = run_process("consume", plain, "no-such-topic", code=1).stderr.splitlines()
    assert "Unknown topic" in line
    assert line.endswith("Check the topic's name and bootstrap.servers, or create it")
    [line] = run_process("produce", plain, "no-such-topic", "-", stdin="x", code=1).stderr.splitlines()
    assert line.endswith("Check the topic's name, or create it")
    run_process("produce", plain, counted, "-", stdin="x" * 5000)
    (tmp_path / "payloads").rename(tmp_path / "elsewhere")
    (tmp_path / "payloads").mkdir()
    done = run_process("consume", plain, counted, "--last", 1, code=1)
    [line] = done.stderr.splitlines()
    assert line.startswith("Error: ")
    assert "local" in line


def test_a_traceback_is_for_those_who_ask(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("bootstrap.servers = localhost:1\nvalue.serializers = zstdd\n")
    for arguments in (["--debug", "produce", path, "t"], ["produce", path, "t", "--debug"]):
        done = subprocess.run(
            [*COMMAND, *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=100,
            env=environment(),
            check=False,
        )
        assert done.returncode == 1
        assert "Traceback" in done.stderr
        assert "Error: there is no stage 'zstdd'" in done.stderr
    run("produce", path, "t", code=1)


@pytest.mark.full
def test_a_configuration_of_a_writer_is_reported_to_a_reader(
    broker: KafkaBroker, new_topic: "NewTopic", tmp_path: Path
) -> None:
    topic, config = new_topic(1), tmp_path / "writer.toml"
    config.write_text(f'"bootstrap.servers" = "{broker.bootstrap_servers}"\n"value.serializer" = "json"\n')
    assert run_process("produce", config, topic, stdin="1").stderr == ""
    assert "none for value.deserializers" in run_process("consume", config, topic).stderr
    assert run_process("consume", config, topic, "--raw").stderr == ""


@pytest.mark.full
@pytest.mark.parametrize("fetch", ["eager", "lazy"])
def test_fields_go_to_the_store_and_back(configure: Configure, topic: str, tmp_path: Path, fetch: str) -> None:
    settings = {"avro.schema": SCHEMA, "large.fields.paths": "pixels", "large.fields.min.bytes": 100}
    path = configure("large-fields, avro", "avro, large-fields", **settings, **{"large.fields.fetch": fetch})
    value = {"name": "M 51", "pixels": {"base64": base64.b64encode(PNG).decode()}}
    run("produce", path, topic, stdin=json.dumps(value) + "\n")
    assert [found["value"] for found in consumed(path, topic, "--last", 1)] == [value]
    folder = tmp_path / "saved"
    folder.mkdir()
    run("consume", path, topic, "--last", 1, "--output", folder)
    assert {found.suffix for found in folder.iterdir()} >= {".json"}
    assert PNG in {found.read_bytes() for found in folder.iterdir()}
