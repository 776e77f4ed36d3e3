"""Settings of Sphinx, which builds the documentation's site: ``make docs``."""

from __future__ import annotations

import re
from importlib.metadata import version as version_of
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "serde-chain"
author = "The serde-chain authors"
copyright = author  # noqa: A001, the name that Sphinx reads
release = version_of("serde-chain")
version = release

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
exclude_patterns = ["_build"]
# Some pages are reached by links only, such as the design notes: tests/site/test_build.py checks that each is linked.
suppress_warnings = ["toc.not_included"]
smartquotes_action = "qe"  # quotes and ellipses; two hyphens are those of options

# Links to headings are checked like links to pages: the build fails if one is broken.
myst_enable_extensions = ["colon_fence", "substitution"]
myst_substitutions = {"release": release}
myst_heading_anchors = 4
nitpicky = True
# Names in signatures, such as types of other packages and type variables, need no target here; references in
# docstrings do, if they are to our own packages.
nitpick_ignore_regex = [(r"py:class", r".*"), (r"py:.*", r"(?!(serde_chain|payload_stores)\.).*")]

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
napoleon_use_ivar = True  # otherwise the fields of dataclasses are described twice

html_theme = "furo"
html_title = "serde-chain"
html_favicon = "pictures/favicon.svg"
html_static_path = ["_static"]
html_css_files = ["site.css"]
pygments_dark_style = "github-dark"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True


def setup(app: Sphinx) -> None:
    """Offer the benchmarks' pages as files; show a banner on each page, until CHANGELOG.md has a version."""
    app.connect("autodoc-skip-member", _is_described)
    app.connect("source-read", _offer_files)
    app.connect("doctree-read", _dash)
    log = Path(__file__).parent.parent / "CHANGELOG.md"
    if not re.search(r"^## \[\d", log.read_text(encoding="utf-8"), re.MULTILINE):
        app.connect("html-page-context", _announce)


def _offer_files(_app: Sphinx, _page: str, source: list[str]) -> None:
    """Pages outside this folder are links in the repository, and downloads on the site."""
    source[0] = source[0].replace("](../benchmarks/", "](path:../benchmarks/")


def _is_described(_app: Sphinx, _kind: str, _name: str, member: object, *_: object) -> bool | None:
    """A named tuple's field is described with its class, and Python's own words for it say nothing; None for others."""
    return True if str(member.__doc__).startswith("Alias for field number") else None


def _dash(_app: Sphinx, page: Any) -> None:
    """Sphinx puts two hyphens between a parameter and its description."""
    for text in [node for node in page.findall() if node.tagname == "#text" and node == " -- "]:
        text.parent.replace(text, type(text)(" \N{EN DASH} "))


def _announce(_app: Sphinx, _page: str, _template: str, context: dict[str, Any], _tree: object) -> None:
    address = context["pathto"]("installation").removesuffix("#")  # "#" on the page itself
    context["theme_announcement"] = (
        f'Until the first release, <a href="{address}#from-a-clone">install from a clone</a>.'
    )
