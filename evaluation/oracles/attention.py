"""A single attention layer in closed form: forward pass, gradient, attention scores.

Legend: per head, ``q = W_q e_cls``, ``k_t = W_k e_t``, ``u_t = w_l . W_v e_t`` (the score that position t
speaks for) and ``g_t = exp(q . k_t / sqrt(d))``; then ``alpha_t = g_t / sum g`` and ``f = sum alpha_t u_t``,
averaged over the heads. ``e_t`` is the embedding of the word plus that of its position. The query never
changes, as cls stands first, so that ``log g_t`` and ``u_t`` are sums of a part of the word and a part of
the position: a table of each is all that a forward pass needs.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np

from piste._errors import InputError
from piste._typing import FloatArray, IntArray
from piste.evaluation.oracles.lime_limit import LimitParts, lime_limit
from piste.evaluation.oracles.records import Known, Oracle, enumerated_truth
from piste.sampling.models.callable import CallableModel
from piste.sampling.models.protocol import BlackBox
from piste.surrogates.lime import Lime

UNKNOWN = "UNK"
"""What masks a word: any word that the vocabulary lacks would do."""


@dataclass(frozen=True, eq=False)
class AttentionWeights:
    """Parameters of the classifier, float64, without biases.

    Parameters
    ----------
    embedding
        Shape (n_tokens, width): row 0 is cls, row 1 the unknown word.
    query, key
        Shape (n_heads, n_attention, width).
    value
        Shape (n_heads, n_values, width).
    readout
        Shape (n_heads, n_values): the explained class's row of the last layer.
    """

    embedding: FloatArray
    query: FloatArray
    key: FloatArray
    value: FloatArray
    readout: FloatArray

    def __post_init__(self) -> None:
        width = self.embedding.shape[1]
        n_heads, n_values = self.readout.shape
        expected = {
            "query": self.key.shape,
            "key": (n_heads, self.query.shape[1], width),
            "value": (n_heads, n_values, width),
        }
        for name, shape in expected.items():
            if getattr(self, name).shape != shape:
                raise InputError(
                    f"Got {name} of shape {getattr(self, name).shape}; expected {shape}, to fit the other "
                    "weights."
                )


def random_weights(
    n_tokens: int,
    *,
    n_heads: int = 6,
    width: int = 128,
    head_width: int = 64,
    sharpness: float = 1.0,
    seed: int = 0,
) -> AttentionWeights:
    r"""Seeded weights with the variances of torch's default layers.

    Embeddings are standard normal, matrices uniform on :math:`\pm 1 / \sqrt{n_{in}}`; ``sharpness``
    multiplies the queries, and with them the log attention. The default sizes are those of the source.
    """
    rng = np.random.default_rng(seed)

    def layer(n_out: int, n_in: int) -> FloatArray:
        matrices: FloatArray = rng.uniform(-1.0, 1.0, (n_heads, n_out, n_in)) / np.sqrt(n_in)
        return matrices

    return AttentionWeights(
        embedding=rng.standard_normal((n_tokens, width)),
        query=sharpness * layer(head_width, width),
        key=layer(head_width, width),
        value=layer(head_width, width),
        readout=layer(1, head_width)[:, 0],
    )


def sinusoidal_positions(length: int, width: int) -> FloatArray:
    r"""Position embeddings (length, width): :math:`\sin, \cos (t / 10000^{2 i / \text{width}})` in turn.

    References
    ----------
    Vaswani et al. (2017), Attention Is All You Need, arXiv:1706.03762.

    Examples
    --------
    >>> sinusoidal_positions(2, 4).round(3).tolist()
    [[0.0, 1.0, 0.0, 1.0], [0.841, 0.54, 0.01, 1.0]]
    """
    angles = np.arange(length)[:, None] / 10000.0 ** (np.arange(0, width, 2) / width)
    positions = np.empty((length, width))
    positions[:, 0::2], positions[:, 1::2] = np.sin(angles), np.cos(angles[:, : width // 2])
    return positions


@dataclass(frozen=True, eq=False)
class AttentionClassifier:
    r"""One layer of multi-head attention, read out at cls.

    .. math::

        f(x) = \frac1K \sum_{h} w_l^{(h)} \sum_t \alpha_t^{(h)} W_v^{(h)} e_t, \qquad
        \alpha_t^{(h)} \propto \exp(q^{(h)} \cdot W_k^{(h)} e_t / \sqrt{d})

    No bias, residual or layer norm. A text is split at white space; words that the vocabulary lacks are
    the unknown word ``UNK``.

    Parameters
    ----------
    words
        The vocabulary: word i has row i + 2 of the embedding.
    weights
        The parameters.
    length
        Texts are filled up to this many positions (cls included) with unknown words, which are attended
        to as any other, and cut there; None takes texts as they come.

    References
    ----------
    Lopardo, Precioso & Garreau (2024), Attention Meets Post-hoc Interpretability, arXiv:2402.03485.

    Examples
    --------
    >>> model = AttentionClassifier(("good", "bad"), random_weights(4, seed=1), length=8)
    >>> float(model.attention("good film").sum(axis=1).round(12)[0])
    1.0
    >>> bool(model(["good film"])[0] == model(["good UNK UNK"])[0])
    True
    """

    words: tuple[str, ...]
    weights: AttentionWeights
    length: int | None = None

    def __post_init__(self) -> None:
        if len(self.weights.embedding) != len(self.words) + 2:
            raise InputError(
                f"Got {len(self.weights.embedding)} embeddings for {len(self.words)} words; expected two "
                "more, of cls and the unknown word."
            )

    def __call__(self, texts: Sequence[str]) -> FloatArray:
        """Scores of texts, shape (n_texts,), log-odds."""
        tokens = [self.tokens(text) for text in texts]
        scores = np.empty(len(texts))
        lengths = np.array([len(row) for row in tokens], dtype=np.int64)
        for length in np.unique(lengths):
            rows = np.flatnonzero(lengths == length)
            scores[rows] = self._scores(np.stack([tokens[row] for row in rows]))
        return scores

    def tokens(self, text: str) -> IntArray:
        """Rows of the embedding, shape (length,): cls, the words, and what they are filled up with."""
        found = [0, *(self._index.get(word, 1) for word in text.split())]
        if self.length is not None:
            found = (found + [1] * self.length)[: self.length]
        return np.array(found, dtype=np.int64)

    def attention(self, text: str) -> FloatArray:
        """Attention of cls, shape (n_heads, length); each row adds up to 1."""
        return _softmax(self._parts(self.tokens(text))[0])

    def mean_attention(self, text: str) -> FloatArray:
        """``alpha-avg``: attention averaged over the heads, shape (length,)."""
        mean: FloatArray = self.attention(text).mean(axis=0)
        return mean

    def max_attention(self, text: str) -> FloatArray:
        """``alpha-max``: the largest attention of any head, shape (length,)."""
        largest: FloatArray = self.attention(text).max(axis=0)
        return largest

    def embedded(self, text: str) -> FloatArray:
        """``e_t``, word plus position, shape (length, width)."""
        tokens = self.tokens(text)
        return self.weights.embedding[tokens] + self._positions(len(tokens))

    def gradient(self, text: str) -> FloatArray:
        r"""Gradient of the score with respect to each ``e_t``, shape (length, width), in closed form.

        .. math::

            \frac{\partial f}{\partial e_t} = \frac1K \sum_h \alpha_t
            \left[\frac{W_k^\top q}{\sqrt d} (u_t - f_h) + W_v^\top w_l\right], \qquad t \neq \text{cls}

        and for cls in addition the way through the query,
        :math:`\frac{1}{\sqrt d} W_q^\top \sum_s \alpha_s (u_s - f_h) k_s`, which the released code of
        the source leaves out.
        """
        weights, e = self.weights, self.embedded(text)
        root, n_heads = np.sqrt(weights.key.shape[1]), len(weights.readout)
        k = np.einsum("haw,tw->hta", weights.key, e)
        q = weights.query @ e[0]
        u = np.einsum("hv,hvw,tw->ht", weights.readout, weights.value, e)
        alpha = _softmax(np.einsum("ha,hta->ht", q, k) / root)
        pull = alpha * (u - (alpha * u).sum(axis=1, keepdims=True))
        by_key = np.einsum("ha,haw->hw", q, weights.key) / root
        by_value = np.einsum("hv,hvw->hw", weights.readout, weights.value)
        gradient = pull.T @ by_key + alpha.T @ by_value
        gradient[0] += np.einsum("haw,hta,ht->w", weights.query, k, pull) / root
        mean: FloatArray = gradient / n_heads
        return mean

    def limit_parts(self, text: str) -> LimitParts:
        """What the limit of LIME depends on: attention and scores of words and of their masks."""
        tokens = self.tokens(text)
        at = np.arange(1, 1 + len(text.split()))
        if len(at) == 0 or at[-1] >= len(tokens) or len(np.unique(tokens[at])) < len(at):
            raise InputError(
                f"Got a text of {len(at)} words; expected at least one, all different and known, within "
                f"the length {self.length}: the limit holds for those."
            )
        masked = tokens.copy()
        masked[at] = 1
        (log_g, u), (log_h, u_h) = self._parts(tokens), self._parts(masked)
        rest = np.setdiff1d(np.arange(len(tokens)), at)
        top = np.maximum(log_g, log_h).max(axis=1, keepdims=True)
        g, h = np.exp(log_g - top), np.exp(log_h - top)
        return LimitParts(
            g[:, at],
            u[:, at],
            h[:, at],
            u_h[:, at],
            g[:, rest].sum(axis=1),
            (g * u)[:, rest].sum(axis=1),
        )

    def black_box(self, name: str = "attention") -> BlackBox:
        """The classifier as a model with one log-odds output."""
        digest = hashlib.sha256(repr((self.words, self.length)).encode())
        for parameters in fields(self.weights):
            digest.update(getattr(self.weights, parameters.name).tobytes())
        fingerprint = f"oracle:{name}:{digest.hexdigest()[:16]}"
        return CallableModel(self, kind="logit", fingerprint=fingerprint)

    def _scores(self, tokens: IntArray) -> FloatArray:
        """Scores of tokens (n_texts, length)."""
        log_g, u = self._parts(tokens)
        alpha = _softmax(log_g)
        scores: FloatArray = (alpha * u).sum(axis=-1).mean(axis=0)
        return scores

    def _parts(self, tokens: IntArray) -> tuple[FloatArray, FloatArray]:
        """``log g`` and ``u`` of tokens (..., length), each of shape (n_heads, ..., length)."""
        to_log_g, to_u = self._maps
        positions = self._positions(tokens.shape[-1])
        word_g, word_u = self._tables
        shape = (len(to_u), *(1,) * (tokens.ndim - 1), tokens.shape[-1])
        log_g = word_g[:, tokens] + (to_log_g @ positions.T).reshape(shape)
        return log_g, word_u[:, tokens] + (to_u @ positions.T).reshape(shape)

    @cached_property
    def _maps(self) -> tuple[FloatArray, FloatArray]:
        """From an embedding to ``log g`` and to ``u``, each of shape (n_heads, width)."""
        weights = self.weights
        q = weights.query @ (weights.embedding[0] + self._positions(1)[0])
        to_log_g = np.einsum("ha,haw->hw", q, weights.key) / np.sqrt(weights.key.shape[1])
        return to_log_g, np.einsum("hv,hvw->hw", weights.readout, weights.value)

    @cached_property
    def _tables(self) -> tuple[FloatArray, FloatArray]:
        """The words' parts of ``log g`` and ``u``, each of shape (n_heads, n_tokens)."""
        to_log_g, to_u = self._maps
        return to_log_g @ self.weights.embedding.T, to_u @ self.weights.embedding.T

    @cached_property
    def _index(self) -> dict[str, int]:
        return {word: row for row, word in enumerate(self.words, start=2)}

    def _positions(self, length: int) -> FloatArray:
        return sinusoidal_positions(length, self.weights.embedding.shape[1])


