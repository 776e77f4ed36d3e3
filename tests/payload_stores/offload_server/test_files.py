"""Users, tokens, permissions and the index, as files."""

import json
import os
import stat
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from payload_stores.errors import ConfigError, PayloadStoreUnavailableError
from payload_stores.offload_server.acls import READ, WRITE, FileAcls, Rule, decide, decide_any
from payload_stores.offload_server.credentials import FileCredentials, add_user
from payload_stores.offload_server.index import Entry, Index
from payload_stores.offload_server.tokens import FileTokens, add_token
from payload_stores.scram.server import ScramServer
from payload_stores.scram.wire import MECHANISMS


def test_users(tmp_path: Path) -> None:
    path = tmp_path / "users.json"
    assert add_user(path, "alice", "pencil-of-alice")
    assert add_user(path, "bob", "pencil-of-bob")
    assert not add_user(path, "alice", "another-pencil")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    text = path.read_text()
    assert "pencil" not in text
    assert sorted(json.loads(text)["users"]) == ["alice", "bob"]
    assert [child.name for child in tmp_path.iterdir()] == ["users.json"]
    credentials = FileCredentials(path)
    found = {mechanism: credentials.find("alice", mechanism) for mechanism in MECHANISMS}
    assert len({credential.salt for credential in found.values()}) == 2
    assert [len(credential.stored_key) for credential in found.values()] == [32, 64]
    unknown = credentials.find("carol", MECHANISMS[0])
    assert (len(unknown.salt), unknown.iterations) == (16, found[MECHANISMS[0]].iterations)
    assert FileCredentials(path).find("carol", MECHANISMS[0]) == unknown  # after a restart as well


def test_whether_a_user_may_do_something_at_all() -> None:
    rules = [
        Rule("alice", READ, "a", prefix=True),
        Rule("bob", READ, "sys.metadata"),
        Rule("bob", "DESCRIBE", "a"),
        Rule("carol", "ALL", "a", allow=False),
        Rule("dave", "ALL", "a", host="10.0.0.1"),
    ]
    readers = {user: decide_any(rules, user, READ, "10.0.0.2") for user in ("alice", "bob", "carol", "dave")}
    assert readers == {"alice": True, "bob": False, "carol": False, "dave": False}
    assert decide_any(rules, "dave", READ, "10.0.0.1")
    assert not decide_any(rules, "alice", WRITE, "10.0.0.1")
    assert decide_any([Rule("*", READ, "*")], "bob", READ, "10.0.0.1")


def test_users_added_while_the_server_runs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "users.json"
    add_user(path, "alice", "pencil")
    credentials = FileCredentials(path)
    before = credentials.find("bob", MECHANISMS[0])
    add_user(path, "bob", "pencil")
    after = credentials.find("bob", MECHANISMS[0])
    assert before != after
    path.write_text("{")
    assert credentials.find("bob", MECHANISMS[0]) == after
    path.unlink()
    assert credentials.find("bob", MECHANISMS[0]) == after
    assert len([record for record in caplog.records if "last good content" in record.message]) == 2


@pytest.mark.parametrize(("name", "password"), [("", "b"), ("a\0", "b"), ("a" * 201, "b"), ("a", ""), ("a", "\0")])
def test_names_and_passwords_that_cannot_be(tmp_path: Path, name: str, password: str) -> None:
    with pytest.raises(ConfigError):
        add_user(tmp_path / "users.json", name, password)
    assert not list(tmp_path.iterdir())


def test_name_is_prepared_as_clients_do(tmp_path: Path) -> None:
    add_user(tmp_path / "users.json", "\uff21lice\u00ad", "pencil")
    credentials = FileCredentials(tmp_path / "users.json")
    assert credentials.find("Alice", MECHANISMS[0]).stored_key != credentials.find("alice", MECHANISMS[0]).stored_key
    assert ScramServer(credentials).answer(None).user is None
    assert ("Alice", MECHANISMS[0]) in credentials._file.get()[2]


def test_files_of_users_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "users.json"
    add_user(path, "alice", "pencil")
    good = json.loads(path.read_text())
    broken: list[Any] = [
        1, [], {}, {**good, "version": 2}, {**good, "secret": "!"}, {**good, "iterations": 1}, {**good, "users": []},
        {**good, "users": {"a": {MECHANISMS[0]: {}}}}, {**good, "secret": None},
    ]  # fmt: skip
    for content in broken:
        path.write_text(json.dumps(content))
        with pytest.raises(ConfigError) as error:
            FileCredentials(path)
        assert good["secret"] not in str(error.value)
        with pytest.raises(ConfigError):
            add_user(path, "bob", "pencil")
        assert json.loads(path.read_text()) == content
    with pytest.raises(ConfigError, match="cannot be read"):
        FileCredentials(tmp_path / "missing.json")
    with pytest.raises(ConfigError, match="cannot be written"):
        add_user(tmp_path / "missing" / "users.json", "bob", "pencil")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file to another user")
def test_root_may_change_the_files_of_the_servers_user(tmp_path: Path) -> None:
    users, tokens = tmp_path / "users.json", tmp_path / "tokens.toml"
    add_user(users, "alice", "pencil")
    add_token(tokens, "alice")
    for path in (users, tokens):
        os.chown(path, 10001, 10001)
    add_user(users, "bob", "pencil")
    add_token(tokens, "bob")
    for path in (users, tokens):
        assert (path.stat().st_uid, stat.S_IMODE(path.stat().st_mode)) == (10001, 0o600)


