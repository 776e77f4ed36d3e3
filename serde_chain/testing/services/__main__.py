"""Fetches servers ahead of their first use: ``python -m serde_chain.testing.services kafka registry spark``."""

import argparse
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from serde_chain.testing.services.errors import ServiceError
from serde_chain.testing.services.jars import jars
from serde_chain.testing.services.schema_registry import registry_program

_FETCH: dict[str, Callable[[], Path]] = {
    "kafka": partial(jars, "kafka"),
    "registry": registry_program,
    "spark": partial(jars, "spark"),
}


def main() -> None:
    """Fetch the parts that the command line names, side by side."""
    parser = argparse.ArgumentParser(prog="python -m serde_chain.testing.services", description="Fetch servers.")
    parser.add_argument("parts", nargs="+", choices=sorted(_FETCH))
    parts = parser.parse_args().parts
    try:
        with ThreadPoolExecutor(len(parts)) as pool:
            fetched = [pool.submit(_FETCH[part]) for part in parts]
        for one in fetched:
            one.result()
    except ServiceError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit(130)  # of a shell, for SIGINT


if __name__ == "__main__":
    main()
