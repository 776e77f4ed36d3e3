"""The crates of the compiled part: pinned, in the bill of materials, under licences that permit distribution."""

import json
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
# Distribution is under Apache-2.0.
PERMITTED = ("MIT OR Apache-2.0", "Apache-2.0 OR MIT", "Apache-2.0 WITH LLVM-exception", "Unicode-3.0")


def listed() -> list[dict[str, Any]]:
    components: list[dict[str, Any]] = json.loads((ROOT / "sbom.cdx.json").read_text(encoding="utf-8"))["components"]
    return components


def test_crates_are_pinned_and_listed() -> None:
    """`make lock` writes the bill of materials anew."""
    lock = tomllib.loads((ROOT / "native" / "Cargo.lock").read_text(encoding="utf-8"))
    crates = [crate for crate in lock["package"] if crate["name"] != "serde-chain-native"]
    assert {f"pkg:cargo/{crate['name']}@{crate['version']}" for crate in crates} == {each["purl"] for each in listed()}
    assert all(crate.get("checksum") for crate in crates)


def test_licences_permit_distribution() -> None:
    for crate in listed():
        (licence,) = (each["expression"] for each in crate["licenses"])
        assert all(part.strip("()") in PERMITTED for part in licence.split(" AND ")), crate["name"]
