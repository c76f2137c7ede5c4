"""Medians over documents of any tidy table of metrics, with intervals and counts of what is undefined."""

import pandas as pd

from piste._errors import InputError
from piste.evaluation.checks import check_level, numbers
from piste.evaluation.paired import bootstrap_median

KEYS = (
    "surrogate",
    "kind",
    "other_surrogate",
    "other_kind",
    "lexicon",
    "metric",
    "setting",
    "space",
)
"""What tells the rows of a summary apart, as far as the table has it."""


def summary(table: pd.DataFrame, *, confidence: float = 0.95, seed: int = 0) -> pd.DataFrame:
    """The median over documents of each metric of each method, and how many documents it is of.

    Documents are the unit: several targets of one are averaged first. A document with an undefined value is
    undefined as a whole: it is left out of the median and counted.

    Parameters
    ----------
    table
        From `piste.evaluation.faithfulness`, `agreement` or `stability`: columns ``text``, ``metric``,
        ``value`` and ``status``.
    confidence
        Level of the bootstrap intervals over documents, in (0, 1).
    seed
        Of the resamples.

    Returns
    -------
    pandas.DataFrame
        The columns of `KEYS` that the table has, then ``median``, ``low``, ``high``; ``n_texts``
        whose values are all defined, ``n_undefined`` others, and ``n_flagged`` of the former with a
        status that is not ``ok``.

    Raises
    ------
    InputError
        If a column is missing or has no numbers, or the level or the seed cannot be used.

    Examples
    --------
    >>> rows = [("a", 1.0, "ok"), ("b", 3.0, "ties"), ("c", float("nan"), "undefined: no variation")]
    >>> table = pd.DataFrame(rows, columns=["text", "value", "status"]).assign(metric="deletion")
    >>> summary(table)[["metric", "median", "n_texts", "n_undefined", "n_flagged"]].values.tolist()
    [['deletion', 2.0, 2, 1, 1]]
    """
    missing = [name for name in ("text", "metric", "value", "status") if name not in table]
    if missing:
        raise InputError(
            f"Got a table without {', '.join(map(repr, missing))}; expected one of metrics, such as that "
            "of faithfulness."
        )
    check_level(confidence, seed)
    table = table.assign(value=numbers(table, "value"))
    keys = [name for name in KEYS if name in table]
    rows = []
    for key, group in table.groupby(keys, sort=False, dropna=False):
        own = group.groupby("text", sort=False)["value"]
        values = own.mean().where(own.count() == own.size())  # one undefined target: all of it is
        found = bootstrap_median(values.to_numpy(dtype=float), confidence, seed)
        defined = group["text"].isin(values.index[values.notna()])
        flagged = group.loc[defined & (group["status"] != "ok"), "text"]
        rows.append(
            dict(zip(keys, key, strict=True))
            | found._asdict()
            | {"n_texts": int(values.notna().sum()), "n_undefined": int(values.isna().sum())}
            | {"n_flagged": flagged.nunique()}
        )
    names = [*keys, "median", "low", "high", "n_texts", "n_undefined", "n_flagged"]
    return pd.DataFrame(rows, columns=names)
