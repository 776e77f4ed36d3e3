"""Room for uploads: a reserve of disk, and the bytes of a user."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import httpx2
import pytest

from payload_stores import open_store
from payload_stores.memory import MemoryStore
from payload_stores.offload_server import Limits
from payload_stores.offload_server.index import Index
from payload_stores.offload_server.room import now_ms
from payload_stores.scram import ScramAuth

if TYPE_CHECKING:
    from tests.payload_stores.offload_server.conftest import NewMessage, Serve

UPLOAD = "/topic/data+oversized"
HOUR_MS = 3_600_000
GIB = 1 << 30


class Usage(NamedTuple):
    """As ``shutil.disk_usage`` gives it."""

    total: int
    used: int
    free: int


def client(url: str, user: str) -> httpx2.Client:
    return httpx2.Client(base_url=url, auth=ScramAuth(user, f"{user}-secret"), timeout=30)


def test_a_user_who_has_uploaded_enough_for_a_day(serve: Serve, new_message: NewMessage, tmp_path: Path) -> None:
    url = serve(MemoryStore(), Limits(user_bytes_per_day=10_000))
    with client(url, "alice") as alice, client(url, "bob") as bob:
        assert alice.post(UPLOAD, content=new_message(bytes(6_000)).body).status_code == 201
        refused = alice.post(UPLOAD, content=new_message(bytes(6_000)).body)
        assert refused.status_code == 507
        assert "alice may upload 10000 bytes a day, of which 4000 are left" in refused.text
        # Its length is not known before: it may have the most that is taken.
        assert alice.post(UPLOAD, content=iter([new_message(b"x").body])).status_code == 507
        assert alice.post(UPLOAD, content=new_message(bytes(3_000)).body).status_code == 201
        assert bob.post(UPLOAD, content=new_message(bytes(6_000)).body).status_code == 201
    index = Index(tmp_path / "data" / "index.sqlite3")
    assert (index.uploaded("alice", now_ms() - HOUR_MS), index.uploaded("alice", now_ms() + 2 * HOUR_MS)) == (9_000, 0)
    index.note_upload("alice", 5, now_ms() + 48 * HOUR_MS, keep_ms=HOUR_MS)
    assert index.uploaded("alice", 0) == 5  # what is older is forgotten
    index.close()


def test_uploads_leave_a_reserve_of_disk(
    serve: Serve, new_message: NewMessage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    payloads = tmp_path / "payloads"
    free = {tmp_path / "data": 10 * GIB, tmp_path: GIB + 9_000, payloads: GIB + 9_000}
    store = open_store("local", {"local.path": str(payloads)})
    url = serve(store, Limits(reserve_bytes=GIB), disks=[payloads])
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: Usage(0, 0, free[folder]))
    with client(url, "alice") as alice:
        refused = alice.post(UPLOAD, content=new_message(bytes(10_000)).body)
        assert (refused.status_code, refused.text.strip()) == (507, "the server's disk has no room for the upload")
        assert not payloads.exists()
        assert alice.post(UPLOAD, content=new_message(bytes(5_000)).body).status_code == 201
        free[tmp_path / "data"] = 0
        assert alice.post(UPLOAD, content=new_message(b"x").body).status_code == 507
