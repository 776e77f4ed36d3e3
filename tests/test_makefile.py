"""What `make` installs is pinned."""

import re
from pathlib import Path

MAKEFILE = (Path(__file__).parents[1] / "Makefile").read_text(encoding="utf-8")


def test_what_is_installed_is_pinned_with_hashes() -> None:
    installs = re.findall(r"pip install (.*)", MAKEFILE)
    assert len(installs) >= 4
    own = ("--no-deps --no-build-isolation --editable .", "--no-deps --force-reinstall build/native/")
    assert all("--require-hashes" in line or any(each in line for each in own) for line in installs)


def test_every_goal_is_explained() -> None:
    phony = re.findall(r"^\.PHONY: (.*)", MAKEFILE.replace("\\\n", ""), re.MULTILINE)
    explained = set(re.findall(r"^#   make ([\w-]+)", MAKEFILE, re.MULTILINE))
    checks = {f"check-{what}" for what in ("python", "java", "go", "cargo", "node", "browser", "tools")}
    assert explained | {"help", "venv"} | checks == set(phony[0].split())
