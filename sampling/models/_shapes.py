"""What text-classification servers are sent and answer: one small object per protocol."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from piste._errors import InputError
from piste.sampling.models.endpoint import BrokenAnswerError, Json
from piste.sampling.records import Text

Row = Mapping[str, float | None] | Sequence[float | None]
"""One text's scores: by label, or in the order of the model's classes; None for a JSON null."""


class Shape(Protocol):
    """How one kind of server is asked."""

    @property
    def request_size(self) -> int:
        """The most texts of one request."""
        ...

    @property
    def pairs(self) -> bool:
        """Whether it takes pairs of texts."""
        ...

    @property
    def logits(self) -> bool:
        """Whether it can be asked for logits."""
        ...

    def body(self, texts: Sequence[Text], *, logits: bool) -> object:
        """The JSON to send."""
        ...

    def rows(self, answer: Json) -> list[Row]:
        """The scores in a server's JSON, one row per text; whatever breaks it is a broken answer."""
        ...


@dataclass(frozen=True)
class Tei:
    """Text Embeddings Inference, ``/predict``: labels sorted by score."""

    request_size: int = 8
    pairs: bool = True
    logits: bool = True

    def body(self, texts: Sequence[Text], *, logits: bool) -> object:
        """Each text is a list of one or two: a flat list of two would be read as a pair."""
        listed = [list(text) if isinstance(text, tuple) else [text] for text in texts]
        return {"inputs": listed, "raw_scores": logits, "truncate": True}

    def rows(self, answer: Json) -> list[Row]:
        """``[[{label, score}, …], …]``."""
        return [_named(row) for row in answer]


@dataclass(frozen=True)
class InferenceEndpoint:
    """Hugging Face inference endpoints and their toolkit: a pipeline behind HTTP."""

    request_size: int = 8
    pairs: bool = False
    logits: bool = True

    def body(self, texts: Sequence[Text], *, logits: bool) -> object:
        """The pipeline's own parameters ask for every label, and for logits."""
        parameters = {"top_k": None} | ({"function_to_apply": "none"} if logits else {})
        return {"inputs": list(texts), "parameters": parameters}

    def rows(self, answer: Json) -> list[Row]:
        """``[[{label, score}, …], …]``."""
        return [_named(row) for row in answer]


@dataclass(frozen=True)
class Classify:
    """``/classify`` of infinity-emb (labels sorted by score) and of vLLM (numbers in class order)."""

    model: str | None
    request_size: int = 8
    pairs: bool = False
    logits: bool = True  # vLLM only: infinity answers probabilities whatever it is asked

    def body(self, texts: Sequence[Text], *, logits: bool) -> object:
        """The same for both, but for the fields that ask for logits, which only one of them knows."""
        asked = {"use_activation": False} if logits else {}
        return {"input": list(texts)} | ({"model": self.model} if self.model else {}) | asked

    def rows(self, answer: Json) -> list[Row]:
        """``data[i]`` is ``[{label, score}, …]``, or has ``probs`` and an ``index``."""
        items = answer["data"]
        if items and isinstance(items[0], dict):
            return [item["probs"] for item in sorted(items, key=lambda item: int(item["index"]))]
        return [_named(row) for row in items]


@dataclass(frozen=True)
class OpenInference:
    """Open Inference Protocol V2, ``/v2/models/NAME/infer``: a tensor of strings in, numbers out."""

    output: str | None
    request_size: int = 8
    pairs: bool = False
    logits: bool = True

    def body(self, texts: Sequence[Text], *, logits: bool) -> object:
        """One input tensor of strings."""
        shape = [len(texts), 1]
        return {"inputs": [{"name": "text", "shape": shape, "datatype": "BYTES", "data": list(texts)}]}

    def rows(self, answer: Json) -> list[Row]:
        """One output's ``data``, flat or nested, with its ``shape``."""
        outputs = {each["name"]: each for each in answer["outputs"]}
        if self.output is None and len(outputs) > 1:
            raise InputError(
                f"Got the outputs {', '.join(outputs)} from the server; expected to know which one "
                f"holds the scores: pass output={next(iter(outputs))!r} or another."
            )
        chosen = outputs[self.output or next(iter(outputs))]
        n_rows, *rest = chosen["shape"]
        n_columns = rest[0] if rest else 1
        data = chosen["data"]
        if data and isinstance(data[0], list):
            data = [number for row in data for number in row]
        if len(data) != n_rows * n_columns:
            raise BrokenAnswerError(
                f"The server sent {len(data)} numbers of the shape {chosen['shape']}."
            )
        return [data[row * n_columns : (row + 1) * n_columns] for row in range(n_rows)]


@dataclass(frozen=True)
class SystemOne:
    """The System One API, ``/v1/systemone``: one question about one text, a probability per label."""

    model: str | None
    question: str
    labels: tuple[str, ...]
    request_size: int = 1
    pairs: bool = False
    logits: bool = False

    def body(self, texts: Sequence[Text], *, logits: bool) -> object:
        """The text is the state, the labels are the options of a choice."""
        criteria = dict.fromkeys(self.labels)
        asked = {"type": "choice", "instructions": self.question, "criteria": criteria}
        named = {"model": self.model} if self.model else {}
        return named | {"state": texts[0], "questions": {"label": asked}}

    def rows(self, answer: Json) -> list[Row]:
        """``answers.label.probabilities``."""
        return [dict(answer["answers"]["label"]["probabilities"])]


def _named(row: Json) -> dict[str, float | None]:
    named = {str(each["label"]): each["score"] for each in row}
    if len(named) != len(row):
        raise BrokenAnswerError("The server names a label twice.")
    return named
