"""A run that is killed at any moment goes on where it was, and pays for nothing twice."""

import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("httpx")
pytest.importorskip("tenacity")

CONCURRENCY = 4
RUN = f"""
import sys
import piste
from piste.sampling.models import load_model
from piste.sampling.store import Stored, open_store

with open_store(sys.argv[2]) as store:
    model = load_model(sys.argv[1] + "/predict", concurrency={CONCURRENCY})
    stored = model.around(lambda inner: Stored(inner, store))
    print("ready", flush=True)
    study = piste.explain(stored, "One of the best films that we have seen", budget=200, surrogates="shap")
    print(study.attributions["score"].tolist(), flush=True)
"""


def test_killed_at_twenty_moments(server: Any, tmp_path: Path) -> None:
    server.delay = 0.03
    command = [sys.executable, "-c", RUN, server.base, str(tmp_path / "answers.sqlite")]
    moments = random.Random(0)
    n_kills = 0
    for _ in range(20):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(moments.uniform(0.0, 0.08))
        process.kill()
        n_kills += process.wait() != 0
        process.stdout.close()
    assert n_kills >= 10  # the last ones may have had nothing left to ask
    server.delay = 0.0
    first = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    asked = server.n_requests
    # Eight texts a request; only the requests under way at a kill can have been answered in vain.
    in_vain = server.answered.total() - len(server.answered)
    assert in_vain <= n_kills * CONCURRENCY * 8
    assert len(server.answered) == 200
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == first
    assert server.n_requests == asked
