"""What came out of explaining texts: tables, fitted surrogates, every answer, files."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from piste._errors import InputError, PisteError
from piste.evaluation.archive import pack, unpack
from piste.evaluation.attributions import attribution_table
from piste.evaluation.export import csv_text, json_text, meta_path, write_files
from piste.evaluation.fidelity import fidelity_table, low_fidelity
from piste.evaluation.html import compact_html, report_html
from piste.evaluation.inputs import with_answers_kept
from piste.evaluation.lexicons import Lexicon
from piste.evaluation.plots import bars_file
from piste.evaluation.provenance import provenance, remarks, text_meta
from piste.evaluation.rationales import Rationale
from piste.evaluation.spent import Spent
from piste.evaluation.tasks import Derived, Given, derive
from piste.sampling.models import load_model
from piste.sampling.models.protocol import BlackBox
from piste.sampling.records import Responses
from piste.sampling.store import AnswerStore
from piste.surrogates.base import Surrogate
from piste.surrogates.explain import with_fits
from piste.surrogates.named import named_surrogates
from piste.surrogates.records import Explained, Failed, Options


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
    model
        What was asked, as long as the study lives; None after `piste.load_study`.
    """

    def __init__(
        self,
        outcomes: Sequence[Explained | Failed],
        options: Options,
        fingerprint: str,
        spent: Spent | None = None,
        model: BlackBox | None = None,
    ) -> None:
        self.outcomes = list(outcomes)
        self.options = options
        self.fingerprint = fingerprint
        self.spent = Spent() if spent is None else spent
        self.model = model

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

    def attribution_for(
        self,
        task: str,
        *,
        model: object | None = None,
        rationales: Sequence[Rationale] | None = None,
        lexicon: Lexicon | Mapping[str, Lexicon] | None = None,
        favours: str | None = None,
        max_calls: int = 100,
        store: str | PathLike[str] | AnswerStore | None = None,
    ) -> Derived:
        """The attribution that serves a task, measured against every other that the study has.

        Parameters
        ----------
        task
            One of `piste.evaluation.tasks.TASKS`: ``removal-effects``, ``sufficient-set``, ``flip-set``,
            ``human-attention``, ``class-words`` or ``fair-credit``.
        model
            What verifies sets, a model as `piste.explain` takes it; the one that was explained by
            default.
        rationales
            What people marked, for ``human-attention``; from `piste.evaluation.read_rationales`.
        lexicon
            Weights of words, for ``class-words``; from `piste.evaluation.naive_bayes_log_odds`.
        favours
            Of weights by word: the target that positive ones speak for, see
            `piste.evaluation.lexicon_agreement`.
        max_calls
            The most model queries that searching one text's set takes; each ranking takes a few more.
        store
            Where the model's answers are kept, as in `piste.explain`.

        Raises
        ------
        InputError
            If there is no such task, or it needs something that was not given.

        Examples
        --------
        >>> from piste import explain
        >>> study = explain(lambda texts: [2 * text.count("good") - 1 for text in texts],
        ...                 "a good film", space="raw", surrogates=("lime", "slalom"))
        >>> study.attribution_for("flip-set").sets[["tokens", "status"]].values.tolist()
        [[['good'], 'verified']]
        """
        box = self.model if model is None else load_model(model)
        explained = [text for text in self._explained() if text.fits]
        if box is None:
            given = Given(None, rationales, lexicon, favours, max_calls, self.options.seed)
            return derive(task, explained, self.options, self.attributions, given)
        with with_answers_kept(box, store) as asked:
            given = Given(asked, rationales, lexicon, favours, max_calls, self.options.seed)
            return derive(task, explained, self.options, self.attributions, given)

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
        refuse_if_nothing_came_out(outcomes)
        options = replace(self.options, surrogates=chosen)
        return Study(outcomes, options, self.fingerprint, self.spent, self.model)

    @property
    def meta(self) -> dict[str, Any]:
        """Where the numbers come from: model, options, budget spent, fidelity, versions."""
        texts = [text_meta(outcome, self.options.confidence) for outcome in self.outcomes]
        return provenance(texts, self.options, self.fingerprint, self.fidelity, self.spent)

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

    def __repr__(self) -> str:
        """What it is of, in a line."""
        explained = sum(1 for _ in self._explained())
        names = ", ".join(self.options.surrogates)
        return f"<Study of {explained} of {len(self.outcomes)} texts: {names}>"

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
        remarks(self.outcomes).warn()

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


def refuse_if_nothing_came_out(outcomes: Sequence[Explained | Failed]) -> None:
    """An error where no surrogate was fitted to any text."""
    if not any(isinstance(outcome, Explained) and outcome.fits for outcome in outcomes):
        raise nothing_came_out(outcomes[0], len(outcomes))


def nothing_came_out(first: Explained | Failed, n_texts: int) -> PisteError:
    """The error where none of so many texts could be explained, for the reason that the first gives."""
    more = "" if n_texts == 1 else f" (text {first.text_id}; none of {n_texts} texts worked)"
    if isinstance(first, Failed):
        return first.error_type(first.message + more)
    return InputError(next(iter(first.failures.values())) + more)
