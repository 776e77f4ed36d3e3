"""Memory of one process, as the kernel counts it (Linux).

``getrusage`` is of no help: its ``ru_maxrss`` is inherited over ``fork`` and ``exec``, so that a child of a large
process never seems to take anything.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["peak_bytes", "reset_peak", "resident_bytes"]


def resident_bytes(process: int | str = "self") -> int:
    """Resident memory of a process now, in bytes."""
    return _status(process, "VmRSS")


def peak_bytes(process: int | str = "self") -> int:
    """Most resident memory of a process since it was last reset, in bytes."""
    return _status(process, "VmHWM")


def reset_peak(process: int | str = "self") -> int:
    """Reset the peak of a process to its present memory, and return that, in bytes."""
    Path(f"/proc/{process}/clear_refs").write_text("5", encoding="ascii")  # proc_pid_clear_refs(5)
    return peak_bytes(process)


def _status(process: int | str, name: str) -> int:
    lines = Path(f"/proc/{process}/status").read_text(encoding="ascii", errors="replace").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) << 10
