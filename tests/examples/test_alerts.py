"""The pictures of docs/alerts.md: what they show, that they can be read, and that the page has the program's code."""

import re
from contextlib import nullcontext
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
from matplotlib.figure import Figure
from pyspark.sql import SparkSession

from examples import alerts as example
from serde_chain.testing.services import KafkaBroker
from tests.environments import section

ROOT = Path(__file__).parents[2]
PROGRAM = (ROOT / "examples" / "alerts.py").read_text(encoding="utf-8")
PAGE = section((ROOT / "docs" / "alerts.md").read_text(encoding="utf-8"), "Light curves and images out of Kafka")
PICTURES = ("cut-outs", "light-curves")


@pytest.mark.full
def test_the_program(
    spark: SparkSession,
    broker: KafkaBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It draws its pictures out of some Spark queries."""
    monkeypatch.setattr(example, "KafkaBroker", lambda: nullcontext(broker))
    monkeypatch.setattr(example, "spark_session", lambda _name: nullcontext(spark))
    folder = tmp_path / "not there yet"
    figures = example.main(folder)
    assert sorted(figures) == [*PICTURES]
    assert capsys.readouterr().out.splitlines() == [f"{folder / name}.png" for name in figures]
    look_at_light_curves(figures["light-curves"])
    look_at_cutouts(figures["cut-outs"])
    for name, figure in figures.items():
        look_at_labels(figure)
        drawn, shown = (matplotlib.image.imread(where / f"{name}.png") for where in (folder, page_pictures()))
        assert drawn.shape == shown.shape
        width, height = figure.get_size_inches() * figure.dpi
        assert drawn.shape[:2] == (round(height), round(width))


def look_at_light_curves(figure: Figure) -> None:
    assert figure.get_supxlabel() == "modified Julian date (days)"
    assert figure.get_supylabel() == "AB magnitude"
    assert [text.get_text() for legend in figure.legends for text in legend.get_texts()] == ["u", "g", "r", "i", "z"]
    titles = [axis.get_title() for axis in figure.axes]
    assert len(set(titles)) == 4
    assert all(re.fullmatch(r"26\d{8}", title) for title in titles)
    for axis in figure.axes:
        faintest, brightest = axis.get_ylim()
        assert faintest > brightest
        points = np.concatenate([np.asarray(drawn.lines[0].get_xydata()) for drawn in axis.containers])  # type: ignore[attr-defined]  # all are of error bars
        assert len(points) > 50
        assert points[:, 1].min() < 18.5
        assert points[:, 0].max() < 61043


def look_at_cutouts(figure: Figure) -> None:
    assert [axis.get_title() for axis in figure.axes] == ["science", "template", "difference"] * 3
    assert all(re.fullmatch(r"26\d{8}\n\d+ µJy", axis.get_ylabel()) for axis in figure.axes[::3])
    for science, template, difference in np.reshape(np.array(figure.axes, object), (3, 3)):
        images = [np.asarray(axis.images[0].get_array()) for axis in (science, template, difference)]
        height, width = images[0].shape
        assert science.get_xlabel() == f"{width} pixels"
        np.testing.assert_allclose(images[0] - images[1], images[2], atol=1e-4)
        # What is new is in the middle, and it alone is in the difference.
        middle = np.s_[height * 2 // 5 : height * 3 // 5, width * 2 // 5 : width * 3 // 5]
        assert images[2][middle].max() == images[2].max()
        assert images[2].max() > 6


def look_at_labels(figure: Figure) -> None:
    """Nothing that is drawn is cut off at the edges."""
    box, (width, height) = figure.get_tightbbox(), figure.get_size_inches()
    assert box.xmin >= 0
    assert box.ymin >= 0
    assert box.xmax <= width
    assert box.ymax <= height


def page_pictures() -> Path:
    return ROOT / "docs" / "pictures"


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_on_the_page_are_not_blank(name: str) -> None:
    assert f"](pictures/{name}.png)" in PAGE
    picture = matplotlib.image.imread(page_pictures() / f"{name}.png")
    assert picture.shape[1] >= 600
    grey = picture[..., :3].mean(axis=2)
    assert grey.std() > 0.05
    # Neither are parts of it.
    for part in (part for rows in np.array_split(grey, 3) for part in np.array_split(rows, 3, axis=1)):
        assert part.std() > 0.02


def test_the_page_has_the_code_of_the_program() -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    at = -1
    for piece in (piece for block in blocks for piece in block.split("\n\n\n")):
        later = PROGRAM.find(piece.rstrip("\n") + "\n", at + 1)
        assert later > at, piece
        at = later
