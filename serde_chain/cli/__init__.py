"""The command line: ``serde-chain``."""

import sys

from payload_stores.errors import ContextualError
from serde_chain.testing.services.errors import ServiceError

__all__ = ["main"]


def main() -> None:
    """Run the command line; exit codes are 0 for success, 1 for an error with its explanation, 2 for wrong usage."""
    try:
        from payload_stores.plugins import require

        for module in ("click", "rich"):
            require(module, "cli")
        from serde_chain.cli.commands import commands

        commands(prog_name="serde-chain")
    except (ContextualError, ServiceError) as error:
        print(f"Error: {error}", file=sys.stderr)  # noqa: T201, there may be no library to print with
        sys.exit(1)
