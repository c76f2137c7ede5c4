"""A run that is killed at any moment goes on where it was, and pays for nothing twice."""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("httpx")
pytest.importorskip("tenacity")

CONCURRENCY = 4
# Imports once, then forks a run for each line that it reads, and kills it after so many seconds.
RUNS = f"""
import os, signal, sys, time
import piste
from piste.sampling.models import load_model
from piste.sampling.store import Stored, open_store

def run():
    with open_store(sys.argv[2]) as store:
        model = load_model(sys.argv[1] + "/predict", concurrency={CONCURRENCY})
        stored = model.around(lambda request: Stored(request, store))
        text = "One of the best films that we have seen"
        study = piste.explain(stored, text, budget=200, surrogates="shap")
        print(study.attributions["score"].tolist(), flush=True)

for line in sys.stdin:
    pid = os.fork()
    if pid == 0:
        run()
        os._exit(0)
    if float(line) >= 0:
        time.sleep(float(line))
        os.kill(pid, signal.SIGKILL)
    print("ended", os.waitpid(pid, 0)[1], flush=True)
"""


class Runs:
    """The process that runs are forked from."""

    def __init__(self, address: str, store: Path) -> None:
        command = [sys.executable, "-c", RUNS, address, str(store)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, seconds: float = -1.0) -> tuple[list[str], bool]:
        """Start a run, and kill it after some seconds if any: what it printed, and if it was killed."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(seconds, file=self.process.stdin, flush=True)
        lines = []
        while not (line := self.process.stdout.readline()).startswith("ended"):
            assert line, "the process is gone"
            lines.append(line)
        return lines, int(line.split()[1]) == signal.SIGKILL

    def close(self) -> None:
        self.process.communicate()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_killed_at_twenty_moments(server: Any, tmp_path: Path) -> None:
    server.delay = 0.05
    runs = Runs(server.base, tmp_path / "answers.sqlite")
    try:
        moments = random.Random(0)
        n_kills = sum(runs.run(moments.uniform(0.0, 0.2))[1] for _ in range(20))
        assert n_kills >= 5  # the last ones may have had nothing left to be killed for
        server.delay = 0.0
        first, _ = runs.run()
        asked = server.n_requests
        assert len(first) == 1
        assert len(server.answered) == 200
        # Eight texts a request; only those under way at a kill can have been answered in vain.
        in_vain = server.answered.total() - len(server.answered)
        assert in_vain <= n_kills * CONCURRENCY * 8
        assert runs.run() == (first, False)
        assert server.n_requests == asked
    finally:
        runs.close()
