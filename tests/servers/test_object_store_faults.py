"""What goes wrong with object stores, on real servers: killed in the middle, full, keys rotated, clocks, regions."""

import importlib
import io
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from payload_stores import (
    PayloadAccessDeniedError,
    PayloadStore,
    PayloadStoreError,
    PayloadStoreUnavailableError,
    PublishContext,
    open_store,
)
from payload_stores.objects import ObjectsStore
from payload_stores.s3 import S3Store
from tests.servers.minio import MinioServer
from tests.servers.versitygw import VersityGateway

CONTENT = PublishContext("content")
SIZE = 64 << 20
DATA = bytes(range(256)) * (SIZE // 256)

Server = VersityGateway | MinioServer


def quick(name: str, server: Server, bucket: str) -> dict[str, object]:
    """The configuration of a store that does not wait for long."""
    if name == "s3":
        timeouts: Mapping[str, object] = {"s3.retry.attempts": 2, "s3.multipart.threshold.bytes": 16 << 20}
        return {**server.store_config(bucket), **timeouts}
    return {**server.objects_config(bucket), "objects.retry.attempts": 2}


@pytest.fixture(params=["versitygw", "minio"], scope="module")
def mortal(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server of these tests' own, since they kill it."""
    with VersityGateway() if request.param == "versitygw" else MinioServer() as running:
        yield running


class Trap:
    """Calls something once, in the middle."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._act: Callable[[], object] | None = act

    def spring(self) -> None:
        act, self._act = self._act, None
        if act is not None:
            act()


class KillingStream(io.BytesIO):
    """A payload in whose middle a trap springs."""

    def __init__(self, data: bytes, trap: Trap) -> None:
        super().__init__(data)
        self._trap = trap

    def read(self, size: int | None = -1, /) -> bytes:
        if self.tell() > SIZE // 2:
            self._trap.spring()
        return super().read(size)


def trapped(store_class: type[S3Store | ObjectsStore], trap: Trap) -> type[PayloadStore]:
    """A store with a trap between the size of a payload and its content."""

    def check_size(self: PayloadStore, size: int, reference: str) -> None:
        trap.spring()
        PayloadStore.check_size(self, size, reference)

    return type("Trapped", (store_class,), {"check_size": check_size})


@pytest.mark.parametrize("name", ["s3", "objects"])
def test_a_server_that_is_killed_in_the_middle(mortal: Server, name: str) -> None:
    """Nothing is damaged, errors are typed, and the same store works when the server, started four times, is back."""
    config = quick(name, mortal, mortal.create_bucket())
    trap = Trap(mortal.kill)
    store: Any = open_store(name, config)
    kept = store.publish("topic", DATA)

    # While it is uploaded.
    with pytest.raises(PayloadStoreUnavailableError):
        store.publish_stream("topic", KillingStream(DATA, trap))
    with pytest.raises(PayloadStoreUnavailableError):
        store.publish("topic", DATA, CONTENT)
    mortal.restart()
    assert [info.reference for info in store.list("topic")] == [kept]
    assert store.download(kept) == DATA

    # While it is downloaded, in parts and piece by piece.
    killing: Any = open_store(trapped(S3Store if name == "s3" else ObjectsStore, Trap(mortal.kill)), config)
    with pytest.raises(PayloadStoreUnavailableError):
        killing.download(kept)
    mortal.restart()
    assert killing.download(kept) == DATA
    with store.open(kept) as file:
        start = file.read(1000)
        mortal.kill()
        file.seek(SIZE - 1000)
        with pytest.raises(PayloadStoreUnavailableError):
            file.read()
        mortal.restart()
        file.seek(1000)
        assert start + file.read() == DATA
    again = store.publish("topic", DATA, CONTENT)
    assert store.download(again) == DATA
    killing.close()
    store.close()


@pytest.mark.parametrize("name", ["s3", "objects"])
def test_a_server_that_has_no_space_left(name: str) -> None:
    """The system refuses what the server writes. As root there could be a full disk, but tests run as anyone."""
    with VersityGateway(most_file_bytes=4 << 20) as server:
        store: Any = open_store(name, quick(name, server, server.create_bucket()))
        reference = store.publish("topic", b"small")
        calls: tuple[Callable[[], object], ...] = (
            lambda: store.publish("topic", bytes(6 << 20)),
            lambda: store.publish("topic", bytes(6 << 20), CONTENT),
            lambda: store.publish("topic", DATA),
            lambda: store.publish_stream("topic", io.BytesIO(DATA)),
        )
        for publish in calls:
            with pytest.raises(PayloadStoreUnavailableError) as caught:
                publish()
            assert not caught.value.about_record
        assert [info.reference for info in store.list("topic")] == [reference]
        assert store.download(reference) == b"small"
        assert not server.client().list_multipart_uploads(Bucket=_bucket(reference)).get("Uploads")
        store.close()


def _bucket(reference: str) -> str:
    return reference.split("/")[2]


# Credentials


@pytest.mark.parametrize(
    "wrong", ["s3.access.key", "s3.secret.key", "objects.access_key_id", "objects.secret_access_key"]
)
def test_wrong_credentials(versity: VersityGateway, versity_bucket: str, wrong: str) -> None:
    name = wrong.partition(".")[0]
    config = quick(name, versity, versity_bucket)
    store: Any = open_store(name, config)
    reference = store.publish("topic", b"data")
    impostor: Any = open_store(name, {**config, wrong: "something-else-entirely"})
    calls: tuple[Callable[[], object], ...] = (
        lambda: impostor.publish("topic", b"data"),
        lambda: impostor.publish("topic", bytes(17 << 20)),
        lambda: impostor.publish("topic", b"data", CONTENT),
        lambda: impostor.download(reference),
        lambda: impostor.read_range(reference, 1, 2),
        lambda: impostor.open(reference),
        lambda: impostor.delete(reference),
        lambda: list(impostor.list("topic")),
    )
    for call in calls:
        with pytest.raises(PayloadAccessDeniedError) as caught:
            call()
        for said in (str(caught.value), str(caught.value.__cause__)):
            assert "something-else-entirely" not in said
            assert VersityGateway.secret_key not in said
            assert "StringToSign" not in said
    impostor.close()
    assert store.download(reference) == b"data"
    store.close()


PROCESS = """
import json, sys
from datetime import datetime, timedelta, timezone
access, secret = open(sys.argv[1]).read().split()
soon = datetime.now(timezone.utc) + timedelta(minutes=1)
print(json.dumps({"Version": 1, "AccessKeyId": access, "SecretAccessKey": secret, "Expiration": soon.isoformat()}))
"""


def test_keys_that_are_rotated_while_the_store_s3_is_open(
    versity: VersityGateway, versity_bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a profile with `credential_process`, as key services are asked from outside Amazon's cloud."""
    (tmp_path / "process.py").write_text(PROCESS)
    keys = tmp_path / "keys"
    command = f"{sys.executable} {tmp_path / 'process.py'} {keys}"
    (tmp_path / "config").write_text(f"[profile rotated]\ncredential_process = {command}\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_PROFILE", "rotated")
    config = {**versity.store_config(versity_bucket)}
    del config["s3.access.key"], config["s3.secret.key"]
    _rotate(versity, config, "s3", lambda access, secret: keys.write_text(f"{access} {secret}"))


def test_keys_that_are_rotated_while_the_store_objects_is_open(versity: VersityGateway, versity_bucket: str) -> None:
    current: dict[str, Any] = {}

    def provider() -> dict[str, Any]:
        return {**current, "token": None, "expires_at": datetime.now(UTC) + timedelta(minutes=1)}

    config: dict[str, object] = {**versity.objects_config(versity_bucket)}
    del config["objects.access_key_id"], config["objects.secret_access_key"]
    config["objects.credential.provider.class"] = provider
    _rotate(
        versity,
        config,
        "objects",
        lambda access, secret: current.update(access_key_id=access, secret_access_key=secret),
    )


def _rotate(
    server: VersityGateway, config: Mapping[str, object], name: str, write: Callable[[str, str], object]
) -> None:
    """Use a store with one key and then with another, without opening it anew."""
    first, second = (f"{name}-user-{number}" for number in (1, 2))
    server.create_user(first, "first-secret")
    write(first, "first-secret")
    store = open_store(name, config)
    reference = store.publish("topic", b"data")
    server.delete_user(first)
    with pytest.raises(PayloadAccessDeniedError) as caught:
        store.download(reference)
    assert not caught.value.about_record
    server.create_user(second, "second-secret")
    write(second, "second-secret")
    until = time.monotonic() + 30
    while not _can_read(store, reference):  # obstore asks a provider at most ten times a second
        assert time.monotonic() < until
    assert store.download(reference) == b"data"
    assert store.download(store.publish("topic", DATA)) == DATA
    store.close()
    server.delete_user(second)


def _can_read(store: PayloadStore, reference: str) -> bool:
    try:
        store.download(reference)
    except PayloadAccessDeniedError:
        return False
    return True


# Clocks and regions


@pytest.mark.parametrize("minutes", [-20, 20])
def test_a_clock_that_is_wrong(mortal: Server, monkeypatch: pytest.MonkeyPatch, minutes: int) -> None:
    """Of this machine, as far as botocore knows. obstore asks the system, whose clock a test cannot set."""
    auth: Any = importlib.import_module("botocore.auth")
    store = open_store("s3", quick("s3", mortal, mortal.create_bucket()))
    reference = store.publish("topic", b"data")
    now = auth.get_current_datetime
    monkeypatch.setattr(auth, "get_current_datetime", lambda *args: now(*args) + timedelta(minutes=minutes))
    calls: tuple[Callable[[], object], ...] = (
        lambda: store.publish("topic", b"data"),
        lambda: store.download(reference),
    )
    for call in calls:
        with pytest.raises(PayloadAccessDeniedError) as caught:
            call()
        assert caught.value.hint == "Set the clock of this machine: signatures are valid for 15 minutes"
    monkeypatch.undo()
    assert store.download(reference) == b"data"
    store.close()


def test_a_bucket_in_another_region(versity: VersityGateway, versity_bucket: str) -> None:
    """boto3 follows what the server says; obstore does not, and is told the region."""
    store = open_store("s3", {**versity.store_config(versity_bucket), "s3.region": "eu-west-1"})
    reference = store.publish("topic", b"data")
    assert store.download(reference) == b"data"
    store.close()
    objects: Any = open_store("objects", {**versity.objects_config(versity_bucket), "objects.region": "eu-west-1"})
    calls: tuple[Callable[[], object], ...] = (
        lambda: objects.publish("topic", b"data"),
        lambda: objects.download(reference),
    )
    for call in calls:
        with pytest.raises(PayloadStoreError, match="AuthorizationHeaderMalformed") as caught:
            call()
        assert "the bucket is in us-east-1: set objects.region" in (caught.value.hint or "")
        assert not caught.value.about_record
    objects.close()


# Lifecycle


def test_a_rule_that_a_server_keeps(minio: MinioServer, minio_bucket: str) -> None:
    """MinIO refuses rules that it does not understand, as Amazon's S3 does."""
    client = minio.client()
    theirs = {"ID": "theirs", "Status": "Enabled", "Filter": {"Prefix": "other/"}, "Expiration": {"Days": 30}}
    client.put_bucket_lifecycle_configuration(
        Bucket=minio_bucket,
        LifecycleConfiguration={"Rules": [theirs]},  # type: ignore[list-item]
    )
    store = open_store("s3", {**minio.store_config(minio_bucket), "s3.prefix": "ours/"})
    assert isinstance(store, S3Store)
    assert store.expiration("alerts") is None
    store.set_expiration("alerts", timedelta(days=8, hours=1))
    store.set_expiration("images", timedelta(days=3))
    assert [store.expiration(topic) for topic in ("alerts", "images")] == [timedelta(days=9), timedelta(days=3)]
    kept = client.get_bucket_lifecycle_configuration(Bucket=minio_bucket)["Rules"]
    assert sorted(rule["ID"] for rule in kept) == ["serde-chain-ours/alerts", "serde-chain-ours/images", "theirs"]
    for topic in ("alerts", "images"):
        store.set_expiration(topic, None)
    [left] = client.get_bucket_lifecycle_configuration(Bucket=minio_bucket)["Rules"]
    assert left["ID"] == "theirs"
    assert left["Expiration"]["Days"] == 30
    store.close()


def test_a_server_without_lifecycles(versity: VersityGateway, versity_bucket: str) -> None:
    store = open_store("s3", versity.store_config(versity_bucket))
    assert isinstance(store, S3Store)
    calls: tuple[Callable[[], object], ...] = (
        lambda: store.expiration("alerts"),
        lambda: store.set_expiration("alerts", timedelta(days=9)),
    )
    for call in calls:
        with pytest.raises(PayloadStoreError, match="no lifecycle rules"):
            call()
    store.close()
