"""The page of designs: its rows are numbered, and each names tests that exist."""

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "designs.md"
DOCUMENTS = ("K", "H", "P36-", "P70-")
ROW = re.compile(r"\| (K|H|P36-|P70-)(\d+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|")
TEST = re.compile(r"`([\w/]+\.py)::([\w:]+)`")


def rows() -> dict[str, list[re.Match[str]]]:
    """The rows of the page, by document."""
    found: dict[str, list[re.Match[str]]] = defaultdict(list)
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith(tuple(f"| {document}" for document in DOCUMENTS)):
            row = ROW.fullmatch(line)
            assert row is not None, f"not a row of four cells: {line}"
            found[row[1]].append(row)
    return found


@cache
def names(path: str) -> frozenset[str]:
    """Functions and classes of a file, those of classes after their class and two colons."""
    if not (ROOT / path).is_file():
        return frozenset()

    def inside(body: list[ast.stmt], before: str = "") -> set[str]:
        found: set[str] = set()
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                found.add(before + node.name)
            elif isinstance(node, ast.ClassDef):
                found |= inside(node.body, f"{before}{node.name}::")
        return found

    return frozenset(inside(ast.parse((ROOT / path).read_text(encoding="utf-8")).body))


@pytest.mark.parametrize("document", DOCUMENTS)
def test_statements_are_numbered_without_gaps(document: str) -> None:
    numbers = [int(row[2]) for row in rows()[document]]
    assert numbers
    assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize("document", DOCUMENTS)
def test_each_statement_names_its_tests(document: str) -> None:
    for row in rows()[document]:
        assert TEST.search(row[5]), row[0]
        assert TEST.sub("", row[5]).strip(" ,") == "", row[0]


def test_the_named_tests_exist() -> None:
    named = {found for document in rows().values() for row in document for found in TEST.findall(row[5])}
    assert [f"{path}::{name}" for path, name in sorted(named) if name not in names(path)] == []


def test_names_are_those_of_functions_in_files_and_classes() -> None:
    here = Path(__file__).relative_to(ROOT).as_posix()
    assert "test_the_named_tests_exist" in names(here)
    assert not {"rows", "test_nothing"} & names(here)
    assert "PayloadTests::test_round_trip" in names("payload_stores/testing/suite/payloads.py")
    assert names("tests/no_such_file.py") == frozenset()
