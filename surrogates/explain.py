"""The pipeline of one text: units, masks, queries, answers, fitted surrogates."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from piste._errors import InputError, ModelError, PisteError
from piste._typing import BoolArray
from piste.fitting.optimal import choose_rows
from piste.sampling.collect import Answers, Memory, Progress, collect
from piste.sampling.designs import draw, min_masks, with_anchors
from piste.sampling.masking import Masking, choose_masking, render
from piste.sampling.models.protocol import BlackBox
from piste.sampling.models.remote import Noise
from piste.sampling.records import Design, Responses, Text, Units
from piste.sampling.space import choose_targets
from piste.surrogates.base import Plannable, Surrogate
from piste.surrogates.noise import probed, scored, variance_of
from piste.surrogates.preparation import check_design, generators, groups_of, n_queries, units_of
from piste.surrogates.records import Explained, Failed, Options
from piste.surrogates.rounds import AutoBudget, check_rule, judge

HELD_OUT_SHARE = 0.1
HELD_OUT_LAW = "uniform-size"
CANDIDATES = 10  # masks that an optimal design chooses one from
PAIR = 2  # laws draw a mask with its complement: a single one more is none
# Random pairs predict better than those of one order of the units (docs/quality.md), but n of them need not
# determine an additive model; n + 8 hardly ever fail to. Where nothing shrinks the estimate, as with Shapley
# values, they have less error only from 3.5 masks a unit on (docs/few_masks.md).
SPARE_PAIRS = 8
AMPLE = 3.5
EPSILON = 1e-6  # probabilities are clipped to [EPSILON, 1 - EPSILON] before they become log-odds


def best_masks(fits: Sequence[Surrogate], candidates: BoolArray, n_masks: int) -> BoolArray:
    """The candidates that shrink the variances of the fits' effects most, each fit choosing its share."""
    picked = []
    for turn, fit in enumerate(fits):
        assert isinstance(fit, Plannable)
        share = n_masks // len(fits) + (turn < n_masks % len(fits))
        chosen = choose_rows(*fit.plan(candidates), share)
        picked.append(candidates[chosen])
        candidates = np.delete(candidates, chosen, axis=0)
    return np.concatenate(picked)


Reserve = Callable[[int, np.random.Generator], BoolArray]
"""From a number of units to masks that fits are judged by and never see, shape (n_masks, n_units)."""


def explain_text(  # noqa: PLR0913 - the one text that everything else is about
    model: BlackBox,
    text: Text,
    text_id: str,
    options: Options,
    progress: Progress | None = None,
    *,
    reserve: Reserve | None = None,
    memory: Memory | None = None,
    repeated: BlackBox | None = None,
    fit: bool = True,
) -> Explained | Failed:
    """Explain one text; whatever goes wrong with it stays with it.

    Parameters
    ----------
    progress
        Called with (queries done, queries planned) of this text.
    reserve
        Draws the held-out masks before all others; they come on top of the budget, which the fit then
        has for itself. By default a tenth of the budget is set aside for masks of uniform size.
    memory
        Answers about this text from before, which are not asked again; new ones are put there.
    repeated
        What the noise probe asks: the model without the store that may be around it. By default the
        model.
    fit
        Whether to fit the surrogates; where rounds of queries follow from fits, they are fitted anyway.
    """
    asking = _Asking(
        model, text, text_id, options, progress, reserve, memory or Memory(), repeated or model, fit
    )
    try:
        return asking.explained()
    except PisteError as error:
        return Failed(text_id, text, str(error), type(error), asking.asked)


