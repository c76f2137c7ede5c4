"""A study as plain arrays and one JSON manifest, so that a file holds no code."""

import io
import json
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from piste._errors import InputError, ModelError
from piste.evaluation.export import plain_number
from piste.evaluation.spent import Spent
from piste.sampling.designs import DESIGNS
from piste.sampling.models.limits import Usage
from piste.sampling.records import Design, Hidden, Query, Responses, Text, Units
from piste.surrogates.base import Surrogate
from piste.surrogates.explain import with_fits
from piste.surrogates.named import BUILT_IN
from piste.surrogates.noise import ScoreErrors
from piste.surrogates.records import Explained, Failed, Options
from piste.surrogates.rounds import AutoBudget

FORMAT = 1
_NESTED = "surrogate"  # the key under which an option that is itself a surrogate is stored
_CLASSES = {estimator.__name__: estimator for estimator in BUILT_IN.values()}

Arrays = dict[str, npt.NDArray[Any]]


class Contents(NamedTuple):
    """What a study is made of."""

    outcomes: list[Explained | Failed]
    options: Options
    fingerprint: str
    spent: Spent


def pack(
    outcomes: Sequence[Explained | Failed], options: Options, fingerprint: str, spent: Spent
) -> bytes:
    """A study as the bytes of an .npz file.

    Raises
    ------
    InputError
        If a surrogate or its control is not one of piste's own, or an option of it is no plain value: a
        file could not make it again.
    """
    arrays: Arrays = {}
    texts: list[dict[str, object]] = []
    for index, outcome in enumerate(outcomes):
        if isinstance(outcome, Failed):
            texts.append(_pack_failed(outcome))
        else:
            texts.append(_pack_text(outcome))
            arrays |= {f"{index}/{name}": array for name, array in _arrays(outcome).items()}
    manifest: dict[str, object] = {
        "format": FORMAT,
        "model": fingerprint,
        "options": options.plain(),
        "surrogates": {name: _described(surrogate) for name, surrogate in options.surrogates.items()},
        "spent": spent.plain(),
        "texts": texts,
    }
    arrays["manifest"] = np.array(json.dumps(manifest, default=plain_number))
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]  # none is allow_pickle
    return buffer.getvalue()


def _described(surrogate: Surrogate) -> list[object]:
    name = type(surrogate).__name__
    if _CLASSES.get(name) is not type(surrogate):
        raise InputError(
            f"Got a surrogate of type {name}; a saved study holds only {', '.join(_CLASSES)}. "
            "Use study.refit before saving."
        )
    parameters = surrogate.get_params(deep=False)
    return [name, {key: _plain(name, key, value) for key, value in parameters.items()}]


def _plain(owner: str, key: str, value: object) -> object:
    """An option as JSON holds it; an estimator among them as its own description."""
    if isinstance(value, Surrogate):
        return {_NESTED: _described(value)}
    if isinstance(value, tuple | list):
        return [_plain(owner, key, each) for each in value]
    if value is None or isinstance(value, str | int | float | np.generic):
        return value
    raise InputError(
        f"Got {owner} with {key}={value!r:.100}; a saved study holds only numbers, names and piste's own "
        "surrogates. Use study.refit before saving."
    )


def _pack_failed(failed: Failed) -> dict[str, object]:
    return {
        "text_id": failed.text_id,
        "text": failed.text if isinstance(failed.text, str) else repr(failed.text),
        "message": failed.message,
        "model_error": issubclass(failed.error_type, ModelError),
        "n_queries": failed.n_queries,
    }


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
        "stopped": explained.stopped,
        "example_non_finite": _shown(explained.responses.example_non_finite),
        "n_repeats": explained.errors.n_repeats if explained.errors is not None else 0,
    }


def _shown(query: Query | None) -> Text | None:
    return query.text if isinstance(query, Hidden) else query


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
    for name, errors in (("errors", explained.errors), ("held_out_errors", explained.held_out_errors)):
        if errors is not None:
            arrays[name] = errors.values
    if explained.noise_variance is not None:
        arrays["noise_variance"] = explained.noise_variance
    return arrays


