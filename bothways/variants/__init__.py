"""Published encoders, one short file a family. Nothing outside this folder knows their names."""

from bothways.variants.bert import BERT
from bothways.variants.distilbert import DISTILBERT
from bothways.variants.electra import ELECTRA
from bothways.variants.modernbert import MODERNBERT
from bothways.variants.variant import Variant

__all__ = ["VARIANTS", "Variant"]

VARIANTS: dict[str, Variant] = {variant.model_type: variant for variant in (BERT, DISTILBERT, ELECTRA, MODERNBERT)}