def attention_oracle(
    texts: Sequence[str],
    *,
    weights: AttentionWeights | None = None,
    length: int | None = None,
    seed: int = 0,
    name: str = "attention",
) -> Oracle:
    """The attention classifier on short texts, masked by the unknown word; Shapley values enumerated.

    Parameters
    ----------
    texts
        At most 12 words each.
    weights
        Of a classifier for the texts' different words in order of appearance; seeded ones by default.
    length
        As for `AttentionClassifier`.

    Examples
    --------
    >>> oracle = attention_oracle(["a gripping film"], seed=1)
    >>> full, empty = oracle.model.score(["a gripping film", "UNK UNK UNK"]).values[:, 0]
    >>> bool(abs(oracle.truth[0].answers[0].sum() - (full - empty)) < 1e-12)
    True
    """
    model = _classifier(texts, weights, length, seed).black_box(name)
    truth = enumerated_truth(model, texts, UNKNOWN)
    return Oracle(name, model, tuple(texts), truth, masking=UNKNOWN)


def lime_limit_oracle(
    texts: Sequence[str],
    *,
    weights: AttentionWeights | None = None,
    length: int | None = None,
    seed: int = 0,
    name: str = "lime-limit",
) -> Oracle:
    """The attention classifier on long texts of different words; LIME's limit is known.

    ``lime`` stands for LIME without a kernel, fitted to masks of uniform size: that is what the limit is
    of. A fit is compared with it within 5 %, for which 100 words and 5,000 masks are enough.

    Parameters
    ----------
    texts, weights, length
        As for `attention_oracle`, but each text any number of words, all different.
    """
    model = _classifier(texts, weights, length, seed)
    limits = tuple(lime_limit(model.limit_parts(text)) for text in texts)
    return Oracle(
        name,
        model.black_box(name),
        tuple(texts),
        (Known("lime", "coefficient", limits, "limit", tolerance=0.05),),
        masking=UNKNOWN,
        design="uniform-size",
        estimators={"lime": Lime(kernel_width=None)},
    )


def _classifier(
    texts: Sequence[str], weights: AttentionWeights | None, length: int | None, seed: int
) -> AttentionClassifier:
    words = tuple(dict.fromkeys(word for text in texts for word in text.split()))
    return AttentionClassifier(words, weights or random_weights(len(words) + 2, seed=seed), length)


def _softmax(logits: FloatArray) -> FloatArray:
    """Weights that add up to 1 over the last axis."""
    g = np.exp(logits - logits.max(axis=-1, keepdims=True))
    shares: FloatArray = g / g.sum(axis=-1, keepdims=True)
    return shares
