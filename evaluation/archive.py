"""A study as plain arrays and one JSON manifest, so that a file holds no code."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from piste._errors import InputError, ModelError
from piste.sampling.records import Responses, Text, Units
from piste.surrogates.base import Surrogate
from piste.surrogates.explain import BUILT_IN, Explained, Failed, Options, with_fits

FORMAT = 1
_CLASSES = {estimator.__name__: estimator for estimator in BUILT_IN.values()}

Arrays = dict[str, npt.NDArray[Any]]


def pack(outcomes: Sequence[Explained | Failed], options: Options) -> tuple[dict[str, object], Arrays]:
    """Manifest and arrays of a study.

    Raises
    ------
    InputError
        If a surrogate is not one of piste's own: a file could not make it again.
    """
    arrays: Arrays = {}
    texts: list[dict[str, object]] = []
    for index, outcome in enumerate(outcomes):
        if isinstance(outcome, Failed):
            texts.append(
                {
                    "text_id": outcome.text_id,
                    "text": outcome.text
                    if isinstance(outcome.text, str | tuple)
                    else repr(outcome.text),
                    "message": outcome.message,
                    "model_error": outcome.error_type is not InputError,
                }
            )
        else:
            texts.append(_pack_text(outcome))
            arrays |= {f"{index}/{name}": array for name, array in _arrays(outcome).items()}
    plain = {name: getattr(options, name) for name in _PLAIN}
    plain["units"] = options.units if isinstance(options.units, str) else "spans"
    plain["design"] = options.design if isinstance(options.design, str) else options.design.name
    manifest: dict[str, object] = {
        "format": FORMAT,
        "options": plain,
        "surrogates": {name: _described(surrogate) for name, surrogate in options.surrogates.items()},
        "texts": texts,
    }
    return manifest, arrays


_PLAIN = ("masking", "budget", "target", "space", "tie_repeats", "context", "batch_size", "seed")


def _described(surrogate: Surrogate) -> list[object]:
    name = type(surrogate).__name__
    if _CLASSES.get(name) is not type(surrogate):
        raise InputError(
            f"Got a surrogate of type {name}; a saved study holds only {', '.join(_CLASSES)}. "
            "Use study.refit before saving."
        )
    return [name, surrogate.get_params()]


def _pack_text(explained: Explained) -> dict[str, object]:
    return {
        "text_id": explained.text_id,
        "text": explained.units.text,
        "unit_kind": explained.units.kind,
        "design": explained.design,
        "labels": explained.responses.labels,
        "output_kind": explained.responses.kind,
        "targets": explained.targets,
        "space": explained.space,
        "n_clipped": explained.n_clipped,
        "single_target": explained.single_target,
        "n_queries": explained.n_queries,
    }


def _arrays(explained: Explained) -> Arrays:
    units, answers, held_out = explained.units, explained.responses, explained.held_out
    arrays: Arrays = {
        "segments": units.segments,
        "starts": units.starts,
        "ends": units.ends,
        "seen": units.seen,
        "masks": answers.masks,
        "values": answers.values,
        "scores": explained.scores,
        "held_out_scores": explained.held_out_scores,
    }
    if held_out is not None:
        arrays |= {"held_out_masks": held_out.masks, "held_out_values": held_out.values}
    if explained.groups is not None:
        arrays["groups"] = explained.groups
    return arrays


def unpack(manifest: Mapping[str, Any], arrays: Arrays) -> tuple[list[Explained | Failed], Options]:
    """The study again; surrogates are fitted to the stored answers.

    Raises
    ------
    InputError
        If the manifest is of another format.
    """
    if manifest.get("format") != FORMAT:
        raise InputError(
            f"Got a study of format {manifest.get('format')}; expected {FORMAT}. Read it with the version "
            "of piste that wrote it."
        )
    surrogates = {
        name: _CLASSES[kind](**{key: _tuple(value) for key, value in parameters.items()})
        for name, (kind, parameters) in manifest["surrogates"].items()
    }
    options = Options(surrogates, **manifest["options"])
    outcomes: list[Explained | Failed] = []
    for index, text in enumerate(manifest["texts"]):
        if "message" in text:
            error_type = ModelError if text["model_error"] else InputError
            outcomes.append(Failed(text["text_id"], text["text"], text["message"], error_type))
        else:
            prefix = f"{index}/"
            own = {key.removeprefix(prefix): a for key, a in arrays.items() if key.startswith(prefix)}
            outcomes.append(with_fits(_unpack_text(text, own), surrogates))
    return outcomes, options


def _tuple(value: object) -> object:
    """JSON knows no tuples."""
    return tuple(value) if isinstance(value, list) else value


def _unpack_text(stored: Mapping[str, Any], own: Arrays) -> Explained:
    text: Text = tuple(stored["text"]) if isinstance(stored["text"], list) else stored["text"]
    labels = tuple(stored["labels"])

    def answers(masks: str, values: str) -> Responses:
        return Responses(own[masks], own[values], labels, stored["output_kind"], stored["n_queries"])

    return Explained(
        text_id=stored["text_id"],
        units=Units(
            text, stored["unit_kind"], own["segments"], own["starts"], own["ends"], own["seen"]
        ),
        design=stored["design"],
        responses=answers("masks", "values"),
        held_out=answers("held_out_masks", "held_out_values") if "held_out_masks" in own else None,
        targets=tuple(stored["targets"]),
        space=stored["space"],
        scores=own["scores"],
        held_out_scores=own["held_out_scores"],
        n_clipped=stored["n_clipped"],
        single_target=stored["single_target"],
        groups=own.get("groups"),
        n_queries=stored["n_queries"],
    )
