"""Pages name the configuration keys of the code, and files that exist. Whether their code runs: test_pages.py."""

import re
from pathlib import Path

import pytest

from payload_stores.base import PayloadStore
from payload_stores.plugins import import_object
from payload_stores.registry import STORES
from serde_chain.catalogue import DESERIALIZERS, SERIALIZERS

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md")))


def test_configuration_page_lists_every_key_with_its_default() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    listed = dict(re.findall(r"^\| `([a-z0-9_.*]+)` \| ([^|]*?) *\|", page, re.MULTILINE))
    paths = {*SERIALIZERS.builtins.values(), *DESERIALIZERS.builtins.values(), *STORES.builtins.values()}
    classes = [PayloadStore, *(import_object(path) for path in paths)]
    for option in {option for cls in classes for option in getattr(cls, "options")}:  # noqa: B009, for mypy
        assert option.name in listed
        default = option.default
        if isinstance(default, (bool, int, str)) and default != "":
            assert listed[option.name].strip("`") == (
                str(default).lower() if isinstance(default, bool) else str(default)
            )


# Of a file or folder that is named on a page, what its path begins with; the packages' own names may be left out.
PLACES = ("serde_chain/", "payload_stores/", "tests/", "docs/", "benchmarks/", "requirements/")
INSIDE = ("stages/", "clients/", "wire/", "schemas/", "spark/", "arrow/", "testing/")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_name_files_that_exist(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    named = re.findall(r"`([\w./-]+)`", text)
    paths = [ROOT / path for path in named if path.startswith(PLACES)]
    paths += [ROOT / "serde_chain" / path for path in named if path.startswith(INSIDE)]
    paths += [page.parent / link for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text)]
    assert [str(path) for path in paths if not path.exists()] == []


def test_until_a_release_each_page_that_installs_says_how() -> None:
    """The sentence is one for all pages; it goes with the first version in CHANGELOG.md."""
    released = re.search(r"^## \[\d", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    told = "Until the first release, [install from a clone]("
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        installs = re.search(r"pip install .*serde-chain", text) and page.name != "installation.md"
        assert text.count(told) == (1 if installs and not released else 0), page.name


def test_the_citation_is_of_this_version() -> None:
    cited = re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    project = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    assert cited is not None
    assert project is not None
    assert cited[1] == project[1]
