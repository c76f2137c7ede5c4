from collections.abc import Callable
from io import BytesIO
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.text import Text

from piste._errors import InputError
from piste.evaluation.compare import compare
from piste.evaluation.plots import bars, curves, scatter


def drawn(figure: Figure) -> str:
    """All text of the picture, and a check that it can be drawn."""
    file = BytesIO()
    figure.savefig(file, format="svg", metadata={"Date": None})
    assert ElementTree.fromstring(file.getvalue()).tag.endswith("svg")
    return "\n".join(text.get_text() for axes in figure.axes for text in texts(axes))


def texts(axes: Axes) -> list[Text]:
    return [*axes.texts, axes.title, axes.xaxis.label, axes.yaxis.label, *axes.get_yticklabels()]


def attributions() -> pd.DataFrame:
    rows = [
        {"unit": unit, "token": token, "surrogate": "slalom", "kind": kind, "score": score}
        for kind in ("value", "importance")
        for unit, (token, score) in enumerate([("good", 1.0), ("$film$", -1.0), ("good", 1.0)])
    ]
    table = pd.DataFrame(rows)
    return table.assign(ci_low=table["score"] - 0.5, ci_high=[np.inf, *table["score"][1:] + 0.5])


def test_attributions_as_bars() -> None:
    figure = bars(attributions())
    words = drawn(figure)
    assert "slalom value" in words
    assert r"\$film\$" in words  # not mathematics
    assert [len(axes.patches) for axes in figure.axes] == [3, 3]
    opacity = [to_rgba(patch.get_facecolor())[3] for patch in figure.axes[0].patches]
    assert opacity == [0.35, 1, 1]  # an infinite interval


def test_scatter_keeps_repeated_tokens() -> None:
    figure = scatter(attributions())
    assert drawn(figure).count("good") == 2
    with pytest.raises(InputError, match="expected 'value' and 'importance'"):
        scatter(attributions().query("kind == 'value'"))


def test_curves_have_a_band_where_there_are_ends() -> None:
    table = pd.DataFrame({"n": [10, 100] * 2, "mse": [4, 2, 3, 1.0], "surrogate": list("aabb")})
    assert len(curves(table, "n", "mse", log=True).axes[0].lines) == 2
    banded = curves(table.assign(low=0.5, high=5.0), "n", "mse")
    assert len(banded.axes[0].collections) == 2
    drawn(banded)


def test_bars_join_methods_that_are_not_told_apart() -> None:
    rng = np.random.default_rng(0)
    base = rng.exponential(size=30)
    numbers = {"best": base, "same": base + rng.normal(0, 0.1, 30), "worst": base + 9}
    table = pd.concat(
        pd.DataFrame({"text": range(30), "surrogate": name, "mse": values})
        for name, values in numbers.items()
    )
    figure = compare(table, "mse").plot()
    assert "mean rank by mse" in drawn(figure)
    thick = [line for line in figure.axes[0].lines if line.get_linewidth() == 3]
    assert len(thick) == 1
    np.testing.assert_array_less(np.asarray(thick[0].get_xdata(), dtype=float), 2)


@pytest.mark.parametrize("draw", [bars, lambda rows: curves(rows, "unit", "score")])
def test_nothing_to_draw_is_refused(draw: Callable[[pd.DataFrame], Figure]) -> None:
    with pytest.raises(InputError, match="expected at least one"):
        draw(attributions().head(0))


def test_no_figure_is_left_open() -> None:
    bars(attributions())
    assert pyplot.get_fignums() == []