def test_tokens(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    first = add_token(path, 'ali"ce')
    second = add_token(path, "bob")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert first not in path.read_text()
    tokens = FileTokens(path)
    assert (tokens.verify(first), tokens.verify(second)) == ('ali"ce', "bob")
    assert [tokens.verify(wrong) for wrong in ("", first[:-1], first + "x", "\udcff", "sha256:" + "0" * 64)] == [
        None
    ] * 5
    for wrong in ("x = 1", '[tokens]\nabc = "a"', '[tokens]\n"sha256:' + "0" * 64 + '" = 1', "tokens = 1", "]", "\xff"):
        path.write_text(wrong, encoding="latin-1")
        with pytest.raises(ConfigError):
            FileTokens(path)


def test_rules() -> None:
    rules = [
        Rule("alice", WRITE, "literal"),
        Rule("alice", "ALL", "pre", prefix=True),
        Rule("*", READ, "public"),
        Rule("carol", READ, "*"),
        Rule("carol", "ALL", "hidden", allow=False),
        Rule("*", WRITE, "pre.closed", prefix=True, allow=False, host="10.0.0.1"),
        Rule("dave", READ, "home", host="127.0.0.1"),
    ]
    allowed = [
        ("alice", WRITE, "literal"), ("alice", READ, "prefix"), ("alice", WRITE, "pre"), ("bob", READ, "public"),
        ("carol", READ, "anything"), ("dave", READ, "home"),
    ]  # fmt: skip
    refused = [
        ("alice", READ, "literal"), ("alice", WRITE, "literal2"), ("bob", WRITE, "public"), ("alice", WRITE, "pr"),
        ("carol", READ, "hidden"), ("alice", WRITE, "pre.closed.x"), ("carol", WRITE, "anything"), ("eve", READ, "x"),
    ]  # fmt: skip
    for rule in allowed:
        assert decide(rules, *rule, "127.0.0.1"), rule
    for rule in refused:
        assert not decide(rules, *rule, "127.0.0.1"), rule
    assert not decide(rules, "dave", READ, "home", "10.0.0.2")


def test_permissions_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "acl.toml"
    path.write_text(
        'super-users = ["root"]\n[users.alice]\nwrite = ["a", "b.*"]\ndeny = ["b.no"]\n[users."*"]\nread = ["*"]'
    )
    acls = FileAcls(path)
    assert acls.allows("root", WRITE, "x", "")
    assert acls.allows("alice", WRITE, "b.yes", "")
    assert acls.allows("eve", READ, "x", "")
    assert not acls.allows("alice", WRITE, "b", "")
    assert not acls.allows("alice", READ, "b.no", "")
    path.write_text("")
    assert not acls.allows("root", WRITE, "x", "")
    for wrong in (
        "users = 1",
        "admins = []",
        "[users.a]\nown = []",
        "[users.a]\nread = 'x'",
        'super-users = [""]',
        "users.a = 1",
    ):
        path.write_text(wrong)
        with pytest.raises(ConfigError):
            FileAcls(path)


def test_a_misspelt_permission_is_named(tmp_path: Path) -> None:
    path = tmp_path / "acl.toml"
    path.write_text('[users.alice]\nwrit = ["alerts"]\n')
    with pytest.raises(ConfigError, match=r"the user alice has writ, where only .*write.* Write \[users\.alice\]"):
        FileAcls(path)


def entry(**more: Any) -> Entry:
    return Entry(**{
        "id": uuid.uuid4(), "topic": "t", "reference": "memory:///t/1", "size": 5, "headers": b"h", "key": None,
        "timestamp_ms": 7, **more,
    })  # fmt: skip


def test_index_survives(tmp_path: Path) -> None:
    first, second = entry(), entry(key=b"\0", size=2**40)
    index = Index(tmp_path / "index")
    assert index.add(first)
    assert index.add(second)
    assert not index.add(entry(id=first.id, topic="other"))
    index.close()
    index = Index(tmp_path / "index")
    assert (index.find(first.id), index.find(second.id), index.find(uuid.uuid4())) == (first, second, None)
    index.close()
    with pytest.raises(PayloadStoreUnavailableError):
        index.find(first.id)


def test_one_of_many_takes_an_id(tmp_path: Path) -> None:
    indexes = [Index(tmp_path / "index") for _ in range(2)]  # as two processes would
    for _ in range(10):
        same = [entry(topic=f"t{at}") for at in range(8)]
        same = [replace(one, id=same[0].id) for one in same]
        with ThreadPoolExecutor(8) as threads:
            added = list(threads.map(lambda index, one: index.add(one), indexes * 4, same))
        assert sum(added) == 1
    for index in indexes:
        index.close()


def test_files_that_are_no_index(tmp_path: Path) -> None:
    path = tmp_path / "index"
    path.write_bytes(b"something else, long enough to be read as a header" * 20)
    with pytest.raises(ConfigError):
        Index(path)
    with pytest.raises(ConfigError):
        Index(tmp_path)
    newer = Index(tmp_path / "newer")
    newer._connection.execute("PRAGMA user_version = 3")
    newer.close()
    with pytest.raises(ConfigError, match="version 3"):
        Index(tmp_path / "newer")
