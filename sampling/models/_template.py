"""A user's own JSON protocol: a file that says what to send and where the scores are. No code in it.

    {"request": {"documents": "{texts}", "lang": "en"},
     "scores": "results[*].scores",
     "labels": ["negative", "positive"],
     "kind": "probability"}

``request`` is sent as it is, with the placeholders filled: a string ``"{text}"``, alone or inside a
longer string, sends one text a request; ``"{texts}"``, alone, becomes a list of texts. ``"{pair}"``
and ``"{pairs}"`` become a list of two, and a list of these. ``scores`` is a path in the answer: names
joined by dots, ``[2]`` for an element and ``[*]`` for all of them. It leads to one number or a list of
numbers (one text a request), or to a list of these (several). ``labels`` are the names, or the path to
the names beside the scores, where their order changes.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from piste._errors import InputError
from piste.sampling.models._shapes import Row
from piste.sampling.models.endpoint import Json
from piste.sampling.records import OutputKind, Text

_SINGLE, _SEVERAL = ("{text}", "{pair}"), ("{texts}", "{pairs}")
_STEP = re.compile(r"\.?([^.\[\]]+)|\[(\d+|\*)\]")
_KEYS = {"request", "scores", "labels", "kind"}


@dataclass(frozen=True)
class Template:
    """A declared protocol.

    Parameters
    ----------
    request
        The JSON to send, with placeholders.
    scores, labels
        Paths; ``labels`` may be the names themselves, or None.
    kind
        What the numbers are.
    """

    request: object
    scores: str
    labels: str | tuple[str, ...] | None
    kind: OutputKind
    logits: bool = True

    @property
    def request_size(self) -> int:
        """One text, or eight where the request takes a list."""
        return 8 if self._several else 1

    @property
    def pairs(self) -> bool:
        """Whether the placeholders are for pairs."""
        written = json.dumps(self.request, ensure_ascii=False)
        return "{pair}" in written or "{pairs}" in written

    @property
    def _several(self) -> bool:
        written = json.dumps(self.request, ensure_ascii=False)
        return any(placeholder in written for placeholder in _SEVERAL)

    def body(self, texts: Sequence[Text], *, logits: bool) -> object:
        """The request with the texts in it."""
        return _filled(self.request, texts)

    def rows(self, answer: Json) -> list[Row]:
        """The numbers at the path, beside their names where these are in the answer too."""
        rows = self._per_text(_follow(answer, self.scores))
        if not isinstance(self.labels, str):
            return list(rows)
        names = self._per_text(_follow(answer, self.labels))
        return [dict(zip(map(str, n), row, strict=True)) for n, row in zip(names, rows, strict=True)]

    def _per_text(self, found: Json) -> list[list[Json]]:
        rows = found if self._several else [found]
        return [row if isinstance(row, list) else [row] for row in rows]


def read_template(path: str | Path) -> Template:
    """Read a template file.

    Raises
    ------
    InputError
        If it is missing, or not such a file.
    """
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"Got the template {path}: {error}; expected a JSON file.") from error
    if not isinstance(content, dict) or not {"request", "scores"} <= content.keys() <= _KEYS:
        raise InputError(
            f"Got the template {path}; expected an object with 'request', 'scores' and at most "
            "'labels' and 'kind'."
        )
    written = json.dumps(content["request"], ensure_ascii=False)
    used = [placeholder for placeholder in (*_SINGLE, *_SEVERAL) if placeholder in written]
    if len(used) != 1:
        raise InputError(
            f"Got the template {path} with {' and '.join(used) or 'no placeholder'} in its request; "
            f"expected one of {', '.join((*_SINGLE, *_SEVERAL))}."
        )
    labels = content.get("labels")
    for path_to in [
        content["scores"],
        *([] if labels is None or isinstance(labels, list) else [labels]),
    ]:
        _steps(path_to)
    kind = content.get("kind", "probability")
    if kind not in get_args(OutputKind):
        raise InputError(f"Got kind {kind!r} in {path}; expected logit, probability or raw.")
    names = tuple(map(str, labels)) if isinstance(labels, list) else labels
    return Template(content["request"], content["scores"], names, kind)


def _filled(value: object, texts: Sequence[Text]) -> object:
    if isinstance(value, dict):
        return {name: _filled(each, texts) for name, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, texts) for each in value]
    if not isinstance(value, str):
        return value
    if value in _SEVERAL:
        return [list(text) if isinstance(text, tuple) else text for text in texts]
    if value == "{pair}":
        return list(texts[0])
    # Split and joined, so that a text that holds a placeholder itself is left alone.
    return str(texts[0]).join(value.split("{text}"))


def _steps(path: object) -> list[str | int]:
    """A path's names and indices; ``*`` for all elements.

    >>> _steps("results[*].scores[0]")
    ['results', '*', 'scores', 0]
    """
    if not isinstance(path, str) or "".join(m[0] for m in _STEP.finditer(path)) != path:
        raise InputError(f"Got the path {path!r}; expected names, dots, [0] and [*].")
    steps = ((m[1], m[2]) for m in _STEP.finditer(path))
    return [name or ("*" if index == "*" else int(index)) for name, index in steps]


def _follow(value: Json, path: str) -> Json:
    return _walk(value, _steps(path))


def _walk(value: Json, steps: Sequence[str | int]) -> Json:
    if not steps:
        return value
    step, rest = steps[0], steps[1:]
    if step == "*":
        return [_walk(each, rest) for each in value]
    return _walk(value[step], rest)
