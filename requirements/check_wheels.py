"""Checks that wheels are what their names say: ``python requirements/check_wheels.py dist/*.whl``.

A wheel for one platform has the compiled part, and its crates in the bill of materials; a pure wheel has neither.
"""

import json
import sys
import zipfile
from pathlib import Path


def wrong(wheel: Path) -> str | None:
    """What is wrong with a wheel; None if it is as it should be."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        [bill] = [json.loads(archive.read(name)) for name in names if ".dist-info/sboms/" in name]
    meant = not wheel.name.endswith("-py3-none-any.whl")
    has = any(name.startswith("serde_chain/_native.") for name in names)
    if has != meant:
        return f"{wheel.name} has {'the' if has else 'no'} compiled part"
    if bool(bill["components"]) != meant:
        return f"{wheel.name} lists {'crates' if bill['components'] else 'no crates'}"
    return None


def main() -> None:
    """Check all that are named."""
    found = [message for path in sys.argv[1:] if (message := wrong(Path(path))) is not None]
    sys.exit("\n".join(found) if found else None)


if __name__ == "__main__":
    main()
