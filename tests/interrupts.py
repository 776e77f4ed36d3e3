"""Ctrl-C at a chosen point: wherever CPython may run a signal handler while code of this project runs.

A handler runs after a call has returned, when a function begins, and when a loop jumps back; never between two other
instructions. Real signals meet few of these points and never the same twice. Here each has a number.
"""

import dis
import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).parents[1]
CODE = ("serde_chain/", "payload_stores/")
# Not those from Python 3.12 on that call the interpreter itself, CALL_INTRINSIC_1 and its like.
CALLS = {"CALL", "CALL_KW", "CALL_FUNCTION_EX"}


@cache
def _points(code: CodeType) -> frozenset[int]:
    """Offsets of the instructions before which a handler may run."""
    found = set()
    before = ""
    for instruction in dis.get_instructions(code):
        if instruction.opname == "RESUME" or before in CALLS:
            found.add(instruction.offset)
        if "JUMP_BACKWARD" in instruction.opname:
            found.add(int(instruction.argval))  # at its target; what stands behind it is the end of the loop
        before = instruction.opname
    return frozenset(found)


def _interrupt() -> None:
    raise KeyboardInterrupt


@contextmanager
def interrupted_at(
    number: int, within: tuple[str, ...] = CODE, act: Callable[[], object] = _interrupt
) -> Iterator[None]:
    """Raise KeyboardInterrupt at the point of this number, from 0; not at all if there are fewer.

    Args:
        number: Which point.
        within: What the paths of files with points begin with, in the repository.
        act: What to do instead: what another thread might do just then, for instance.
    """
    left = number
    files = tuple(str(ROOT / path) for path in within)

    def step(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal left
        if event == "opcode" and frame.f_lasti in _points(frame.f_code):
            if left == 0:
                left = -1
                act()
            left -= 1
        return step

    def enter(frame: FrameType, _event: str, _argument: object) -> Any:
        if left < 0 or not frame.f_code.co_filename.startswith(files):
            return None
        frame.f_trace = step  # before the next line, as Python 3.13 wants
        frame.f_trace_opcodes = True
        return step

    before = sys.gettrace()
    gc.disable()  # a collection may finalize clients of other tests: an interrupt in __del__ is only printed
    sys._getframe().f_trace_opcodes = True  # Python 3.12 looks for one when a trace is set, not later
    sys.settrace(enter)
    try:
        yield
    finally:
        gc.enable()
        sys.settrace(before)
