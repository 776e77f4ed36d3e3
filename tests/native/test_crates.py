"""The crates of the compiled part: pinned, few, and under licences that permit distribution under Apache-2.0."""

import tomllib
from pathlib import Path

NATIVE = Path(__file__).parents[2] / "native"
# By `cargo metadata`; a new crate is added with the licence that its Cargo.toml declares.
LICENCES = {
    "heck": "MIT OR Apache-2.0",
    "libc": "MIT OR Apache-2.0",
    "once_cell": "MIT OR Apache-2.0",
    "portable-atomic": "Apache-2.0 OR MIT",
    "proc-macro2": "MIT OR Apache-2.0",
    "pyo3": "MIT OR Apache-2.0",
    "pyo3-build-config": "MIT OR Apache-2.0",
    "pyo3-ffi": "MIT OR Apache-2.0",
    "pyo3-macros": "MIT OR Apache-2.0",
    "pyo3-macros-backend": "MIT OR Apache-2.0",
    "quote": "MIT OR Apache-2.0",
    "syn": "MIT OR Apache-2.0",
    "target-lexicon": "Apache-2.0 WITH LLVM-exception",
    "unicode-ident": "(MIT OR Apache-2.0) AND Unicode-3.0",
}
PERMITTED = ("MIT OR Apache-2.0", "Apache-2.0 OR MIT", "Apache-2.0 WITH LLVM-exception", "Unicode-3.0")


def test_crates_are_pinned_and_listed() -> None:
    lock = tomllib.loads((NATIVE / "Cargo.lock").read_text(encoding="utf-8"))
    crates = {crate["name"]: crate for crate in lock["package"]}
    del crates["serde-chain-native"]
    assert crates.keys() == LICENCES.keys()
    assert all(crate.get("checksum") for crate in crates.values())


def test_licences_permit_distribution() -> None:
    for crate, licence in LICENCES.items():
        assert all(part.strip("()") in PERMITTED for part in licence.split(" AND ")), crate
