"""Runs one server and ends it when its owner process is gone; started by `process`.

A killed process runs no cleanup, but the kernel closes its end of the pipe that is this program's standard input. This
program waits for that. It imports nothing from the project, so it starts in milliseconds.

Arguments: seconds between SIGTERM and SIGKILL (0: SIGKILL at once), a folder to remove at the end (empty: none), then
the server's command. A byte on standard input means: kill the server at once, as a crash would, and keep the folder.
End of input means: stop the server and remove the folder. If the server ends by itself, so does this program, with the
server's exit code.
"""

import contextlib
import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
from types import FrameType

_PR_SET_PDEATHSIG = 1
_POLL_SECONDS = 0.1


def _die_with_supervisor() -> None:
    """In the child, on Linux: get killed when this program is killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _kill_group(child: subprocess.Popen[bytes], signal_number: int) -> None:
    try:
        os.killpg(child.pid, signal_number)
    except (ProcessLookupError, PermissionError):
        return  # no process of the group is left (macOS reports EPERM)


def main(arguments: list[str]) -> int:
    """Run the server to its end; returns the server's exit code."""
    grace, folder, *command = arguments
    asked_to_stop = False

    def stop(_signal_number: int, _frame: FrameType | None) -> None:
        nonlocal asked_to_stop
        asked_to_stop = True

    for signal_number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # Not SIG_IGN, which the server would inherit.
        signal.signal(signal_number, stop)
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=_die_with_supervisor,  # noqa: PLW1509 - this program has a single thread
    )
    message: bytes | None = None
    while child.poll() is None and message is None and not asked_to_stop:
        readable, _, _ = select.select([0], [], [], _POLL_SECONDS)
        if readable:
            message = os.read(0, 1)
    if message == b"" or asked_to_stop:
        _kill_group(child, signal.SIGTERM if float(grace) > 0 else signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(float(grace) or None)
    _kill_group(child, signal.SIGKILL)  # the server's remaining children
    code = child.wait()
    if folder and (message == b"" or asked_to_stop):
        shutil.rmtree(folder, ignore_errors=True)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
