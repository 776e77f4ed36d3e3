"""The jars of the registries' Java serdes, fetched while other tests run."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self

from serde_chain.testing.services.jars import fetched

__all__ = ["JavaSerde"]

_HERE = Path(__file__).parent / "schemas"


class JavaSerde:
    """The jars of one part of ``tests/schemas/peers.xml``.

    Args:
        part: ``glue`` or ``apicurio``.
        what: The contents, for messages.
    """

    folder: str = ""

    def __init__(self, part: str, what: str) -> None:
        self._part = part
        self._what = what

    def __enter__(self) -> Self:
        module, sums = ((_HERE / name).read_text() for name in ("peers.xml", "peers.sha256"))
        self.folder = str(fetched(self._part, module, sums, what=self._what))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """The jars stay in the cache."""
