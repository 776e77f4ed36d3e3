"""Public names: type checkers read the imports of a package, and users get the names of its table."""

import ast
import importlib
import inspect
import re
from pathlib import Path

import pytest

import serde_chain

ROOT = Path(__file__).parent.parent
PACKAGES = [
    *("payload_stores", "serde_chain", "serde_chain.jobs", "serde_chain.spark", "serde_chain.spark.jobs"),
    *("payload_stores.scram", "serde_chain.base", "serde_chain.testing.services", "serde_chain.transfer"),
]


@pytest.mark.parametrize("name", PACKAGES)
def test_imports_and_table_are_the_same(name: str) -> None:
    package = importlib.import_module(name)
    [block] = (node for node in ast.parse(inspect.getsource(package)).body if isinstance(node, ast.If))
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    declared = {alias.asname: (node.module, alias.name) for node in imports for alias in node.names}
    assert sorted(declared, key=str) == package.__all__ == dir(package)
    for public, (module, there) in declared.items():
        assert public == there
        assert getattr(package, there) is getattr(importlib.import_module(str(module)), there)


def test_a_misspelt_name_is_refused_by_type_checkers_too() -> None:
    with pytest.raises(AttributeError, match="module 'serde_chain' has no attribute 'Nothing'"):
        _ = serde_chain.Nothing  # type: ignore[attr-defined]


def test_only_modules_that_the_pages_name_list_their_names() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("**/*.md"), *(ROOT / "examples").glob("**/*.py")]
    text = "\n".join(page.read_text("utf-8") for page in pages if page.parent.name != "design")
    named = set(re.findall(r"(?:automodule::|from|import) ((?:serde_chain|payload_stores)[\w.]*)", text))
    modules = {
        ".".join(file.relative_to(ROOT).with_suffix("").parts)
        for package in ("serde_chain", "payload_stores")
        for file in (ROOT / package).glob("**/*.py")
        if file.name != "__init__.py" and re.search("^__all__ =", file.read_text("utf-8"), re.MULTILINE)
    }
    assert modules - named == set()
