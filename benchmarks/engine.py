"""What other ways of running the same forward passes would gain, and what a shared prompt saves.

    python benchmarks/engine.py --minilm FOLDER [--threads 2] [--repeats 5]

Wall clock, on a machine that does nothing else. Needs ``pip install 'piste[local]' onnx onnxscript`` and a
C++ compiler for torch.compile. Writes docs/engine.md.
"""

import argparse
import multiprocessing
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import pandas as pd
import torch
import transformers
from transformers import AutoModelForSequenceClassification

import piste
from peers.subjects import PARAGRAPH, text_of
from peers.tables import ratio_with_interval
from piste.sampling.models import HuggingFaceClassifier, _prefix
from piste.sampling.models._batches import CPU_TOKENS, length_sorted

HERE = Path(__file__).resolve().parent
DOCS = HERE.parent / "docs"
N_TEXTS = 1000
LENGTHS = (4, 36)  # tokens of the variants of a text of 25 words
PROMPT_WORDS = 150
PROMPTED = {"units": 25, "queries": 300}
CORPUS = {"texts": 24, "units": 25, "queries": 500}
Batches = Sequence[torch.Tensor]
Run = Callable[[], object]


def main() -> None:
    """Measure and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minilm", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    batches = list(_batches())
    module = _module(options.minilm)
    with (
        _processes(options.minilm, options.threads) as shared_out,
        ThreadPoolExecutor(options.threads) as pool,
    ):
        compiled = _module(options.minilm)
        start = time.perf_counter()
        compiled.compile(dynamic=True)
        _passes(compiled, batches)
        compiling = time.perf_counter() - start
        ways: dict[str, Run] = {
            "torch as it is": partial(_passes, module, batches),
            "torch.compile": partial(_passes, compiled, batches),
            "onnxruntime, exported": _exported(module, batches, options.threads),
            f"{options.threads} processes of one thread": partial(shared_out, batches),
            f"{options.threads} Python threads of one thread": partial(
                _threaded, module, batches, pool
            ),
        }
        ways_seconds = _alternated(ways, options.repeats)
    prompted = _alternated(_prompted(), options.repeats)
    fits = _alternated(_fit_jobs(options.threads), min(options.repeats, 3))  # a minute each
    page = (HERE / "engine.md").read_text(encoding="utf-8")
    tables = {
        "{ways}": _table(ways_seconds, "torch as it is"),
        "{prompt}": _table(prompted, "prompt once"),
        "{fits}": _table(fits, "fit_jobs=1"),
        "{compiling}": f"{compiling:.0f}",
        "{n_batches}": str(len(batches)),
        "{threads}": str(options.threads),
    }
    for name, text in tables.items():
        page = page.replace(name, text)
    (DOCS / "engine.md").write_text(page, encoding="utf-8")


def _module(folder: Path) -> Any:  # noqa: ANN401 - torch's own
    return AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32).eval()


def _batches() -> Iterator[torch.Tensor]:
    """Token ids of masked variants, each batch of one length but for its padding."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(*LENGTHS, N_TEXTS)
    for batch in length_sorted(lengths, most_tokens=CPU_TOKENS, most_rows=64):
        yield torch.from_numpy(rng.integers(1000, 2000, (len(batch), lengths[batch].max())))


def _passes(module: Any, batches: Batches) -> None:  # noqa: ANN401
    with torch.inference_mode():
        for ids in batches:
            module(input_ids=ids, attention_mask=torch.ones_like(ids))


def _threaded(module: Any, batches: Batches, pool: ThreadPoolExecutor) -> None:  # noqa: ANN401
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        list(pool.map(lambda ids: _passes(module, [ids]), batches))
    finally:
        torch.set_num_threads(threads)


