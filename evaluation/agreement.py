"""Whether attributions agree with people, with words of known weight, and with one another."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, groupby
from typing import cast

import numpy as np
import pandas as pd

from piste._errors import InputError, PisteError
from piste._typing import BoolArray, FloatArray
from piste.evaluation.asking import PARTIAL, cuts_words, explained_units, text_generator
from piste.evaluation.erasure import bin_sizes, tied_at
from piste.evaluation.explanations import IMPORTANCE, Explanation, explanations
from piste.evaluation.lexicons import Lexicon
from piste.evaluation.measures import TIES
from piste.evaluation.plausibility import (
    rank_correlations,
    ranking_agreement,
    sign_agreement,
    single_class,
    span_agreement,
    token_agreement,
    top_overlap,
    top_units,
)
from piste.evaluation.rationales import Rationale, runs, unit_flags, unit_runs
from piste.sampling.records import Text, Units

OK = "ok"
COLUMNS = ("text", "target", "surrogate", "kind", "metric", "value", "status")
"""How every table of agreement begins."""

RANKING = ("average_precision", "auprc", "roc_auc")
TOKENS = ("token_precision", "token_recall", "token_f1")
SPANS = ("iou_precision", "iou_recall", "iou_f1")
METHODS = ("spearman", "kendall", "top_overlap", "sign_agreement")
LEAST_TYPES = 3  # two always correlate perfectly, or not at all

Row = dict[str, object]


def rationale_agreement(
    attributions: pd.DataFrame,
    rationales: Sequence[Rationale],
    *,
    texts: Mapping[str, Text] | None = None,
    threshold: float | None = None,
    absolute: bool = False,
    seed: int = 0,
) -> pd.DataFrame:
    """Agreement with human rationales, document by document.

    The metrics of `RANKING` need no choice of units; those of `TOKENS` and `SPANS` choose as many units of
    the largest scores as people marked, or those with a score above a threshold. Chosen units without a
    break between them are one span.

    Parameters
    ----------
    attributions
        ``study.attributions``, or from `read_attributions`. Positive scores speak for the target, so the
        target should be what the rationale is the reason for.
    rationales
        From `read_rationales`; a document without one is counted as undefined.
    texts
        By text_id, for attributions that have tokens only, where the rationales do not have the text.
    threshold
        Units with a larger score are chosen; None for as many as are marked.
    absolute
        Whether to take scores without their sign, of all kinds but ``importance``, so that what speaks
        against the target counts as found too (as Leemann et al. do).
    seed
        Of the order of ties at the edge of the choice.

    Returns
    -------
    pandas.DataFrame
        Columns `COLUMNS` and ``n_units``, ``n_marked``. A document of one class (nothing or everything
        marked) has NaN and a status that begins with ``undefined``, and is to be counted, not averaged;
        ``ties`` and ``partial word`` as in `piste.evaluation.faithfulness`.

    Raises
    ------
    InputError
        If the attributions cannot be read; a rationale that does not fit its text has a status instead.

    References
    ----------
    DeYoung et al. 2020, arXiv:1911.03429.

    Examples
    --------
    >>> table = pd.DataFrame({"start": [0, 2, 7], "end": [1, 6, 11], "score": [0.1, 0.9, 0.2]})
    >>> found = rationale_agreement(table, [Rationale("0", ((2, 6),), text="A good film")])
    >>> found.set_index("metric")["value"][["roc_auc", "token_f1", "iou_f1"]].tolist()
    [1.0, 1.0, 1.0]
    """
    human = {each.text_id: each for each in rationales}
    known = {name: each.text for name, each in human.items()} | dict(texts or {})
    rows: list[Row] = []
    for each in explanations(attributions):
        choice = _Choice(threshold, absolute and each.kind != IMPORTANCE, seed)
        rows += _rationale_rows(each, human.get(each.text_id), known.get(each.text_id, ""), choice)
    return pd.DataFrame(rows, columns=[*COLUMNS, "n_units", "n_marked"])


@dataclass(frozen=True)
class _Choice:
    """How units are chosen."""

    threshold: float | None
    absolute: bool
    seed: int

    def chosen(self, scores: FloatArray, n_marked: int, text: Text) -> BoolArray:
        if self.threshold is not None:
            above: BoolArray = scores > self.threshold
            return above
        return top_units(scores, n_marked, text_generator(self.seed, text, "rationale"))


def _rationale_rows(
    each: Explanation, rationale: Rationale | None, text: Text, choice: _Choice
) -> list[Row]:
    metrics = (*RANKING, *TOKENS, *SPANS)
    status, flags = each.undefined, np.zeros(0, dtype=np.bool_)
    if not status and rationale is None:
        status = "undefined: no rationale"
    if not status and rationale is not None:
        try:
            units = _known_units(each, text)
            flags = unit_flags(rationale, units)
        except PisteError as error:
            status = f"error: {error}"
        else:
            status = f"undefined: {why}" if (why := single_class(flags)) else ""
    about = each.key | {"n_units": len(each.scores), "n_marked": int(flags.sum())}
    if status:
        return [about | {"metric": name, "value": np.nan, "status": status} for name in metrics]
    scores = np.abs(each.scores) if choice.absolute else each.scores
    chosen = choice.chosen(scores, int(flags.sum()), text)
    values = ranking_agreement(flags, scores) | token_agreement(flags, chosen)
    values |= span_agreement(unit_runs(cast("Rationale", rationale), units), runs(chosen))
    tied = choice.threshold is None and tied_at(scores, np.array([flags.sum()]))[0]
    noted = [PARTIAL] if cuts_words(each, units) else []
    return [
        about
        | {"metric": name, "value": value}
        | {"status": "; ".join([*noted, *([TIES] if tied and name not in RANKING else [])]) or OK}
        for name, value in values.items()
    ]


def _known_units(each: Explanation, text: Text) -> Units:
    """The units in their text, or by their spans alone where that is not known."""
    if text or each.spans is None:
        return explained_units(each, text)
    segments, starts, ends = np.array(each.spans, dtype=np.int64).T
    parts = tuple(" " * int(ends[segments == segment].max(initial=0)) for segment in range(2))
    whole: Text = cast("tuple[str, str]", parts) if segments.any() else parts[0]
    return Units(whole, "spans", segments, starts, ends, np.ones(len(starts), dtype=np.bool_))


def lexicon_agreement(
    attributions: pd.DataFrame,
    lexicon: Lexicon | Mapping[str, Lexicon],
    *,
    favours: str | None = None,
    name: str = "lexicon",
    lowercase: bool = True,
) -> pd.DataFrame:
    """Rank correlation of scores with weights of words, document by document, over its distinct words.

    A word's score is the mean over its occurrences. Scores of kind ``importance`` have no direction and
    are compared with ``|w|``; all others with w.

    Parameters
    ----------
    attributions
        ``study.attributions``, or from `read_attributions`; tokens are needed.
    lexicon
        Weights by word; or by target, then word, as `naive_bayes_log_odds` gives them.
    favours
        Of weights by word: the target that positive ones speak for; for the other of two the weights are
        turned round. Needed where there are two targets, as there are where each text is explained for its
        predicted class; None takes the weights to speak for the only one.
    name
        Column ``lexicon`` of the table, to tell several apart.
    lowercase
        Whether tokens are looked up in lower case.

    Returns
    -------
    pandas.DataFrame
        Columns `COLUMNS`, ``lexicon`` and ``n_types`` (distinct words with a weight). Undefined, with NaN,
        where there are fewer than 3 or either side is constant.

    Raises
    ------
    InputError
        If the attributions cannot be read, or weights by word meet several targets without ``favours``, or
        more than two; weights by target need no ``favours``.

    References
    ----------
    Leemann et al. 2025, arXiv:2405.13536.

    Examples
    --------
    >>> table = pd.DataFrame({"token": ["A", "good", "film"], "score": [0.1, 0.9, 0.2]})
    >>> lexicon_agreement(table, {"a": -0.1, "good": 2.0, "film": 0.1})["value"].tolist()
    [1.0]
    """
    rows = []
    listed = explanations(attributions)
    by_target = any(isinstance(value, Mapping) for value in lexicon.values())
    _refuse_wrong_signs({each.target for each in listed if not each.failure}, by_target, favours)
    for each in listed:
        weights, why = _weights_for(each.target, lexicon, by_target, favours)
        value, n_types, status = _lexicon_value(each, weights, why, lowercase)
        about = {"metric": "spearman", "value": value, "status": status}
        rows.append(each.key | about | {"lexicon": name, "n_types": n_types})
    return pd.DataFrame(rows, columns=[*COLUMNS, "lexicon", "n_types"])


def _refuse_wrong_signs(targets: set[str], by_target: bool, favours: str | None) -> None:
    """An error where it is not known which targets the weights speak for, and which against."""
    if by_target:
        if favours is not None:
            raise InputError(
                f"Got favours={favours!r} with a lexicon by target; expected one of them. Leave favours out."
            )
        return
    listed = ", ".join(map(repr, sorted(targets)))
    if favours is None and len(targets) > 1:
        raise InputError(
            f"Got a lexicon without targets for targets {listed}; expected favours=, the target that "
            "positive weights speak for, or a lexicon by target."
        )
    if favours is not None and len(targets | {favours}) > 2:
        raise InputError(
            f"Got favours={favours!r} for targets {listed}; expected one of two targets, since weights are "
            "turned round for the other. Give a lexicon by target."
        )


def _weights_for(
    target: str, lexicon: Lexicon | Mapping[str, Lexicon], by_target: bool, favours: str | None
) -> tuple[Lexicon | None, str]:
    """The weights that speak for a target, or None and why there are none."""
    if by_target:
        weights = cast("Mapping[str, Lexicon]", lexicon).get(target)
        return weights, f"no weights for target {target!r}"
    if favours is not None and not target:
        return None, "the target is not known, so that favours= does not say which way it goes"
    flat = cast("Lexicon", lexicon)
    if favours in (None, target):
        return flat, ""
    return {word: -weight for word, weight in flat.items()}, ""


def _lexicon_value(
    each: Explanation, weights: Lexicon | None, why: str, lowercase: bool
) -> tuple[float, int, str]:
    """The correlation, over how many words, and the status."""
    if each.undefined:
        return np.nan, 0, each.undefined
    if weights is None:
        return np.nan, 0, f"undefined: {why}"
    occurrences: dict[str, list[float]] = defaultdict(list)
    for token, score in zip(each.tokens, each.scores.tolist(), strict=True):
        occurrences[token.lower() if lowercase else token].append(score)
    types = [word for word in occurrences if word in weights]
    if len(types) < LEAST_TYPES:
        return np.nan, len(types), f"undefined: {len(types)} distinct words with a weight"
    scores = np.array([np.mean(occurrences[word]) for word in types])
    known = np.array([float(weights[word]) for word in types])
    value = rank_correlations(scores, np.abs(known) if each.kind == IMPORTANCE else known)["spearman"]
    return value, len(types), "undefined: no variation" if np.isnan(value) else OK


def method_agreement(
    attributions: pd.DataFrame,
    *,
    top: float = 0.2,
    seed: int = 0,
    surrogates: Collection[str] | None = None,
) -> pd.DataFrame:
    """Agreement of every two explanations (surrogate and kind) of the same text and target.

    ``spearman`` and ``kendall`` (tau-b) over units; ``top_overlap``: share of the top units that both have;
    ``sign_agreement``: share of the units that both score above, below, or at 0. Where just one of the two
    is an ``importance``, which has no direction, it is compared with the other's ``|score|``; the signs of
    importances, whose zero is a convention, are not compared.

    Parameters
    ----------
    attributions
        ``study.attributions``, or from `read_attributions`.
    top
        Share of the units that are the top, rounded up.
    seed
        Of the order of ties at the edge of the top, the same in both.
    surrogates
        Only these; None for all.

    Returns
    -------
    pandas.DataFrame
        Columns `COLUMNS`, ``other_surrogate``, ``other_kind``, ``n_units``; one row per pair and metric,
        the earlier explanation of the table first. Undefined, with NaN, where units differ, a side is
        constant, or signs mean nothing.

    Examples
    --------
    >>> table = pd.DataFrame({"token": ["good", "film"] * 2, "score": [0.9, 0.2, 0.8, 0.1],
    ...                       "surrogate": ["lime", "lime", "shap", "shap"]})
    >>> method_agreement(table)[["metric", "value"]].round(9).values.tolist()
    [['spearman', 1.0], ['kendall', 1.0], ['top_overlap', 1.0], ['sign_agreement', 1.0]]
    """
    bin_sizes(1, (top,))  # refuse a share that is none
    listed = explanations(attributions)
    if surrogates is not None:
        unknown = set(surrogates) - {each.surrogate for each in listed}
        if unknown:
            raise InputError(f"Got surrogates {sorted(unknown)}; expected some of the attributions'.")
        listed = [each for each in listed if each.surrogate in surrogates]
    texts = list(dict.fromkeys(each.text_id for each in listed))
    listed = sorted(listed, key=lambda each: texts.index(each.text_id))
    rows: list[Row] = []
    for _, group in groupby(listed, key=lambda each: each.text_id):
        for one, other in combinations(list(group), 2):
            if one.target == other.target:
                rows += _pair_rows(one, other, top, seed)
    return pd.DataFrame(rows, columns=[*COLUMNS, "other_surrogate", "other_kind", "n_units"])


def _pair_rows(one: Explanation, other: Explanation, top: float, seed: int) -> list[Row]:
    about = one.key | {"other_surrogate": other.surrogate, "other_kind": other.kind}
    about |= {"n_units": len(one.scores)}
    status = one.undefined or other.undefined
    if not status and (one.spans, one.tokens) != (other.spans, other.tokens):
        status = "undefined: different units"
    if status:
        return [about | {"metric": name, "value": np.nan, "status": status} for name in METHODS]
    mixed = (one.kind == IMPORTANCE) != (other.kind == IMPORTANCE)
    first, second = (
        np.abs(each.scores) if mixed and each.kind != IMPORTANCE else each.scores
        for each in (one, other)
    )
    n_top = int(bin_sizes(len(first), (top,))[0])
    rng = text_generator(seed, one.text_id, "top")
    values = rank_correlations(first, second)
    values["top_overlap"] = top_overlap(first, second, n_top, rng)
    signed = IMPORTANCE not in (one.kind, other.kind)
    values["sign_agreement"] = sign_agreement(first, second) if signed else np.nan
    tied = any(tied_at(each, np.array([n_top]))[0] for each in (first, second))
    statuses = {"top_overlap": TIES if tied else OK}
    if not signed:
        statuses["sign_agreement"] = "undefined: importances have no sign"
    return [
        about
        | {"metric": name, "value": value}
        | {"status": statuses.get(name, "undefined: no variation" if np.isnan(value) else OK)}
        for name, value in values.items()
    ]
