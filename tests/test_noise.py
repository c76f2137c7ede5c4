"""Noisy answers from the model to the tables: sampled ones, probed ones, stored ones."""

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import piste
from piste._errors import InputError
from piste._typing import FloatArray
from piste.evaluation.fidelity import noise_ceiling
from piste.sampling.models._samples import frequencies, of_samples, sampling_std_error
from piste.sampling.models.callable import CallableModel
from piste.sampling.models.protocol import Scores
from piste.sampling.records import Query
from piste.sampling.space import to_space
from piste.sampling.store import Stored, open_answers, open_store
from piste.surrogates import KernelShap, Lime, Slalom
from piste.surrogates.interactions import Interactions
from piste.surrogates.records import Explained

WORDS = ["a", "b", "c", "d", "e", "f"]
TEXT = " ".join(WORDS)
WEIGHT = np.array([1.0, 0.6, 2.0, 1.5, 0.4, 0.8])
VALUE = np.array([2.0, -1.5, 1.0, 0.5, -0.5, 2.5])
MASKS = np.array(list(product([0.0, 1.0], repeat=6)))


def log_odds(masks: FloatArray) -> FloatArray:
    """A SLALOM with a background, probabilities from .36 to .85 over all masks."""
    scores: FloatArray = (masks @ (WEIGHT * VALUE) + 0.3) / (masks @ WEIGHT + 1.0)
    return scores


def probability(query: Query) -> float:
    kept = np.array([[float(word in str(query).split()) for word in WORDS]])
    return float(1 / (1 + np.exp(-log_odds(kept)[0])))


class Sampling:
    """A model of two labels that is asked for so many samples of each text."""

    def __init__(self, n_samples: int = 20, seed: int = 0) -> None:
        self.n_samples = n_samples
        self.asked: list[Query] = []
        self._rng = np.random.default_rng(seed)

    @property
    def fingerprint(self) -> str:
        return of_samples("a game", self.n_samples)

    def score(self, inputs: Sequence[Query]) -> Scores:
        self.asked += inputs
        hits = self._rng.binomial(self.n_samples, [probability(query) for query in inputs])
        counts = np.column_stack([hits, self.n_samples - hits])
        return Scores(frequencies(counts), ("yes", "no"), "probability")


# --- intervals cover

N_REPETITIONS = 300
# Of 300 coverages with mean .95, each between 0 and 1, the mean has a deviation of at most this.
DEVIATION = np.sqrt(0.95 * 0.05 / N_REPETITIONS)
CASES = [
    (Lime(), ("coefficient",), 20),
    (KernelShap(), ("shapley",), 20),
    (Interactions(), ("total",), 20),
    (Slalom(), ("removal", "shapley"), 200),  # a nonlinear fit: its intervals need narrower answers
]


@pytest.mark.parametrize("space", ["logit", "probability"])
@pytest.mark.parametrize(("surrogate", "kinds", "n_samples"), CASES, ids=str)
def test_intervals_of_sampled_answers_cover(
    surrogate: Any, kinds: tuple[str, ...], n_samples: int, space: str
) -> None:
    """All 64 masks asked, so that binomial noise is all that is left; three deviations either way."""
    n_repetitions = N_REPETITIONS if n_samples == 20 else N_REPETITIONS // 4
    true = log_odds(MASKS)
    p = 1 / (1 + np.exp(-true))
    # What frequencies with their halves are on average.
    truth = true if space == "logit" else (n_samples * p + 0.5) / (n_samples + 1)
    surrogate.fit(MASKS, truth)
    targets = {kind: surrogate.attributions(kind) for kind in kinds}
    rng = np.random.default_rng(1)
    covered = []
    for _ in range(n_repetitions):
        hits = rng.binomial(n_samples, p)
        values = frequencies(np.column_stack([hits, n_samples - hits]))
        errors = sampling_std_error(values, n_samples)
        found = to_space(values, "probability", space, errors=errors)
        assert found.errors is not None
        told = {} if isinstance(surrogate, Slalom) else {"score_errors": found.errors[:, 0]}
        surrogate.fit(MASKS, found.scores[:, 0], **told)
        for kind in kinds:
            low, high = surrogate.confidence_interval(kind)
            covered.append(np.mean((low <= targets[kind]) & (targets[kind] <= high)))
    deviation = DEVIATION * np.sqrt(N_REPETITIONS / n_repetitions)
    assert np.mean(covered) == pytest.approx(0.95, abs=3 * deviation)


