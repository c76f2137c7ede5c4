"""What an attribution is for: tasks, the kind that serves each, and how its success is measured."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import pandas as pd

from piste._errors import InputError
from piste.evaluation.agreement import lexicon_agreement, rationale_agreement
from piste.evaluation.lexicons import Lexicon
from piste.evaluation.rationales import Rationale
from piste.evaluation.sets import Goal
from piste.evaluation.task_measures import efficiency_gaps, removal_errors
from piste.evaluation.task_sets import SET_COLUMNS, derive_sets
from piste.sampling.models.protocol import BlackBox
from piste.surrogates.records import Explained, Options, check_whole

Kind = tuple[str, str]
"""The name of a surrogate and the kind of its scores."""

EFFECTS = ("removal", "coefficient", "shapley", "total")
"""Kinds that say how much a unit changes the score, in units of the score."""

_ROUNDING = 1e-9  # relative: medians closer than that are equal
ALTERNATIVE_COLUMNS = ("text", "target", "surrogate", "kind", "metric", "value", "status")


@dataclass(frozen=True)
class Task:
    """One use of an attribution.

    Parameters
    ----------
    name
        As `piste.evaluation.study.Study.attribution_for` takes it.
    question
        What the user asks.
    serves
        (surrogate, kind) that can answer it, the likeliest first: the first that a study has is taken. A
        surrogate's further fits (``slalom-2``) count as it, after the first.
    metric
        The measure by which it and its alternatives are judged.
    lower_is_better
        Which way the measure goes.
    why
        Why this kind, and what the measure is.
    any_effect
        Whether every other fitted effect in units of the score (`EFFECTS`, and a surrogate's own
        ``effect``) can answer it too, after those of ``serves`` and as the study has them.
    by_measure
        Whether the study's answers give the measure; then the kind with the best median is taken instead.
    """

    name: str
    question: str
    serves: tuple[Kind, ...]
    metric: str
    lower_is_better: bool
    why: str
    any_effect: bool = False
    by_measure: bool = False


_REMOVAL = ("slalom", "removal")
_COEFFICIENT = ("lime", "coefficient")
_SHAPLEY = ("shap", "shapley")
_KEPT = (
    "The prediction is kept while the target's score is at least even odds (log-odds 0, probability 1/2), "
    "or, where the text itself is below that or scores are raw, at least halfway between the text's and that "
    "of nothing; otherwise it is changed. With three or more exclusive classes the largest may have less than "
    "even odds."
)
_ALL = (
    Task(
        "removal-effects",
        "How much does the score fall when these units are removed?",
        (_REMOVAL, _COEFFICIENT, _SHAPLEY, ("slalom", "shapley")),
        "mse",
        True,
        "Sums of scores should foretell falls. SLALOM's removal values are each unit's fall alone, after "
        "which the rest is pooled again, and need not add up over many; so the kind that does it best on "
        "this study is taken. Judged by the squared error of predicted falls on the held-out masks: sums of "
        "scores, or, as (prediction), what the surrogate itself expects.",
        any_effect=True,
        by_measure=True,
    ),
    Task(
        "sufficient-set",
        "Which few units alone keep the prediction?",
        (_REMOVAL, _SHAPLEY, _COEFFICIENT),
        "set size",
        True,
        "No ranking is right for sets: they are searched on the most faithful fit and verified by the "
        "model. Judged by the size of the smallest verified set; a ranking's is its smallest prefix. "
        + _KEPT
        + " So for a text that reaches them, a set which keeps its class the largest below even odds is not "
        "taken for sufficient.",
        any_effect=True,
    ),
    Task(
        "flip-set",
        "Which few units change the prediction when they are removed?",
        (_REMOVAL, _SHAPLEY, _COEFFICIENT),
        "set size",
        True,
        "As for sufficient sets, with the units removed instead of kept. "
        + _KEPT
        + " So the predicted class may still be the largest after a flip.",
        any_effect=True,
    ),
    Task(
        "human-attention",
        "Which words would a person mark as the reason?",
        (("slalom", "importance"), _SHAPLEY, _COEFFICIENT),
        "roc_auc",
        False,
        "Judged by the ROC-AUC of scores against marked units, document by document; needs rationales. On "
        "100 reviews with human attention maps importance came first (docs/human_attention.md).",
    ),
    Task(
        "class-words",
        "Which words speak for a class, over a whole corpus?",
        (("slalom", "shapley"), _SHAPLEY, _COEFFICIENT),
        "spearman",
        False,
        "Judged by the rank correlation with words' log-odds between the classes; needs a lexicon, such as "
        "naive_bayes_log_odds gives. On 100 held-out snippets SLALOM's Shapley values came first, if not by "
        "much (docs/class_words.md).",
    ),
    Task(
        "fair-credit",
        "What is each unit's share of the score?",
        (_SHAPLEY, ("slalom", "shapley"), _COEFFICIENT),
        "efficiency gap",
        True,
        "The Shapley value is the only division that is efficient, symmetric and additive, and gives units "
        "without influence nothing. Judged by how far the scores' sum is from f(text) - f(nothing), "
        "relative to it; the kind that comes nearest on this study is taken.",
        any_effect=True,
        by_measure=True,
    ),
)
TASKS: Mapping[str, Task] = MappingProxyType({task.name: task for task in _ALL})
"""Every task by its name."""


@dataclass(frozen=True)
class Derived:
    """The attribution that serves a task, and how its alternatives did.

    Parameters
    ----------
    task
        What it is for.
    attributions
        Rows of the study's table: for each text the kind that serves the task. For sets, ``chosen`` says
        which units are in.
    alternatives
        Columns `ALTERNATIVE_COLUMNS`: the task's measure for every surrogate and kind of every text.
    sets
        Of the tasks about sets: what was found, columns `piste.evaluation.task_sets.SET_COLUMNS`.
    why
        Why the attributions are of this kind: the task's reason and, where kinds were chosen by their
        measure, the medians.
    """

    task: Task
    attributions: pd.DataFrame
    alternatives: pd.DataFrame
    sets: pd.DataFrame
    why: str

    def ranking(self) -> pd.DataFrame:
        """Median measure of each surrogate and kind over texts, best first, with what is undefined counted."""
        rows = [
            {
                "surrogate": surrogate,
                "kind": kind,
                self.task.metric: own["value"].median(),
                "n": len(own),
                "n_undefined": int(own["value"].isna().sum()),
            }
            for (surrogate, kind), own in self.alternatives.groupby(["surrogate", "kind"], sort=False)
        ]
        table = pd.DataFrame(rows, columns=["surrogate", "kind", self.task.metric, "n", "n_undefined"])
        ascending = self.task.lower_is_better
        return table.sort_values(
            self.task.metric, ascending=ascending, kind="stable", ignore_index=True
        )


@dataclass(frozen=True)
class Given:
    """What a task can need beside a study's answers; see `piste.evaluation.study.Study.attribution_for`."""

    model: BlackBox | None = None
    rationales: Sequence[Rationale] | None = None
    lexicon: Lexicon | Mapping[str, Lexicon] | None = None
    favours: str | None = None
    max_calls: int = 100
    seed: int = 0


