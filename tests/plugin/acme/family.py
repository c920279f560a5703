"""A family: BERT's layout under another model_type."""

from dataclasses import replace

from bothways.model.families.bert import BERT

ACME_BERT = replace(BERT, model_type="acme-bert")
