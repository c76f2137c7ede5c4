"""What every run begins with: texts in a list, a name for each, the model with a store around it."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from os import PathLike
from typing import Any, NamedTuple

from piste._errors import InputError
from piste.sampling.masking import choose_masking
from piste.sampling.models import load_model
from piste.sampling.models.protocol import BlackBox
from piste.sampling.models.remote import Concurrent
from piste.sampling.records import Text
from piste.sampling.store import (
    AnswerStore,
    Stored,
    StoredOnly,
    StoredTokenizing,
    chosen_store,
    with_store,
)
from piste.surrogates.noise import check_repeatable
from piste.surrogates.records import Options


class Kept(NamedTuple):
    """A model and the store that is around it, or within, if there is one."""

    model: BlackBox
    stored: Stored | StoredTokenizing | StoredOnly | None

    @property
    def n_known(self) -> int:
        """How many queries the store has answered by now."""
        return 0 if self.stored is None else self.stored.n_known


def begin(
    model: object, texts: object, text_ids: Sequence[str] | None, options: Options
) -> tuple[BlackBox, list[Text], list[str]]:
    """The loaded model, the texts and their names; what the model cannot do is refused before a query."""
    box = load_model(model)
    if options.noise_probe:
        check_repeatable(box)
    choose_masking(options.masking, box)
    listed = listed_texts(texts)
    return box, listed, text_names(text_ids, len(listed))


@contextmanager
def kept_answers(box: BlackBox, store: str | PathLike[str] | AnswerStore | None) -> Iterator[Kept]:
    """The model with a store around it, as the option ``store`` of `piste.explain` says."""
    if store is not None and not isinstance(store, str | PathLike | AnswerStore):
        raise InputError(
            f"Got store={store!r}; expected a path, an open store, 'none', or None for the usual one."
        )
    with chosen_store(store, remote=isinstance(box, Concurrent)) as opened:
        if opened is None:
            yield Kept(box, box if isinstance(box, StoredOnly) else None)
        elif isinstance(box, Concurrent):
            # Inside, so that each answer is kept as it comes.
            inside: list[Stored] = []

            def wrap(request: BlackBox) -> Stored:
                inside.append(Stored(request, opened))
                return inside[-1]

            model = box.around(wrap)
            yield Kept(model, inside[0])
        else:
            stored = with_store(box, opened)
            yield Kept(stored, stored)


@contextmanager
def with_answers_kept(
    box: BlackBox, store: str | PathLike[str] | AnswerStore | None
) -> Iterator[BlackBox]:
    """The model of `kept_answers` alone."""
    with kept_answers(box, store) as kept:
        yield kept.model


def listed_texts(texts: object) -> list[Text]:
    """Texts as a list; a str is one text and a tuple of two str one pair.

    What is not a text stays as it is: it will be refused without spoiling the others.
    """
    one_pair = isinstance(texts, tuple) and all(isinstance(part, str) for part in texts)
    if isinstance(texts, str) or one_pair:
        texts = [texts]
    if not isinstance(texts, Iterable) or isinstance(texts, bytes):
        raise InputError(
            f"Got texts of type {type(texts).__name__}; expected a text or a list of texts."
        )
    listed = [_built_in(text) for text in texts]
    if not listed:
        raise InputError("Got no texts; expected a text or a list of texts.")
    return listed


def _built_in(text: Any) -> Any:  # noqa: ANN401 - whatever the caller's list holds
    """A text or pair made of nothing but built-in types, so that equal texts are drawn equal masks."""
    if isinstance(text, list | tuple):
        return tuple(_built_in(part) for part in text)
    return str(text) if isinstance(text, str) else text


def text_names(text_ids: Sequence[str] | None, n_texts: int) -> list[str]:
    """The names given, checked, or the positions."""
    if text_ids is None:
        return [str(index) for index in range(n_texts)]
    names = [str(name).encode("utf-8", "replace").decode() for name in text_ids]
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if len(names) != n_texts or repeated:
        raise InputError(
            f"Got {len(names)} text_ids for {n_texts} texts, repeated: {repeated[:3]}; expected one of "
            "its own for each text."
        )
    return names
