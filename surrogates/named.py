"""Surrogates by the names that users give them."""

from collections.abc import Mapping

from piste._errors import InputError
from piste.surrogates.base import Surrogate
from piste.surrogates.interactions import Interactions
from piste.surrogates.lime import Lime
from piste.surrogates.shap import KernelShap
from piste.surrogates.slalom import Slalom
from piste.surrogates.slalom_pairs import SlalomPairs
from piste.surrogates.trees import Trees

BUILT_IN: Mapping[str, type[Surrogate]] = {
    "lime": Lime,
    "shap": KernelShap,
    "slalom": Slalom,
    "slalom-pairs": SlalomPairs,
    "interactions": Interactions,
    "trees": Trees,
}


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
