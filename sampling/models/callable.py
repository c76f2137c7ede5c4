"""Any Python function as a model: a list of texts in, one row of numbers per text out."""

from collections.abc import Callable, Sequence

import numpy as np

from piste._errors import InputError, ModelError
from piste._typing import FloatArray
from piste.sampling.models._foreign import is_a, model_errors, tensor_to_float64
from piste.sampling.models._outputs import check_output_kind, default_labels
from piste.sampling.models._tokens import subwords_of
from piste.sampling.models.protocol import BlackBox, Scores
from piste.sampling.records import Hidden, OutputKind, Query, Text

Function = Callable[..., object]
"""list[str] (or, for pairs, list[tuple[str, str]]) -> numbers of shape (n,), (n, 1) or (n, k)."""

_EXPECTED = (
    "expected numbers of shape (n,), (n, 1) or (n, k), one row per text. Pass a transformers pipeline "
    "as it is, and wrap anything else: lambda texts: [score(text) for text in texts]"
)


class CallableModel:
    """A function on a list of texts as a black box.

    Parameters
    ----------
    function
        Gets a list of built-in ``str`` (for pairs, of tuples of two) and returns one row of numbers per
        text, shape (n,), (n, 1) or (n, k): a list, an array or a tensor of any float type.
    labels
        Names of the k outputs; by default ``output`` for one, ``0`` to ``k - 1`` for more.
    kind
        What the numbers are: ``logit``, ``probability`` or ``raw``. None leaves it to the answers: all
        within [0, 1] are taken for probabilities.
    fingerprint
        What identifies the model. A function's behaviour cannot be known from outside, so the default
        is only its module and name: give one where a stored answer must not outlive a change.

    Examples
    --------
    >>> model = CallableModel(lambda texts: [len(text) for text in texts], kind="raw")
    >>> model.score(["a film", ""]).values.tolist()
    [[6.0], [0.0]]
    """

    def __init__(
        self,
        function: Function,
        *,
        labels: Sequence[str] | None = None,
        kind: OutputKind | None = None,
        fingerprint: str | None = None,
    ) -> None:
        if isinstance(labels, str):
            raise InputError(
                f"Got labels={labels!r}; expected a sequence of names such as [{labels!r}]."
            )
        check_output_kind(kind)
        self._function = function
        self._labels = None if labels is None else tuple(map(str, labels))
        self._kind: OutputKind = kind or "unknown"
        self._fingerprint = fingerprint or f"callable:{_name(function)}"

    @property
    def fingerprint(self) -> str:
        """The one given, or ``callable:`` with the function's module and name."""
        return self._fingerprint

    def score(self, inputs: Sequence[Query]) -> Scores:
        """Call the function once with all inputs.

        Raises
        ------
        InputError
            For an attention-masked query, which a text cannot express.
        ModelError
            If the function raises, or its answer is not one row of numbers per input.
        """
        texts = [_built_in(query) for query in inputs]
        with model_errors(inputs):
            answer = self._function(texts)
        values = _rows(answer, len(texts))
        labels = default_labels(values.shape[1]) if self._labels is None else self._labels
        if len(labels) != values.shape[1]:
            raise ModelError(
                f"The model returned {values.shape[1]} columns; expected {len(labels)}, one per label "
                f"{', '.join(labels)}."
            )
        return Scores(values, labels, self._kind)


