"""What the fits say and how far they can be trusted: attributions, fidelity, faithfulness, agreement."""

from piste.evaluation.agreement import lexicon_agreement, method_agreement, rationale_agreement
from piste.evaluation.baselines import with_baselines
from piste.evaluation.compare import Comparison, compare
from piste.evaluation.corpus import token_table
from piste.evaluation.explanations import read_attributions
from piste.evaluation.faithfulness import faithfulness
from piste.evaluation.fidelity_tables import FidelityStudy
from piste.evaluation.held_out import fidelity_study
from piste.evaluation.lexicons import naive_bayes_log_odds, read_lexicon
from piste.evaluation.rationales import Rationale, read_rationales
from piste.evaluation.scorecard import Scorecard
from piste.evaluation.stability import stability
from piste.evaluation.summaries import summary
from piste.evaluation.tasks import TASKS

__all__ = [
    "TASKS",
    "Comparison",
    "FidelityStudy",
    "Rationale",
    "Scorecard",
    "compare",
    "faithfulness",
    "fidelity_study",
    "lexicon_agreement",
    "method_agreement",
    "naive_bayes_log_odds",
    "rationale_agreement",
    "read_attributions",
    "read_lexicon",
    "read_rationales",
    "stability",
    "summary",
    "token_table",
    "with_baselines",
]
