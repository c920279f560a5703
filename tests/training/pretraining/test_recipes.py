"""Defaults of pre-training, and the warning for a run on the plateau."""

from dataclasses import replace
from pathlib import Path

import pytest

from bothways.base.errors import InputError
from bothways.base.log import messages_to
from bothways.model.config import SIZES
from bothways.model.families import FAMILIES
from bothways.settings import Pretrain
from bothways.training.pretraining import result
from bothways.training.pretraining.recipes import complete_settings, with_family
from bothways.training.schedule import TrainingOptions

PLAIN = Pretrain(corpus=(Path("text.txt"),), out=Path("run"))
MANY = 10**9  # tokens of text


@pytest.mark.parametrize(
    ("options", "family"),
    [
        ({}, "modernbert"),
        ({"recipe": "paper"}, "bert"),
        ({"pairs": "next"}, "bert"),
        ({"objective": "replaced"}, "electra"),
        ({"objective": "forward"}, "bert"),
        ({"family": "roberta"}, "roberta"),
        ({"from_checkpoint": Path("model")}, None),
    ],
)
def test_a_new_model_is_of_the_family_that_learns_fastest_unless_the_task_needs_another(options, family):
    assert with_family(replace(PLAIN, **options)).family == family


def recipe(tokens=MANY, family="modernbert", **options):
    settings = replace(PLAIN, family=family, objective="masked", pairs="none", **options)
    return complete_settings(settings, FAMILIES[family].new_config(SIZES[settings.model]), tokens)


def test_explicit_settings_are_kept_even_if_they_are_zero():
    kept = {"learning_rate": 0.0, "warmup": 0.0, "dropout": 0.0, "mask_rate": 0.2}
    made = recipe(tokens=10, **kept)
    assert {name: getattr(made, name) for name in kept} == kept
    assert made.word_vectors is made.local_init is True and made.beta2 == 0.98


def test_wider_models_and_norms_behind_learn_more_slowly():
    mini, base, post = recipe().learning_rate, recipe(model="base").learning_rate, recipe(family="bert").learning_rate
    assert mini == 2e-3 and 7e-4 < base < 1e-3 and post == 1e-3


def test_dropout_is_used_for_many_passes_over_the_text():
    assert recipe(tokens=2_000_000, steps=1000).dropout == 0
    assert recipe(tokens=500_000, steps=1000).dropout == 0.1
    assert recipe(tokens=30_000_000, minutes=60).dropout == 0
    assert recipe(tokens=500_000, minutes=20).dropout == 0.1
    assert recipe(tokens=1_200_000, minutes=1.3, model="tiny").dropout == 0  # the demo: less than two passes


def test_the_papers_recipe_is_berts_own():
    made = recipe(family="bert", recipe="paper")
    assert (made.learning_rate, made.warmup, made.mask_rate, made.dropout, made.beta2) == (1e-4, 0.01, 0.15, 0.1, 0.999)
    assert not made.local_init and not made.word_vectors


class Held:
    unigram_perplexity = 500.0


@pytest.mark.parametrize(("perplexity", "warns"), [(480.0, True), (150.0, False)])
def test_a_run_on_the_plateau_warns_once(perplexity, warns):
    messages, rows = [], []
    watch = result.warn_on_plateau(rows.append, Held(), TrainingOptions(steps=100, learning_rate=1e-3), None)
    with messages_to(messages.append):
        for step in (5, 10, 20):
            watch({"split": "train", "step": step})
            watch({"split": "heldout", "step": step, "perplexity": perplexity})
    assert len(rows) == 6
    assert len(messages) == warns
    assert not warns or ("step 10" in messages[0] and "500" in messages[0])


def test_a_family_with_from_is_refused():
    with pytest.raises(InputError, match="bert"):
        replace(PLAIN, from_checkpoint=Path("model"), family="bert")
