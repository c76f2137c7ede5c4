"""The pipeline of one text: units, masks, queries, answers, fitted surrogates."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from sklearn.base import clone

from piste._errors import InputError, ModelError, PisteError
from piste._typing import BoolArray, FloatArray, IntArray
from piste.sampling.collect import Answers, Memory, Progress, collect
from piste.sampling.designs import DESIGNS, draw, min_masks, with_anchors
from piste.sampling.masking import Masking, choose_masking, render
from piste.sampling.models.protocol import BlackBox
from piste.sampling.records import Design, Responses, Text, Units
from piste.sampling.segment import UnitChoice, segment
from piste.sampling.space import choose_targets, to_space
from piste.surrogates.base import Surrogate
from piste.surrogates.lime import Lime
from piste.surrogates.shap import KernelShap
from piste.surrogates.slalom import Slalom

MIN_BUDGET = 2  # the full and the empty text, without which nothing can be attributed
HELD_OUT_SHARE = 0.1
HELD_OUT_LAW = "uniform-size"
EPSILON = 1e-6  # probabilities are clipped to [EPSILON, 1 - EPSILON] before they become log-odds

BUILT_IN: Mapping[str, type[Surrogate]] = {"lime": Lime, "shap": KernelShap, "slalom": Slalom}


@dataclass(frozen=True)
class Options:
    """How texts are explained; see `piste.explain` for each."""

    surrogates: Mapping[str, Surrogate]
    units: UnitChoice = "word"
    masking: str = "remove"
    design: str | Design = "auto"
    budget: int = 1000
    target: int | str | None = None
    space: str = "logit"
    tie_repeats: bool = False
    context: str | None = None
    batch_size: int = 64
    seed: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.budget, bool) or not isinstance(self.budget, int | np.integer):
            raise InputError(
                f"Got budget={self.budget!r}; expected a whole number of model queries per text."
            )
        if self.budget < MIN_BUDGET:
            raise InputError(
                f"Got budget={self.budget}; expected at least {MIN_BUDGET} queries per text: the text "
                "itself and the text without any of its units."
            )
        if isinstance(self.design, str) and self.design not in ("auto", *DESIGNS):
            raise InputError(
                f"Got design={self.design!r}; expected 'auto', {', '.join(map(repr, DESIGNS))} or a Design."
            )
        if not self.surrogates:
            raise InputError("Got no surrogate; expected at least one of 'lime', 'shap', 'slalom'.")


@dataclass(frozen=True)
class Explained:
    """One text with everything that was asked about it and fitted to the answers.

    Parameters
    ----------
    text_id
        The caller's name for the text.
    units
        How the text was cut.
    design
        The law that the masks were drawn from.
    responses
        Answers that the surrogates were fitted to; masks (n_masks, n_seen).
    held_out
        Answers to fresh masks, disjoint from those; None where every mask was asked.
    targets
        Labels that are explained.
    space
        What the scores are: ``logit``, ``probability`` or ``raw``.
    scores, held_out_scores
        Shape (n_masks, n_targets), float64, in that space; NaN where an answer was not finite.
    n_clipped
        Explained probabilities that were clipped before they became log-odds.
    single_target
        Whether surrogates were fitted to one-dimensional scores.
    groups
        Shape (n_seen,), int64: units of the same number share parameters; None where all differ.
    fits, failures
        The fitted surrogates by name, and why others could not be fitted.
    n_queries
        Distinct texts that the model was asked.
    """

    text_id: str
    units: Units
    design: str
    responses: Responses
    held_out: Responses | None
    targets: tuple[str, ...]
    space: str
    scores: FloatArray
    held_out_scores: FloatArray
    n_clipped: int
    single_target: bool
    groups: IntArray | None
    n_queries: int
    fits: Mapping[str, Surrogate] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)

    def masks_for(self, surrogate: Surrogate, masks: BoolArray) -> FloatArray:
        """Masks as the surrogate takes them: per unit, or counts per group of identical units."""
        if self.groups is None or not surrogate.takes_counts:
            return masks.astype(np.float64)
        return masks.astype(np.float64) @ np.eye(self.groups.max() + 1)[self.groups]

    def per_unit(self, surrogate: Surrogate, values: np.ndarray) -> np.ndarray:
        """An array whose last axis runs over the surrogate's columns, spread over the seen units."""
        if self.groups is None or not surrogate.takes_counts:
            return values
        return values[..., self.groups]

    def fit(self, surrogate: Surrogate) -> Surrogate:
        """A fitted copy of the surrogate; costs no query."""
        finite = np.isfinite(self.scores).all(axis=1)
        scores = self.scores[finite]
        fitted: Surrogate = clone(surrogate)
        return fitted.fit(
            self.masks_for(surrogate, self.responses.masks[finite]),
            scores[:, 0] if self.single_target else scores,
        )


