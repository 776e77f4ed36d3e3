"""Which finders of modules Spark's workers forget."""

import importlib
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark import SparkFiles, TaskContext

from serde_chain.spark.udfs.archives import forget_archives

PACKAGE = "in_an_archive"


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Two archives on the search path, the second one added to the session, and their finders."""
    (tmp_path / "added").mkdir()
    paths = [tmp_path / "spark.zip", tmp_path / "added" / "users.zip"]
    for path in paths:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(f"{PACKAGE}_{path.stem}/__init__.py", "")
            archive.writestr(f"{PACKAGE}_{path.stem}/later.py", "")
        monkeypatch.syspath_prepend(str(path))
        importlib.import_module(f"{PACKAGE}_{path.stem}")
    monkeypatch.setattr(SparkFiles, "getRootDirectory", lambda: str(tmp_path / "added"))
    found = [place for place in sys.path_importer_cache if place.startswith(str(tmp_path)) and ".zip" in place]
    assert len(found) >= len(paths)
    yield found
    for name in [name for name in sys.modules if name.startswith(PACKAGE)]:
        del sys.modules[name]


def test_in_a_task_the_finders_of_other_archives_go(places: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TaskContext, "get", object)
    forget_archives()
    assert {place for place in places if place in sys.path_importer_cache} == {
        place for place in places if "users.zip" in place
    }
    importlib.invalidate_caches()
    for name in ("spark", "users"):
        assert ".zip" in str(importlib.import_module(f"{PACKAGE}_{name}.later").__file__)


def test_a_driver_keeps_its_own(places: list[str]) -> None:
    forget_archives()
    assert all(place in sys.path_importer_cache for place in places)