@dataclass
class _Asking:
    """The steps of one text; the answers live only as long as the text is worked on."""

    model: BlackBox
    text: Text
    text_id: str
    options: Options
    progress: Progress | None
    reserve: Reserve | None
    memory: Memory
    repeated: BlackBox
    fit: bool

    def __post_init__(self) -> None:
        if isinstance(self.options.budget, AutoBudget):
            check_rule(self.options.surrogates, self.options.budget)
        self.asked = 0
        self.budget = self.options.cap - self.options.noise_probe
        self.rng, self.held_out_rng = generators(self.options.seed, self.text)

    def explained(self) -> Explained:
        options = self.options
        units = units_of(self.model, self.text, options)
        masking = choose_masking(options.masking, self.model)
        n_seen = int(units.seen.sum())
        self.reserved = _none(n_seen)
        whole = self._ask(units, np.ones((1, n_seen), dtype=np.bool_), masking)
        columns = choose_targets(whole.values[0], whole.labels, options.target)
        if not np.isfinite(whole.values[0, columns]).all():
            raise ModelError(
                f"Got {whole.values[0, columns].tolist()} for the unmasked text; expected finite "
                "numbers. Check the model on this text."
            )
        found = _Found(units, masking, columns, self._probed(units, masking))
        if options.in_rounds:
            return self._in_rounds(found)
        answered = self._answered(found, *self._designs(n_seen))
        return with_fits(answered, options.surrogates) if self.fit else answered

    def _in_rounds(self, found: "_Found") -> Explained:
        """Ask in rounds: each is sized, and an optimal design's masks are chosen, by the last fits."""
        options, n_units = self.options, int(found.units.seen.sum())
        rule = options.budget if isinstance(options.budget, AutoBudget) else None
        most, law, look = _n_fit(self.budget), self._growing_law(), 1
        enough = 2 * max(sufficient_budget(each, n_units) for each in options.surrogates.values())
        design = self._drawn(law, n_units, min(enough, most) if rule else most // 2)
        while True:
            explained = with_fits(self._answered(found, design, _none(n_units)), options.surrogates)
            if not explained.fits:
                return explained  # more answers would not change why
            verdict = judge(explained.fits, rule, options.confidence, look)
            more = min(int(design.n_masks * verdict.growth) + 1, most) - design.n_masks
            if verdict.enough or more < PAIR or design.exhaustive:
                break
            fresh = self._fresh(design, more, explained.fits)
            if len(fresh) == 0:
                break
            design, look = Design(np.concatenate([design.masks, fresh]), options.design_name), look + 1
        reason = verdict.reason
        if not verdict.enough:
            reason = "every mask asked" if design.exhaustive else "budget spent"
        share = HELD_OUT_SHARE / (1 - HELD_OUT_SHARE)
        held_out = self._held_out(design, min(int(design.n_masks * share), options.cap - self.asked))
        return replace(
            self._answered(found, design, held_out),
            fits=explained.fits,
            failures=explained.failures,
            stopped=f"{reason} ({look} rounds)",
        )

    def _fresh(self, design: Design, n_masks: int, fits: Mapping[str, Surrogate]) -> BoolArray:
        """Masks for the next round: by the law, or the best of several times as many for the fits."""
        if self.options.design != "optimal":
            return draw(
                self._growing_law(), design.n_units, n_masks, self.rng, exclude=design.masks
            ).masks
        n_candidates = CANDIDATES * n_masks
        drawn = draw("uniform-size", design.n_units, n_candidates, self.rng, exclude=design.masks)
        return best_masks(list(fits.values()), drawn.masks, n_masks)

    def _growing_law(self) -> str:
        """The law that rounds draw from: uniform within sizes however often it is continued."""
        design = self.options.design_name
        return "leverage" if design in ("auto", "optimal") else design

    def _answered(self, found: "_Found", design: Design, held_out: BoolArray) -> Explained:
        """The model's answers to these masks; those that are known are not asked again."""
        options, columns, n_fit = self.options, found.columns, design.n_masks
        masks = np.concatenate([design.masks, held_out])
        answers = self._ask(found.units, masks, found.masking)
        in_space, errors = scored(
            answers, self.model.fingerprint, found.noise, space=options.space, epsilon=EPSILON
        )
        scores = np.where(np.isfinite(in_space.scores), in_space.scores, np.nan)[:, columns]
        variance = None
        if found.noise is not None:
            variance = variance_of(found.noise, in_space.space, EPSILON)[columns]
        return Explained(
            text_id=self.text_id,
            units=found.units,
            design=design.name,
            responses=self._responses(masks, answers, slice(n_fit)),
            held_out=self._responses(masks, answers, slice(n_fit, None)) if len(held_out) else None,
            targets=tuple(answers.labels[column] for column in columns),
            space=in_space.space,
            scores=scores[:n_fit],
            held_out_scores=scores[n_fit:],
            n_clipped=int(in_space.n_clipped[columns].sum()),
            single_target=options.target != "all",
            groups=groups_of(found.units) if options.tie_repeats else None,
            n_queries=self.asked,
            errors=errors and errors.of(slice(n_fit), columns),
            held_out_errors=errors and errors.of(slice(n_fit, None), columns),
            noise_variance=variance,
        )

    def _probed(self, units: Units, masking: Masking) -> Noise | None:
        """Repeated answers to the unmasked text, if they are wanted; never those of a store."""
        n_repeats = self.options.noise_probe
        if not n_repeats:
            return None
        full = np.ones((1, int(units.seen.sum())), dtype=np.bool_)
        query = render(units, full, masking, self.options.context)[0]
        self.asked += n_repeats
        return probed(self.repeated, query, n_repeats)

    def _ask(self, units: Units, masks: BoolArray, masking: Masking) -> Answers:
        """Ask about these masks, within what is left of the budget."""
        before, budget = self.asked, self.options.cap + len(self.reserved)

        def note(done: int, _: int) -> None:
            self.asked = before + done
            if self.progress is not None:
                self.progress(self.asked, budget)

        return collect(
            self.model,
            render(units, masks, masking, self.options.context),
            store=self.memory,
            batch_size=self.options.batch_size,
            max_queries=budget - before,
            progress=note,
        )

    def _responses(self, masks: BoolArray, answers: Answers, rows: slice) -> Responses:
        return Responses(
            masks[rows],
            answers.values[rows],
            answers.labels,
            answers.kind,
            self.asked,
            answers.example_non_finite,
        )

    def _designs(self, n_units: int) -> tuple[Design, BoolArray]:
        """The masks to fit to, and fresh ones to judge the fit by."""
        options, budget = self.options, self.budget
        if self.reserve is not None:
            self.reserved = self.reserve(n_units, self.held_out_rng)
        if isinstance(options.design, Design):
            check_design(options.design, n_units, options)
            design = options.design
        elif 2**n_units <= budget and options.design in ("auto", "exhaustive"):
            taken = self.reserved
            design = with_anchors(draw("exhaustive", n_units, 2**n_units, self.rng, exclude=taken))
        else:
            n_fit = _n_fit(budget) if self.reserve is None else budget
            design = self._drawn(options.design, n_units, n_fit)
        if self.reserve is not None:
            return design, self.reserved
        spare = min(int(budget * HELD_OUT_SHARE), budget - n_queries(design))
        return design, self._held_out(design, spare)

    def _held_out(self, design: Design, n_masks: int) -> BoolArray:
        """Fresh masks, none of them among those of the fit."""
        if design.exhaustive or n_masks == 0:
            return _none(design.n_units)
        rng, taken = self.held_out_rng, design.masks
        return draw(HELD_OUT_LAW, design.n_units, n_masks, rng, exclude=taken).masks

    def _drawn(self, name: str, n_units: int, n_masks: int) -> Design:
        """Masks of a law, and the two that every surrogate needs."""
        if name in ("identify", "exhaustive"):
            return self._complete(name, n_units)
        anchors = np.array([[True] * n_units, [False] * n_units])
        if name == "auto":
            name = "leverage" if n_masks >= self._ample(n_units) else "permutation"
        if n_masks - len(anchors) < min_masks(name, n_units):
            return Design(anchors, name)
        taken = np.concatenate([anchors, self.reserved])
        return with_anchors(draw(name, n_units, n_masks - len(anchors), self.rng, exclude=taken))

    def _ample(self, n_units: int) -> int:
        """The masks from which design ``auto`` draws at random."""
        shrunk = all(getattr(each, "shrinks", False) for each in self.options.surrogates.values())
        most = ceil(AMPLE * n_units)
        return min(2 * (n_units + SPARE_PAIRS), most) if shrunk else most

    def _complete(self, name: str, n_units: int) -> Design:
        """Masks of a law that is worth nothing in part."""
        surrogates = self.options.surrogates.values()
        background = name == "identify" and any(
            getattr(each, "background", False) for each in surrogates
        )
        needed = min_masks(name, n_units, background=background)
        if needed <= self.budget:
            design = with_anchors(draw(name, n_units, needed, self.rng, background=background))
            needed = design.n_masks
        if needed > self.budget:
            raise InputError(
                f"Got budget={self.options.cap} for design={name!r} on {n_units} units; expected at "
                f"least {needed + self.options.noise_probe} queries. Raise the budget, or choose "
                "design='auto' or larger units."
            )
        return design


@dataclass(frozen=True)
class _Found:
    """What the unmasked text has settled: its units, how they are masked, what is explained."""

    units: Units
    masking: Masking
    columns: list[int]
    noise: Noise | None


def _none(n_units: int) -> BoolArray:
    """No masks."""
    return np.zeros((0, n_units), dtype=np.bool_)


def sufficient_budget(surrogate: Surrogate, n_units: int) -> int:
    """The smallest budget with which design ``auto`` determines every parameter of a surrogate.

    Its masks come in pairs, each of a mask and its complement, and then an additive model learns one
    number from a pair: it takes ``2 n`` masks, those of one order of the units and its reverse. All
    ``2 ** n`` where not even these would do.
    """
    n_masks = max(surrogate.min_queries(n_units), 2 * n_units)
    n_masks += n_masks % 2
    budget = n_masks
    while _n_fit(budget) < n_masks:
        budget += 1
    return min(budget, 1 << n_units)


def _n_fit(budget: int) -> int:
    """How many masks a budget leaves to fit to, the held-out ones set aside."""
    return budget - int(budget * HELD_OUT_SHARE)


def with_fits(explained: Explained, surrogates: Mapping[str, Surrogate]) -> Explained:
    """The same text with these surrogates fitted to its answers, or why they could not be."""
    fits: dict[str, Surrogate] = {}
    failures: dict[str, str] = {}
    for name, surrogate in surrogates.items():
        try:
            fits[name] = explained.fit(surrogate)
        except (PisteError, ValueError, ArithmeticError) as error:  # the last two: a user's estimator
            failures[name] = str(error)
    return replace(explained, fits=fits, failures=failures)
