"""Standard errors of linear fits, by formula or by refitting to resampled answers."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from piste._typing import FloatArray
from piste.fitting._sampling_units import SamplingUnits
from piste.fitting.answer_errors import answer_variance
from piste.fitting.bootstrap import Refit, bootstrap, bootstrap_covariance
from piste.fitting.inference import SANDWICHES, Sandwich, covariance, linearise

LinearCovariance = Sandwich | Literal["bootstrap"]
LINEAR_COVARIANCES: tuple[LinearCovariance, ...] = (*SANDWICHES, "bootstrap")
BOOTSTRAP_SEED = 0


@dataclass(frozen=True)
class LinearAnswers:
    """A linear fit of several outputs to the same rows.

    Parameters
    ----------
    design
        Shape (n_rows, n_parameters), float64; a column of ones where an intercept was fitted.
    residuals
        Shape (n_rows, n_outputs), float64.
    weights
        Shape (n_rows,), positive.
    units
        What was drawn at once.
    refit
        Parameters (n_outputs, n_parameters) of the fit with multiplied weights.
    ridge, gauge
        As in `piste.fitting.inference.linearise`.
    std_errors
        Shape (n_rows, n_outputs): known errors of the answers themselves; None where there are none.
    """

    design: FloatArray
    residuals: FloatArray
    weights: FloatArray
    units: SamplingUnits
    refit: Refit
    ridge: FloatArray | None = None
    gauge: FloatArray | None = None
    std_errors: FloatArray | None = None


def linear_std_errors(
    answers: LinearAnswers, kind: LinearCovariance, *, fixed_answers: bool = False
) -> tuple[FloatArray, FloatArray]:
    """Standard errors (n_outputs, n_parameters) and degrees of freedom (n_outputs,).

    Parameters
    ----------
    answers
        The fit.
    kind
        As in `piste.fitting.inference.covariance`, or ``bootstrap``: the spread over 1,000 resamples,
        always the same ones. A penalty is taken as given: errors are those of the penalised parameter.
        Known errors of the answers are added where these hold the answers fixed.
    fixed_answers
        Whether resamples hold the answers fixed and vary the masks alone, as ``design`` does.
    """
    fit = linearise(answers.design, answers.weights, ridge=answers.ridge, gauge=answers.gauge)
    numbers = np.eye(answers.design.shape[1])
    if kind == "bootstrap":
        rng = np.random.default_rng(BOOTSTRAP_SEED)
        draws = bootstrap(answers.refit, answers.units, rng, fixed_answers=fixed_answers)
        by_design = covariance(
            fit, answers.residuals[:, 0], "design" if fixed_answers else "CR3", units=answers.units
        )
        found = [
            bootstrap_covariance(of_output, fit, by_design.df) for of_output in draws.transpose(1, 0, 2)
        ]
    else:
        found = [covariance(fit, e, kind, units=answers.units) for e in answers.residuals.T]
    errors = np.stack([one.std_errors(numbers) for one in found])
    if answers.std_errors is not None and (fixed_answers if kind == "bootstrap" else kind == "design"):
        asked = answers.units.fraction[answers.units.unit]
        errors = np.sqrt(errors**2 + answer_variance(fit, numbers, answers.std_errors, asked))
    return errors, np.array([one.df for one in found])
