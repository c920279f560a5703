"""Encoder families, such as BERT, RoBERTa and ModernBERT, by Hugging Face model_type; each is imported when it is used.

Code outside this folder does not depend on the name of a family.
"""

from bothways.base.registry import Registry
from bothways.model.families.spec import FamilySpec

__all__ = ["DEFAULT_MODEL_TYPE", "FAMILIES", "FamilySpec"]

DEFAULT_MODEL_TYPE = "bert"  # for configs without model_type, as written in 2018 and 2019 (SciBERT)
FAMILIES = Registry[FamilySpec](
    "family",
    "bothways.families",
    {
        "bert": "bothways.model.families.bert:BERT",
        "albert": "bothways.model.families.albert:ALBERT",
        "distilbert": "bothways.model.families.bert:DISTILBERT",
        "electra": "bothways.model.families.bert:ELECTRA",
        "roberta": "bothways.model.families.bert:ROBERTA",
        "xlm-roberta": "bothways.model.families.bert:XLM_ROBERTA",
        "modernbert": "bothways.model.families.modernbert:MODERNBERT",
        "longformer": "bothways.model.families.long_texts:LONGFORMER",
        "big_bird": "bothways.model.families.long_texts:BIG_BIRD",
        "deberta": "bothways.model.families.deberta:DEBERTA",
        "deberta-v2": "bothways.model.families.deberta:DEBERTA_V2",
        "bothways-oneway": "bothways.model.families.bert:ONE_WAY",
        "static": "bothways.model.families.static:STATIC",
    },
)
