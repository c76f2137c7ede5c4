"""Whether attributions name what the model uses: metrics that ask it about masked texts."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from os import PathLike
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import logit

from piste._errors import InputError, PisteError
from piste._typing import BoolArray, FloatArray
from piste.evaluation.asking import PARTIAL, Asking, asking, cuts_words, explained_units, text_generator
from piste.evaluation.baselines import add_baselines
from piste.evaluation.checks import check_attributions
from piste.evaluation.erasure import human_size
from piste.evaluation.explanations import IMPORTANCE, Explanation, explanations, texts_by_id
from piste.evaluation.measures import BUILT_IN, TIES, Answered, Erasure, Measure, Value, chosen_measures
from piste.evaluation.rationales import Rationale, unit_flags
from piste.sampling.collect import Progress
from piste.sampling.records import Query, Text
from piste.sampling.space import choose_targets, to_space
from piste.sampling.store import AnswerStore
from piste.surrogates.explain import EPSILON
from piste.surrogates.records import check_whole

COLUMNS = (
    "text",
    "target",
    "surrogate",
    "kind",
    "metric",
    "setting",
    "space",
    "masking",
    "value",
    "n_units",
    "n_queries",
    "status",
)
METRICS = tuple(BUILT_IN)
SPACES = ("probability", "logit")
OK = "ok"
CONSTANT = "constant model"
CLIPPED = "clipped"
Row = dict[str, object]
_ROUNDING = 1e-9  # relative: answers closer than that are the same


def faithfulness(  # noqa: PLR0913 - the one place where every option of a run is named
    model: object,
    texts: Text | Sequence[Text] | Mapping[str, Text],
    attributions: pd.DataFrame,
    *,
    metrics: str | Measure | Sequence[str | Measure] = METRICS,
    masking: str = "remove",
    space: str | Sequence[str] = SPACES,
    baselines: Sequence[str] = (),
    rationales: Sequence[Rationale] | None = None,
    context: str | None = None,
    budget: int | None = None,
    batch_size: int = 64,
    seed: int = 0,
    store: str | PathLike[str] | AnswerStore | None = None,
    text_ids: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> pd.DataFrame:
    """Measure how well attributions tell what the model's answers depend on.

    Units rank by their scores, largest first, as they count towards the target; where the target is
    empty that is the predicted class. Scores are read by their order alone, but for ``infidelity`` and
    ``sensitivity-n``, which add them up. All methods of a text get the same random masks and the same
    order of ties, and identical masked texts are asked once.

    Parameters
    ----------
    model
        As in `piste.explain`.
    texts, text_ids
        What was explained, by position, by ``text_ids``, or as a mapping from text_id.
    attributions
        ``study.attributions``, or from `piste.evaluation.explanations.read_attributions`.
    metrics
        Names of `METRICS` or objects of `piste.evaluation.measures` with their own options.
    masking, context
        As in `piste.explain`. What the model makes of masked texts is part of every number.
    space
        ``probability``, ``logit`` or both; a model whose numbers are neither is measured ``raw``.
    baselines
        Explanations to measure as well, see `piste.evaluation.baselines.with_baselines`.
    rationales
        Human ones, for the setting ``human length``: ERASER's k is their mean length in units.
    budget
        Most new queries per text, of the metrics and of each baseline; a text that needs more is not
        asked and says so. None is no limit.
    progress
        Called with (texts done, number of texts).

    Returns
    -------
    pandas.DataFrame
        Columns `COLUMNS`. ``value`` is NaN where it is undefined. ``n_units`` counts what the model
        sees, ``n_queries`` the distinct texts that the metric looks at for this explanation. ``status``
        is ``ok``, or what to know: ``error: …`` and ``undefined: …`` (no value), ``constant model``
        (no masked text of this
        text changes the answer), ``ties`` (another order of equal scores might change the value),
        ``clipped`` (a probability of 0 or 1 was clipped before it became log-odds), ``partial word`` (a
        token, given without offsets, starts or ends inside a word: a subword, or a slip), several joined
        by ``; ``.

    Raises
    ------
    InputError
        If an option cannot be used, attributions are of unknown texts, or no text could be measured.
    ModelError
        If the model fails on every text. Where only some texts fail, their rows carry a status.

    References
    ----------
    DeYoung et al. 2020, arXiv:1911.03429; Petsiuk et al. 2018, arXiv:1806.07421; Yeh et al. 2019,
    arXiv:1901.09392; Ancona et al. 2018, arXiv:1711.06104.

    Examples
    --------
    >>> table = pd.DataFrame({"token": ["a", "good", "film"], "score": [0.0, 0.5, 0.1]})
    >>> found = faithfulness(lambda texts: [0.9 if "good" in text else 0.4 for text in texts],
    ...                      "a good film", table, metrics="comprehensiveness", space="probability")
    >>> found[["setting", "value", "status"]].tail(2).round(3).values.tolist()
    [['0.5', 0.5, 'ok'], ['aopc', 0.5, 'ok']]
    """
    check_attributions(attributions)
    check_whole("seed", seed)
    named = texts_by_id(texts, text_ids)
    measures = chosen_measures(metrics)
    spaces = (space,) if isinstance(space, str) else tuple(space)
    for each in spaces or ("",):
        to_space(np.zeros((1, 1)), "raw", each)  # refuse before the first query
    options = {"masking": masking, "context": context, "batch_size": batch_size}
    with asking(model, **options, budget=budget, store=store) as model_asked:  # type: ignore[arg-type]
        if baselines:
            attributions = add_baselines(model_asked, named, attributions, baselines, seed)
        by_text = _by_text(attributions, named)
        sizes = _human_sizes(by_text, named, rationales)
        rows: list[Row] = []
        errors: list[PisteError] = []
        for done, (name, listed) in enumerate(by_text.items(), start=1):
            measured = [
                (each, _sized(measures, sizes.get((each.surrogate, each.kind)))) for each in listed
            ]
            work = _Work(model_asked, named[name], measured, spaces, seed, errors)
            rows += work.rows()
            model_asked.forget(name)
            if progress is not None:
                progress(done, len(by_text))
    if errors and all(row["n_queries"] == 0 for row in rows):
        raise errors[0]
    # Deleting, replacing and hiding are different questions: every number names its own.
    found = pd.DataFrame(rows).assign(masking=model_asked.masking.name)
    return found.reindex(columns=list(COLUMNS))


def _by_text(attributions: pd.DataFrame, named: Mapping[str, Text]) -> dict[str, list[Explanation]]:
    """The explanations of each text, in the order of the texts."""
    by_text: dict[str, list[Explanation]] = {name: [] for name in named}
    for each in explanations(attributions, named):
        if each.text_id not in by_text:
            raise InputError(
                f"Got attributions of text {each.text_id!r}; expected one of the texts "
                f"{', '.join(map(repr, list(named)[:5]))}{', …' if len(named) > 5 else ''}. Give all texts, "
                "with their text_ids."
            )
        by_text[each.text_id].append(each)
    return by_text


def _human_sizes(
    by_text: Mapping[str, Iterable[Explanation]],
    named: Mapping[str, Text],
    rationales: Sequence[Rationale] | None,
) -> dict[tuple[str, str], int]:
    """ERASER's k by surrogate and kind, since they may have units of their own; empty without rationales."""
    if rationales is None:
        return {}
    human = {each.text_id: each for each in rationales}
    lengths: dict[tuple[str, str], list[int]] = defaultdict(list)
    for name, listed in by_text.items():
        for each in listed:
            if name not in human or each.failure:
                continue
            with suppress(PisteError):  # the text's own rows will say so
                length = int(unit_flags(human[name], explained_units(each, named[name])).sum())
                lengths[each.surrogate, each.kind].append(length)
    return {method: human_size(each) for method, each in lengths.items()}


