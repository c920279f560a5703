"""Published encoders, one short file a family. Nothing outside this folder knows their names."""

from bothways.variants.albert import ALBERT
from bothways.variants.bert import BERT
from bothways.variants.bigbird import BIG_BIRD
from bothways.variants.deberta import DEBERTA, DEBERTA_V2
from bothways.variants.distilbert import DISTILBERT
from bothways.variants.electra import ELECTRA
from bothways.variants.longformer import LONGFORMER
from bothways.variants.modernbert import MODERNBERT
from bothways.variants.oneway import ONE_WAY
from bothways.variants.roberta import ROBERTA, XLM_ROBERTA
from bothways.variants.variant import Variant

__all__ = ["UNNAMED", "VARIANTS", "Variant"]

UNNAMED = "bert"  # what a config with BERT's keys is of that names no type, as those of 2018 and 2019 (SciBERT)
_OTHER_ATTENTION = (MODERNBERT, LONGFORMER, BIG_BIRD, DEBERTA, DEBERTA_V2)
VARIANTS: dict[str, Variant] = {
    variant.model_type: variant
    for variant in (BERT, ALBERT, DISTILBERT, ELECTRA, ROBERTA, XLM_ROBERTA, *_OTHER_ATTENTION, ONE_WAY)
}