@dataclass(frozen=True)
class Failed:
    """A text that could not be explained, and why."""

    text_id: str
    text: object
    message: str
    error_type: type[PisteError] = InputError


def named_surrogates(surrogates: object) -> dict[str, Surrogate]:
    """Estimators by unique name, from names, estimator objects or a single one of either.

    Raises
    ------
    InputError
        If something is neither a known name nor an estimator with attributions.
    """
    chosen: dict[str, Surrogate] = {}
    listed = surrogates if isinstance(surrogates, list | tuple) else [surrogates]
    for surrogate in listed:
        if isinstance(surrogate, str) and surrogate in BUILT_IN:
            estimator: Surrogate = BUILT_IN[surrogate]()
        elif isinstance(surrogate, Surrogate) and not isinstance(surrogate, type):
            estimator = surrogate
        else:
            raise InputError(
                f"Got surrogate {surrogate!r}; expected {', '.join(map(repr, BUILT_IN))} or an "
                "estimator object such as Slalom(heads=2)."
            )
        name, copies = estimator.name, 1
        while name in chosen:
            copies += 1
            name = f"{estimator.name}-{copies}"
        chosen[name] = estimator
    return chosen


def explain_text(
    model: BlackBox, text: Text, text_id: str, options: Options, progress: Progress | None = None
) -> Explained | Failed:
    """Explain one text; whatever goes wrong with it stays with it.

    Parameters
    ----------
    progress
        Called with (queries done, queries planned) of this text.
    """
    try:
        return _Asking(model, text, text_id, options, progress).explained()
    except PisteError as error:
        return Failed(text_id, text, str(error), type(error))


@dataclass
class _Asking:
    """The steps of one text; the answers live only as long as the text is worked on."""

    model: BlackBox
    text: Text
    text_id: str
    options: Options
    progress: Progress | None

    def __post_init__(self) -> None:
        _check_text(self.text)
        self.memory = Memory()
        self.asked = 0
        self.rng, self.held_out_rng = _generators(self.options.seed, self.text)

    def explained(self) -> Explained:
        options = self.options
        masking = choose_masking(options.masking, self.model)
        units = segment(self.text, options.units, model=self.model, context=options.context)
        n_seen = int(units.seen.sum())
        whole = self._ask(units, np.ones((1, n_seen), dtype=np.bool_), masking)
        columns = choose_targets(whole.values[0], whole.labels, options.target)
        if not np.isfinite(whole.values[0, columns]).all():
            raise ModelError(
                f"Got {whole.values[0, columns].tolist()} for the unmasked text; expected finite numbers. "
                "Check the model on this text."
            )
        design, held_out_masks = self._designs(n_seen)
        masks = np.concatenate([design.masks, held_out_masks])
        answers = self._ask(units, masks, masking)
        in_space = to_space(answers.values, answers.kind, options.space, EPSILON)
        n_fit = design.n_masks
        scores = np.where(np.isfinite(in_space.scores), in_space.scores, np.nan)[:, columns]
        explained = Explained(
            text_id=self.text_id,
            units=units,
            design=design.name,
            responses=_responses(masks[:n_fit], answers, slice(n_fit)),
            held_out=_responses(masks[n_fit:], answers, slice(n_fit, None))
            if len(masks) > n_fit
            else None,
            targets=tuple(answers.labels[column] for column in columns),
            space=in_space.space,
            scores=scores[:n_fit],
            held_out_scores=scores[n_fit:],
            n_clipped=int(in_space.n_clipped[columns].sum()),
            single_target=options.target != "all",
            groups=_groups(units) if options.tie_repeats else None,
            n_queries=self.asked,
        )
        return with_fits(explained, options.surrogates)

    def _ask(self, units: Units, masks: BoolArray, masking: Masking) -> Answers:
        """Ask about these masks, within what is left of the budget."""
        before, planned = self.asked, self.options.budget
        progress = self.progress
        answers = collect(
            self.model,
            render(units, masks, masking, self.options.context),
            store=self.memory,
            batch_size=self.options.batch_size,
            max_queries=planned - before,
            progress=None if progress is None else lambda done, _: progress(before + done, planned),
        )
        self.asked += answers.n_queries
        return answers

    def _designs(self, n_units: int) -> tuple[Design, BoolArray]:
        """The masks to fit to, and fresh ones to judge the fit by."""
        options, budget = self.options, self.options.budget
        if isinstance(options.design, Design):
            design = _checked_design(options.design, n_units, budget)
        elif 2**n_units <= budget and options.design in ("auto", "exhaustive"):
            design = with_anchors(draw("exhaustive", n_units, 2**n_units, self.rng))
        else:
            design = self._drawn(options.design, n_units)
        spare = min(int(budget * HELD_OUT_SHARE), budget - design.n_masks)
        if design.exhaustive or spare == 0:
            return design, np.zeros((0, n_units), dtype=np.bool_)
        held_out = draw(HELD_OUT_LAW, n_units, spare, self.held_out_rng, exclude=design.masks)
        return design, held_out.masks

    def _drawn(self, name: str, n_units: int) -> Design:
        """Masks of a law, and the two that every surrogate needs, within nine tenths of the budget."""
        budget = self.options.budget
        identify = name == "identify"
        background = identify and any(
            getattr(surrogate, "background", False) for surrogate in self.options.surrogates.values()
        )
        anchors = np.array([[True] * n_units, [False] * n_units])
        needed = min_masks(name, n_units, background=background)
        fixed = identify or name == "exhaustive"
        least = needed + (0 if name == "exhaustive" else len(anchors))
        if fixed and budget < least:
            raise InputError(
                f"Got budget={budget} for design={name!r} on {n_units} units; expected at least {least} "
                "queries. Raise the budget, or choose design='auto' or larger units."
            )
        room = budget - int(budget * HELD_OUT_SHARE) - len(anchors)
        if fixed:
            drawn = draw(name, n_units, needed, self.rng, background=background)
        elif room < needed:
            drawn = Design(np.zeros((0, n_units), dtype=np.bool_), name)
        else:
            drawn = draw(name, n_units, room, self.rng, exclude=anchors)
        return with_anchors(drawn)


