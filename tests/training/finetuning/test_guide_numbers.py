"""Numbers in the guides to fine-tuning and to classes: limits and defaults as the code has them.

A constant that changes needs its sentence changed: the pair below fails, with the words that are no longer in the page.
"""

import pytest

from bothways.measure.metrics import intervals, label_errors
from bothways.model.linear import tfidf
from bothways.settings import Answer, Classify
from bothways.tasks import linear_baselines, linear_start, text_examples, texts, training_task
from bothways.tasks.batch_plan import BATCH_TOKENS, EPOCHS, USUAL_STEPS
from bothways.tasks.classify.scoring import NEGLIGIBLE, NUM_STORED
from bothways.training import step
from bothways.training.finetuning import gain, plan, scored_rows, trials
from bothways.training.finetuning.ground import budget, epochs, linear_candidates
from bothways.training.schedule import TrainingOptions
from tests.guides import missing_sentences

FINETUNING = {
    "passes over the examples: {:g} by default": EPOCHS,
    "at most {:g} |": epochs.MAX_EPOCHS,
    "a weight decay of {:g}": TrainingOptions.weight_decay,
    "gradients clipped at a norm of {:g}": step.MAX_GRADIENT_NORM,
    "saves a checkpoint every {:,} steps": Classify.checkpoint_every,
    "A step has {:,} tokens": BATCH_TOKENS,
    "fewer than {} steps (but at least": USUAL_STEPS,
    "(but at least {} tokens and": texts.TextTask.min_step_tokens,
    "tokens and {} texts)": text_examples.MIN_STEP_TEXTS,
    "only until {} steps (": texts.TextTask.min_steps,
    "steps ({} for other tasks": training_task.TrainingTask.min_steps,
    "enough for {} texts of average length": text_examples.MIN_STEP_TEXTS,
    "or {:,} tokens are reached": epochs.FEW_TOKENS,
    "more than {:g} times that before": trials.HARMFUL,
    "(after {:.0%} of the steps": trials.TRIAL_SHARE,
    "that before (after 5 % of the steps, in runs of some hundred or more), {}": trials.LOWER,
    "after {} evaluations without a better metric": Classify.patience,
    "training loss of a classifier is below {:g}": NEGLIGIBLE,
    "falls to 0 in {} of the steps so far": plan.COOLDOWN,
    "There are {} to": epochs.MIN_EVALUATIONS,
    "to {} evaluations in a run": epochs.MAX_EVALUATIONS,
    "as many as take {:.0%} of its time": epochs.EVALUATION_SHARE,
    "With fewer than {} rows, it does so by the mean loss": gain.FEW_ROWS,
    "unless the gain is at most {} a standard error": gain.DOUBT,
    "or with at most {:,} rows of texts": scored_rows.MAX_LINEAR_ROWS,
    "TF-IDF uses the {:,} most frequent n-grams": tfidf.MAX_TERMS,
    "at most {:,} training rows": tfidf.MAX_TRAIN_ROWS,
    "their frozen vectors are fitted to at most {:,} rows": texts.MAX_PAIRS,
    "no linear baseline for more than {} classes": linear_baselines.MAX_OUTPUTS,
    "pooled over at most {} windows": linear_start.MAX_WINDOWS,
    "training data has more than {:,} tokens": linear_start.FEW_TOKENS,
    "With fewer than {} units the interval is widened": intervals.FEW_UNITS,
    "With fewer than {} rows a warning is printed": intervals.FEW_ROWS,
    "a test split would have fewer than {} rows": scored_rows.MIN_TEST_ROWS,
    "this happens without `--folds`, in at most {} folds": linear_candidates.SCORE_FOLDS,
    "would take more than {:.0%} of the time": budget.OTHERS_SHARE,
    "longer than `--window` ({} tokens,": Classify.window,
    "in `answer` {} with the question": Answer.window,
    "parts of at most {:,} tokens": text_examples.MAX_TOKENS,
    "the error must exceed {:g} robust standard deviations": label_errors.OUTLIER_DEVIATIONS,
    "Of more than {0:,} rows, {0:,} random ones are judged": linear_baselines.MAX_CHECKED,
    "beyond the {} most probable classes of a row": NUM_STORED,
}
CLASSES = {
    "there are at most {:,} training pairs": texts.MAX_SEPARATE,
    "one point for each doubling of the rows of a class above {}": scored_rows.USELESS_ROWS,
    "a difference paired by row: {} points with 770 rows": round(100 * scored_rows.smallest_difference(770), 1),
    "the mean of the first {} of the layers comes first": texts.KEPT_LAYERS,
    "rows of a class, at least 4 and at most {}": linear_candidates.SCORE_FOLDS,
    "rows of a class, at least {} and at most": linear_candidates.FEWEST_FOLDS,
    "up to {} of them choose the candidate": linear_candidates.FOLDS,
    "if there is time for it in {} folds": scored_rows.TRAINED_FOLDS,
}


@pytest.mark.parametrize(("page", "numbers"), [("finetuning", FINETUNING), ("classify", CLASSES)])
def test_a_number_in_a_sentence_of_the_guide_is_that_of_the_code(page, numbers):
    assert not missing_sentences(page, numbers)
