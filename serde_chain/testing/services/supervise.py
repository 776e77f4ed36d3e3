"""Runs one server and ends it when the process that wanted it is gone; started by `process`.

A process that is killed outright runs no clean-up of its own. The kernel does close its end of the
pipe that is this program's standard input, though, and that is what this program waits for. It
imports nothing of the project, so that it starts in milliseconds.

Arguments: seconds of grace between SIGTERM and SIGKILL (0: SIGKILL at once), a folder to remove in
the end, then the server's command. A byte on standard input means: kill the server at once, as a
crash would, and keep the folder. The end of standard input means: stop it and remove the folder.
When the server ends by itself, so does this program, with the server's exit code.
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
    """In the child, on Linux: be killed when this program is killed itself."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _kill_group(child: subprocess.Popen[bytes], signal_number: int) -> None:
    try:
        os.killpg(child.pid, signal_number)
    except (ProcessLookupError, PermissionError):
        return  # none of its processes is left (macOS answers EPERM)


def main(arguments: list[str]) -> int:
    """Run the server to its end; the exit code is the server's."""
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
    _kill_group(child, signal.SIGKILL)  # the rest of it, its own children included
    code = child.wait()
    if message == b"" or asked_to_stop:
        shutil.rmtree(folder, ignore_errors=True)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