def test_intervals_from_a_probe_cover() -> None:
    """Ten repeats tell the noise of 8 masks; errors are widened for how roughly they do."""

    def noisy(seed: int) -> Any:
        rng = np.random.default_rng(seed)
        return lambda texts: [len(text.split()) + rng.normal() for text in texts]

    studies = [
        piste.explain(noisy(seed), "a b c", surrogates="shap", space="raw", noise_probe=10)
        for seed in range(N_REPETITIONS)
    ]
    table = [study.attributions for study in studies]
    covered = [((rows["ci_low"] <= 1) & (rows["ci_high"] >= 1)).mean() for rows in table]
    assert np.mean(covered) == pytest.approx(0.95, abs=3 * DEVIATION)


# --- from the model to the tables


def test_sampled_answers_have_errors_and_a_ceiling() -> None:
    study = piste.explain(Sampling(), TEXT, surrogates=["lime", "shap", "slalom"])
    table = study.attributions
    assert (table["std_error"] > 0).all()
    explained = study.outcomes[0]
    assert isinstance(explained, Explained)
    values = explained.responses.values
    found = to_space(values, "probability", errors=sampling_std_error(values, 20))
    column = explained.responses.labels.index(explained.targets[0])
    assert explained.errors is not None
    np.testing.assert_array_equal(explained.errors.values[:, 0], found.errors[:, column])  # type: ignore[index]
    shap = KernelShap().fit(
        explained.responses.masks,
        explained.scores[:, 0],
        score_errors=explained.errors.values[:, 0],
    )
    own = table[table["surrogate"] == "shap"]
    np.testing.assert_array_equal(own["std_error"], shap.std_errors())
    ceiling = noise_ceiling(explained.scores[:, 0], explained.errors.values[:, 0])
    assert 0 < ceiling < 1
    assert set(study.fidelity["ceiling"]) == {ceiling}
    # With 100 times the samples, errors are a tenth.
    finer = piste.explain(Sampling(2000), TEXT, surrogates="shap").attributions
    assert (finer["std_error"] / own["std_error"].to_numpy()).mean() == pytest.approx(0.1, rel=0.2)


def test_all_targets_have_errors_of_their_own() -> None:
    study = piste.explain(Sampling(), TEXT, surrogates="lime", target="all")
    yes, no = (study.attributions.query("target == @label")["std_error"] for label in ("yes", "no"))
    np.testing.assert_allclose(yes, no, rtol=1e-12)  # one's log-odds are the other's, turned round


def test_errors_survive_a_file_and_a_store(tmp_path: Path) -> None:
    with open_store(tmp_path / "answers.sqlite") as store:
        first = piste.explain(Sampling(), TEXT, surrogates=["lime", "shap"], store=store)
        again = piste.explain(Sampling(seed=1), TEXT, surrogates=["lime", "shap"], store=store)
        alone = piste.explain(
            open_answers(tmp_path / "answers.sqlite"), TEXT, surrogates=["lime", "shap"]
        )
    first.save(tmp_path / "study")
    loaded = piste.load_study(tmp_path / "study")
    for study in (again, alone, loaded):
        assert study.attributions.equals(first.attributions)
        assert study.fidelity.equals(first.fidelity)
    assert (first.meta["n_queries"], first.meta["n_known"]) == (64, 0)
    assert (again.meta["n_queries"], again.meta["n_known"]) == (64, 64)
    assert loaded.meta == first.meta
    assert first.meta["usage"] is None


def test_what_texts_share_is_known_the_second_time(tmp_path: Path) -> None:
    model = Sampling()
    study = piste.explain(model, ["a b", "b c"], surrogates="lime", store=tmp_path / "a.sqlite")
    assert study.meta["n_queries"] == 8
    assert study.meta["n_known"] == 8 - len(model.asked) == 1  # the empty text


# --- the probe


def test_repeats_are_of_the_whole_text_within_the_budget_and_past_the_store(tmp_path: Path) -> None:
    asked: list[str] = []

    def model(texts: list[str]) -> list[float]:
        asked.extend(texts)
        return [float(len(text)) + (len(asked) % 2) for text in texts]

    for is_known in (False, True):
        asked.clear()
        study = piste.explain(
            CallableModel(model, fingerprint="m"),
            " ".join(f"w{i}" for i in range(12)),
            surrogates="lime",
            context="<{text}>",
            noise_probe=10,
            budget=40,
            space="raw",
            store=tmp_path / "answers.sqlite",
        )
        whole = "<" + " ".join(f"w{i}" for i in range(12)) + ">"
        n_queries, n_known = study.meta["n_queries"], study.meta["n_known"]
        assert asked.count(whole) == 10 + (not is_known)
        assert 35 < n_queries <= 40
        assert n_known == is_known * (n_queries - 10)
        assert len(asked) == n_queries - n_known
        assert study.meta["noise_probe"] == 10
        # Every other of ten answers is one higher.
        assert study.meta["texts"][0]["noise_variance"] == pytest.approx([2.5 / 9])


