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


def test_every_page_is_in_the_contents(site: Path) -> None:
    pages = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    contents = (site / "index.html").read_text(encoding="utf-8")
    linked = {Path(link) for link in re.findall(r'class="reference internal" href="([^"#]+)"', contents)}
    assert pages - linked == {Path("index.html")}


@pytest.mark.skipif(released(), reason="the banner is of the time before")
def test_every_page_says_how_to_install_until_a_release(site: Path) -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        made = site / page.relative_to(ROOT / "docs").with_suffix(".html")
        (link,) = re.findall(
            r'Until the first release, <a href="([^"#]*)#from-a-clone">', made.read_text(encoding="utf-8")
        )
        assert (made.parent / link if link else made).resolve() == site / "installation.html"


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
    made = subprocess.run(
        [
            *(sys.executable, "-m", "cogapp", *options),
            *("docs/configuration.md", "docs/confluent-kafka.md", "docs/at-scale.md"),
            *("docs/spark-execution.md", "README.md"),
        ],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert not made.returncode, f"run make tables:\n{made.stdout}{made.stderr}"
