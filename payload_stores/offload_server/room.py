"""Room for uploads: a reserve of free disk space, and a limit of bytes per user."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from payload_stores.offload_server.errors import NoRoomError
from payload_stores.offload_server.index import Index
from payload_stores.offload_server.requests import Limits

_DAY_MS: Final = 86_400_000


class Room:
    """The remaining room, counting uploads in flight at their maximum size.

    Args:
        limits: The reserve, and the bytes per user.
        index: Knows the users' uploads.
        disks: Folders on the disks that keep the reserve.
    """

    def __init__(self, limits: Limits, index: Index, disks: Collection[Path]) -> None:
        self._limits = limits
        self._index = index
        self._disks = disks
        self._under_way: Counter[str] = Counter()

    @contextmanager
    def under_way(self, user: str, size: int) -> Iterator[None]:
        """Count an upload while it runs; in the event loop's thread.

        Args:
            user: The user.
            size: Its maximum size in bytes.
        """
        self._under_way[user] += size
        try:
            yield
        finally:
            self._under_way[user] -= size
            if not self._under_way[user]:
                del self._under_way[user]

    def check(self, user: str) -> None:
        """Check that there is room for the uploads in flight. Blocks briefly.

        Args:
            user: The user of the new upload.

        Raises:
            NoRoomError: There is no room.
        """
        most = self._limits.user_bytes_per_day
        if most is not None:
            taken = self._index.uploaded(user, now_ms() - _DAY_MS)
            if taken + self._under_way[user] > most:
                raise NoRoomError(f"{user} may upload {most} bytes a day, of which {max(most - taken, 0)} are left")
        total = self._under_way.total()
        for folder in self._disks:
            there = next(path for path in (folder, *folder.parents) if path.exists())  # it may be missing yet
            if shutil.disk_usage(there).free - total < self._limits.reserve_bytes:
                raise NoRoomError("the server's disk has no room for the upload")

    @property
    def counts_bytes(self) -> bool:
        """Whether to note uploads."""
        return self._limits.user_bytes_per_day is not None

    def note(self, user: str, size: int) -> None:
        """Note an indexed upload. Blocks briefly."""
        self._index.note_upload(user, size, now_ms(), keep_ms=_DAY_MS)


def now_ms() -> int:
    """The time in ms since 1970."""
    return time.time_ns() // 1_000_000
