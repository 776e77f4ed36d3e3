"""Relative paths in a configuration file count from the file's folder."""

import json
import pickle
import re
from pathlib import Path

import confluent_kafka
import pytest

from serde_chain import ConfigError, DeserializerChain, RecordContext, SerializerChain
from serde_chain.config import _builtin_options, load
from serde_chain.config_paths import anchored, is_path
from tests.cli.conftest import run

SCHEMA = '{"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}'
CONFIG = """
"value.serializers" = ["avro", {class = "large-message"}]
"value.deserializers" = ["large-message", "avro"]
"avro.schema.file" = "schemas/r.avsc"
"large.message.payload.store.class" = "local"
"large.message.threshold.bytes" = 0
"local.path" = "payloads"
"""
# Every name that an option of a path has, in this package and in librdkafka.
_LOOKS_LIKE_A_PATH = re.compile(r"[._](?:path|file|folder|location|keytab)$")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration in one folder; another one is the current folder."""
    folder, elsewhere = tmp_path / "etc", tmp_path / "elsewhere"
    (folder / "schemas").mkdir(parents=True)
    elsewhere.mkdir()
    (folder / "schemas" / "r.avsc").write_text(SCHEMA)
    path = folder / "client.toml"
    path.write_text(CONFIG)
    monkeypatch.chdir(elsewhere)
    return path


def test_a_chain_uses_the_files_beside_its_configuration(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ctx = RecordContext("images", "value")
    writer = pickle.dumps(SerializerChain.from_config(file))
    reader = pickle.dumps(DeserializerChain.from_config(Path("..", "etc", "client.toml")))
    monkeypatch.chdir(tmp_path)  # a worker has another current folder
    write, read = (pickle.loads(chain) for chain in (writer, reader))  # noqa: S301  our own
    with write, read:
        record = write({"id": 7}, ctx)
        assert read(record, ctx) == {"id": 7}
    assert (file.parent / "payloads").is_dir()


def test_every_kind_of_path_counts_from_the_file(file: Path) -> None:
    folder = file.parent
    file.write_text(
        """
        "schema.registry.ssl.ca.location" = "ca.pem"
        "ssl.ca.location" = "probe"
        "ssl.key.location" = "tls/key.pem"
        "ssl.certificate.location" = "/etc/tls/cert.pem"
        "key.json.schema.file" = "../key.json"
        "large.message.journal.path" = "journal"
        "large.message.route.images.local.path" = "images"
        "objects.aws_web_identity_token_file" = "token"
        "mirror.primary" = {class = "local", "local.path" = "one"}
        "mirror.secondary" = {class = "s3", "s3.prefix" = "two"}
        "value.serializers" = ["avro", {class = "encrypt", "encryption.keys" = "k1=file:k1.key, k2=env:K2"}]
        "encryption.keys" = "k1=file:k1.key, k2 = file:/etc/k2.key,k3=file:sub/k3.key"
        "encryption.keys.k4" = "file:k4.key"
        "client.id" = "avro.schema.file"
        """
    )
    loaded = load(file)
    assert loaded["schema.registry.ssl.ca.location"] == str(folder / "ca.pem")
    assert loaded["ssl.ca.location"] == "probe"
    assert loaded["ssl.key.location"] == str(folder / "tls/key.pem")
    assert loaded["ssl.certificate.location"] == "/etc/tls/cert.pem"
    assert loaded["key.json.schema.file"] == str(folder / "../key.json")
    assert loaded["large.message.journal.path"] == str(folder / "journal")
    assert loaded["large.message.route.images.local.path"] == str(folder / "images")
    assert loaded["objects.aws_web_identity_token_file"] == str(folder / "token")
    assert loaded["mirror.primary"] == {"class": "local", "local.path": str(folder / "one")}
    assert loaded["mirror.secondary"] == {"class": "s3", "s3.prefix": "two"}
    keys = f"k1=file:{folder / 'k1.key'}, k2=env:K2"
    assert loaded["value.serializers"] == ["avro", {"class": "encrypt", "encryption.keys": keys}]
    assert loaded["encryption.keys"] == (
        f"k1=file:{folder / 'k1.key'}, k2 = file:/etc/k2.key,k3=file:{folder / 'sub/k3.key'}"
    )
    assert loaded["encryption.keys.k4"] == f"file:{folder / 'k4.key'}"
    assert loaded["client.id"] == "avro.schema.file"


def test_a_tilde_is_the_home_folder(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/carol")
    paths = {
        "local.path": "~/payloads",
        "large.message.journal.path": "~",
        "encryption.keys": "k1 = file:~/k1.key, k2=file:k2.key",
        "avro.schema.file": "~backup/schema.avsc",
        "schema.registry.url": "~/no path",
    }
    assert anchored(paths, file) == {
        "local.path": "/home/carol/payloads",
        "large.message.journal.path": "/home/carol",
        "encryption.keys": f"k1 = file:/home/carol/k1.key, k2=file:{file.parent / 'k2.key'}",
        "avro.schema.file": f"{file.parent / '~backup/schema.avsc'}",
        "schema.registry.url": "~/no path",
    }


def test_a_tilde_without_a_home_folder_names_the_key(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def of_nobody(_path: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", of_nobody)
    with pytest.raises(ConfigError, match=r"local\.path = ~/payloads: the system names no home folder"):
        anchored({"local.path": "~/payloads"}, file)


def test_settings_of_a_program_count_from_the_current_folder(file: Path) -> None:
    assert load({"local.path": "payloads"}) == {"local.path": "payloads"}
    assert load({**load(file), "local.path": "mine"})["local.path"] == "mine"


@pytest.mark.parametrize("name", ["/dev/fd/63", "/dev/stdin", "/proc/self/fd/0"])
def test_paths_from_a_pipe_count_from_the_current_folder(name: str) -> None:
    assert anchored({"local.path": "payloads"}, Path(name)) == {"local.path": str(Path.cwd() / "payloads")}


def test_a_file_that_only_the_current_folder_has_is_warned_of(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    Path("payloads").mkdir()
    assert load(file)["local.path"] == str(file.parent / "payloads")
    (warning,) = caplog.messages
    assert f"{file.parent / 'payloads'}" in warning
    assert f"{Path.cwd() / 'payloads'}" in warning
    (file.parent / "payloads").mkdir()
    caplog.clear()
    load(file)
    assert caplog.messages == []


def test_a_current_folder_that_is_gone_is_not_needed(file: Path) -> None:
    Path.cwd().rmdir()
    assert load(file)["local.path"] == str(file.parent / "payloads")


def test_a_path_that_the_system_refuses_is_left_to_its_user(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A name that is too long, or a folder that may not be entered: the stage or store names its key."""
    name = "x" * 300
    assert anchored({"local.path": name}, file) == {"local.path": str(file.parent / name)}
    assert caplog.messages == []


