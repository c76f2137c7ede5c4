"""What stays in memory for every text of a corpus."""

import pickle

import piste

WORDS = "one two three four five six seven eight nine ten eleven twelve"


def test_the_table_leaves_no_covariances_behind() -> None:
    study = piste.explain(
        lambda texts: [len(text) / 10 for text in texts], WORDS, space="raw", budget=200
    )
    before = len(pickle.dumps(study.surrogate(0, "slalom")))
    errors = study.attributions["std_error"]
    assert errors.notna().all()
    # A linearisation alone has two more parameters per unit than the masks have columns, several times.
    assert len(pickle.dumps(study.surrogate(0, "slalom"))) < 1.5 * before