def test_the_variance_is_that_of_the_explained_numbers(tmp_path: Path) -> None:
    answers = [0.2, 0.4, 0.6, 0.8]
    state = {"n": 0}

    def model(texts: list[str]) -> list[float]:
        state["n"] += 1
        return [answers[state["n"] % 4] if text == "a b" else 0.1 * len(text) + 0.3 for text in texts]

    study = piste.explain(model, "a b", surrogates=["lime", "shap"], noise_probe=4)
    variance = np.log([0.25, 2 / 3, 1.5, 4]).var(ddof=1)
    assert study.meta["texts"][0]["noise_variance"] == pytest.approx([variance])
    explained = study.outcomes[0]
    assert isinstance(explained, Explained)
    # Four repeats: the variance of t with three degrees of freedom is three.
    told = np.full(4, np.sqrt(3 * variance))
    expected = KernelShap().fit(explained.responses.masks, explained.scores[:, 0], score_errors=told)
    found = study.attributions.query("surrogate == 'shap'")["std_error"]
    np.testing.assert_allclose(found, expected.std_errors(), rtol=1e-12)
    assert study.fidelity["ceiling"].iloc[0] == pytest.approx(
        max(1 - variance / explained.scores[:, 0].var(ddof=1), 0)
    )
    study.save(tmp_path / "study")
    assert piste.load_study(tmp_path / "study").attributions.equals(study.attributions)


def test_exact_answers_have_the_ceiling_one_once_that_is_known() -> None:
    model: Any = lambda texts: [len(text) for text in texts]  # noqa: E731
    probed = piste.explain(model, TEXT, surrogates="lime", space="raw", noise_probe=4)
    assert probed.fidelity["ceiling"].tolist() == [1.0]
    assert (probed.attributions["std_error"] < 1e-12).all()
    unknown = piste.explain(model, TEXT, surrogates="lime", space="raw")
    assert np.isnan(unknown.fidelity["ceiling"]).all()
    assert unknown.meta["texts"][0]["noise_variance"] is None


def test_what_the_model_tells_is_preferred_to_the_probe() -> None:
    told = piste.explain(Sampling(), TEXT, surrogates="shap", budget=80)
    probed = piste.explain(Sampling(), TEXT, surrogates="shap", budget=80, noise_probe=4)
    assert probed.meta["texts"][0]["noise_variance"][0] > 0
    ratio = probed.attributions["std_error"].mean() / told.attributions["std_error"].mean()
    assert ratio == pytest.approx(1, rel=0.1)


def test_a_store_is_not_probed(tmp_path: Path) -> None:
    with open_store(tmp_path / "answers.sqlite") as store:
        stored = Stored(Sampling(), store)
        with pytest.raises(InputError, match="noise_probe for a model that answers from a store"):
            piste.explain(stored, TEXT, noise_probe=4)


class Fickle:
    """Answers the unmasked text with NaN from the second time on."""

    seen: ClassVar[int] = 0

    def __call__(self, texts: list[str]) -> list[float]:
        self.seen += 1  # type: ignore[misc]
        return [float("nan") if self.seen > 1 else 1.0 for _ in texts]


def test_repeats_that_fail_spoil_one_text() -> None:
    with pytest.raises(piste.ModelError, match="NaN or infinity among repeated answers"):
        piste.explain(Fickle(), "a b", noise_probe=4)


@pytest.mark.parametrize(
    ("answers", "errors", "expected"),
    [
        ([0.0, 1.0, 2.0], [0.5, 0.5, 0.5], 0.75),
        ([0.0, 1.0, 2.0], [0.0, 0.0, 0.0], 1.0),
        ([0.0, 1.0, 2.0], [3.0, 3.0, 3.0], 0.0),
        ([0.0, 1.0, 2.0], None, np.nan),
        ([1.0, 1.0, 1.0], [0.5, 0.5, 0.5], np.nan),
        ([1.0], [0.5], np.nan),
    ],
)
def test_ceiling(answers: list[float], errors: list[float] | None, expected: float) -> None:
    found = noise_ceiling(np.array(answers), None if errors is None else np.array(errors))
    np.testing.assert_allclose(found, expected)
