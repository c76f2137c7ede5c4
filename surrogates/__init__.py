"""Surrogate models as scikit-learn estimators on masks."""

from piste.surrogates.lime import Lime
from piste.surrogates.shap import KernelShap
from piste.surrogates.slalom import Slalom

__all__ = ["KernelShap", "Lime", "Slalom"]
