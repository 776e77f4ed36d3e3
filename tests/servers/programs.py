"""What the servers of these tests run: built or fetched the first time, which takes minutes on two cores.

A run begins with it while other tests run. ``python -m tests.servers.programs`` gets all of it, for `.ci/run`.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from serde_chain.testing.services.errors import ServiceError
from tests.servers import azurite, fake_gcs, minio, toxiproxy, versitygw

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

__all__ = ["PROGRAMS", "get"]

PROGRAMS: Final[dict[str, Callable[[], Path]]] = {
    "toxiproxy": toxiproxy.program,
    "versity": versitygw.program,
    "azurite": azurite.program,
    "fake_gcs": fake_gcs.program,
    "minio": minio.program,
}
"""By the fixtures of the servers, in the order in which they are built: the one that takes longest is the last."""


def get(names: Iterable[str]) -> None:
    """Build or fetch programs, one after the other. What fails is tried again by the test that needs it."""
    wanted = set(names)
    for name, program in PROGRAMS.items():
        if name in wanted:
            with suppress(ServiceError):
                program()


if __name__ == "__main__":
    get(PROGRAMS)
