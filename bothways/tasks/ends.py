"""How a pre-training run begins and ends: its plan and model, new or going on with new text (Gururangan 2020); its
figures, picture and checkpoint."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from bothways import checkpoint, metrics, report
from bothways.checkpoint import Checkpoint
from bothways.config import SIZES
from bothways.data.masking import rate_at
from bothways.data.order import Order, ahead
from bothways.device import choose_device, choose_dtype, keep_memory
from bothways.errors import InputError
from bothways.model.heads import MaskedWords
from bothways.model.model import Model, initialize
from bothways.settings import Pretrain
from bothways.tasks.heldout import HeldOut
from bothways.tasks.progress import Tell
from bothways.tasks.text import Text
from bothways.tokenizer.tokenizer import Tokenizer
from bothways.train.checkpoints import Checkpoints, Saved
from bothways.train.loop import Steps
from bothways.train.parallel import Processes
from bothways.train.plan import Plan
from bothways.train.state import Run
from bothways.variants import VARIANTS

STEPS = 1000


def new_model(settings: Pretrain, text: Text) -> Checkpoint:
    """A new BERT for the text's vocabulary."""
    tokenizer = text.tokenizer
    config = SIZES[settings.model].changed(
        vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_id,
        hidden_dropout_prob=settings.dropout, attention_probs_dropout_prob=settings.dropout,
        initializer_range=settings.init,
    )  # fmt: skip
    if settings.length > config.max_position_embeddings:
        raise InputError(
            f"length ({settings.length}) is more than the {config.max_position_embeddings} positions of BERT"
        )
    config = config.changed(max_position_embeddings=settings.length)  # what it never saw, it cannot read
    model = Model(config, heads_of(settings), pooler=True)
    initialize(model, config.initializer_range, torch.Generator().manual_seed(settings.seed))
    if settings.frequency_bias:
        begin_at_frequencies(model, text.frequencies)
    return Checkpoint(model, tokenizer)


def heads_of(settings: Pretrain) -> dict[str, int]:
    return {"masked_words": 0, **({"next_sentence": 2} if settings.pairs != "none" else {})}


def begin_at_frequencies(model: Model, frequencies: np.ndarray) -> None:
    """Each word as likely as it is frequent, instead of learning that first."""
    words = model.heads["masked_words"]
    assert isinstance(words, MaskedWords)
    rest = len(words.bias) - len(frequencies)  # rows of a padded vocabulary, which no text holds
    words.bias.data = torch.from_numpy(np.log(metrics.unigram_shares(np.pad(frequencies, (0, rest))))).float()


def goes_on(settings: Pretrain, found: Checkpoint, text: Text, tell: Tell) -> Checkpoint:
    """The model of a checkpoint with the heads that pre-training needs, and a row for each entry of the tokenizer.

    Heads it lacks begin anew and are named. InputError where the family has no such heads, or reads shorter texts.
    """
    old, heads, tokenizer = found.model, heads_of(settings), text.tokenizer
    checkpoint.refuse_int8(old)
    if frozenset(heads) not in VARIANTS[found.model_type].architectures:
        raise InputError(f"{settings.start}: {found.model_type} has no sentence pairs; use --pairs none")
    if settings.length > old.config.max_position_embeddings:
        raise InputError(
            f"length ({settings.length}) is more than the {old.config.max_position_embeddings} positions of "
            f"{settings.start}"
        )
    config = old.config.changed(
        vocab_size=max(len(tokenizer), old.config.vocab_size), hidden_dropout_prob=settings.dropout,
        attention_probs_dropout_prob=settings.dropout,
    )  # fmt: skip
    model = Model(config, heads, pooler=old.pooler is not None or "next_sentence" in heads)
    initialize(model, config.initializer_range, torch.Generator().manual_seed(settings.seed))
    state, kept = model.state_dict(), old.state_dict()
    for name in state.keys() & kept.keys():
        state[name][: len(kept[name])] = kept[name]  # all of it, but of a longer vocabulary the old entries
    if new := sorted({".".join(name.split(".")[:2]) for name in state.keys() - kept.keys()}):
        tell(f"new, to be trained: {', '.join(new)}")
    if settings.frequency_bias and "masked_words" not in old.heads:
        begin_at_frequencies(model, text.frequencies)
    _fill_new_rows(model, found.tokenizer or tokenizer, tokenizer)
    return replace(found, model=model, tokenizer=tokenizer, labels=(), pooling=None, made={})


