"""The answers of an earlier run in the place of the model that gave them."""

from pathlib import Path

from piste.sampling.models.protocol import BlackBox


def open_stored(location: str, *, fingerprint: str | None = None) -> BlackBox:
    """Open a store as a model that asks nobody.

    Parameters
    ----------
    location
        The store's file; where it holds several models, with ``#`` and the fingerprint of one, or a part
        that only this one's has.
    fingerprint
        The same, apart from the location.

    Raises
    ------
    InputError
        If there is no such store, or it does not hold just one such model.
    """
    from piste.sampling.store import open_answers  # which is made of models itself

    if fingerprint is None and not _exists(location):
        cuts = [index for index, character in enumerate(location) if character == "#"]
        cut = next((index for index in cuts if _exists(location[:index])), None)
        if cut is not None:
            location, fingerprint = location[:cut], location[cut + 1 :]
    return open_answers(location, fingerprint=fingerprint)


def _exists(location: str) -> bool:
    return Path(location).expanduser().is_file()
