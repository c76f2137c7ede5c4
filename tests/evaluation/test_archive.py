"""Studies in files: estimators within estimators, and what is no study."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import piste
from piste._errors import InputError
from piste.surrogates.base import Surrogate
from piste.surrogates.lime import Lime
from piste.surrogates.shap import KernelShap
from piste.surrogates.slalom import Slalom
from piste.surrogates.trees import Trees

TEXT = "one two three four five six seven eight"


def curved(texts: Sequence[str]) -> list[float]:
    return [float(np.tanh(0.4 * len(text.split())) + ("two" in text)) for text in texts]


class Grove(Trees):
    """A user's own estimator."""

    name = "grove"


def study_of(surrogate: Surrogate) -> piste.Study:
    return piste.explain(curved, TEXT, surrogates=surrogate, space="raw", budget=120)


@pytest.mark.parametrize(
    "control", [Trees(max_rounds=20), Slalom(heads=2), KernelShap(control=Slalom(prior=(0.1, 1.0)))]
)
def test_a_control_survives_a_file(control: Surrogate, tmp_path: Path) -> None:
    study = study_of(KernelShap(control=control))
    study.save(tmp_path / "study")
    loaded = piste.load_study(tmp_path / "study")
    pd.testing.assert_frame_equal(loaded.attributions, study.attributions, check_exact=True)
    first, again = (each.surrogate(0, "shap").get_params() for each in (study, loaded))
    assert repr(first) == repr(again)
    loaded.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "study").read_bytes()


def test_a_foreign_control_cannot_be_saved(tmp_path: Path) -> None:
    study = study_of(KernelShap(control=Grove(max_rounds=20)))
    with pytest.raises(InputError, match=r"Got a surrogate of type Grove; .* Use study\.refit"):
        study.save(tmp_path / "study")
    assert not list(tmp_path.iterdir())


def test_a_table_is_no_study(tmp_path: Path) -> None:
    path = tmp_path / "attributions.csv"
    study_of(Lime()).attributions.to_csv(path)
    with pytest.raises(
        InputError, match=r"attributions\.csv, which is not a study that Study\.save wrote"
    ):
        piste.load_study(path)
    np.save(tmp_path / "a.npy", np.zeros(3))
    with pytest.raises(InputError, match=r"not a study that Study\.save wrote"):
        piste.load_study(tmp_path / "a.npy")
