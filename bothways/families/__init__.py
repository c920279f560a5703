"""Published encoders, one short file a family. Nothing outside this folder knows their names."""

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
from bothways.families.spec import Variant

__all__ = ["UNNAMED", "VARIANTS", "Variant"]

UNNAMED = "bert"  # what a config with BERT's keys is of that names no type, as those of 2018 and 2019 (SciBERT)
_OTHER_ATTENTION = (MODERNBERT, LONGFORMER, BIG_BIRD, DEBERTA, DEBERTA_V2)
VARIANTS: dict[str, Variant] = {
    variant.model_type: variant
    for variant in (BERT, ALBERT, DISTILBERT, ELECTRA, ROBERTA, XLM_ROBERTA, *_OTHER_ATTENTION, ONE_WAY)
}