def _exported(module: Any, batches: Batches, threads: int) -> Run:  # noqa: ANN401
    """The same passes by onnxruntime, checked to answer alike."""
    import onnxruntime

    class Logits(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = module

        def forward(self, ids: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
            logits: torch.Tensor = self.inner(input_ids=ids, attention_mask=attended).logits
            return logits

    free = {0: "texts", 1: "tokens"}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = f"{folder}/model.onnx"
        given = (batches[0][:2], torch.ones_like(batches[0][:2]))
        torch.onnx.export(
            Logits().eval(),
            given,
            path,
            input_names=["ids", "attended"],
            output_names=["logits"],
            dynamic_axes={"ids": free, "attended": free, "logits": {0: "texts"}},
            dynamo=False,
        )
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = threads
        session = onnxruntime.InferenceSession(path, settings)

    def logits(ids: torch.Tensor) -> np.ndarray:
        feed = {"ids": ids.numpy(), "attended": np.ones(tuple(ids.shape), np.int64)}
        return np.asarray(session.run(None, feed)[0])

    with torch.inference_mode():
        expected = module(input_ids=batches[0], attention_mask=torch.ones_like(batches[0])).logits
    np.testing.assert_allclose(logits(batches[0]), expected.numpy(), atol=1e-4)
    return lambda: [logits(ids) for ids in batches]


@contextmanager
def _processes(folder: Path, n: int) -> Iterator[Callable[[Batches], None]]:
    """A function that shares batches out to so many processes and waits for all."""
    context = multiprocessing.get_context("spawn")
    ends = [context.Pipe() for _ in range(n)]
    workers = [context.Process(target=_work, args=(folder, theirs), daemon=True) for _, theirs in ends]
    for worker in workers:
        worker.start()
    ours = [end for end, _ in ends]

    def share(batches: Batches) -> None:
        for at, end in enumerate(ours):
            end.send([ids.numpy() for ids in batches[at::n]])
        for end in ours:
            end.recv()

    yield share
    for worker in workers:
        worker.terminate()


def _work(folder: Path, end: Any) -> None:  # noqa: ANN401 - a pipe's end
    torch.set_num_threads(1)
    module = _module(folder)
    while True:
        _passes(module, [torch.from_numpy(ids) for ids in end.recv()])
        end.send(None)


def _prompted() -> Mapping[str, Run]:
    """Explaining a decoder's answers to a text behind a prompt, its weights random."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    prompt = " ".join((PARAGRAPH * 3).split()[:PROMPT_WORDS])
    names = ["<pad>", "[UNK]", *dict.fromkeys(PARAGRAPH.split())]
    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(names)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, unk_token="[UNK]", pad_token="<pad>"
    )
    torch.manual_seed(0)
    module = transformers.LlamaForSequenceClassification(
        transformers.LlamaConfig(
            vocab_size=len(names),
            hidden_size=384,
            intermediate_size=1536,
            num_hidden_layers=6,
            num_attention_heads=6,
            pad_token_id=0,
            num_labels=2,
        )
    )

    def explain(fewest: int) -> pd.DataFrame:
        _prefix.FEWEST_TOKENS, before = fewest, _prefix.FEWEST_TOKENS
        try:
            return piste.explain(
                HuggingFaceClassifier(module.eval(), tokenizer=tokenizer),
                text_of(PROMPTED["units"]),
                context=f"{prompt} {{text}} It is",
                budget=PROMPTED["queries"],
            ).attributions
        finally:
            _prefix.FEWEST_TOKENS = before

    scores = [explain(fewest)["score"] for fewest in (_prefix.FEWEST_TOKENS, 10**9)]
    np.testing.assert_allclose(*scores, atol=1e-2 * scores[0].abs().max())
    return {
        "prompt once": partial(explain, _prefix.FEWEST_TOKENS),
        "prompt with every text": partial(explain, 10**9),
    }


def _fit_jobs(most: int) -> Mapping[str, Run]:
    """Explaining a small corpus with fits that take long."""
    words = (PARAGRAPH * 7).split()
    n = CORPUS["units"]
    texts = [" ".join(words[at * n : (at + 1) * n]) for at in range(CORPUS["texts"])]
    model = piste.load_model("builtin:sentiment")

    def explain(n_jobs: int) -> pd.DataFrame:
        chosen: dict[str, Any] = {"surrogates": "slalom-pairs", "budget": CORPUS["queries"]}
        return piste.explain(model, texts, fit_jobs=n_jobs, **chosen).attributions

    return {f"fit_jobs={n_jobs}": partial(explain, n_jobs) for n_jobs in (1, most)}


def _alternated(ways: Mapping[str, Run], repeats: int) -> pd.DataFrame:
    """Seconds of each way, a row per repeat, in an order that turns from one to the next."""
    for run in ways.values():
        run()
    rows = []
    for repeat in range(repeats):
        names = list(ways)
        seconds = {}
        for name in names[repeat % len(names) :] + names[: repeat % len(names)]:
            start = time.perf_counter()
            ways[name]()
            seconds[name] = time.perf_counter() - start
        rows.append(seconds)
    return pd.DataFrame(rows)[list(ways)]


def _table(seconds: pd.DataFrame, reference: str) -> str:
    lines = ["| | seconds | ratio |", "|---|--:|--:|"]
    for name in seconds:
        ratio = "1" if name == reference else ratio_with_interval(seconds[name] / seconds[reference])
        lines.append(f"| {name} | {seconds[name].median():.2f} | {ratio} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
