"""How long a SLALOM fit takes and how exact it is: `python benchmarks/slalom_fit.py`.

Exact oracles (values and importances normal, seeded), 5,000 pairs each; medians of repeated fits after
warm-up.
"""

import time

import numpy as np

from piste._typing import FloatArray
from piste.fitting import warm_up
from piste.surrogates import Slalom

N_PAIRS = 5000
N_REPEATS = 9


def pairs(n_units: int, n_pairs: int, rng: np.random.Generator) -> FloatArray:
    """Masks that keep two different units each."""
    first = rng.integers(n_units, size=n_pairs)
    second = (first + rng.integers(1, n_units, size=n_pairs)) % n_units
    masks = np.zeros((n_pairs, n_units))
    masks[np.arange(n_pairs), first] = masks[np.arange(n_pairs), second] = 1.0
    return masks


def main() -> None:
    """Print one line per size."""
    warm_up()
    rng = np.random.default_rng(0)
    print("units  fit (ms)  largest error of value, importance")
    for n_units in (20, 60, 150):
        value, importance = rng.normal(size=n_units), rng.normal(size=n_units)
        importance -= importance.mean()
        masks, w = pairs(n_units, N_PAIRS, rng), np.exp(importance)
        scores = masks @ (w * value) / (masks @ w)
        times = []
        for _ in range(N_REPEATS):
            start = time.perf_counter()
            fitted = Slalom().fit(masks, scores)
            times.append(time.perf_counter() - start)
        errors = np.abs(fitted.value_ - value).max(), np.abs(fitted.importance_ - importance).max()
        print(f"{n_units:5d}  {1000 * np.median(times):8.1f}  {errors[0]:.1e}, {errors[1]:.1e}")


if __name__ == "__main__":
    main()
