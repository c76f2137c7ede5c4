"""What attributions say about the words of a whole corpus, with intervals over texts."""

from collections.abc import Callable

import numpy as np
import pandas as pd

from piste._errors import InputError
from piste.evaluation.checks import check_attributions, check_level, numbers
from piste.surrogates.records import check_whole

COLUMNS = (
    "target",
    "surrogate",
    "kind",
    "space",
    "token",
    "n",
    "n_texts",
    "n_left_out",
    "mean",
    "low",
    "high",
    "status",
)
KEPT = ("ok", "low fidelity")
ONE_TEXT = "one text"


def token_table(
    attributions: pd.DataFrame,
    *,
    fold: Callable[[str], str] = str.casefold,
    min_texts: int = 2,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Mean attribution of each token over a corpus: class-indicative words, for each target and kind.

    The interval is Student's with the cluster-robust error of a mean, texts being the clusters:
    ``sum_g (sum_{i in g} (x_i - mean))^2 / n^2 * G / (G - 1)``, G texts, ``G - 1`` degrees of freedom, so
    that a word which one text repeats does not count as many observations.

    Parameters
    ----------
    attributions
        A table such as ``study.attributions``, scores of texts with the same target. Scores in different
        spaces (log-odds, raw ones) are never averaged, where the column ``space`` tells them apart.
    fold
        Which tokens are the same word: case is ignored by default.
    min_texts
        Words in fewer texts are left out of the table.
    confidence
        Level of the intervals, in (0, 1).

    Returns
    -------
    DataFrame
        Columns `COLUMNS`, largest means first within a target, surrogate, kind and space; ``space`` is
        empty where the table does not tell. ``n`` occurrences in ``n_texts`` texts made the mean;
        ``n_left_out`` had no usable score (unseen, underdetermined, failed). A word of a single text has no
        interval, and its status says so.

    Raises
    ------
    InputError
        If a column is missing or has no numbers, an option cannot be used, or no row has a usable score.

    References
    ----------
    Liang, Zeger 1986, doi:10.1093/biomet/73.1.13; as in statsmodels' ``cov_type="cluster"``.

    Examples
    --------
    >>> table = pd.DataFrame({"text_id": ["a", "b", "c"], "token": ["Good", "good", "good"],
    ...                       "target": "positive", "surrogate": "lime", "kind": "coefficient",
    ...                       "score": [1.0, 2.0, 3.0], "status": "ok"})
    >>> token_table(table)[["token", "n", "mean"]].values.tolist()
    [['good', 3, 2.0]]
    """
    check_attributions(attributions)
    check_level(confidence)
    check_whole("min_texts", min_texts)
    if not callable(fold):
        raise InputError(f"Got fold={fold!r}; expected a function of a token, such as str.casefold.")
    needed = ("text_id", "token", "target", "surrogate", "kind", "score", "status")
    missing = [column for column in needed if column not in attributions]
    if missing:
        raise InputError(
            f"Got attributions without {', '.join(map(repr, missing))}; expected the columns of "
            "study.attributions."
        )
    table = attributions.assign(score=numbers(attributions, "score"))
    table = table[table["target"] != ""]
    usable = table["status"].isin(KEPT) & table["score"].notna()
    if not usable.any():
        raise InputError(
            "Got no attribution with a usable score; expected at least one. See its status."
        )
    space = table["space"].astype(object).where(table["space"].notna(), "") if "space" in table else ""
    table = table.assign(word=table["token"].map(fold), usable=usable, space=space)
    groups = ["target", "surrogate", "kind", "space"]
    rows = [
        _row(dict(zip([*groups, "token"], key, strict=True)), rows, confidence)
        for key, rows in table.groupby([*groups, "word"], sort=False)
    ]
    found = pd.DataFrame(rows, columns=list(COLUMNS))
    found = found[found["n_texts"] >= max(min_texts, 1)]
    ranks = found.groupby(groups, sort=False).ngroup()
    order = found.assign(rank=ranks).sort_values(
        ["rank", "mean"], ascending=[True, False], kind="stable"
    )
    return order.drop(columns="rank").reset_index(drop=True)


def _row(key: dict[str, object], rows: pd.DataFrame, confidence: float) -> dict[str, object]:
    used = rows[rows["usable"]]
    known = key | {
        "n": len(used),
        "n_texts": used["text_id"].nunique(),
        "n_left_out": len(rows) - len(used),
    }
    if len(used) == 0:
        return known | {"mean": np.nan, "low": np.nan, "high": np.nan, "status": "no usable score"}
    scores = used["score"].to_numpy(dtype=float)
    if known["n_texts"] == 1:
        return known | {"mean": scores.mean(), "low": np.nan, "high": np.nan, "status": ONE_TEXT}
    low, high = _interval(scores, used["text_id"], confidence)
    return known | {"mean": scores.mean(), "low": low, "high": high, "status": "ok"}


def _interval(scores: np.ndarray, texts: pd.Series, confidence: float) -> tuple[float, float]:
    from scipy.stats import t

    clusters, _ = pd.factorize(texts)
    sums = np.bincount(clusters, weights=scores - scores.mean())
    n_texts = len(sums)
    error = np.sqrt((sums**2).sum() * n_texts / (n_texts - 1)) / len(scores)
    half = float(t.ppf((1 + confidence) / 2, n_texts - 1) * error)
    return float(scores.mean() - half), float(scores.mean() + half)
