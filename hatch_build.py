"""Builds the compiled part, the crate in ``native/``: into a wheel, or in place by ``python hatch_build.py``.

It is optional. Where cargo does not run, or fails, all else is built, and one line says why. ``SERDE_CHAIN_NATIVE=off``
leaves it out; ``SERDE_CHAIN_NATIVE=on`` is for wheels that must have it: its absence is an error.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).parent
# What the module imports: one file for all Pythons from 3.11 on.
MODULE = f"serde_chain/_native{'.pyd' if os.name == 'nt' else '.abi3.so'}"
BILL = "sbom.cdx.json"


class NotBuiltError(Exception):
    """Why the compiled part was not built, in a line."""


class CompiledPart(BuildHookInterface[Any]):
    """Adds the compiled part to a wheel, with the tag and the bill of materials that belong to it."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build it, before the wheel is put together.

        Args:
            version: ``standard``, or ``editable`` for an installation in place.
            build_data: What hatchling puts into the wheel.
        """
        library = build()
        if version == "editable":
            put_in_place(library)
            return
        self._folder = tempfile.TemporaryDirectory()
        bill = Path(self._folder.name, BILL)
        bill.write_text(bill_of_materials(with_crates=library is not None), encoding="utf-8")
        build_data["sbom_files"].append(str(bill))
        if library is not None:
            platform = self.build_config.builder.get_best_matching_tag().rpartition("-")[2]
            build_data.update(pure_python=False, tag=f"cp311-abi3-{platform}")
            build_data["force_include"][str(library)] = MODULE

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the temporary files."""
        if version != "editable":
            self._folder.cleanup()


def build() -> Path | None:
    """Build the compiled part, and say so in a line.

    Returns:
        The library in cargo's folder; None if it is left out, or cannot be built and need not be.
    """
    wanted = os.environ.get("SERDE_CHAIN_NATIVE", "auto")
    if wanted not in {"auto", "on", "off"}:
        sys.exit(f"serde-chain: SERDE_CHAIN_NATIVE is {wanted!r}, expected on, off or auto (the default)")
    # Cross-compilers are commands of cargo: `cargo zigbuild --target ...`.
    command = shlex.split(os.environ.get("SERDE_CHAIN_CARGO", "cargo build"))
    if not command:
        sys.exit("serde-chain: SERDE_CHAIN_CARGO is empty, expected a command such as 'cargo build' (the default)")
    try:
        if wanted == "off":
            raise NotBuiltError("SERDE_CHAIN_NATIVE is off")
        library = run_cargo(command)
    except NotBuiltError as error:
        if wanted == "on":
            sys.exit(f"serde-chain: the compiled part is required (SERDE_CHAIN_NATIVE is on): {error}")
        sys.stderr.write(f"serde-chain: without its compiled part: {error}\n")
        return None
    sys.stderr.write("serde-chain: with its compiled part\n")
    return library


def run_cargo(command: list[str]) -> Path:
    """Build the library with the locked crates.

    Args:
        command: The program, and the arguments before its options.

    Raises:
        NotBuiltError: This interpreter cannot load it, or cargo does not run, or fails.
    """
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise NotBuiltError("only CPython with its global lock loads it")
    try:
        # rustup's `cargo` exists even without a toolchain.
        called([command[0], "--version"])
    except (OSError, subprocess.CalledProcessError) as error:
        raise NotBuiltError(f"{command[0]} does not run here ({reason(error)})") from error
    manifest = str(ROOT / "native" / "Cargo.toml")
    options = ["--release", "--locked", "--manifest-path", manifest, "--message-format=json-render-diagnostics"]
    try:
        messages = map(json.loads, called([*command, *options]).splitlines())
    except subprocess.CalledProcessError as error:
        raise NotBuiltError(f"{command[0]} failed ({reason(error)})") from error
    files = [
        Path(name)
        for message in messages
        if message["reason"] == "compiler-artifact" and message["target"]["name"] == "_native"
        for name in message["filenames"]
    ]
    [library] = [file for file in files if file.suffix in {".so", ".dylib", ".dll"}]
    return library


def called(command: list[str]) -> str:
    """The output of a program."""
    # The library is the same for all Pythons: none is asked what it is like, and it links none.
    environment = {**os.environ, "PYO3_NO_PYTHON": "1", "PYO3_BUILD_EXTENSION_MODULE": "1"}
    # cargo writes UTF-8; compilers and linkers that it calls, the encoding of the system.
    run = subprocess.run(command, env=environment, capture_output=True, encoding="utf-8", errors="replace", check=True)
    return run.stdout


def reason(error: OSError | subprocess.CalledProcessError) -> str:
    """The line of a failed program that says what is wrong."""
    if isinstance(error, OSError):
        return str(error.strerror)
    lines: list[str] = [line.strip() for line in error.stderr.splitlines() if line.strip()] or [str(error)]
    return next((line for line in lines if line.startswith("error")), lines[0])


def put_in_place(library: Path | None) -> None:
    """Copy the library beside the modules that import it, unless the same is there; without one, remove an old one."""
    target = ROOT / MODULE
    if library is None:
        target.unlink(missing_ok=True)
        return
    if target.exists() and target.read_bytes() == library.read_bytes():
        return
    # A new file, since processes may have loaded the old one.
    new = target.with_name(f".{target.name}.{os.getpid()}")
    shutil.copyfile(library, new)
    new.replace(target)


def bill_of_materials(*, with_crates: bool) -> str:
    """The bill of materials of a wheel with the compiled part, which is linked from crates, or without."""
    text = (ROOT / BILL).read_text(encoding="utf-8")
    if with_crates:
        return text
    bill = json.loads(text)
    own = bill["metadata"]["component"]["bom-ref"]
    bill.update(components=[], dependencies=[{"ref": own, "dependsOn": []}])
    return json.dumps(bill, indent=2) + "\n"


if __name__ == "__main__":
    try:
        put_in_place(build())
    except KeyboardInterrupt:
        sys.exit(130)  # of a shell, for SIGINT
