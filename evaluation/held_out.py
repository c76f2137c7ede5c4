"""The fidelity study: how well surrogates predict masks that none of them has seen, and at what cost."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike

import numpy as np
import pandas as pd

from piste._errors import InputError, PisteWarning
from piste._typing import BoolArray, FloatArray
from piste.evaluation.fidelity import fidelity_status, measure_fidelity, noise_ceiling
from piste.evaluation.fidelity_tables import COLUMNS, DELETIONS, MEAN, ZERO, FidelityStudy
from piste.evaluation.inputs import begin, with_answers_kept
from piste.evaluation.judging import LAWS, MOST_DELETIONS, Judged, judging_masks
from piste.evaluation.provenance import SCHEMA_VERSION, described, versions
from piste.sampling.collect import Memory, Progress
from piste.sampling.models.protocol import BlackBox
from piste.sampling.records import Text
from piste.sampling.segment import UnitChoice
from piste.sampling.store import AnswerStore
from piste.surrogates.base import Surrogate
from piste.surrogates.explain import explain_text
from piste.surrogates.named import named_surrogates
from piste.surrogates.records import Explained, Failed, Options

DEFAULT_LAWS = (DELETIONS, "uniform-size", "short")
LEAST_MASKS = 2
NO_MASKS, TOO_FEW = "no fresh masks", "too few fresh masks"


def fidelity_study(  # noqa: PLR0913 - the options of `piste.explain`, and what is judged
    model: object,
    texts: Text | Sequence[Text],
    *,
    surrogates: str | Surrogate | Sequence[str | Surrogate] = ("lime", "shap", "slalom"),
    budgets: int | Sequence[int] = (100, 500),
    laws: Sequence[str] = DEFAULT_LAWS,
    units: UnitChoice = "word",
    masking: str = "remove",
    design: str = "auto",
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
) -> FidelityStudy:
    """Fit surrogates with equal budgets and judge all of them by the same fresh masks.

    For each text the judging masks are drawn before any other, and no fit sees them. They follow the
    given laws: ``deletions`` removes exactly k units, k = 1..10, as a curve; ``uniform-size`` removes a
    uniform number; ``short`` keeps one to three; ``bernoulli`` keeps each unit with probability 1/2. At
    most a fourth of the masks of one size judge, so that short texts have fewer; laws share masks. Two
    baselines stand in every table: ``zero`` predicts the unmasked text's score (no change) and ``mean`` the
    mean of the judged answers, so that its error is their variance and its R2 is 0.

    Parameters
    ----------
    budgets
        Distinct queries that each fit may spend, the judging masks not counted: one, or several for a
        curve of error against queries.
    laws
        Some of `LAWS`.
    noise_probe
        How often to repeat each unmasked text, once per text and on top of its budgets, to learn the
        ``ceiling`` of R2 that the model's own noise leaves; 0 for none.
    model, texts, surrogates, units, masking, design, target, space, tie_repeats, context, batch_size,
    seed, store, progress, confidence, text_ids
        As in `piste.explain`.

    Raises
    ------
    InputError
        If an option cannot be used, or no text could be explained.

    Examples
    --------
    >>> study = fidelity_study(lambda texts: [len(set(text.split())) for text in texts],
    ...                        "one of the good and the bad of it", surrogates="lime", budgets=60,
    ...                        laws=("uniform-size",), space="raw")
    >>> study.table[["surrogate", "mask_law", "n_masks"]].values.tolist()
    [['lime', 'uniform-size', 77], ['zero', 'uniform-size', 77], ['mean', 'uniform-size', 77]]
    """
    spent = _checked_budgets(budgets)
    judging = _checked_laws(laws)
    options = Options(
        named_surrogates(surrogates),
        units=units,
        masking=masking,
        design=_checked_design(design),
        budget=spent[-1] + noise_probe,
        target=target,
        space=space,
        tie_repeats=tie_repeats,
        context=context,
        batch_size=batch_size,
        seed=seed,
        confidence=confidence,
        noise_probe=noise_probe,
    )
    box, listed, names = begin(model, texts, text_ids, options)
    rows: list[dict[str, object]] = []
    failures: dict[str, str] = {}
    with with_answers_kept(box, store) as asked:
        for done, (name, text) in enumerate(zip(names, listed, strict=True), 1):
            outcome = _text_rows((asked, box), text, name, options, spent, judging)
            if isinstance(outcome, Failed):
                failures[name] = outcome.message
                rows += _failed_rows(name, outcome.message, options, spent, judging)
            else:
                rows += outcome
            if progress is not None:
                progress(done, len(listed))
    if len(failures) == len(listed):
        raise InputError(f"{next(iter(failures.values()))} (none of {len(listed)} texts worked)")
    table = pd.DataFrame(rows, columns=list(COLUMNS)).astype({"n_removed": "Int64"})
    spaces = sorted(set(table["space"].dropna()))
    if len(spaces) > 1:
        warnings.warn(
            f"The model does not say what its numbers are, and they look like {' and '.join(spaces)} on "
            "different texts, whose errors do not compare. Declare them: load_model(function, kind=...).",
            PisteWarning,
            stacklevel=2,
        )
    meta = {
        "schema_version": SCHEMA_VERSION,
        "model": box.fingerprint,
        "surrogates": described(options.surrogates),
        **options.plain(),
        "budget": spent,
        "judging_masks": judging,
        "failures": failures,
        "versions": versions(),
    }
    return FidelityStudy(table, failures, confidence, seed, meta)


def most_queries(budgets: int | Sequence[int], laws: Sequence[str] = DEFAULT_LAWS) -> int:
    """The most distinct queries that a study of one text takes, repeats for noise not counted.

    >>> most_queries((100, 500), ("uniform-size", "short"))
    750
    """
    judging = _checked_laws(laws)
    n_judging = sum(n * (MOST_DELETIONS if law == DELETIONS else 1) for law, n in judging.items())
    return sum(_checked_budgets(budgets)) + n_judging


def _text_rows(
    models: tuple[BlackBox, BlackBox],
    text: Text,
    name: str,
    options: Options,
    budgets: Sequence[int],
    laws: Mapping[str, int],
) -> list[dict[str, object]] | Failed:
    """Every row of one text; answers that one budget paid for are known to the next.

    The second model is the first without a store, whose answers are repeated.
    """
    memory = Memory()
    judged: list[Judged] = []

    def reserve(n_units: int, rng: np.random.Generator) -> BoolArray:
        masks, judged[:] = judging_masks(n_units, laws, rng)
        return masks

    rows: list[dict[str, object]] = []
    ceilings: dict[object, float] = {}
    for budget in reversed(budgets):
        # The largest is first, and probes for all: the judging masks, and so the ceilings, are the same.
        asked = replace(options, budget=budget, noise_probe=0) if rows else options
        outcome = explain_text(
            models[0], text, name, asked, reserve=reserve, memory=memory, repeated=models[1]
        )
        if isinstance(outcome, Failed):
            return outcome
        known = {"text": name, "budget": budget, "n_units": int(outcome.units.seen.sum())}
        known["space"] = outcome.space
        found = [known | row for part in judged for row in _part_rows(outcome, part)]
        if not rows:
            ceilings = {_judged_by(row): float(str(row["ceiling"])) for row in found}
        rows = [row | {"ceiling": ceilings[_judged_by(row)]} for row in found] + rows
    return rows


def _judged_by(row: Mapping[str, object]) -> tuple[object, ...]:
    """What a ceiling depends on."""
    return row["target"], row["mask_law"], row["n_removed"]


def _failed_rows(
    name: str, message: str, options: Options, budgets: Sequence[int], laws: Mapping[str, int]
) -> list[dict[str, object]]:
    """A text that could not be explained is a row without numbers for every method, not a missing one."""
    known = {"text": name, "target": "", "n_masks": 0, "n_queries": 0, "status": f"error: {message}"}
    return [
        known | {"budget": budget, "mask_law": law, "surrogate": method}
        for budget in budgets
        for law in laws
        for method in (*options.surrogates, ZERO, MEAN)
    ]


def _part_rows(explained: Explained, part: Judged) -> list[dict[str, object]]:
    """One law's rows: each surrogate and baseline, each target."""
    answers = explained.held_out_scores[part.rows]
    finite = np.isfinite(answers).all(axis=1)
    answers = answers[finite]
    predictions = _predictions(explained, answers, _held_out_masks(explained)[part.rows][finite])
    errors = explained.held_out_errors
    rows: list[dict[str, object]] = []
    for output, target in enumerate(explained.targets):
        known: dict[str, object] = {
            "target": target,
            "mask_law": part.law,
            "n_removed": part.n_removed,
            "n_queries": len(explained.responses.masks),
            "ceiling": noise_ceiling(
                answers[:, output],
                None if errors is None else errors.values[part.rows][finite, output],
            ),
        }
        rows += [
            known | {"surrogate": name} | _measured(answers[:, output], predicted[:, output])
            for name, predicted in predictions.items()
        ]
        rows += [
            known | {"surrogate": name, "n_masks": 0, "status": f"error: {why}"}
            for name, why in explained.failures.items()
        ]
    return rows


