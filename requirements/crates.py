"""Writes the crates of the compiled part into the bill of materials: ``python requirements/crates.py``."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
BILL = ROOT / "sbom.cdx.json"


def main() -> None:
    """Ask cargo, and write the file."""
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--manifest-path", "native/Cargo.toml"]
    found = json.loads(subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout)
    bill = json.loads(BILL.read_text(encoding="utf-8"))
    BILL.write_text(json.dumps({**bill, **listed(bill, found)}, indent=2) + "\n", encoding="utf-8")


def listed(bill: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """The components of the bill, and what depends on what.

    Args:
        bill: The bill of materials.
        found: The output of ``cargo metadata``.
    """
    own, root = bill["metadata"]["component"]["bom-ref"], found["resolve"]["root"]
    names = {crate["id"]: f"pkg:cargo/{crate['name']}@{crate['version']}" for crate in found["packages"]}
    names[root] = own
    nodes = {node["id"]: node["deps"] for node in found["resolve"]["nodes"]}
    macros = {crate["id"] for crate in found["packages"] if "proc-macro" in crate["targets"][0]["kind"]}
    linked, waiting = set(), [root]
    while waiting:
        crate = waiting.pop()
        linked.add(crate)
        # Macros, and what builds are configured with, run in the compiler.
        waiting += [
            needed["pkg"]
            for needed in nodes[crate]
            if needed["pkg"] not in linked | macros and any(kind["kind"] is None for kind in needed["dep_kinds"])
        ]
    crates = sorted((crate for crate in found["packages"] if crate["id"] != root), key=lambda crate: names[crate["id"]])
    return {
        "components": [
            {
                "type": "library",
                "bom-ref": names[crate["id"]],
                "name": crate["name"],
                "version": crate["version"],
                "scope": "required" if crate["id"] in linked else "excluded",
                "licenses": [{"expression": crate["license"].replace("/", " OR ")}],
                "purl": names[crate["id"]],
            }
            for crate in crates
        ],
        "dependencies": [
            {"ref": names[id_], "dependsOn": sorted(names[needed["pkg"]] for needed in nodes[id_])}
            for id_ in (root, *(crate["id"] for crate in crates))
        ],
    }


if __name__ == "__main__":
    main()