def unpack(path: Path) -> Contents:
    """The study again; surrogates are fitted to the stored answers.

    Raises
    ------
    InputError
        If the file is missing, damaged, of another format or no study at all.
    """
    try:
        with path.open("rb") as file:
            if not zipfile.is_zipfile(file):  # which numpy would take for a pickle
                raise InputError(
                    f"Got {path}, which is not a study that Study.save wrote; expected one that is whole, "
                    "not a table or another file. Give the path that was saved to."
                )
            file.seek(0)
            with np.load(file, allow_pickle=False) as archive:
                arrays = dict(archive)
        manifest = json.loads(str(arrays.pop("manifest")))
        return _unpacked(manifest, arrays)
    except InputError:
        raise
    except _DAMAGED as error:
        raise InputError(
            f"Got {error!r:.200} when reading {path}; expected a file written by study.save."
        ) from error


# Whatever numpy, zip and JSON raise over files that are something else.
_DAMAGED = (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, zlib.error)


def _unpacked(manifest: Mapping[str, Any], arrays: Arrays) -> Contents:
    if manifest["format"] != FORMAT:
        raise InputError(
            f"Got a study of format {manifest['format']}; expected {FORMAT}. Read it with the version "
            "of piste that wrote it."
        )
    surrogates = {name: _made(*stored) for name, stored in manifest["surrogates"].items()}
    options = _options(manifest["options"], surrogates)
    outcomes: list[Explained | Failed] = []
    for index, text in enumerate(manifest["texts"]):
        if "message" in text:
            outcomes.append(_unpack_failed(text))
        else:
            prefix = f"{index}/"
            own = {key.removeprefix(prefix): a for key, a in arrays.items() if key.startswith(prefix)}
            outcomes.append(with_fits(_unpack_text(text, own), surrogates))
    return Contents(outcomes, options, manifest["model"], _spent(manifest.get("spent")))


def _made(kind: str, parameters: Mapping[str, Any]) -> Surrogate:
    """The unfitted estimator that `_described` describes."""

    def value(stored: Any) -> Any:  # noqa: ANN401 - what JSON holds
        return _made(*stored[_NESTED]) if isinstance(stored, dict) else _tuple(stored)

    return _CLASSES[kind](**{key: value(stored) for key, stored in parameters.items()})


def _spent(stored: Mapping[str, Any] | None) -> Spent:
    """What the run took; nothing is known of studies saved before it was kept."""
    if stored is None:
        return Spent()
    usage = stored["usage"]
    return Spent(stored["n_known"], None if usage is None else Usage(**usage))


def _options(stored: Mapping[str, Any], surrogates: Mapping[str, Surrogate]) -> Options:
    design: str | Design = stored["design"]
    if design not in ("auto", "optimal", *DESIGNS):  # the caller's own: its masks are with the texts
        design = Design(np.zeros((0, 0), dtype=np.bool_), stored["design"])
    budget = stored["budget"]
    if isinstance(budget, dict):
        budget = AutoBudget(**budget)
    return Options(surrogates, **{**stored, "design": design, "budget": budget})


def _tuple(value: Any) -> Any:  # noqa: ANN401 - what JSON holds
    """JSON knows no tuples."""
    return tuple(value) if isinstance(value, list) else value


def _unpack_failed(stored: Mapping[str, Any]) -> Failed:
    return Failed(
        stored["text_id"],
        stored["text"],
        stored["message"],
        ModelError if stored["model_error"] else InputError,
        stored["n_queries"],
    )


def _unpack_text(stored: Mapping[str, Any], own: Arrays) -> Explained:
    text, example = _tuple(stored["text"]), _tuple(stored["example_non_finite"])

    def answers(masks: str, values: str) -> Responses:
        return Responses(
            own[masks],
            own[values],
            tuple(stored["labels"]),
            stored["output_kind"],
            stored["n_queries"],
            example,
        )

    def errors(name: str) -> ScoreErrors | None:
        return ScoreErrors(own[name], stored.get("n_repeats", 0)) if name in own else None

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
        stopped=stored["stopped"],
        errors=errors("errors"),
        held_out_errors=errors("held_out_errors"),
        noise_variance=own.get("noise_variance"),
    )
