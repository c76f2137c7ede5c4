"""Explain texts: the one function that most users need."""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from os import PathLike
from threading import Lock
from typing import Any, Literal

from piste._errors import InputError
from piste.evaluation.inputs import Kept, begin, kept_answers
from piste.evaluation.spent import between, spent_so_far
from piste.evaluation.study import Study, refuse_if_nothing_came_out
from piste.sampling.collect import Progress
from piste.sampling.models.protocol import BlackBox
from piste.sampling.models.remote import Concurrent
from piste.sampling.records import Design, Text
from piste.sampling.segment import UnitChoice
from piste.sampling.store import AnswerStore
from piste.surrogates.ahead import side_by_side
from piste.surrogates.base import Surrogate
from piste.surrogates.explain import explain_text
from piste.surrogates.fit_jobs import check_fit_jobs, fitted
from piste.surrogates.named import named_surrogates
from piste.surrogates.records import Explained, Failed, Options
from piste.surrogates.rounds import AutoBudget


def explain(  # noqa: PLR0913 - the one place where every option of a run is named
    model: object,
    texts: Text | Sequence[Text],
    *,
    surrogates: str | Surrogate | Sequence[str | Surrogate] = ("slalom",),
    units: UnitChoice = "word",
    masking: str = "remove",
    design: str | Design = "auto",
    budget: int | Literal["auto"] | AutoBudget = 1000,
    target: int | str | None = None,
    space: str = "logit",
    tie_repeats: bool = False,
    context: str | None = None,
    batch_size: int = 64,
    seed: int = 0,
    store: str | PathLike[str] | AnswerStore | None = None,
    progress: Progress | None = None,
    confidence: float = 0.95,
    text_ids: Sequence[str] | None = None,
    noise_probe: int = 0,
    fit_jobs: int = 1,
) -> Study:
    """Fit surrogates to a model around each text, and attribute its answers to the text's units.

    Parameters
    ----------
    model
        A loaded model, a URI such as ``builtin:sentiment`` or ``hf:PATH``, or any callable from
        ``list[str]`` to an array (n,), (n, 1) or (n, k).
    texts
        One text, a pair (premise, hypothesis), or a list of either.
    surrogates
        ``lime``, ``shap``, ``slalom``, ``slalom-pairs``, ``interactions``, ``trees`` or estimator objects;
        all are fitted to the same answers.
    units
        What is masked as a whole: ``word``, ``token`` (the model's own), ``sentence``, a function from
        a text to substrings or spans, or the spans ``[(start, end), ...]`` themselves.
    masking
        ``remove``, ``mask-token``, ``attention``, or a string to put in the place of each masked unit.
    design
        The law of the masks: ``auto`` or a name of `piste.sampling.designs.DESIGNS`, or a Design.
    budget
        Upper bound on distinct model queries per text, held-out masks included; or ``auto`` (an
        AutoBudget with its defaults) to ask in rounds until every interval is narrow enough.
    target
        The predicted class by default; an index, a label, or ``all``.
    space
        ``logit`` (one-vs-rest log-odds), ``probability`` or ``raw``; a model whose numbers are neither
        log-odds nor probabilities is explained raw.
    tie_repeats
        Whether units of the same text share their parameters (SLALOM as published; LIME likewise).
    context
        A template around the explained text with one ``{text}``; never masked.
    batch_size
        The most texts in one call of the model.
    seed
        The only source of randomness; no global generator is read or changed.
    store
        A file that keeps the model's answers, so that nothing is asked twice, by no later run either.
        None keeps a remote model's answers in the user's cache folder and a local one's nowhere;
        ``none`` keeps none.
    progress
        Called with (queries done, upper bound on queries).
    confidence
        Level of the intervals.
    text_ids
        Names of the texts in the tables; their positions by default.
    noise_probe
        How often to repeat the unmasked text, to learn how much the model's answers vary by themselves;
        the variance then stands for every answer's, in intervals and in the ``ceiling`` of R2. Takes so
        many queries of each text's budget, never answered from a store; 0 for none, else at least 4, and
        10 are usual. For remote models, which may answer by a mixture of machines, or any that draw at
        random. An ``openai`` model that samples its answers tells its noise without.
    fit_jobs
        How many processes fit surrogates while the model is asked about the next texts; 1 fits here, in
        turn. For slow fits (``slalom-pairs``, ``trees``, several heads) of many texts; the numbers are the
        same.

    Raises
    ------
    InputError
        If an option cannot be used, or no text could be explained because of its content.
    ModelError
        If the model fails on every text. Where only some texts fail, their rows carry a status.

    Examples
    --------
    >>> study = explain(lambda texts: [float("good" in text) for text in texts], "a good film",
    ...                 surrogates="shap", space="raw")
    >>> study.attributions[["token", "score"]].round(6).replace(0, 0).values.tolist()
    [['a', 0.0], ['good', 1.0], ['film', 0.0]]
    """
    options = Options(
        named_surrogates(surrogates),
        units=units,
        masking=masking,
        design=design,
        budget=AutoBudget() if budget == "auto" else budget,
        target=target,
        space=space,
        tie_repeats=tie_repeats,
        context=context,
        batch_size=batch_size,
        seed=seed,
        confidence=confidence,
        noise_probe=noise_probe,
    )
    _check_progress(progress)
    check_fit_jobs(fit_jobs)
    box, listed, names = begin(model, texts, text_ids, options)
    before = spent_so_far(box)
    with (
        kept_answers(box, store) as kept,
        _answered(kept, box, listed, names, options, progress) as answered,
    ):
        outcomes = list(fitted(answered, options.surrogates, fit_jobs))
    refuse_if_nothing_came_out(outcomes)
    spent = between(before, spent_so_far(box, kept.n_known))
    study = Study(outcomes, options, box.fingerprint, spent, box)
    study.warn()
    return study


