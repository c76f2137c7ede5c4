"""Faithful surrogate explanations of black-box Transformers.

>>> import piste
>>> study = piste.explain("builtin:sentiment", "A gripping film.", surrogates=("lime", "slalom"))
>>> list(study.attributions["token"].unique())
['A', 'gripping', 'film']
"""

from piste._errors import InputError, ModelError, PisteError, PisteWarning
from piste.evaluation.explaining import explain, explain_each
from piste.evaluation.study import Study, load_study
from piste.sampling.models import load_model
from piste.surrogates.rounds import AutoBudget

__all__ = [
    "AutoBudget",
    "InputError",
    "ModelError",
    "PisteError",
    "PisteWarning",
    "Study",
    "explain",
    "explain_each",
    "load_model",
    "load_study",
]
