from collections.abc import Sequence

import numpy as np
import pandas as pd

import piste
from piste.evaluation.erasure_curves import erasure_curve, is_point
from piste.evaluation.faithfulness import faithfulness
from piste.evaluation.measures import Curve

TEXTS = ["good film good plot", "a good good good long film", "good"]


def count(texts: Sequence[str]) -> list[float]:
    return [float(text.split().count("good")) for text in texts]


def curve(metric: str, order: str = "most first") -> pd.DataFrame:
    study = piste.explain(count, TEXTS, surrogates="shap", space="raw")
    measured = faithfulness(
        count, TEXTS, study.attributions, metrics=Curve(metric, keep_points=True), space="raw"
    )
    assert is_point(measured).any()
    return erasure_curve(measured, metric, order=order)


def test_a_curve_starts_at_the_whole_text_and_ends_without_any() -> None:
    found = curve("deletion")
    assert list(found["surrogate"].unique()) == ["shap shapley"]
    assert (found["x"].iloc[0], found["x"].iloc[-1]) == (0, 1)
    assert (found["y"].iloc[0], found["y"].iloc[-1]) == (2, 0)  # the medians of 2, 3, 1 and of 0, 0, 0
    assert (np.diff(found["y"]) <= 0).all()
    # Half of each text gone: (0, 0, .5 by interpolation between 1 unit and none).
    assert found.loc[found["x"] == 0.5, "y"].item() == 0


def test_insertion_of_the_least_relevant_mirrors_deletion() -> None:
    deletion, insertion = curve("deletion"), curve("insertion", "least first")
    np.testing.assert_allclose(insertion["y"], deletion["y"][::-1])


def test_a_text_of_several_targets_is_one_document() -> None:
    def two(texts: Sequence[str]) -> np.ndarray:
        return np.column_stack([count(texts), [-score for score in count(texts)]])

    study = piste.explain(two, TEXTS, surrogates="shap", space="raw", target="all")
    measured = faithfulness(
        two, TEXTS, study.attributions, metrics=Curve("deletion", keep_points=True), space="raw"
    )
    found = erasure_curve(measured, "deletion")
    # One target is the other with its sign turned: each text starts at the mean of the two, 0.
    assert found["y"].iloc[0] == 0
    assert (found["low"].iloc[0], found["high"].iloc[0]) == (0, 0)


def test_no_points_no_curve() -> None:
    study = piste.explain(count, TEXTS, surrogates="shap", space="raw")
    table = faithfulness(count, TEXTS, study.attributions, metrics="deletion", space="raw")
    assert not is_point(table).any()
    assert erasure_curve(table, "deletion").empty
