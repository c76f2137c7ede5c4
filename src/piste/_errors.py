"""Every error that piste raises on purpose, and its one warning.

PisteError
├── InputError    the caller's text, option or file cannot be used   (command line: exit code 2)
└── ModelError    the model failed or broke its output contract      (command line: exit code 1)

Each message says what was got, what was expected and what to do next.
"""


class PisteError(Exception):
    """Base of all errors that piste raises on purpose."""


class PisteWarning(UserWarning):
    """Something about the result that a reader should know; the table and the meta file say it too."""


class InputError(PisteError, ValueError):
    """A text, option or file cannot be used as given."""


class ModelError(PisteError, RuntimeError):
    """The model raised, or its answer does not meet the output contract."""