def sufficient_budget(n_fit: int) -> int:
    """The smallest budget that leaves this many masks to fit to, held-out masks set aside."""
    budget = n_fit
    while budget - int(budget * HELD_OUT_SHARE) < n_fit:
        budget += 1
    return budget


def with_fits(explained: Explained, surrogates: Mapping[str, Surrogate]) -> Explained:
    """The same text with these surrogates fitted to its answers."""
    fits: dict[str, Surrogate] = {}
    failures: dict[str, str] = {}
    for name, surrogate in surrogates.items():
        try:
            fits[name] = explained.fit(surrogate)
        except PisteError as error:
            failures[name] = str(error)
    if not fits:
        raise InputError(next(iter(failures.values())))
    return replace(explained, fits=fits, failures=failures)


def _generators(seed: int, text: Text) -> tuple[np.random.Generator, np.random.Generator]:
    """Generators that depend on the seed and the text alone, so the order of texts is irrelevant."""
    digest = hashlib.sha256(repr(text).encode("utf-8", "surrogatepass")).digest()
    sequence = np.random.SeedSequence([seed, *np.frombuffer(digest, dtype=np.uint32).tolist()])
    fit, held_out = sequence.spawn(2)
    return np.random.default_rng(fit), np.random.default_rng(held_out)


def _groups(units: Units) -> IntArray:
    """A number for each seen unit, equal for units of the same text."""
    tokens = np.array(units.tokens, dtype=object)[units.seen]
    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(token, len(numbers)) for token in tokens], dtype=np.int64)


def _responses(masks: BoolArray, answers: Answers, rows: slice) -> Responses:
    values = answers.values[rows]
    return Responses(
        masks, values, answers.labels, answers.kind, answers.n_queries, answers.example_non_finite
    )


def _checked_design(design: Design, n_units: int, budget: int) -> Design:
    if design.n_units != n_units:
        raise InputError(
            f"Got a design over {design.n_units} units for a text of {n_units}; expected as many "
            "columns as units that the model sees."
        )
    if design.n_masks > budget:
        raise InputError(
            f"Got a design of {design.n_masks} masks and budget={budget}; expected at most as many "
            "masks as queries. Raise the budget."
        )
    return design


def _check_text(text: object) -> None:
    """Refuse what no model can be sent."""
    parts: Sequence[object] = text if isinstance(text, tuple) else (text,)
    if not all(isinstance(part, str) for part in parts) or len(parts) not in (1, 2):
        raise InputError(
            f"Got {text!r} of type {type(text).__name__}; expected a str, or a pair of them as a tuple."
        )
    for part in parts:
        if any("\ud800" <= character <= "\udfff" for character in str(part)):
            raise InputError(
                "Got a text with half a surrogate pair, which UTF-8 cannot hold; expected valid Unicode. "
                "Decode the file with errors='replace'."
            )
