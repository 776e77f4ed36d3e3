"""Starts a server as a child process, waits until it is ready, and always ends it."""

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, ClassVar, Self

from serde_chain.testing.services import supervise
from serde_chain.testing.services.data_folder import WAIT_SECONDS, lock_folder, unlock
from serde_chain.testing.services.errors import ServiceStartError
from serde_chain.testing.services.ports import free_ports, require_free

_POLL_SECONDS = 0.05
_LOG_TAIL_LINES = 25
# Between SIGTERM and SIGKILL, for a server whose data is kept.
_GRACE_SECONDS = WAIT_SECONDS - 5


class ServiceProcess:
    """One server process with its own folder, supervised by `supervise`.

    The server ends and its folder is removed when `stop` is called, when the interpreter exits, and even if this
    process is killed.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        folder: Path,
        *,
        environment: Mapping[str, str] | None = None,
        grace: float = 0,
        keeps: bool = False,
        lock: IO[bytes] | None = None,
    ) -> None:
        """Start the server; call `wait_until` to wait for it.

        Args:
            name: Its name in messages.
            command: The program and its arguments.
            folder: Its working folder, which also contains its log.
            environment: Variables in addition to those of this process.
            grace: Seconds between SIGTERM and SIGKILL on stopping; 0 means SIGKILL at once, for a server with
                disposable data.
            keeps: Whether the folder stays when the server ends.
            lock: A locked file; it stays locked until the server has ended, even if this process is killed.
        """
        self.name = name
        self.log = folder / f"{name}.log"
        self._folder = folder
        self._keeps = keeps
        # A child forked from this process inherits this object, but does not own the server.
        self._owner = os.getpid()
        with self.log.open("ab") as log:
            self._supervisor = subprocess.Popen(
                [sys.executable, "-I", supervise.__file__, str(grace), "" if keeps else str(folder), *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env={**os.environ, **(environment or {})},
                # Ctrl-C in a terminal goes to the whole process group: this process stops its servers itself.
                start_new_session=True,
                pass_fds=() if lock is None else (lock.fileno(),),
            )
        atexit.register(self.stop)

    def wait_until(self, ready: Callable[[], bool], *, seconds: float) -> None:
        """Return as soon as the server is ready.

        Args:
            ready: Called repeatedly; must return within a few seconds.
            seconds: Maximum duration of the start.

        Raises:
            ServiceStartError: The server ended, or did not become ready in time. The message ends with the tail of
                its log; the server is stopped.
        """
        deadline = time.monotonic() + seconds
        while not (self.running and ready()):
            problem = None
            if not self.running:
                problem = f"ended with exit code {self._supervisor.returncode}"
            elif time.monotonic() > deadline:
                problem = f"was not ready within {seconds:g} s"
            if problem:
                message = f"the {self.name} server {problem}; the end of its log:\n{self.log_tail()}"
                self.stop()
                raise ServiceStartError(message)
            time.sleep(_POLL_SECONDS)

    @property
    def running(self) -> bool:
        """Whether the server is still running."""
        return self._supervisor.poll() is None

    def log_tail(self, lines: int = _LOG_TAIL_LINES) -> str:
        """The last lines of the server's output."""
        try:
            text = self.log.read_text(errors="replace")
        except OSError:
            return "(no log)"
        return "\n".join(text.splitlines()[-lines:]) or "(it printed nothing)"

    def kill(self) -> None:
        """Kill the server as a crash would; its folder is kept, so that it can be restarted."""
        self._end(b"k")

    def stop(self) -> None:
        """Stop the server and remove its folder, unless it is kept. A second call has no effect."""
        self._end(b"")
        if self._owner == os.getpid() and not self._keeps:
            # The supervisor has done so, unless the server ended by itself.
            shutil.rmtree(self._folder, ignore_errors=True)

    def _end(self, message: bytes) -> None:
        if self._owner != os.getpid():
            return
        atexit.unregister(self.stop)
        pipe = self._supervisor.stdin
        if pipe is None or pipe.closed:
            return
        try:
            pipe.write(message)
            pipe.close()
        except BrokenPipeError:
            pass  # the server has ended, and its supervisor with it
        self._supervisor.wait()


