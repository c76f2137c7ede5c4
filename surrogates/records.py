"""The nouns of an explanation: how it was asked for, and what came of a text."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import get_args

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import has_fit_parameter

from piste._errors import InputError, PisteError
from piste._typing import BoolArray, FloatArray, IntArray
from piste.sampling.designs import DESIGNS
from piste.sampling.records import Design, Responses, Units
from piste.sampling.segment import UnitChoice
from piste.sampling.space import Space
from piste.surrogates.base import Plannable, Surrogate
from piste.surrogates.noise import LEAST_REPEATS, ScoreErrors
from piste.surrogates.rounds import AutoBudget

MIN_BUDGET = 2
_QUERIES_NEEDED = "queries per text: the text itself and the text without any of its units"


@dataclass(frozen=True)
class Options:
    """How texts are explained; see `piste.explain` for each."""

    surrogates: Mapping[str, Surrogate]
    units: UnitChoice = "word"
    masking: str = "remove"
    design: str | Design = "auto"
    budget: int | AutoBudget = 1000
    target: int | str | None = None
    space: str = "logit"
    tie_repeats: bool = False
    context: str | None = None
    batch_size: int = 64
    seed: int = 0
    confidence: float = 0.95
    noise_probe: int = 0

    def __post_init__(self) -> None:
        check_whole("noise_probe", self.noise_probe, 0, "repeats of the unmasked text")
        if 0 < self.noise_probe < LEAST_REPEATS:
            raise InputError(
                f"Got noise_probe={self.noise_probe}; expected 0 for none or at least {LEAST_REPEATS} "
                "repeats, which is what it takes to tell a variance. Ten are usual."
            )
        of_what = _QUERIES_NEEDED + " and its repeats" * bool(self.noise_probe)
        check_whole("budget", self.cap, MIN_BUDGET + self.noise_probe, of_what)
        _check_types(self)
        if not isinstance(self.confidence, float) or not 0 < self.confidence < 1:
            raise InputError(
                f"Got confidence={self.confidence!r}; expected a number between 0 and 1, such as 0.95."
            )
        check_whole("batch_size", self.batch_size, 1, "texts in one call of the model")
        check_whole("seed", self.seed, 0, "as the only source of randomness")
        if self.space not in get_args(Space):
            names = ", ".join(map(repr, get_args(Space)))
            raise InputError(f"Got space={self.space!r}; expected one of {names}.")
        known = ("auto", "optimal", *DESIGNS)
        named = isinstance(self.design, str) and self.design in known
        if not named and not isinstance(self.design, Design):
            names = ", ".join(map(repr, known))
            raise InputError(f"Got design={self.design!r}; expected {names} or a Design.")
        if isinstance(self.budget, AutoBudget) and (
            isinstance(self.design, Design) or self.design in ("exhaustive", "identify")
        ):
            raise InputError(
                f"Got budget='auto' with design={self.design_name!r}; expected a law that can be drawn "
                "from again. Use design='auto', or a number as the budget."
            )
        if not self.surrogates:
            raise InputError("Got no surrogate; expected at least one of 'lime', 'shap', 'slalom'.")
        if self.design == "optimal":
            for name, surrogate in self.surrogates.items():
                if not isinstance(surrogate, Plannable):
                    raise InputError(
                        f"Got design='optimal' with surrogate {name!r}, whose estimate is only right for "
                        "masks drawn at random; expected 'lime' or 'slalom'. Use design='leverage'."
                    )

    @property
    def design_name(self) -> str:
        """The law that was asked for, by name."""
        return self.design.name if isinstance(self.design, Design) else self.design

    @property
    def cap(self) -> int:
        """The most queries per text, known before the first."""
        return self.budget.cap if isinstance(self.budget, AutoBudget) else self.budget

    @property
    def in_rounds(self) -> bool:
        """Whether what is asked next follows from fits."""
        return isinstance(self.budget, AutoBudget) or self.design == "optimal"

    def plain(self) -> dict[str, object]:
        """Every option but the surrogates as a value that JSON can hold."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        del values["surrogates"]
        if not isinstance(self.units, str):
            values["units"] = "callable" if callable(self.units) else "spans"
        if isinstance(self.design, Design):
            values["design"] = self.design.name
        if isinstance(self.budget, AutoBudget):
            values["budget"] = asdict(self.budget)
        return values


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
    stopped
        Why an automatic budget asked no more; empty where the budget was a number.
    errors, held_out_errors
        Standard errors of the scores and of the held-out ones; None where nothing is known of them.
    noise_variance
        Shape (n_targets,): variance of repeated answers to the unmasked text, in squared units of the
        scores; None where none were asked for.
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
    stopped: str = ""
    errors: ScoreErrors | None = None
    held_out_errors: ScoreErrors | None = None
    noise_variance: FloatArray | None = None
    fits: Mapping[str, Surrogate] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)

    @property
    def exhaustive(self) -> bool:
        """Whether the surrogates were fitted to every mask that there is."""
        return Design(self.responses.masks, self.design).exhaustive

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
        """A fitted copy of the surrogate, told of the scores' errors if it asks; costs no query."""
        finite = np.isfinite(self.scores).all(axis=1)

        def shaped(numbers: FloatArray) -> FloatArray:
            return numbers[finite, 0] if self.single_target else numbers[finite]

        told = {}
        if self.errors is not None and has_fit_parameter(surrogate, "score_errors"):
            told = {"score_errors": shaped(self.errors.in_intervals)}
        fitted: Surrogate = clone(surrogate)
        masks = self.masks_for(surrogate, self.responses.masks[finite])
        return fitted.fit(masks, shaped(self.scores), **told)


@dataclass(frozen=True)
class Failed:
    """A text that could not be explained, why, and how many queries it took to find out."""

    text_id: str
    text: object
    message: str
    error_type: type[PisteError]
    n_queries: int


def _check_types(options: Options) -> None:
    """Refuse what only a text would refuse, in words of its own."""
    units, context = options.units, options.context
    if not isinstance(units, str | Iterable) and not callable(units):
        raise InputError(
            f"Got units={units!r}; expected 'word', 'token', 'sentence', a function or spans. Leave it "
            "out for words."
        )
    if context is not None and not isinstance(context, str):
        raise InputError(
            f"Got context={context!r}; expected a template with one '{{text}}', or None for no context."
        )


def check_whole(name: str, value: object, least: int = 0, of_what: str = "") -> None:
    """Refuse what is no whole number, or too small.

    >>> check_whole("budget", 100, 2, "queries")
    """
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or value < least:  # type: ignore[operator]
        wanted = f"{least} {of_what}".rstrip()
        raise InputError(f"Got {name}={value!r}; expected a whole number of at least {wanted}.")
