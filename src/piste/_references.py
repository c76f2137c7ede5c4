"""What ``piste evaluate`` compares attributions with, besides the model: people, labels, words."""

from dataclasses import asdict, dataclass
from pathlib import Path

import pandas as pd

from piste._errors import InputError
from piste._inputs import Inputs, read_inputs
from piste.evaluation.agreement import lexicon_agreement, rationale_agreement
from piste.evaluation.lexicons import naive_bayes_log_odds, read_lexicon
from piste.evaluation.rationales import Rationale, marked, read_rationales


@dataclass(frozen=True)
class Asked:
    """Where the references are.

    Parameters
    ----------
    rationales, rationale_column
        A file of what people marked, or the column of the texts' file that has it.
    annotators
        Whose marks count, ``all``, ``any`` or ``majority``.
    absolute
        Whether scores are compared with marks without their sign.
    label_column
        Column with a label for each text.
    lexicon, favours
        A file of words with weights, and the target that positive weights speak for.
    """

    rationales: Path | None = None
    rationale_column: str | None = None
    annotators: str = "all"
    absolute: bool = False
    label_column: str | None = None
    lexicon: Path | None = None
    favours: str | None = None

    def plain(self) -> dict[str, object]:
        """As JSON can hold it."""
        return {
            name: str(value) if isinstance(value, Path) else value
            for name, value in asdict(self).items()
        }


@dataclass(frozen=True)
class References:
    """The texts and what is known of them; everything that can be refused has been."""

    asked: Asked
    inputs: Inputs
    marks: list[Rationale] | None

    def tables(self, attributions: pd.DataFrame, seed: int) -> list[pd.DataFrame]:
        """Agreement with each reference that was given."""
        found = []
        if self.marks is not None:
            absolute = self.asked.absolute
            found.append(rationale_agreement(attributions, self.marks, absolute=absolute, seed=seed))
        if self.asked.label_column is not None:
            labels = self.inputs.columns[self.asked.label_column]
            by_label = naive_bayes_log_odds(self.inputs.texts, labels)
            found.append(lexicon_agreement(attributions, by_label, name="naive Bayes"))
        if self.asked.lexicon is not None:
            weights = read_lexicon(self.asked.lexicon)
            name, favours = self.asked.lexicon.name, self.asked.favours
            found.append(lexicon_agreement(attributions, weights, favours=favours, name=name))
        return found


def read_references(source: str, text_column: str, id_column: str | None, asked: Asked) -> References:
    """Texts and references from their files, read and checked before the first query.

    Raises
    ------
    InputError
        If one cannot be read, or speaks of none of the texts.
    """
    if asked.favours is not None and asked.lexicon is None:
        raise InputError("Got --favours without --lexicon; expected both, or neither.")
    others = [name for name in (asked.rationale_column, asked.label_column) if name is not None]
    marks = None
    if asked.rationales is not None:
        marks = read_rationales(asked.rationales, annotators=asked.annotators)  # type: ignore[arg-type]
    if marks and asked.rationales == Path(source) and not others and marks[0].text:
        # A file of human attention maps holds the texts as well.
        inputs = Inputs([each.text for each in marks], [each.text_id for each in marks])
    else:
        inputs = read_inputs(source, text_column, id_column, others)
    if asked.rationale_column is not None:
        fields = inputs.columns[asked.rationale_column]
        marks = [marked(*each) for each in zip(inputs.text_ids, inputs.texts, fields, strict=True)]
    if marks and not {each.text_id for each in marks} & set(inputs.text_ids):
        raise InputError(
            f"Got rationales of texts such as {marks[0].text_id!r} for texts such as {inputs.text_ids[0]!r}; "
            "expected the same ids. Name the texts with --id-column."
        )
    if asked.lexicon is not None:
        read_lexicon(asked.lexicon)
    if asked.label_column is not None:
        naive_bayes_log_odds(inputs.texts, inputs.columns[asked.label_column])
    return References(asked, inputs, marks)