def test_check_config_shows_absolute_paths(file: Path) -> None:
    Path("payloads").mkdir()
    result = run("check-config", file, "--json")
    content = json.loads(result.stdout)
    avro, large = content["chains"]["value.serializers"]
    assert avro["settings"]["avro.schema.file"] == str(file.parent / "schemas/r.avsc")
    assert large["settings"]["local.path"] == str(file.parent / "payloads")
    assert result.stderr.count(str(Path.cwd() / "payloads")) == 1


def test_all_options_that_are_paths_are_listed() -> None:
    options = [option for option in _builtin_options() if option.file or _LOOKS_LIKE_A_PATH.search(option.name)]
    assert {"avro.schema.file", "local.path", "large.message.journal.path"} <= {option.name for option in options}
    assert [option.name for option in options if not is_path(option.name)] == []


@pytest.mark.parametrize("name", ["my.kms.location", "queue.location", "file"])
def test_what_may_be_something_else_stays(name: str) -> None:
    assert not is_path(name)


def test_files_in_shared_memory_have_a_folder() -> None:
    assert anchored({"local.path": "payloads"}, Path("/dev/shm/job/client.toml")) == {  # noqa: S108, nothing is written
        "local.path": "/dev/shm/job/payloads"  # noqa: S108
    }


LIBRDKAFKAS = (
    "https.ca.location", "sasl.kerberos.keytab", "sasl.oauthbearer.assertion.file",
    "sasl.oauthbearer.assertion.jwt.template.file", "sasl.oauthbearer.assertion.private.key.file", "ssl.ca.location",
    "ssl.certificate.location", "ssl.crl.location", "ssl.key.location", "ssl.keystore.location",
)  # fmt: skip


@pytest.mark.parametrize("name", LIBRDKAFKAS)
def test_paths_of_librdkafka_are_known(name: str) -> None:
    assert is_path(name)
    # The second key ends the configuration before a client is created.
    with pytest.raises(confluent_kafka.KafkaException, match=r"serde-chain\.end"):
        confluent_kafka.Producer({name: "/nowhere", "serde-chain.end": ""})


def test_paths_of_other_packages_are_known_by_their_names() -> None:
    assert is_path("cipher.alphabet.file")
    assert not is_path("profile")
    assert not is_path("ssl.engine.location")  # a library, which the system looks for