def _predictions(explained: Explained, answers: FloatArray, masks: BoolArray) -> dict[str, FloatArray]:
    """What each baseline and surrogate expects at these masks, shape (n_masks, n_targets)."""
    found = {}
    for name, surrogate in explained.fits.items():
        predicted = surrogate.predict(explained.masks_for(surrogate, masks)) if len(masks) else answers
        found[name] = predicted.reshape(answers.shape)
    whole = explained.scores[explained.responses.masks.all(axis=1)][0]
    constants = {ZERO: whole, MEAN: answers.mean(axis=0) if len(answers) else whole}
    return found | {name: np.broadcast_to(row, answers.shape) for name, row in constants.items()}


def _measured(answers: FloatArray, predicted: FloatArray) -> dict[str, object]:
    found = measure_fidelity(answers, predicted, 0.95, None)
    # One mask alone has no variance: the mean would be right about it, and every ratio to it undefined.
    if len(answers) < LEAST_MASKS:
        nothing = dict.fromkeys(("mse", "r2", "spearman"), np.nan)
        return nothing | {"n_masks": len(answers), "status": TOO_FEW if len(answers) else NO_MASKS}
    numbers = {"mse": found.mse, "r2": found.r2, "spearman": found.spearman}
    return numbers | {"n_masks": len(answers), "status": fidelity_status(found)}


def _held_out_masks(explained: Explained) -> BoolArray:
    return explained.responses.masks[:0] if explained.held_out is None else explained.held_out.masks


def _checked_budgets(budgets: int | Sequence[int]) -> list[int]:
    listed = [budgets] if isinstance(budgets, int | np.integer) else list(budgets)
    whole = all(
        isinstance(each, int | np.integer) and not isinstance(each, bool) and each >= 2
        for each in listed
    )
    if not listed or not whole:
        raise InputError(
            f"Got budgets={budgets!r}; expected whole numbers of at least 2, such as (100, 500)."
        )
    return sorted(set(map(int, listed)))


def _checked_laws(laws: Sequence[str]) -> dict[str, int]:
    unknown = [law for law in laws if law not in LAWS]
    if not laws or unknown or isinstance(laws, str):
        raise InputError(
            f"Got laws={laws!r}; expected some of {', '.join(map(repr, LAWS))}, in a list."
        )
    return {law: LAWS[law] for law in laws}


def _checked_design(design: str) -> str:
    if not isinstance(design, str) or design == "optimal":
        raise InputError(
            f"Got design={design!r} for a fidelity study; expected the name of a law that is drawn at random, "
            "since the judging masks must be drawn before any other. Use design='auto'."
        )
    return design