def derive(
    task: str,
    explained: Sequence[Explained],
    options: Options,
    attributions: pd.DataFrame,
    given: Given,
) -> Derived:
    """The attribution for a task, measured against its alternatives.

    Raises
    ------
    InputError
        If there is no such task, it needs something that was not given, `max_calls` is no whole number of
        at least 0, or no fitted surrogate serves it.
    """
    check_whole("max_calls", given.max_calls)
    if task not in TASKS:
        raise InputError(f"Got task={task!r}; expected one of {', '.join(map(repr, TASKS))}.")
    chosen = TASKS[task]
    fitted = attributions[attributions["target"] != ""]
    sets = pd.DataFrame(columns=list(SET_COLUMNS))
    if task in ("sufficient-set", "flip-set"):
        goal: Goal = "sufficient" if task == "sufficient-set" else "flip"
        sets, alternatives = derive_sets(explained, options, fitted, goal, given.model, given.max_calls)
    else:
        alternatives = _measured(task, explained, fitted, given)
    alternatives = alternatives[alternatives["metric"] == chosen.metric]
    serves, why = _candidates(chosen, fitted, options), chosen.why
    if chosen.by_measure:
        medians = _medians(serves, alternatives)
        serves = _best_first(serves, medians, chosen.lower_is_better)
        why = f"{why} {_told(serves, medians, chosen.metric)}"
    served = _serving(chosen, serves, fitted)
    if len(sets):
        served = _with_chosen(served, sets)
    columns = list(ALTERNATIVE_COLUMNS)
    return Derived(chosen, served, alternatives[columns].reset_index(drop=True), sets, why)