def _fill_new_rows(model: Model, old: Tokenizer, new: Tokenizer) -> None:
    """A new entry begins as the mean of the pieces it was read as before."""
    words = model.heads["masked_words"]
    assert isinstance(words, MaskedWords)
    with torch.no_grad():
        for token in new.tokens[len(old) :]:
            pieces = old.ids(token)
            for values in (model.encoder.embeddings.words.weight, words.bias):
                values[new.vocab[token]] = values[pieces].mean(0)


def plan_of(settings: Pretrain, processes: Processes) -> Plan:
    device = processes.device(choose_device("auto"))
    if device.type == "cpu":
        keep_memory()
    elif settings.deterministic:
        torch.use_deterministic_algorithms(True)
    return Plan(
        steps=settings.steps or STEPS, rate=settings.rate, schedule=settings.schedule, warmup=settings.warmup,
        decay=settings.decay, weight_decay=settings.weight_decay, muon_rate=settings.muon_rate, clip=settings.clip,
        evaluate_every=settings.evaluate_every, checkpoint_every=settings.checkpoint_every, seed=settings.seed,
        device=device, dtype=choose_dtype(settings.dtype, device), shard=settings.shard,
        rehearse=settings.compile,
    )  # fmt: skip


def waiting_for_none(steps: Steps, plan: Plan) -> Steps:
    """The same steps, made ahead where a GPU computes; a processor has no core to spare for it."""
    return steps if plan.device.type == "cpu" else lambda first: ahead(steps(first))


def num_steps(settings: Pretrain, run: Run, processes: Processes, timed: Callable[[], float], tell: Tell) -> int:
    """The steps asked for, or those the run was begun with if that is more; else as many as fill the minutes, by the
    seconds that one takes."""
    begun_with: int = processes.share(run.made.get("steps", 0))
    known = max(settings.steps or 0, begun_with)
    if known or not settings.minutes:
        return known or STEPS
    speed = timed()
    number = max(1, int(settings.minutes * 60 / speed))
    tell(f"{settings.minutes:g} minutes are {number} steps of {speed * 1000:.0f} ms")
    return number


def mask_rate_at(step: int, settings: Pretrain, plan: Plan) -> float:
    """The share of tokens to hide at a step."""
    end = settings.mask_rate if settings.mask_rate_end is None else settings.mask_rate_end
    return rate_at(step, steps=plan.steps, start=settings.mask_rate, end=end)


def going_on(
    settings: Pretrain, text: Text, order: Order, run: Run, processes: Processes, tell: Tell
) -> tuple[Checkpoints, Saved | None]:
    """The run's checkpoints, and the one to go on from, to whose step the metrics are cut back."""
    read = {"text": text.store.fingerprint, "heldout": text.unseen.fingerprint}
    checkpoints = Checkpoints(run.directory, keep=settings.keep, order=read, processes=processes, memo=order.counts)
    start = checkpoints.newest_sound(tell) if settings.resume else None
    if start:
        order.counts[:] = start.facts["memo"]
    run.cut_back(start.progress.step if start else 0)
    return checkpoints, start


def held_out_of(settings: Pretrain, text: Text) -> HeldOut:
    return HeldOut(
        text.unseen, text.heldout, text.tokenizer, settings.length, pairs=settings.pairs,
        frequencies=text.frequencies, most=settings.heldout_examples,
    )  # fmt: skip


def finish(settings: Pretrain, ended: Checkpoint, held: HeldOut, run: Run) -> dict[str, Any]:
    """Measure and save the model, draw the curves, note the figures; nothing in a process that does not lead."""
    if not run.leads:
        return {}
    figures = {**held.measure(ended.model), "unigram_perplexity": held.unigram_perplexity}
    checkpoint.save(replace(ended, made={**run.origin, "heldout": figures}), run.directory / "model")
    levels: dict[str, float] = {name: figures[name] for name in ("unigram_perplexity", "chance") if name in figures}
    title = f"Pre-training, {settings.start.name if settings.start else settings.model}"
    report.curves(run.metrics(), run.directory / "curves.png", title=title, levels=levels)
    run.note(heldout=figures)
    return figures
