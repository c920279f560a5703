"""Numbers in the guides to smaller models and to production: limits and defaults as the code has them."""

import pytest

from bothways.evaluation import before_after
from bothways.inference import active_learning
from bothways.inference.jobs import blocks
from bothways.model import int8_training
from bothways.settings import Export
from bothways.shrink import prune, quantize
from bothways.shrink.export import graph
from bothways.training.finetuning import time_left, training
from tests.guides import missing_sentences

NUMBERS = {
    "smaller": {
        "without training | texts, labelled or not: at least {}": 2 * quantize.MIN_TEXTS,
        "measured on {} labelled texts": prune.IMPORTANCE_ROWS,
        "trained on for {} of the steps": time_left.INT8_SHARE,
        "at {} of the learning rate": training.INT8_RATE,
        "Scales come from {} training examples": int8_training.CALIBRATION_EXAMPLES,
    },
    "serving": {
        "half of your texts (at least {} in all)": 2 * quantize.MIN_TEXTS,
        "(default: {} percentage points": before_after.DEFAULT_MAX_DROP,
        "for vectors, a mean cosine below {:g})": 1 - before_after.DEFAULT_MAX_DROP / 100,
        "`model.onnx` (opset {},": graph.OPSET,
        "`--tolerance` ({})": "1e-4" if Export.tolerance == 1e-4 else Export.tolerance,
        "blocks of {} KiB of text": blocks.BYTES >> 10,
        "(at most {:,} rows)": blocks.ROWS,
    },
    "labelling": {"Of the {} times as many most uncertain texts": active_learning.BETA},
}


@pytest.mark.parametrize("page", NUMBERS)
def test_a_number_in_a_sentence_of_the_guide_is_that_of_the_code(page):
    assert not missing_sentences(page, NUMBERS[page])
