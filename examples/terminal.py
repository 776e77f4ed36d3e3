"""A picture of a command's output, for the documentation.

python examples/terminal.py docs/pictures/demo.svg serde-chain demo
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

WIDTH = 92


def picture(command: list[str]) -> str:
    """Run a command, and draw it with its output as SVG.

    Args:
        command: The command.

    Returns:
        The picture. It uses no network fonts: browsers substitute their own.

    Raises:
        CalledProcessError: The command failed.
    """
    done = subprocess.run(
        command, env={**os.environ, "COLUMNS": str(WIDTH)}, stdout=subprocess.PIPE, text=True, timeout=600, check=True
    )
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        console = Console(record=True, width=WIDTH, file=nowhere, force_terminal=True)
        console.print(Text(f"$ {' '.join(command)}", style="bold"))
        for line in done.stdout.splitlines():
            console.print(Text(line))
        drawn = console.export_svg(title="serde-chain", theme=MONOKAI)
    return re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL).replace("Fira Code", "ui-monospace")


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(picture(sys.argv[2:]), encoding="utf-8")
