"""Encoder families, such as BERT, RoBERTa and ModernBERT, by Hugging Face model_type; one file each.

Code outside this folder does not depend on the name of a family.
"""

from bothways.families.albert import ALBERT
from bothways.families.bert import BERT
from bothways.families.bigbird import BIG_BIRD
from bothways.families.deberta import DEBERTA, DEBERTA_V2
from bothways.families.distilbert import DISTILBERT
from bothways.families.electra import ELECTRA
from bothways.families.longformer import LONGFORMER
from bothways.families.modernbert import MODERNBERT
from bothways.families.one_way import ONE_WAY
from bothways.families.roberta import ROBERTA, XLM_ROBERTA
from bothways.families.spec import FamilySpec

__all__ = ["DEFAULT_MODEL_TYPE", "FAMILIES", "FamilySpec"]

DEFAULT_MODEL_TYPE = "bert"  # for configs without model_type, as written in 2018 and 2019 (SciBERT)
_OTHER_ATTENTION = (MODERNBERT, LONGFORMER, BIG_BIRD, DEBERTA, DEBERTA_V2)
FAMILIES: dict[str, FamilySpec] = {
    family.model_type: family
    for family in (BERT, ALBERT, DISTILBERT, ELECTRA, ROBERTA, XLM_ROBERTA, *_OTHER_ATTENTION, ONE_WAY)
}
