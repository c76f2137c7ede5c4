"""From answers to a SLALOM's least-squares problem, and where its search begins."""

from piste._typing import FloatArray
from piste.fitting._rows import Answers, MaskRows
from piste.fitting._slalom_solver import Prior, Problem, evaluate, within_bounds
from piste.fitting._slalom_starts import even_importances

# Where the search for a prior starts when nothing is explained yet; less noise starts from a weaker
# one.
FIRST_PRIOR = Prior(value=1e-2, importance=1e-1)
NO_PRIOR = Prior(value=0.0, importance=0.0)
# Share of the squared scores that is rounding; without any prior the evidence could not begin.
ROUNDING = 1e-30


def problem_of(answers: Answers, *, background: bool) -> Problem:
    """The published model says nothing about the empty text, so without a background it is left out."""
    if not background:
        answers = answers.take(answers.asked)
    return Problem(
        MaskRows.from_masks(answers.masks, answers.full, background=background),
        answers.scores,
        answers.weights,
        background,
        float(answers.scatter.sum()),
    )


def best_start(problem: Problem, solved: FloatArray) -> tuple[FloatArray, Prior]:
    """The best of a few importances as they stand, shape (1, n_columns), and a prior to start from.

    Real answers lead from each of them to the same minimum; answers that are nearly a SLALOM's, with
    importances far apart, only from the solved ones and a prior as weak as their noise.
    """
    starts = [within_bounds(problem, start[None]) for start in (solved, *even_importances(problem))]
    unexplained = evaluate(problem, starts[0], NO_PRIOR).error / problem.total
    spare = problem.n_spare / problem.scores.size
    noise = min(1.0, max(unexplained / spare, ROUNDING)) if spare > 0 else 1.0
    prior = Prior(FIRST_PRIOR.value * noise, FIRST_PRIOR.importance * noise)
    states = [evaluate(problem, start, prior) for start in starts]
    return min(states, key=lambda state: state.objective).importance, prior
