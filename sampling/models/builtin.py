"""The models that ship inside the package."""

from importlib.resources import files
from pathlib import Path

from piste._errors import InputError
from piste.sampling.models.onnx import OnnxClassifier

BUILTIN_MODELS = ("sentiment",)


def load_builtin(name: str, *, threads: int | None = None) -> OnnxClassifier:
    """Open an embedded model; it runs on the CPU and downloads nothing.

    Parameters
    ----------
    name
        ``sentiment``: a small BERT-type classifier of English movie-review sentences, labels negative
        and positive, window of 128 tokens.
    threads
        CPU threads; by default all available.

    Raises
    ------
    InputError
        If there is no embedded model of that name.
    """
    if name not in BUILTIN_MODELS:
        raise InputError(
            f"Got 'builtin:{name}'; expected one of the embedded models: "
            f"{', '.join(f'builtin:{known}' for known in BUILTIN_MODELS)}."
        )
    # By path and not by content: the graph's weights lie in a second file beside it.
    folder = Path(str(files("piste.sampling.models").joinpath(name)))
    return OnnxClassifier(folder, threads=threads)
