"""Explain texts and hold what came out: tables, fitted surrogates, every answer, files."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from piste._errors import InputError, PisteWarning
from piste.evaluation.archive import pack, unpack
from piste.evaluation.attributions import attribution_table
from piste.evaluation.export import csv_text, json_text, meta_path, write_files
from piste.evaluation.fidelity import fidelity_table, low_fidelity
from piste.evaluation.html import compact_html, report_html
from piste.evaluation.inputs import kept_answers, listed_texts, text_names
from piste.evaluation.plots import bars_file
from piste.evaluation.provenance import provenance, remarks
from piste.evaluation.spent import Spent, usage_since, usage_so_far
from piste.sampling.collect import Progress
from piste.sampling.masking import choose_masking
from piste.sampling.models import load_model
from piste.sampling.records import Design, Responses, Text
from piste.sampling.segment import UnitChoice
from piste.sampling.store import AnswerStore
from piste.surrogates.base import Surrogate
from piste.surrogates.explain import explain_text, with_fits
from piste.surrogates.named import named_surrogates
from piste.surrogates.noise import check_repeatable
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
) -> "Study":
    """Fit surrogates to a model around each text, and attribute its answers to the text's units.

    Parameters
    ----------
    model
        A loaded model, a URI such as ``builtin:sentiment`` or ``hf:PATH``, or any callable from
        ``list[str]`` to an array (n,), (n, 1) or (n, k).
    texts
        One text, a pair (premise, hypothesis), or a list of either.
    surrogates
        ``lime``, ``shap``, ``slalom`` or estimator objects; all are fitted to the same answers.
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
    if progress is not None and not callable(progress):
        raise InputError(
            f"Got progress={progress!r}; expected a function of (queries done, upper bound), or None."
        )
    box = load_model(model)
    if noise_probe:
        check_repeatable(box)
    choose_masking(masking, box)  # refuse before the first query
    listed = listed_texts(texts)
    names = text_names(text_ids, len(listed))
    outcomes = []
    before = usage_so_far(box)
    with kept_answers(box, store) as kept:
        for index, (name, text) in enumerate(zip(names, listed, strict=True)):
            hook = None if progress is None else _shifted(progress, index, len(listed), options.cap)
            outcomes.append(explain_text(kept.model, text, name, options, hook, repeated=box))
    _refuse_if_nothing_came_out(outcomes)
    spent = Spent(kept.n_known, usage_since(box, before))
    study = Study(outcomes, options, box.fingerprint, spent)
    study.warn()
    return study