def _candidates(task: Task, fitted: pd.DataFrame, options: Options) -> list[Kind]:
    """What the study has that can serve the task, the likeliest first."""
    present: list[Kind] = list(
        fitted[["surrogate", "kind"]].drop_duplicates().itertuples(index=False, name=None)
    )
    named = [each for wanted in task.serves for each in present if _is(each, wanted)]
    if not task.any_effect:
        return named
    own = {(name, surrogate.effect) for name, surrogate in options.surrogates.items()}
    others = [each for each in present if each[1] in EFFECTS or each in own]
    return list(dict.fromkeys(named + others))


def _is(fitted: Kind, wanted: Kind) -> bool:
    """Whether a kind is of the wanted surrogate: one of several bears a number, as in ``slalom-2``."""
    return (re.sub(r"-\d+$", "", fitted[0]), fitted[1]) == wanted


def _medians(serves: Sequence[Kind], alternatives: pd.DataFrame) -> dict[Kind, float]:
    """The median measure of each kind that can serve, over the texts on which all of them have one."""
    wide = alternatives.pivot_table(
        index=["text", "target"], columns=["surrogate", "kind"], values="value", sort=False
    )
    kinds = [each for each in serves if each in wide.columns]
    common = wide[kinds].dropna()
    return {each: float((common if len(common) else wide)[each].median()) for each in kinds}


def _best_first(
    serves: Sequence[Kind], medians: Mapping[Kind, float], lower_is_better: bool
) -> list[Kind]:
    """By median; what has none comes last, and equal ones, up to rounding, stay in their order."""
    sign = 1.0 if lower_is_better else -1.0
    losses = {each: sign * value for each, value in medians.items() if not np.isnan(value)}
    size = max((abs(loss) for loss in losses.values()), default=0.0)
    step = _ROUNDING * max(size, _ROUNDING)
    return sorted(serves, key=lambda each: round(losses[each] / step) if each in losses else np.inf)


def _told(serves: Sequence[Kind], medians: Mapping[Kind, float], metric: str) -> str:
    """The sentence that says what was taken, and instead of what."""
    known = [each for each in serves if not np.isnan(medians.get(each, np.nan))]
    if not known:
        return f"Here no kind has a {metric}, so the usual one is taken."
    listed = ", ".join(f"{' '.join(each)} {medians[each]:.3g}" for each in known)
    return f"Median {metric} here, the best first: {listed}."


def _serving(task: Task, serves: Sequence[Kind], fitted: pd.DataFrame) -> pd.DataFrame:
    """Rows of the first kind that serves the task, text by text."""
    found = []
    for _, rows in fitted.groupby(["text_id", "target"], sort=False):
        for surrogate, kind in serves:
            own = rows[(rows["surrogate"] == surrogate) & (rows["kind"] == kind)]
            if len(own):
                found.append(own)
                break
    if not found:
        names = ", ".join(f"{surrogate!r} ({kind})" for surrogate, kind in task.serves)
        names += " or another effect on the score" * task.any_effect
        raise InputError(
            f"Got a study without a surrogate for {task.name!r}; expected {names}. Use study.refit(...)."
        )
    return pd.concat(found, ignore_index=True)


def _with_chosen(served: pd.DataFrame, sets: pd.DataFrame) -> pd.DataFrame:
    """Which units are in the set that was found."""
    members = {
        (row["text"], row["target"], unit)
        for row in sets[sets["surrogate"] != ""].to_dict(orient="records")
        for unit in row["units"]
    }
    keys = zip(served["text_id"], served["target"], served["unit"], strict=True)
    return served.assign(chosen=[key in members for key in keys])


def _measured(
    task: str, explained: Sequence[Explained], fitted: pd.DataFrame, given: Given
) -> pd.DataFrame:
    """The measure of a task that is not about sets, for every surrogate and kind of every text."""
    if task == "removal-effects":
        return removal_errors(explained)
    if task == "fair-credit":
        return efficiency_gaps(explained)
    if task == "human-attention":
        if given.rationales is None:
            raise InputError(
                "Got no rationales for 'human-attention'; expected what people marked in these texts: "
                "rationales=read_rationales(path)."
            )
        return rationale_agreement(fitted, given.rationales, seed=given.seed)
    if given.lexicon is None:
        raise InputError(
            "Got no lexicon for 'class-words'; expected weights of words: "
            "lexicon=naive_bayes_log_odds(texts, labels)."
        )
    return lexicon_agreement(fitted, given.lexicon, favours=given.favours)
