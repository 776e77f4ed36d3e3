"""Stores that go wrong on an executor, once. Executors get this file alone, by ``addPyFile``."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from payload_stores import references
from payload_stores.base import Buffer, PublishContext
from payload_stores.errors import PayloadStoreUnavailableError
from payload_stores.local import LocalStore

DEADLINE = 60.0


def _once(path: Path) -> bool:
    """Whether this is the first call for a path, by any process."""
    with suppress(FileExistsError):
        path.touch(exist_ok=False)
        return True
    return False


class DyingStore(LocalStore):
    """After the first payload, written or read, it kills the JVM of its executor."""

    def configure(self, config: Mapping[str, object]) -> None:
        super().configure(config)
        self._died = Path(self.PATH.read(config)).with_name("died")

    def publish(self, topic: str, data: Buffer, context: PublishContext | None = None) -> str:
        reference = super().publish(topic, data, context)
        self._die()
        return reference

    def download(self, reference: str) -> bytes:
        data = super().download(reference)
        self._die()
        return data

    def _die(self) -> None:
        if _once(self._died):
            # A worker's parent is pyspark's daemon, whose parent is the executor.
            command = ["ps", "-o", "ppid=", "-p", str(os.getppid())]
            executor = int(subprocess.run(command, capture_output=True, check=True, timeout=DEADLINE).stdout)
            self._died.write_text(str(executor))
            os.kill(executor, signal.SIGKILL)
            threading.Event().wait(DEADLINE)  # the daemon ends its workers


class SlowStore(LocalStore):
    """Its first payload waits until another copy of the same task has published it."""

    def configure(self, config: Mapping[str, object]) -> None:
        super().configure(config)
        self._folder = Path(self.PATH.read(config))

    def publish(self, topic: str, data: Buffer, context: PublishContext | None = None) -> str:
        if _once(self._folder.with_name("slow")):
            path = self._folder.joinpath(*references.object_path(self, topic, data, context))
            deadline = time.monotonic() + DEADLINE
            while not path.exists():
                if time.monotonic() > deadline:
                    raise TimeoutError("there was no other copy of the task")
                time.sleep(0.05)
        return super().publish(topic, data, context)


class FlakyStore(LocalStore):
    """The first call for each payload fails: before it is there, or when it is there and the answer is lost."""

    def configure(self, config: Mapping[str, object]) -> None:
        super().configure(config)
        self._folder = Path(self.PATH.read(config))

    def publish(self, topic: str, data: Buffer, context: PublishContext | None = None) -> str:
        name = references.object_path(self, topic, data, context)[-1]
        if not _once(self._folder.with_name(f"failed-{name}")):
            return super().publish(topic, data, context)
        if int(name[:2], 16) % 2:
            super().publish(topic, data, context)
        raise PayloadStoreUnavailableError("it is down for a moment")
