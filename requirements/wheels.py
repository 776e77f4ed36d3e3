"""Builds wheels with the compiled part for other platforms: ``python requirements/wheels.py dist/*.tar.gz TARGET ...``.

cargo-zigbuild compiles and links them, for Linux with glibc 2.17 or newer, or musl 1.2 or newer. Of each target,
``rustup target add`` fetches Rust's standard library first.
"""

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

# The oldest C libraries that Rust supports.
LIBRARIES = {"gnu": ("manylinux_2_17", ".2.17"), "musl": ("musllinux_1_2", "")}


def build(archive: Path, target: str) -> Path:
    """Build the wheel of a target beside the source archive.

    Args:
        archive: The source archive.
        target: Such as ``aarch64-unknown-linux-musl``.

    Returns:
        The wheel, with the tag of its platform.
    """
    found = re.fullmatch(r"(\w+)-unknown-linux-(gnu|musl)", target)
    if found is None:
        sys.exit(f"{target} is not a target of Linux: run `make dist` on such a machine")
    tag, version = LIBRARIES[found[2]]
    environment = {
        **os.environ,
        "SERDE_CHAIN_NATIVE": "on",
        "SERDE_CHAIN_CARGO": f"cargo zigbuild --target {target}{version}",
        # Libraries for Python share its C library; Rust links musl's into programs otherwise.
        "RUSTFLAGS": f"{os.environ.get('RUSTFLAGS', '')} -C target-feature=-crt-static".strip(),
    }
    folder = archive.parent / target
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder)]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, str(archive)], env=environment, check=True)
    [wheel] = folder.glob("*.whl")
    # It was made here: pip has given it the tag of this machine.
    tagged = ["--platform-tag", f"{tag}_{found[1]}", "--remove", str(wheel)]
    subprocess.run([sys.executable, "-m", "wheel", "tags", *tagged], stdout=subprocess.DEVNULL, check=True)
    [wheel] = folder.glob("*.whl")
    moved = wheel.replace(archive.parent / wheel.name)
    folder.rmdir()
    return moved


def main() -> None:
    """Build all that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("archive", type=Path, help="the source archive of `make dist`")
    parser.add_argument("targets", nargs="+", metavar="TARGET", help="such as aarch64-unknown-linux-musl")
    given = parser.parse_args()
    for target in given.targets:
        sys.stdout.write(f"{build(given.archive, target)}\n")


if __name__ == "__main__":
    main()
