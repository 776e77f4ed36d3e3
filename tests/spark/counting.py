"""A store that tells which payloads Spark's workers download, by their names: each download is a line of a file."""

import os
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from pyspark import cloudpickle

from payload_stores.local import LocalStore
from payload_stores.options import Option, text

LOG: Option[str] = Option("counting.log", text, "")


class CountingStore(LocalStore):
    """Notes the reference of each download."""

    options = (*LocalStore.options, LOG)  # type: ignore[assignment]  # one more

    def configure(self, config: Mapping[str, object]) -> None:
        super().configure(config)
        self._log = Path(str(config["counting.log"]))

    def open(self, reference: str) -> BinaryIO:
        """What any download begins with."""
        self._log.mkdir(exist_ok=True)
        with (self._log / str(os.getpid())).open("a") as file:
            file.write(f"{reference}\n")
        return super().open(reference)


def counting(folder: Path) -> dict[str, Any]:
    """The options of a store whose downloads :func:`downloads` counts."""
    # Workers cannot import tests.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]  # pyspark's
    return {
        "large.message.payload.store.class": CountingStore,
        "local.path": str(folder / "payloads"),
        "counting.log": str(folder / "log"),
    }


def downloads(folder: Path) -> Counter[str]:
    """How often each payload was downloaded since the last call."""
    counts: Counter[str] = Counter()
    for file in sorted((folder / "log").glob("*")):
        counts.update(file.read_text().splitlines())
        file.unlink()
    return counts
