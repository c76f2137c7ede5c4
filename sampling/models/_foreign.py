"""Other libraries' objects and errors, handled without importing those libraries."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from piste._errors import ModelError, PisteError
from piste._typing import FloatArray
from piste.sampling.records import Hidden, Query

if TYPE_CHECKING:
    import torch


def is_a(value: object, package: str, name: str) -> bool:
    """Whether a value is an instance of a package's class, without importing the package.

    >>> from pathlib import PurePosixPath
    >>> is_a(PurePosixPath("a"), "pathlib", "PurePath")
    True
    """
    return any(
        base.__name__ == name and base.__module__.partition(".")[0] == package
        for base in type(value).__mro__
    )


def tensor_to_float64(tensor: "torch.Tensor") -> FloatArray:
    """A copy of a tensor of any type and device, also one that requires gradients, as float64."""
    # First to the CPU, as some accelerators have no float64; then to float64, as numpy has no bfloat16.
    values: FloatArray = tensor.detach().cpu().double().numpy().copy()
    return values


@contextmanager
def model_errors(inputs: Sequence[Query]) -> Iterator[None]:
    """Turn whatever a model raises over ``inputs`` into a ModelError that shows one of them."""
    try:
        yield
    except PisteError:
        raise
    except Exception as error:
        message = " ".join(str(error).split())  # one line, whatever the model had to say
        raise ModelError(
            f"The model raised {type(error).__name__}: {message} (a batch of {len(inputs)} that starts "
            f"with {abbreviated(inputs[0])}); expected scores. Ask it for that text alone to see why."
        ) from error


def abbreviated(query: Query, length: int = 60) -> str:
    """A query as one short quoted line for messages."""
    text = query.text if isinstance(query, Hidden) else query
    line = text if isinstance(text, str) else " | ".join(text)
    return repr(line if len(line) <= length else line[: length - 1] + "…")