def explain_each(
    model: object,
    texts: Text | Sequence[Text],
    *,
    surrogates: str | Surrogate | Sequence[str | Surrogate] = ("slalom",),
    budget: int | Literal["auto"] | AutoBudget = 1000,
    store: str | PathLike[str] | AnswerStore | None = None,
    progress: Progress | None = None,
    text_ids: Sequence[str] | None = None,
    fit_jobs: int = 1,
    **options: Any,  # noqa: ANN401 - the others of `explain`
) -> Iterator[Study]:
    """Explain texts one by one: a study of each as soon as it is there, none kept.

    For corpora: memory does not grow with the number of texts. The numbers are those of `explain`; a text
    that could not be explained comes as a study whose attributions are one row that says why. A remote model
    is asked about the next two texts while a study is looked at. A study's provenance holds what was spent
    since the one before came, on it or on texts ahead: together they hold all.

    Parameters
    ----------
    model, texts, surrogates, budget, store, progress, text_ids, fit_jobs
        As in `explain`. With several ``fit_jobs`` two texts for each are asked about ahead of the study that
        comes next.
    options
        Any other option of `explain`.

    Yields
    ------
    A `Study` of one text, in the order of the texts.

    Raises
    ------
    InputError
        Before the first query, if an option cannot be used.
    TypeError
        If there is no such option.

    Examples
    --------
    >>> model = lambda texts: [float("good" in text) for text in texts]
    >>> for study in explain_each(model, ["a good film", "good"], surrogates="shap", space="raw"):
    ...     print(study.attributions["score"].round(3).abs().tolist())
    [0.0, 1.0, 0.0]
    [1.0]
    """
    chosen = Options(
        named_surrogates(surrogates), budget=AutoBudget() if budget == "auto" else budget, **options
    )
    _check_progress(progress)
    check_fit_jobs(fit_jobs)
    box, listed, names = begin(model, texts, text_ids, chosen)
    return _studies(box, listed, names, chosen, store, progress, fit_jobs)


def _studies(
    box: BlackBox,
    listed: list[Text],
    names: list[str],
    options: Options,
    store: str | PathLike[str] | AnswerStore | None,
    progress: Progress | None,
    fit_jobs: int,
) -> Iterator[Study]:
    """A study of each text."""
    with (
        kept_answers(box, store) as kept,
        _answered(kept, box, listed, names, options, progress) as answered,
    ):
        before = spent_so_far(box)
        for outcome in fitted(answered, options.surrogates, fit_jobs):
            now = spent_so_far(box, kept.n_known)
            yield Study([outcome], options, box.fingerprint, between(before, now), box)
            before = now  # what others spend while the study is looked at counts with the next


@contextmanager
def _answered(
    kept: Kept,
    box: BlackBox,
    listed: list[Text],
    names: list[str],
    options: Options,
    progress: Progress | None,
) -> Iterator[Iterator[Explained | Failed]]:
    """What was answered about each text, as soon as it is there, not fitted unless in rounds."""
    tally = _Tally(progress, options.cap, len(listed))
    tasks = (
        partial(explain_text, kept.model, text, name, options, tally.hook(at), repeated=box, fit=False)
        for at, (name, text) in enumerate(zip(names, listed, strict=True))
    )
    if isinstance(kept.model, Concurrent) and not options.in_rounds:
        with closing(side_by_side(tasks)) as answered:
            yield tally.watched(answered)
    else:  # a local model has no time between two texts, and rounds of queries wait for fits
        yield tally.watched(task() for task in tasks)


def _check_progress(progress: Progress | None) -> None:
    if progress is not None and not callable(progress):
        raise InputError(
            f"Got progress={progress!r}; expected a function of (queries done, upper bound), or None."
        )


class _Tally:
    """The progress over all texts from that of each, some of which may be under way at once."""

    def __init__(self, progress: Progress | None, cap: int, n_texts: int) -> None:
        self._progress = progress
        self._cap = cap
        self._done = [0] * n_texts
        self._total = 0
        self._lock = Lock()

    def hook(self, at: int) -> Progress | None:
        """The progress of one text."""
        report = self._progress
        if report is None:
            return None

        def note(done: int, _: int) -> None:
            with self._lock:
                self._count(at, done)
                report(self._total, self._cap * len(self._done))

        return note

    def watched(self, outcomes: Iterator[Explained | Failed]) -> Iterator[Explained | Failed]:
        """The same outcomes; a text that has come out counts with its whole budget."""
        for at, outcome in enumerate(outcomes):
            with self._lock:
                self._count(at, self._cap)
            yield outcome

    def _count(self, at: int, done: int) -> None:
        self._total += done - self._done[at]
        self._done[at] = done