class Service(ABC):
    """A server with ports on 127.0.0.1 and a folder, as a context manager."""

    name: ClassVar[str]
    """Its name in messages."""
    port_count: ClassVar[int] = 1
    """Number of ports that it listens on."""
    fixed_count: ClassVar[int] = 1
    """How many of them follow a chosen port; the others are free ones."""
    start_seconds: ClassVar[float] = 60
    """Maximum duration of its start on a slow machine."""

    def __init__(self, *, port: int | None = None, folder: Path | None = None) -> None:
        """Create the service without starting it; `start`, or entering the context, does.

        Args:
            port: The port that clients connect to; by default a free one.
            folder: Where the data is kept after the end, for the next start; by default a temporary folder.
        """
        self._fixed_ports = [] if port is None else [port + number for number in range(self.fixed_count)]
        self._kept = None if folder is None else folder.absolute()
        self._process: ServiceProcess | None = None
        self._folder: Path | None = None
        self._lock: IO[bytes] | None = None
        self._ports: list[int] = []
        self._command: list[str] = []

    @abstractmethod
    def _prepare(self, folder: Path) -> list[str]:
        """Write the server's files into its folder, and return its command."""

    @abstractmethod
    def _ready(self) -> bool:
        """Whether the server answers."""

    def _environment(self) -> Mapping[str, str]:
        """Environment variables of the server."""
        return {}

    def start(self) -> Self:
        """Start the server and wait until it answers.

        Raises:
            ServiceMissingError: A prerequisite is not installed.
            ServiceDownloadError: The server could not be fetched or built.
            ServiceStartError: The server ended, or did not answer in time; its port is in use, or its folder.
        """
        if self._kept is not None and self._lock is None:
            self._lock = lock_folder(self._kept, self.name)
        try:
            self._start()
        except BaseException:
            self._unlock()
            raise
        return self

    def _start(self) -> None:
        attempts = 3
        while self._process is None:
            attempts -= 1
            self._ports = self._choose_ports()
            self._folder = self._kept or Path(tempfile.mkdtemp(prefix=f"serde-chain-{self.name}-"))
            try:
                self._command = self._prepare(self._folder)
                self._launch()
            except ServiceStartError as error:
                self._forget()
                # Another program may have taken a port since the check.
                if attempts == 0 or "in use" not in str(error):
                    raise
            except BaseException:
                self._forget()
                raise

    def _choose_ports(self) -> list[int]:
        for port in self._fixed_ports:
            require_free(port, self.name)
        return [*self._fixed_ports, *free_ports(self.port_count - len(self._fixed_ports))]

    def _forget(self) -> None:
        """Remove what a server that did not start has written, unless the folder is the user's."""
        if self._folder is not None and self._kept is None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _unlock(self) -> None:
        if self._lock is not None:
            unlock(self._lock)
            self._lock = None

    def _launch(self) -> None:
        assert self._folder is not None  # noqa: S101 - for mypy: set by `start`
        keeps = self._kept is not None
        process = ServiceProcess(
            self.name,
            self._command,
            self._folder,
            environment=self._environment(),
            grace=_GRACE_SECONDS if keeps else 0,
            keeps=keeps,
            lock=self._lock,
        )
        try:
            process.wait_until(self._ready, seconds=self.start_seconds)
        except BaseException:
            process.stop()
            raise
        self._process = process

    def kill(self) -> None:
        """Kill the server as a crash would; `restart` brings it back with its data and ports."""
        if self._process is not None:
            self._process.kill()

    def restart(self) -> None:
        """Restart a killed server with the same ports and data."""
        self.kill()
        self._process = None
        self._launch()

    def stop(self) -> None:
        """Stop the server and remove its data, unless it is kept. Does nothing if it is not running."""
        if self._process is not None:
            self._process.stop()
            self._process = None
        self._unlock()

    @property
    def running(self) -> bool:
        """Whether the server is running."""
        return self._process is not None and self._process.running

    def _port(self, number: int = 0) -> int:
        if not self._ports:
            message = f"the {self.name} server is not started: call start() or use it in a with statement"
            raise ServiceStartError(message)
        return self._ports[number]

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
