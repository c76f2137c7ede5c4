"""Black boxes: one way to open them, whatever runs behind."""

import builtins
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from inspect import Parameter, signature

from piste._errors import InputError
from piste.sampling.models._foreign import is_a
from piste.sampling.models.builtin import BUILTIN_MODELS, load_builtin
from piste.sampling.models.callable import CallableModel, TokenizingCallable, wrap_callable
from piste.sampling.models.http import open_http
from piste.sampling.models.huggingface import HuggingFaceClassifier
from piste.sampling.models.onnx import OnnxClassifier
from piste.sampling.models.openai import open_openai
from piste.sampling.models.protocol import BlackBox, Scores, Tokenizing
from piste.sampling.models.remote import Concurrent, estimate, probe_noise
from piste.sampling.models.stored import open_stored

__all__ = [
    "ADAPTERS",
    "BUILTIN_MODELS",
    "Adapter",
    "BlackBox",
    "CallableModel",
    "Concurrent",
    "HuggingFaceClassifier",
    "OnnxClassifier",
    "Scores",
    "Tokenizing",
    "TokenizingCallable",
    "estimate",
    "load_model",
    "probe_noise",
]


@dataclass(frozen=True)
class Adapter:
    """One sort of model that a URI can name.

    Parameters
    ----------
    scheme
        What comes before the colon.
    example
        A URI as a user would write it.
    about
        What it runs, in a few words.
    extra
        The optional dependencies that it needs, as in ``pip install 'piste[extra]'``.
    modules
        What these install.
    open
        Makes the model from what comes after the colon and keyword options.
    """

    scheme: str
    example: str
    about: str
    extra: str | None
    modules: tuple[str, ...]
    open: Callable[..., BlackBox]

    @property
    def installed(self) -> bool:
        """Whether everything that the adapter needs can be imported."""
        return all(find_spec(module) is not None for module in self.modules)

    @property
    def options(self) -> tuple[str, ...]:
        """The keyword options that :func:`load_model` takes for this adapter."""
        return tuple(_options(self.open))


ADAPTERS = (
    Adapter(
        "builtin",
        "builtin:sentiment",
        "the embedded sentiment model, no download",
        None,
        ("onnxruntime", "tokenizers"),
        load_builtin,
    ),
    Adapter(
        "hf",
        "hf:path/to/folder",
        "a Hugging Face sequence classifier, from a folder or the hub",
        "local",
        ("torch", "transformers"),
        HuggingFaceClassifier.from_pretrained,
    ),
    Adapter(
        "onnx",
        "onnx:path/to/folder",
        "a folder with model.onnx, tokenizer.json and config.json",
        None,
        ("onnxruntime", "tokenizers"),
        OnnxClassifier,
    ),
    Adapter(
        "openai",
        "openai:gpt-4o-mini",
        "a language model of OpenAI's API, or of a server that speaks it",
        "api",
        ("openai", "httpx", "tenacity"),
        open_openai,
    ),
    Adapter(
        "http",
        "http://localhost:8080/predict",
        "a text-classification server",
        "api",
        ("httpx", "tenacity"),
        partial(open_http, "http"),
    ),
    Adapter(
        "https",
        "https://example.org/v2/models/NAME/infer",
        "a text-classification server",
        "api",
        ("httpx", "tenacity"),
        partial(open_http, "https"),
    ),
    Adapter(
        "stored",
        "stored:answers.sqlite",
        "the answers that an earlier run stored, and no model",
        None,
        (),
        open_stored,
    ),
)
"""Every adapter that a URI can name, in the order in which they are listed to users."""


def load_model(model: object, **options: object) -> BlackBox:
    """Open a model.

    Parameters
    ----------
    model
        A URI (``builtin:sentiment``, ``hf:PATH_OR_NAME``, ``onnx:FOLDER``, ``openai:MODEL``,
        ``http://ROUTE``, ``stored:FILE``); a transformers pipeline for text classification; a
        transformers model, with ``tokenizer=``; a function from a list of texts to an array of shape
        (n,), (n, 1) or (n, k); or a black box, returned as it is.
    **options
        Keyword options of the adapter. ``builtin:`` threads; ``hf:`` device, dtype, kind; ``onnx:``
        threads, providers, kind; ``openai:``, ``http:`` and ``stored:`` those of `open_openai`,
        `open_http` and `open_stored`;
        a pipeline kind; a transformers model tokenizer, device, kind; a function labels, kind,
        tokenizer, window, mask_token, fingerprint.

    Raises
    ------
    InputError
        If the model cannot be opened, or an option is not one of its adapter's.

    Examples
    --------
    >>> model = load_model(lambda texts: ["good" in text for text in texts], labels=["good"])
    >>> model.score(["a good film", "a film"]).values.ravel().tolist()
    [1.0, 0.0]
    """
    if isinstance(model, str):
        adapter, rest = _parse(model)
        return _opened(adapter.open, f"'{model}'", rest, options)
    if is_a(model, "transformers", "Pipeline"):
        return _opened(HuggingFaceClassifier.from_pipeline, "a pipeline", model, options)
    if is_a(model, "transformers", "PreTrainedModel"):
        return _opened(HuggingFaceClassifier, f"a {type(model).__name__}", model, options)
    if isinstance(model, BlackBox):
        return _opened(_as_it_is, "a loaded model", model, options)
    if builtins.callable(model):  # the bare name is a module of this package
        return _opened(wrap_callable, "a function", model, options)
    raise InputError(f"Got a model of type {type(model).__name__}; {_expected()}.")


def _parse(uri: str) -> tuple[Adapter, str]:
    scheme, _, rest = uri.partition(":")
    adapter = next((each for each in ADAPTERS if each.scheme == scheme), None)
    if adapter is not None and rest:
        return adapter, rest
    raise InputError(f"Got the model '{uri}'; {_expected()}.")


def _expected() -> str:
    examples = ", ".join(f"'{adapter.example}' ({adapter.about})" for adapter in ADAPTERS)
    return f"expected {examples}, or in Python a function from a list of texts to scores"


def _opened(
    open_: Callable[..., BlackBox], what: str, model: object, options: dict[str, object]
) -> BlackBox:
    accepted = _options(open_)
    for name in options:
        if name not in accepted:
            raise InputError(
                f"Got the option {name!r} for {what}; expected {', '.join(accepted) or 'no options'}."
            )
    for name, parameter in accepted.items():
        if parameter.default is Parameter.empty and name not in options:
            raise InputError(
                f"Got {what} without {name}=; it is needed: load_model(model, {name}=...)."
            )
    return open_(model, **options)


def _options(open_: Callable[..., BlackBox]) -> dict[str, Parameter]:
    parameters = signature(open_).parameters
    return {name: each for name, each in parameters.items() if each.kind is Parameter.KEYWORD_ONLY}


def _as_it_is(model: BlackBox) -> BlackBox:
    return model
