"""The jars of Java peers, of the registries' serdes and Pulsar's reader, fetched while other tests run.

After a change of versions in ``tests/schemas/peers.xml``: ``python -m tests.java_serdes`` writes their checksums.
"""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from serde_chain.testing.services.jars import fetched, retrieve

__all__ = ["JavaSerde"]

_HERE = Path(__file__).parent / "schemas"


class JavaSerde:
    """The jars of one part of ``tests/schemas/peers.xml``.

    Args:
        part: ``glue``, ``apicurio`` or ``pulsar``.
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


def _lock() -> None:
    sums: dict[str, str] = {}
    for part in ("glue", "apicurio", "pulsar"):
        with tempfile.TemporaryDirectory() as name:
            retrieve((_HERE / "peers.xml").read_text(), part, Path(name), part)
            sums |= {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in Path(name).iterdir()}
    (_HERE / "peers.sha256").write_text("".join(f"{sums[name]}  {name}\n" for name in sorted(sums)))


if __name__ == "__main__":
    _lock()
