"""The notebook about alerts: its cells run in order, without and with a broker, and draw what they should."""

import json
import re
import warnings
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure

from serde_chain.testing.services import KafkaBroker
from tests.examples.test_alerts import look_at_labels

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "examples" / "notebooks" / "alerts.ipynb"


def run() -> dict[str, Any]:
    """Run all cells as a kernel does, in one namespace; Jupyter's own packages would be 130 MB."""
    mpl.use("Agg")
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    names: dict[str, Any] = {"__name__": "__main__"}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "FigureCanvasAgg is non-interactive")  # of plt.show()
        for cell in cells:
            if cell["cell_type"] == "code":
                exec(compile("".join(cell["source"]), f"cell {cell['id']}", "exec"), names)  # noqa: S102  our own code
    return names


@pytest.mark.full
@pytest.mark.parametrize("place", ["memory", "broker"])
def test_the_notebook(
    broker: KafkaBroker, topic: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv("ALERTS_BROKERS", raising=False)
    if place == "broker":
        monkeypatch.setenv("ALERTS_BROKERS", broker.bootstrap_servers)
        monkeypatch.setenv("ALERTS_TOPIC", topic)
    names = run()
    try:
        look_at_light_curves(names["light_curves"])
        look_at_cutouts(names["cutouts"])
    finally:
        names["plt"].close("all")
    assert len([*tmp_path.glob(f"serde-chain-alerts/{names['TOPIC']}/*")]) == 3 * len(names["alerts"])


def look_at_light_curves(figure: Figure) -> None:
    assert figure.get_supylabel() == "AB magnitude"
    assert len({axis.get_title() for axis in figure.axes}) == 4
    for axis in figure.axes:
        assert re.fullmatch(r"SRV26\d{8}", axis.get_title())
        faintest, brightest = axis.get_ylim()
        assert faintest > brightest
        points = np.concatenate([np.asarray(drawn.lines[0].get_xydata()) for drawn in axis.containers])  # type: ignore[attr-defined]  # all are of error bars
        assert len(points) > 30
        assert points[:, 1].min() < 19
    look_at_labels(figure)


def look_at_cutouts(figure: Figure) -> None:
    assert [axis.get_title() for axis in figure.axes] == ["science", "template", "difference"] * 3
    for line in np.reshape(np.array(figure.axes, object), (3, 3)):
        science, template, difference = (np.asarray(axis.images[0].get_array()) for axis in line)
        np.testing.assert_allclose(science - template, difference, atol=1e-4)
        assert difference.max() > 6
    look_at_labels(figure)


def test_it_is_saved_without_outputs() -> None:
    """So that a change of it can be read."""
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    ids = [cell["id"] for cell in notebook["cells"]]
    assert len(set(ids)) == len(ids)
    for cell in notebook["cells"]:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None
        assert "".join(cell["source"]).strip()
