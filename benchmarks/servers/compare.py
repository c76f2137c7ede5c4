"""Explain a text through a server and in process: python compare.py ADDRESS URI OPTIONS.

Prints how far the answers and the attributions are apart; fails above what float32 numbers explain.
"""

import json
import sys
import time

import httpx
import numpy as np

import piste

TEXT = "A gripping film with a dull end, and a wonderful cast."
TOLERANCE = 1e-4


def wait_for(address: str) -> None:
    """Until something answers there, at most five minutes."""
    for _ in range(600):
        try:
            httpx.get(address, timeout=5)
            return
        except httpx.TransportError:
            time.sleep(0.5)
    raise SystemExit(f"nothing answers at {address}")


def main() -> None:
    """Compare."""
    address, uri, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    wait_for(address)
    remote = piste.load_model(address, **options)
    how = {"budget": 200, "surrogates": ("shap", "slalom"), "seed": 1, "target": "positive"}
    served = piste.explain(remote, TEXT, **how)
    local = piste.explain(uri, TEXT, **how)
    logits = remote.score([TEXT, ""]).kind == "logit"
    there, here = served.responses["positive"], local.responses["positive"]
    answers = there - here if logits else np.log(there / (1 - there)) - here
    scores = served.attributions["score"] - local.attributions["score"]
    print(f"{address}: answers differ by at most {np.abs(answers).max():.2g} log-odds,")
    print(f"attributions by at most {np.abs(scores).max():.2g}, {remote.usage}")
    raise SystemExit(int(np.abs(answers).max() > TOLERANCE))


if __name__ == "__main__":
    main()
