"""How inputs and numbers become bytes in a store: exactly, and the same everywhere."""

import json
import zlib

import numpy as np

from piste._typing import FloatArray
from piste.sampling.records import Hidden, Query, Text


def encode_query(query: Query) -> bytes:
    """A query as JSON that tells apart texts, pairs and hidden spans, and keeps every code point.

    >>> encode_query(("a", "Ärger")).decode()
    '["a","Ärger"]'
    >>> encode_query(Hidden("a b", ((0, 2, 3),)))
    b'{"text":"a b","spans":[[0,2,3]]}'
    """
    if not isinstance(query, Hidden):
        return encode_json(query)
    spans = [[int(number) for number in span] for span in query.spans]
    return encode_json({"text": query.text, "spans": spans})


def decode_query(content: bytes) -> Query:
    """The query of :func:`encode_query`.

    Raises
    ------
    ValueError
        If it is something else.
    """
    query = json.loads(decode_text(content))
    match query:
        case {"text": text, "spans": [*spans], **rest} if not rest:
            return Hidden(_text_or_pair(text), tuple(_span(span) for span in spans))
        case _:
            return _text_or_pair(query)


def _text_or_pair(content: object) -> Text:
    match content:
        case str():
            return content
        case [str(first), str(second)]:
            return first, second
        case _:
            raise ValueError(f"{content!r:.60} is neither a text nor a pair")


def _span(content: object) -> tuple[int, int, int]:
    match content:
        case [int(segment), int(start), int(end)]:
            return segment, start, end
        case _:
            raise ValueError(f"{content!r:.60} is no span")


def encode_json(content: object) -> bytes:
    """Compact JSON; not with escapes, or two lone surrogates would come back as one character."""
    return encode_text(json.dumps(content, ensure_ascii=False, separators=(",", ":")))


def encode_text(text: str) -> bytes:
    """UTF-8, lone surrogates included."""
    return text.encode("utf-8", "surrogatepass")


def decode_text(content: bytes) -> str:
    """The text of :func:`encode_text`."""
    return content.decode("utf-8", "surrogatepass")


def encode_values(values: FloatArray) -> bytes:
    """One row of numbers, little-endian, bit for bit.

    >>> decode_values(encode_values(np.array([-0.0, 5e-324]))).tolist()
    [-0.0, 5e-324]
    """
    return values.astype("<f8").tobytes()


def decode_values(content: bytes) -> FloatArray:
    """The row of :func:`encode_values`."""
    return np.frombuffer(content, "<f8").astype(np.float64)


def finite(content: bytes) -> bool:
    """Whether none of the numbers is NaN or infinite."""
    return bool(np.isfinite(decode_values(content)).all())


def checksum(*fields: bytes | str) -> int:
    """What changes when a byte of a row changes."""
    return zlib.crc32(b"".join(encode_text(each) if isinstance(each, str) else each for each in fields))
