"""Surrogate models as scikit-learn estimators on masks."""

from piste.surrogates.interactions import Interactions
from piste.surrogates.lime import Lime
from piste.surrogates.shap import KernelShap
from piste.surrogates.slalom import Slalom
from piste.surrogates.slalom_pairs import SlalomPairs
from piste.surrogates.trees import Trees

__all__ = ["Interactions", "KernelShap", "Lime", "Slalom", "SlalomPairs", "Trees"]
