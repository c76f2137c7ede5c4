"""How far surrogates are from the known answers of oracles."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from piste._errors import InputError
from piste._typing import FloatArray
from piste.evaluation.fidelity import fidelity_table
from piste.evaluation.oracles.attention import attention_oracle, lime_limit_oracle
from piste.evaluation.oracles.records import PAIRS, Known, Oracle, upper_triangle
from piste.evaluation.oracles.words import linear_oracle, pair_oracle, slalom_oracle
from piste.fitting.result import Status
from piste.surrogates.base import Surrogate
from piste.surrogates.explain import explain_text
from piste.surrogates.interactions import Interactions
from piste.surrogates.named import BUILT_IN, named_surrogates
from piste.surrogates.records import Explained, Failed, Options
from piste.surrogates.slalom import Slalom

COLUMNS = (
    "oracle",
    "text",
    "surrogate",
    "kind",
    "n_units",
    "n_masks",
    "error",
    "r2",
    "must_pass",
    "tolerance",
    "passed",
    "status",
)
MANY = 15
"""Masks per unit from which a fit is held against its limit."""

_WORDS = (
    "the movie was a gripping tale of loss told with wit warmth and rare patience by actors who never "
    "overplay"
)
_SHORT = "the movie was a gripping tale of loss"
_REPEATS = "the tale of the loss of the movie"


def evaluate_oracles(
    names: Sequence[str] | None = None,
    surrogates: Sequence[str | Surrogate] = tuple(BUILT_IN),
    *,
    budget: int = 1000,
    seed: int = 0,
) -> pd.DataFrame:
    """Errors of surrogates against what is known of models, one row per text, surrogate and kind.

    Parameters
    ----------
    names
        Some of `ORACLES`; None takes all.
    surrogates
        As in `piste.explain`.
    budget
        Queries per text.
    seed
        Of the masks.

    Returns
    -------
    DataFrame
        Columns `COLUMNS`, see `score_oracle`.

    Raises
    ------
    InputError
        If there is no such oracle or surrogate.

    Examples
    --------
    >>> table = evaluate_oracles(["slalom"], ["slalom", "shap"])
    >>> table.loc[table["text"] == 0, ["surrogate", "kind", "must_pass", "passed"]].head(2)
      surrogate        kind  must_pass  passed
    0    slalom       value       True    True
    1    slalom  importance       True    True
    """
    asked = ORACLES if names is None else tuple(names)
    for name in asked:
        if name not in _BUILDERS:
            raise InputError(
                f"Got oracle {name!r}; expected one of {', '.join(map(repr, ORACLES))}, or build your own "
                "and use score_oracle."
            )
    tables = [score_oracle(_BUILDERS[name](), surrogates, budget=budget, seed=seed) for name in asked]
    return pd.concat(tables, ignore_index=True) if tables else _table([])


def score_oracle(
    oracle: Oracle,
    surrogates: Sequence[str | Surrogate] = tuple(BUILT_IN),
    *,
    budget: int = 1000,
    seed: int = 0,
) -> pd.DataFrame:
    """Errors of surrogates against what is known of one model.

    Each text is explained with its own masks, and the fits' attributions are compared with the truth:

    ``error``
        ``|found - truth| / |truth|`` in the 2-norm over units or pairs; absolute where the truth is 0.
    ``r2``
        Of the surrogate, on held-out masks, or on all of them where every mask was asked.
    ``must_pass``
        Whether the surrogate must be exact here: see `piste.evaluation.oracles.records.Exact`. A fit
        must meet its limit with 15 masks per unit or more.
    ``passed``
        Whether the error is within ``tolerance``; missing where nothing must pass.

    Surrogates about which nothing is known here have no rows.

    Parameters
    ----------
    oracle
        The model, and what is known of it.
    surrogates, budget, seed
        As for `evaluate_oracles`.

    Raises
    ------
    InputError
        If a surrogate is unknown, or the texts cannot be explained with this budget.
    """
    chosen = _estimators(oracle, surrogates)
    if not chosen:
        return _table([])
    options = Options(
        chosen, masking=oracle.masking, design=oracle.design, budget=budget, batch_size=4096, seed=seed
    )
    rows: list[dict[str, object]] = []
    for index, text in enumerate(oracle.texts):
        outcome = explain_text(oracle.model, text, str(index), options)
        if isinstance(outcome, Failed):
            raise outcome.error_type(f"Oracle {oracle.name!r}, text {index}: {outcome.message}")
        rows += _rows(oracle, index, outcome, chosen, seed)
    return _table(rows)


def _estimators(oracle: Oracle, surrogates: Sequence[str | Surrogate]) -> dict[str, Surrogate]:
    """The surrogates about which something is known, by name."""
    meant = [
        oracle.estimators.get(each, each) if isinstance(each, str) else each for each in surrogates
    ]
    known = {each.surrogate for each in oracle.truth}
    return named_surrogates([each for each in named_surrogates(meant).values() if each.name in known])


def _rows(
    oracle: Oracle, index: int, explained: Explained, chosen: Mapping[str, Surrogate], seed: int
) -> Iterator[dict[str, object]]:
    """One row per surrogate and known kind of one text."""
    fidelity = fidelity_table([explained], 0.95, seed).set_index("surrogate")["r2"]
    for name, estimator in chosen.items():
        fitted = explained.fits.get(name)
        for known in oracle.truth:
            if known.surrogate != estimator.name:
                continue
            error = (
                np.nan if fitted is None else _error(_found(fitted, known.kind), known.answers[index])
            )
            must = _must_pass(known, explained, fitted)
            yield {
                "oracle": oracle.name,
                "text": index,
                "surrogate": name,
                "kind": known.kind,
                "n_units": explained.units.n_units,
                "n_masks": len(explained.responses.masks),
                "error": error,
                "r2": fidelity.get(name, np.nan),
                "must_pass": must,
                "tolerance": known.tolerance if must else np.nan,
                "passed": error <= known.tolerance if must else None,
                "status": explained.failures[name] if fitted is None else str(_status(fitted)),
            }


def _must_pass(known: Known, explained: Explained, fitted: Surrogate | None) -> bool:
    if known.exact == "all masks":
        return explained.exhaustive
    if known.exact == "limit":
        return len(explained.responses.masks) >= MANY * explained.units.n_units
    if known.exact == "determined":
        return fitted is None or _status(fitted) is not Status.UNDERDETERMINED
    return False


def _status(fitted: Surrogate) -> Status:
    status: Status = fitted.status_  # type: ignore[attr-defined]  # every fitted surrogate has one
    return status


def _found(fitted: Surrogate, kind: str) -> FloatArray:
    """What the fit says, as the truth has it."""
    if kind != PAIRS:
        return fitted.attributions(kind)
    if isinstance(fitted, Interactions):
        return upper_triangle(fitted.pair_values_)
    if isinstance(fitted, Slalom):
        return upper_triangle(fitted.pair_values())
    raise InputError(f"Got kind 'pairs' for {fitted.name!r}; expected interactions or slalom.")


def _error(found: FloatArray, truth: FloatArray) -> float:
    size = float(np.linalg.norm(truth))
    return float(np.linalg.norm(found - truth)) / (size or 1.0)


def _table(rows: Sequence[Mapping[str, object]]) -> pd.DataFrame:
    table = pd.DataFrame(rows, columns=list(COLUMNS))
    return table.astype({"must_pass": "bool", "passed": "boolean"})


def _numbers(seed: int, spread: float) -> dict[str, float]:
    """A seeded number for each word of the built-in texts."""
    words = _WORDS.split()
    drawn = np.random.default_rng(seed).normal(scale=spread, size=len(words))
    return dict(zip(words, drawn.tolist(), strict=True))


def _linear() -> Oracle:
    return linear_oracle(_numbers(1, 1.0), -0.5, texts=(_REPEATS, _WORDS))


def _slalom() -> Oracle:
    return slalom_oracle(_numbers(2, 2.0), _numbers(3, 1.0), texts=(_REPEATS, _WORDS))


def _slalom_background() -> Oracle:
    return slalom_oracle(
        _numbers(2, 2.0),
        _numbers(3, 1.0),
        (0.5, 1.0),
        texts=(_REPEATS, _WORDS),
        name="slalom-background",
    )


def _pairs() -> Oracle:
    words = _WORDS.split()
    weights = np.random.default_rng(4).normal(size=len(words))
    joint = dict(zip(zip(words, words[3:] + words[:3], strict=True), weights.tolist(), strict=True))
    return pair_oracle(_numbers(5, 1.0), joint, texts=(_SHORT, _WORDS))


def _attention() -> Oracle:
    return attention_oracle((_SHORT,), length=16, seed=1)


def _lime_limit() -> Oracle:
    # No real words: 60 different ones.
    return lime_limit_oracle((" ".join(f"word{number}" for number in range(60)),), length=64, seed=1)


_BUILDERS: Mapping[str, Callable[[], Oracle]] = {
    "linear": _linear,
    "slalom": _slalom,
    "slalom-background": _slalom_background,
    "pairs": _pairs,
    "attention": _attention,
    "lime-limit": _lime_limit,
}
ORACLES = tuple(_BUILDERS)
"""Names of the built-in oracles."""
