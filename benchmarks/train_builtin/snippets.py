"""Human-rated movie-review snippets: read them, group the near copies, split them by group."""

from __future__ import annotations

import html
import io
import re
import subprocess
import sys
import tarfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np

REQUIREMENT = "vaderSentiment==3.3.2"
MOVIES = "movieReviewSnippets"
OTHER_DOMAINS = ("amazonReviewSnippets", "nytEditorialSnippets", "tweets")
LABEL_THRESHOLD = 0.5  # below this mean rating people do not agree which side a snippet is on
SHINGLE_WORDS = 4
COPY_SHARE = 0.5  # share of the shorter text's shingles that makes two snippets near copies
LONGEST_TEXT = 60  # words; the unlabelled domains hold a few run-on paragraphs


@dataclass(frozen=True)
class Snippet:
    """One text with the mean of its human ratings, from -4 (negative) to 4 (positive)."""

    rating: float
    text: str

    @property
    def label(self) -> int:
        """1 for a positive rating, 0 for a negative one."""
        return int(self.rating > 0)

    @property
    def is_clear(self) -> bool:
        """Whether the rating is far enough from zero to be used as a label."""
        return abs(self.rating) >= LABEL_THRESHOLD


@dataclass(frozen=True)
class Split:
    """Disjoint parts; near copies of one another always lie in the same part."""

    train: list[Snippet]
    validation: list[Snippet]
    test: list[Snippet]
    n_grouped: int


def fetch_sdist(folder: Path) -> Path:
    """Download the source distribution: the wheel on PyPI carries no rated text."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--no-binary", ":all:", "--dest", str(folder), REQUIREMENT]
    subprocess.run(command, check=True)
    return next(folder.glob("vader*.tar.gz"))


def read_domain(sdist: Path, domain: str) -> list[Snippet]:
    """Read one domain straight from the archive inside the archive; no text touches the disk."""
    with tarfile.open(sdist) as outer:
        name = next(n for n in outer.getnames() if n.endswith("hutto_ICWSM_2014.tar.gz"))
        inner_bytes = _member_bytes(outer, name)
    with tarfile.open(fileobj=io.BytesIO(inner_bytes)) as inner:
        content = _member_bytes(inner, f"hutto_ICWSM_2014/{domain}_GroundTruth.txt").decode()
    rows = (line.split("\t") for line in content.split("\r\n") if line)
    return [Snippet(float(rating), html.unescape(text)) for _, rating, text in rows]


def _member_bytes(archive: tarfile.TarFile, name: str) -> bytes:
    stream = archive.extractfile(name)
    if stream is None:
        raise ValueError(f"{name} is not a regular file of the archive")
    return stream.read()


def read_unlabelled(sdist: Path) -> list[str]:
    """Read texts of the other three domains; their ratings are not used."""
    texts = (s.text for domain in OTHER_DOMAINS for s in read_domain(sdist, domain))
    return [text for text in texts if 0 < len(text.split()) <= LONGEST_TEXT]


def group_near_copies(texts: Sequence[str]) -> list[list[int]]:
    """Group texts that share at least half of the shorter one's four-word shingles.

    The movie file numbers its rows 1, 2, 3, ... without naming the review or the film, so shared
    wording is the only trace by which copies and quotations can be kept on one side of the split.
    """
    shingles = [_shingles(text) for text in texts]
    holders: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for index, own in enumerate(shingles):
        for shingle in own:
            holders[shingle].append(index)
    shared = Counter(pair for found in holders.values() for pair in combinations(found, 2))
    copies = (
        pair
        for pair, count in shared.items()
        if count >= COPY_SHARE * min(len(shingles[pair[0]]), len(shingles[pair[1]]))
    )
    return _connected(len(texts), copies)


def _shingles(text: str) -> set[tuple[str, ...]]:
    words = re.findall(r"[a-z0-9]+", text.lower())
    starts = range(max(1, len(words) - SHINGLE_WORDS + 1))
    return {tuple(words[start : start + SHINGLE_WORDS]) for start in starts}


def _connected(n_items: int, pairs: Iterable[tuple[int, int]]) -> list[list[int]]:
    parent = list(range(n_items))

    def root(item: int) -> int:
        while parent[item] != item:
            item = parent[item]
        return item

    for left, right in pairs:
        low, high = sorted((root(left), root(right)))
        parent[high] = low
    groups: dict[int, list[int]] = defaultdict(list)
    for item in range(n_items):
        groups[root(item)].append(item)
    return list(groups.values())


def split_snippets(
    snippets: Sequence[Snippet], *, n_test: int, n_validation: int, rng: np.random.Generator
) -> Split:
    """Deal whole groups, in random order, to test, then validation, then training."""
    groups = group_near_copies([s.text for s in snippets])
    parts: dict[str, list[Snippet]] = {"test": [], "validation": [], "train": []}
    wanted = {"test": n_test, "validation": n_validation, "train": len(snippets)}
    for position in rng.permutation(len(groups)):
        name = next(name for name, part in parts.items() if len(part) < wanted[name])
        parts[name].extend(snippets[index] for index in groups[position])
    n_grouped = sum(len(group) for group in groups if len(group) > 1)
    return Split(n_grouped=n_grouped, **parts)
