"""The command line: ``serde-chain``."""

import sys

from payload_stores.errors import ContextualError

__all__ = ["main"]


def main() -> None:
    """Run the command line; ``docs/command-line.md`` has its exit codes."""
    try:
        from payload_stores.plugins import require

        for module in ("click", "rich"):
            require(module, "cli")
        from serde_chain.cli.commands import commands

        commands(prog_name="serde-chain")
    except ContextualError as error:
        print(f"Error: {error}", file=sys.stderr)  # noqa: T201, the library for output may be missing
        sys.exit(1)
    except KeyboardInterrupt:  # before a command could handle it
        sys.exit(130)
