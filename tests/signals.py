"""Real signals, whose Python handler raises, while a client's own call waits."""

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Self

ROOT = Path(__file__).parents[1]
CODE = tuple(str(ROOT / name) for name in ("serde_chain/", "payload_stores/"))
SECONDS = 60.0


class Signals:
    """Sends the main thread a signal while it is in a call, then lets something happen for which the call waits.

    The handler raises within this project's code only: in the test's own code, it would drop what a call has returned.

    Args:
        kind: What the handler raises.
        number: The signal.
        deep: Whether also in other code that this project's code has called, such as a wait of ``threading``.
    """

    def __init__(
        self,
        kind: type[BaseException] = KeyboardInterrupt,
        number: signal.Signals = signal.SIGINT,
        *,
        deep: bool = False,
    ) -> None:
        self.kind = kind
        self.number = number
        self._deep = deep
        self.raised = 0
        self._handled = threading.Event()
        self._main = threading.main_thread().ident or 0
        self._before: Any = None

    def __enter__(self) -> Self:
        self._before = signal.signal(self.number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(self.number, self._before)

    def _handle(self, _number: int, frame: FrameType | None) -> None:
        if self._is_there(frame):
            self.raised += 1
            raise self.kind("a signal")
        self.caught()

    def caught(self) -> None:
        """Let the next one come; called where what the handler raised has come out of the call.

        Not before: the client's C code runs the handler of a second signal with the first's exception set, which is a
        SystemError.
        """
        self._handled.set()

    def send(self) -> None:
        """Send one, once the main thread is within this project's code; if it is in C code there, it waits."""
        until = time.monotonic() + SECONDS
        while not self._is_there(sys._current_frames().get(self._main)):
            assert time.monotonic() < until, "no call came"
            time.sleep(0.001)
        self._handled.clear()
        signal.pthread_kill(self._main, self.number)

    def _is_there(self, frame: FrameType | None) -> bool:
        while self._deep and frame is not None and not is_ours(frame):
            frame = frame.f_back
        return is_ours(frame)

    @contextmanager
    def before_each(self, events: Iterable[Callable[[], object]]) -> Iterator[None]:
        """In a thread, send a signal before each of some events."""
        failures: list[BaseException] = []

        def run() -> None:
            try:
                for event in events:
                    self.send()
                    event()
                    assert self._handled.wait(SECONDS)  # signals that wait are one
            except BaseException as error:  # noqa: BLE001  raised below
                failures.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        yield
        thread.join(SECONDS)
        assert not failures, failures
        assert not thread.is_alive()


def is_ours(frame: FrameType | None) -> bool:
    """Whether the innermost frame is of this project's packages."""
    return frame is not None and frame.f_code.co_filename.startswith(CODE)
