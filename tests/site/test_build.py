"""The site is built without a warning, and has every page and every public name."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import payload_stores
import serde_chain
import serde_chain.jobs
import serde_chain.spark
import serde_chain.spark.jobs
from tests.test_docs import released

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[2]


def test_every_page_is_in_the_contents_or_linked_from_one_that_is(site: Path) -> None:
    pages = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}

    def linked(page: str) -> set[Path]:
        text = (site / page).read_text(encoding="utf-8")
        links = re.findall(r'class="reference internal" href="([^"#]+)[^"]*"', text)
        return {(site / page).parent.joinpath(link).resolve().relative_to(site.resolve()) for link in links}

    contents = linked("index.html")
    assert pages - contents - linked("api/index.html") - linked("designs.html") == {Path("index.html")}


@pytest.mark.skipif(released(), reason="the banner is of the time before")
def test_every_page_says_how_to_install_until_a_release(site: Path) -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        made = site / page.relative_to(ROOT / "docs").with_suffix(".html")
        (link,) = re.findall(
            r'Until the first release, <a href="([^"#]*)#from-a-clone">', made.read_text(encoding="utf-8")
        )
        assert (made.parent / link if link else made).resolve() == site / "installation.html"


def test_options_keep_their_hyphens(site: Path) -> None:
    assert "protoc --descriptor_set_out" in (site / "configuration.html").read_text(encoding="utf-8")


def test_parameters_have_dashes(site: Path) -> None:
    page = (site / "api" / "clients.html").read_text(encoding="utf-8")
    assert " -- " not in page
    assert "<strong>topic</strong> \N{EN DASH} Topic." in page


def test_names_of_modules_are_not_underlined(site: Path) -> None:
    rules = (site / "_static" / "pygments.css").read_text(encoding="utf-8").splitlines()
    assert [rule for rule in rules if "underline" in rule and "Generic.Underline" not in rule] == []


def test_every_public_name_is_described(site: Path) -> None:
    described = {
        name
        for page in (site / "api").glob("*.html")
        for name in re.findall(r'<dt class="sig[^>]* id="([^"]+)"', page.read_text(encoding="utf-8"))
    }
    names = {name.rpartition(".")[2] for name in described}
    for module in (serde_chain, serde_chain.spark, serde_chain.jobs, serde_chain.spark.jobs, payload_stores):
        assert set(module.__all__) - names == set()


def test_tables_are_those_of_the_code_and_the_report() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    options = shlex.split(re.findall(r"^COG := (.*)", makefile, re.MULTILINE)[0])
    options[options.index("-r")] = "--check"
    (pages,) = re.findall(r"/cog \$\(COG\) (.*)", makefile)
    made = subprocess.run(
        [sys.executable, "-m", "cogapp", *options, *pages.split()],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert not made.returncode, f"run make tables:\n{made.stdout}{made.stderr}"