class TokenizingCallable:
    """A callable with the tokenizer of the model behind it, for token units and window flags.

    Parameters
    ----------
    function, labels, kind, fingerprint
        As for :class:`CallableModel`.
    tokenizer
        A transformers tokenizer, a ``tokenizers.Tokenizer`` or a function from a text to
        ``[(start, end), …]``, the character offsets of its tokens.
    window
        How many tokens the function looks at, counting the special tokens that the tokenizer adds (a
        function adds none). By default a transformers tokenizer's ``model_max_length``, else no limit.
    mask_token
        By default the tokenizer's own.
    """

    def __init__(
        self,
        function: Function,
        *,
        tokenizer: object,
        window: int | None = None,
        mask_token: str | None = None,
        labels: Sequence[str] | None = None,
        kind: OutputKind | None = None,
        fingerprint: str | None = None,
    ) -> None:
        if window is not None and window < 1:
            raise InputError(f"Got window={window}; expected at least one token, or None for no limit.")
        self._model = CallableModel(function, labels=labels, kind=kind, fingerprint=fingerprint)
        self._subwords = subwords_of(tokenizer, window, mask_token)

    @property
    def fingerprint(self) -> str:
        """The one given, or ``callable:`` with the function's module and name."""
        return self._model.fingerprint

    @property
    def mask_token(self) -> str | None:
        """The mask token given, or the tokenizer's own."""
        return self._subwords.mask_token

    def score(self, inputs: Sequence[Query]) -> Scores:
        """Call the function once with all inputs, as :meth:`CallableModel.score` does."""
        return self._model.score(inputs)

    def token_spans(self, text: str) -> list[tuple[int, int]]:
        """Character offsets of each token of one segment, without special tokens, never truncated."""
        return self._subwords.token_spans(text)

    def seen_until(self, parts: Sequence[str]) -> tuple[int, ...]:
        """For each segment the offset where the window ends, or its length."""
        return self._subwords.seen_until(parts)


def wrap_callable(
    function: Function,
    *,
    labels: Sequence[str] | None = None,
    kind: OutputKind | None = None,
    tokenizer: object | None = None,
    window: int | None = None,
    mask_token: str | None = None,
    fingerprint: str | None = None,
) -> BlackBox:
    """The function as a model that knows its tokens exactly if a tokenizer is given."""
    if tokenizer is not None:
        return TokenizingCallable(
            function,
            tokenizer=tokenizer,
            window=window,
            mask_token=mask_token,
            labels=labels,
            kind=kind,
            fingerprint=fingerprint,
        )
    if window is not None or mask_token is not None:
        raise InputError(
            "Got window or mask_token without a tokenizer; expected tokenizer= beside them."
        )
    return CallableModel(function, labels=labels, kind=kind, fingerprint=fingerprint)


def _built_in(query: Query) -> Text:
    if isinstance(query, Hidden):
        raise InputError(
            "Got masking='attention' for a callable, which takes texts only. Use masking='remove' or a "
            "replacement string, or a Hugging Face or ONNX model."
        )
    return str(query) if isinstance(query, str) else (str(query[0]), str(query[1]))


def _rows(answer: object, n_inputs: int) -> FloatArray:
    """An answer as float64 rows, or a ModelError that says what is wrong with it."""
    array = _array(answer)
    if array.ndim not in (1, 2) or array.shape[1:] == (0,):
        raise ModelError(f"The model returned numbers of shape {array.shape}; {_EXPECTED}.")
    if len(array) != n_inputs:
        raise ModelError(f"The model returned {len(array)} rows for {n_inputs} texts; {_EXPECTED}.")
    return array.reshape(n_inputs, -1)


def _array(answer: object) -> FloatArray:
    if isinstance(answer, list | tuple):
        answer = [tensor_to_float64(row) if _is_tensor(row) else row for row in answer]
    if _is_tensor(answer):
        return tensor_to_float64(answer)  # type: ignore[arg-type]
    try:
        array = np.asarray(answer)
        if array.dtype.kind in "OSUMmc":
            raise TypeError(f"numpy reads it as {array.dtype}")
        return array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ModelError(f"The model returned {_described(answer)}; {_EXPECTED}.") from error


def _is_tensor(value: object) -> bool:
    return is_a(value, "torch", "Tensor")


def _described(answer: object) -> str:
    name = type(answer).__name__
    if isinstance(answer, list | tuple) and answer:
        return f"a {name} of {type(answer[0]).__name__}"
    return f"an object of type {name}"


def _name(function: Function) -> str:
    return f"{function.__module__}.{getattr(function, '__qualname__', type(function).__qualname__)}"
