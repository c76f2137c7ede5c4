"""Where the time and the memory of `piste.explain` go.

    python benchmarks/profile_explain.py hf:FOLDER --units 25 100 --queries 1000
    python benchmarks/profile_explain.py builtin:sentiment --units 100 --queries 500 --texts 50 [--each]

One thread; seconds are those of the processor, which other work on the machine hardly stretches. With
`--texts` the memory after so many different texts is printed instead; run it with two numbers of texts and
take the difference, for the model and the libraries are in both.
"""

import argparse
import cProfile
import os
import pstats
import sys
import time

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):  # before numpy is imported
    os.environ[variable] = "1"
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np  # noqa: E402

import piste  # noqa: E402
from peers.subjects import PARAGRAPH  # noqa: E402
from piste.sampling.models.protocol import BlackBox  # noqa: E402

STEPS = {
    "model": [("models/huggingface.py", "_logits"), ("models/onnx.py", "_logits")],
    "tokens": [("models/huggingface.py", "_encode"), ("models/onnx.py", "_encode")],
    "masks and texts": [("designs.py", "draw"), ("masking.py", "render"), ("segment.py", "segment")],
    "fits": [("surrogates/explain.py", "with_fits")],
    "tables": [("attributions.py", "attribution_table"), ("fidelity.py", "fidelity_table")],
}


def main() -> None:
    """Print one line per number of units."""
    options = _options()
    model = piste.load_model(options.model, **_single_threaded(options.model))
    for n_units in options.units:
        if options.texts:
            _memory(model, n_units, options)
        else:
            _time(model, n_units, options)


def _time(model: BlackBox, n_units: int, options: argparse.Namespace) -> None:
    """Seconds of each step, and the functions that take most of them."""
    text = _texts(n_units, 1)[0]
    chosen = {"surrogates": options.surrogate, "budget": options.queries}
    piste.explain(model, text, **chosen).attributions.empty  # noqa: B018 - compiles the kernels
    profile = cProfile.Profile(time.process_time)
    profile.enable()
    start = time.process_time()
    study = piste.explain(model, text, **chosen)
    assert len(study.attributions)
    assert len(study.fidelity)
    total = time.process_time() - start
    profile.disable()
    stats = pstats.Stats(profile)
    seconds = {step: _cumulative(stats, functions) for step, functions in STEPS.items()}
    seconds["other"] = total - sum(seconds.values())
    print(f"\n{options.model}, {n_units} units, {options.queries} queries: {total:.3f} s")
    print("  ".join(f"{step} {spent:.3f} ({spent / total:.1%})" for step, spent in seconds.items()))
    print(f"all but the model: {total / seconds['model'] - 1:.1%} of the model's time")
    if options.functions:
        stats.sort_stats("tottime").print_stats(options.functions)


def _cumulative(stats: pstats.Stats, functions: list[tuple[str, str]]) -> float:
    """Seconds in these functions and what they call."""
    rows = stats.stats.items()  # type: ignore[attr-defined]
    return sum(
        row[3]
        for (path, _, name), row in rows
        if any(path.endswith(f"/{ending}") and name == called for ending, called in functions)
    )


def _memory(model: BlackBox, n_units: int, options: argparse.Namespace) -> None:
    """Resident memory before, after the last text, and at its peak, tables included."""
    import resource

    texts = _texts(n_units, options.texts + 1)
    chosen = {"surrogates": options.surrogate, "budget": options.queries}
    piste.explain(model, texts[0], **chosen).attributions.empty  # noqa: B018 - libraries and kernels
    before = _resident()
    if options.each:
        n_rows = sum(
            len(study.attributions) for study in piste.explain_each(model, texts[1:], **chosen)
        )
        explained = _resident()
    else:
        study = piste.explain(model, texts[1:], **chosen)
        explained = _resident()
        n_rows = len(study.attributions)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (
        1 << 20 if sys.platform == "darwin" else 1024
    )
    print(
        f"{options.texts} texts of {n_units} units: {before:.0f} MiB before, {explained:.0f} explained, "
        f"{_resident():.0f} with a table of {n_rows} rows, {peak:.0f} at the peak"
    )


def _resident() -> float:
    """MiB that the process occupies now (Linux)."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def _texts(n_units: int, n_texts: int) -> list[str]:
    """The words of the paragraph, in another order for each text."""
    rng = np.random.default_rng(0)
    words = np.array((PARAGRAPH * (n_units // 90 + 1)).split()[:n_units])
    return [" ".join(words), *(" ".join(rng.permutation(words)) for _ in range(n_texts - 1))]


def _single_threaded(uri: str) -> dict[str, int]:
    """Options that give a model one thread."""
    if uri.startswith("hf:"):
        import torch

        torch.set_num_threads(1)
        return {}
    return {"threads": 1}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model", help="hf:FOLDER, onnx:FOLDER or builtin:sentiment")
    parser.add_argument("--units", type=int, nargs="+", default=[25, 100])
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--surrogate", nargs="+", default=["slalom"])
    parser.add_argument("--texts", type=int, default=0, help="measure the memory of so many")
    parser.add_argument("--each", action="store_true", help="by explain_each, which keeps no text")
    parser.add_argument("--functions", type=int, default=0, help="print so many functions")
    return parser.parse_args()


if __name__ == "__main__":
    main()
