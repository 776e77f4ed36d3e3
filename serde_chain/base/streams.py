"""Files as values of records."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol, TypeGuard, runtime_checkable

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["SupportsRead", "is_stream"]


@runtime_checkable
class SupportsRead(Protocol):
    """An open binary file or file-like object as a record's value: read while it is uploaded."""

    def read(self, size: int = -1, /) -> bytes:
        """Read up to ``size`` bytes, or all that remain; empty at the end."""


def is_stream(data: object) -> TypeGuard[Path | SupportsRead]:
    """Whether a value is a file, for stages with ``takes_streams``.

    Example:
        >>> import io, pathlib
        >>> is_stream(pathlib.Path("image.fits")), is_stream(io.BytesIO()), is_stream(b"data")
        (True, True, False)
    """
    return isinstance(data, (os.PathLike, SupportsRead))