def _sized(measures: Sequence[Measure], size: int | None) -> list[Measure]:
    """The measures, with ERASER's k where it is known."""
    if size is None:
        return list(measures)
    return [replace(each, size=size) if isinstance(each, Erasure) else each for each in measures]


@dataclass(frozen=True)
class _Job:
    """One measure of one explanation, and what it asks: the whole text, then the masked ones."""

    explanation: Explanation
    measure: Measure
    scores: FloatArray
    masks: BoolArray
    queries: list[Query]
    partial: bool


@dataclass(frozen=True)
class _Work:
    """Everything to be measured on one text: measures of each explanation. Errors are noted and stay here."""

    model: Asking
    text: Text
    listed: Sequence[tuple[Explanation, Sequence[Measure]]]
    spaces: Sequence[str]
    seed: int
    errors: list[PisteError]

    def rows(self) -> list[Row]:
        """The rows of the text, all its answers asked at once."""
        jobs: list[_Job] = []
        missing: list[Row] = []
        for each, measures in self.listed:
            try:
                jobs += self._jobs(each, measures)
            except PisteError as error:
                self.errors.append(error)
                missing += _rows_without_values(
                    replace(each, failure=str(error)), measures, self.spaces
                )
            else:
                if each.undefined:
                    missing += _rows_without_values(each, measures, self.spaces)
        try:
            return self._measured(jobs) + missing if jobs else missing
        except PisteError as error:
            self.errors.append(error)
            failed = ((replace(each, failure=str(error)), own) for each, own in self.listed)
            return [row for each in failed for row in _rows_without_values(*each, self.spaces)]

    def _jobs(self, explanation: Explanation, measures: Sequence[Measure]) -> list[_Job]:
        if explanation.undefined:
            return []
        units = self.model.units(explanation, self.text)
        partial = cuts_words(explanation, units)
        scores = explanation.scores[units.seen]
        whole = np.ones((1, len(scores)), dtype=np.bool_)
        jobs = []
        for measure in measures:
            masks = measure.masks(scores, text_generator(self.seed, self.text, measure.name))
            queries = self.model.queries(units, np.concatenate([whole, masks]))
            jobs.append(_Job(explanation, measure, scores, masks, queries, partial))
        return jobs

    def _measured(self, jobs: Sequence[_Job]) -> list[Row]:
        text_id = jobs[0].explanation.text_id
        answers = self.model.answers([query for job in jobs for query in job.queries], text_id)
        in_spaces = [to_space(answers.values, answers.kind, each, EPSILON) for each in self.spaces]
        ends = np.cumsum([len(job.queries) for job in jobs])
        rows: list[Row] = []
        for in_space in {each.space: each for each in in_spaces}.values():
            for job, end in zip(jobs, ends, strict=True):
                try:
                    column = choose_targets(
                        answers.values[0], answers.labels, job.explanation.target or None
                    )[0]
                except InputError as error:
                    failed = replace(job.explanation, failure=str(error))
                    rows += _rows_without_values(failed, [job.measure], [in_space.space])
                    continue
                scores = in_space.scores[:, column]
                asked = _Asked(
                    answers.labels[column],
                    in_space.space,
                    np.where(np.isfinite(scores), scores, np.nan),
                    clipped=bool(in_space.n_clipped[column]),
                )
                rows += _job_rows(job, asked, slice(end - len(job.queries), end))
        return rows


