"""Encoder families, such as BERT, RoBERTa and ModernBERT, by Hugging Face model_type; each is imported when it is used.

Code outside this folder does not depend on the name of a family.
"""

from bothways.base.io import LazyTable
from bothways.model.families.spec import FamilySpec, name_table

__all__ = ["DEFAULT_MODEL_TYPE", "FAMILIES", "FamilySpec"]

DEFAULT_MODEL_TYPE = "bert"  # for configs without model_type, as written in 2018 and 2019 (SciBERT)
FAMILIES = LazyTable[FamilySpec](
    "bothways.model.families",
    name_table(
        "bert=bert:BERT albert=albert:ALBERT distilbert=bert:DISTILBERT electra=bert:ELECTRA roberta=bert:ROBERTA"
        " xlm-roberta=bert:XLM_ROBERTA modernbert=modernbert:MODERNBERT longformer=long_texts:LONGFORMER"
        " big_bird=long_texts:BIG_BIRD deberta=deberta:DEBERTA deberta-v2=deberta:DEBERTA_V2"
        " bothways-oneway=bert:ONE_WAY"
    ),
)