class Study:
    """Explained texts; every table is derived from the answers and costs no query.

    Attributes
    ----------
    attributions
        One row per text, target, surrogate, kind and unit; columns of `piste.evaluation.attributions`.
    fidelity
        One row per text, target and surrogate: agreement with the model on held-out masks.
    responses
        One row per text and mask: what was kept, what it was used for, what the model answered.
    """

    def __init__(
        self,
        outcomes: Sequence[Explained | Failed],
        options: Options,
        fingerprint: str,
        spent: Spent | None = None,
    ) -> None:
        self.outcomes = list(outcomes)
        self.options = options
        self.fingerprint = fingerprint
        self.spent = Spent() if spent is None else spent

    @cached_property
    def fidelity(self) -> pd.DataFrame:
        """Held-out fidelity of every fit, columns of `piste.evaluation.fidelity`."""
        return fidelity_table(self.outcomes, self.options.confidence, self.options.seed)

    @cached_property
    def attributions(self) -> pd.DataFrame:
        """Every attribution, columns of `piste.evaluation.attributions`."""
        return attribution_table(self.outcomes, low_fidelity(self.fidelity), self.options.confidence)

    @cached_property
    def responses(self) -> pd.DataFrame:
        """Every mask and answer: text, use (fit, held-out), mask (1 keeps a unit), then the labels."""
        frames = [
            _answer_rows(explained.text_id, use, answers)
            for explained in self._explained()
            for use, answers in (("fit", explained.responses), ("held-out", explained.held_out))
            if answers is not None
        ]
        return pd.concat(frames, ignore_index=True)

    def outcome(self, text: int | str) -> Explained | Failed:
        """One text with everything that came of it, by position or text_id.

        Raises
        ------
        InputError
            If there is no such text.
        """
        if isinstance(text, int | np.integer) and -len(self.outcomes) <= text < len(self.outcomes):
            return self.outcomes[text]
        for outcome in self.outcomes:
            if outcome.text_id == text:
                return outcome
        raise InputError(
            f"Got text {text!r}; expected a position below {len(self.outcomes)} or a text_id."
        )

    def surrogate(self, text: int | str, name: str) -> Surrogate:
        """The fitted estimator of one text, by position or text_id.

        Raises
        ------
        InputError
            If there is no such text or surrogate, or it could not be fitted.
        """
        outcome = self.outcome(text)
        if isinstance(outcome, Failed):
            raise InputError(f"Text {text!r} was not explained: {outcome.message}")
        if name in outcome.failures:
            raise InputError(f"{name!r} was not fitted to text {text!r}: {outcome.failures[name]}")
        if name not in outcome.fits:
            known = ", ".join(map(repr, outcome.fits))
            raise InputError(
                f"Got surrogate {name!r}; expected one of {known}. Use study.refit to add one."
            )
        return outcome.fits[name]

    def refit(self, surrogates: str | Surrogate | Sequence[str | Surrogate]) -> "Study":
        """The same answers with other surrogates fitted to them; costs no query.

        Raises
        ------
        InputError
            If none of them can be fitted to any text.
        """
        chosen = named_surrogates(surrogates)
        outcomes = [
            outcome if isinstance(outcome, Failed) else with_fits(outcome, chosen)
            for outcome in self.outcomes
        ]
        _refuse_if_nothing_came_out(outcomes)
        options = replace(self.options, surrogates=chosen)
        return Study(outcomes, options, self.fingerprint, self.spent)

    @property
    def meta(self) -> dict[str, Any]:
        """Where the numbers come from: model, options, budget spent, fidelity, versions."""
        return provenance(self.outcomes, self.options, self.fingerprint, self.fidelity, self.spent)

    def to_csv(self, path: str | PathLike[str]) -> None:
        """Write the attributions as CSV, and `meta` beside them as ``NAME.meta.json``.

        UTF-8, RFC 4180. When reading with pandas pass ``keep_default_na=False`` for the tokens' sake:
        a word such as "null" or "NA" would be read as missing otherwise.
        """
        path = Path(path)
        write_files(
            {
                path: csv_text(self.attributions).encode(),
                meta_path(path): json_text(self.meta).encode(),
            }
        )

    def to_json(self, path: str | PathLike[str]) -> None:
        """Write attributions, fidelity and `meta` as one JSON file."""
        table = self.attributions.astype(object).where(self.attributions.notna(), None)
        content = {"meta": self.meta, "attributions": table.to_dict(orient="records")}
        write_files({Path(path): json_text(content).encode()})

    def to_html(
        self,
        path: str | PathLike[str],
        *,
        texts: Sequence[int | str] | None = None,
        curves: Mapping[str, pd.DataFrame] | None = None,
    ) -> None:
        """Write one stand-alone page: highlighted texts, intervals, fidelity, warnings, provenance.

        The first 50 texts, or those named by position or text_id; `curves` are tables by title, see
        `piste.evaluation.html.report_html`.
        """
        page = report_html(self, texts=texts, curves=curves)
        write_files({Path(path): page.encode()})

    def to_plot(self, path: str | PathLike[str], text: int | str | None = None) -> None:
        """Draw one text's attributions to its first target as .png or .svg, by the path's ending.

        The first text that has any, or the one named by position or text_id.

        Raises
        ------
        InputError
            If the ending is another, or the text has no attribution.
        """
        rows = self.attributions
        if text is not None:
            rows = rows[rows["text_id"] == self.outcome(text).text_id]
        write_files({Path(path): bars_file(rows, Path(path).suffix)})

    def _repr_html_(self) -> str:
        """The first text, for a notebook."""
        return compact_html(self)

    def save(self, path: str | PathLike[str]) -> None:
        """Write everything, answers included, into one file for `piste.load_study`.

        Raises
        ------
        InputError
            If a surrogate is not one of piste's own, or the file cannot be written.
        """
        content = pack(self.outcomes, self.options, self.fingerprint, self.spent)
        write_files({Path(path): content})

    def warn(self) -> None:
        """One warning for each thing that a reader of the numbers should know."""
        for message in remarks(self.outcomes):
            warnings.warn(message, PisteWarning, stacklevel=3)

    def _explained(self) -> Iterable[Explained]:
        return (outcome for outcome in self.outcomes if isinstance(outcome, Explained))


def load_study(path: str | PathLike[str]) -> Study:
    """Read a study that `Study.save` wrote; its surrogates are fitted again, which costs no query.

    Raises
    ------
    InputError
        If the file is missing or not a study of this version.
    """
    return Study(*unpack(Path(path)))


def _answer_rows(text_id: str, use: str, answers: Responses) -> pd.DataFrame:
    columns = {
        "text": text_id,
        "use": use,
        "mask": ["".join("01"[kept] for kept in mask) for mask in answers.masks.astype(int)],
    }
    # Side by side, not inserted: a label may be called "text" too.
    scores = pd.DataFrame(answers.values, columns=list(answers.labels))
    return pd.concat([pd.DataFrame(columns), scores], axis=1)


def _shifted(progress: Progress, index: int, n_texts: int, budget: int) -> Progress:
    """Progress over all texts from that of one."""
    return lambda done, _: progress(index * budget + done, n_texts * budget)


def _refuse_if_nothing_came_out(outcomes: Sequence[Explained | Failed]) -> None:
    if any(isinstance(outcome, Explained) and outcome.fits for outcome in outcomes):
        return
    first = outcomes[0]
    more = (
        "" if len(outcomes) == 1 else f" (text {first.text_id}; none of {len(outcomes)} texts worked)"
    )
    if isinstance(first, Failed):
        raise first.error_type(first.message + more)
    raise InputError(next(iter(first.failures.values())) + more)