def _rows_without_values(
    each: Explanation, measures: Sequence[Measure], spaces: Sequence[str]
) -> list[Row]:
    """Rows that say why there is nothing to measure."""
    return [
        each.key
        | {"metric": measure.name, "setting": setting, "space": space, "value": np.nan}
        | {"n_units": len(each.scores), "n_queries": 0, "status": each.undefined}
        for space in spaces
        for measure in measures
        for setting in measure.settings
    ]


class _Asked(NamedTuple):
    """What is measured: the label, and all answers about it in one space."""

    label: str
    space: str
    answers: FloatArray
    clipped: bool


def _job_rows(job: _Job, asked: _Asked, rows: slice) -> list[Row]:
    """The values of one measure of one explanation in one space."""
    answers = asked.answers[rows]
    explanation = job.explanation
    effects = explanation.kind != IMPORTANCE and explanation.space in ("", asked.space)
    answered = Answered(job.scores, job.masks, float(answers[0]), answers[1:], effects)
    flags = []
    if np.ptp(asked.answers) <= _ROUNDING * np.abs(asked.answers).max():
        flags.append(CONSTANT)
    if asked.clipped and (np.abs(answers) >= -logit(EPSILON) * (1 - _ROUNDING)).any():
        flags.append(CLIPPED)
    if job.partial:
        flags.append(PARTIAL)
    return [
        explanation.key
        | {"target": asked.label, "metric": job.measure.name, "setting": each.setting}
        | {"space": asked.space, "value": float(each.value), "n_units": len(job.scores)}
        | {"n_queries": len(set(job.queries)), "status": _status(each, flags)}
        for each in job.measure.values(answered)
    ]


def _status(each: Value, flags: Sequence[str]) -> str:
    """What a reader should know about a value."""
    if np.isnan(each.value):
        return f"undefined: {each.reason or 'the model gave numbers that are not finite'}"
    return "; ".join([*flags, *([TIES] if each.tied else [])]) or OK
