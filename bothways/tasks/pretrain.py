"""Pre-training (Devlin 2018, section 3.1): text -> pairs -> masked batch -> scores at the masked places -> loss ->
step."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bothways import checkpoint, metrics, report
from bothways.batch import Batch
from bothways.checkpoint import Checkpoint
from bothways.config import SIZES
from bothways.data.corpus import documents
from bothways.data.masking import MaskRule
from bothways.data.order import by_length, fill_budget, shuffled
from bothways.data.pairs import make_examples
from bothways.data.store import TokenStore, build
from bothways.device import choose_device, choose_dtype
from bothways.errors import InputError
from bothways.model.heads import MaskedWords
from bothways.model.model import Model, initialize
from bothways.settings import Pretrain
from bothways.tasks.heldout import HeldOut
from bothways.tasks.objective import counts, losses, masked_batch
from bothways.tasks.progress import Bar, Tell, lines
from bothways.tokenizer.tokenizer import Tokenizer
from bothways.train.loop import Plan, fit, seconds_a_step
from bothways.train.state import Run

HELD_OUT_EVERY = 20  # documents
STEPS = 1000


@dataclass(frozen=True)
class Result:
    """What a run came to: its directory, the model in it, and its last held-out figures."""

    directory: Path
    model: Path
    figures: Mapping[str, Any]


def run(settings: Pretrain, tell: Tell = lines) -> Result:
    """Pre-train as told; leaves model, metrics, curves and bothways.json in the run's directory."""
    training, heldout = split(settings)
    given = Tokenizer.load(settings.tokenizer) if settings.tokenizer else None
    run = Run(settings.out, "pretrain", settings)  # only now, so that a mistyped file leaves no run behind
    tokenizer = given or learn(settings, training, tell)
    store, unseen = (build(texts, tokenizer, language=settings.language) for texts in (training, heldout))
    tell(
        f"training text: {store.num_tokens:,} tokens in {store.num_documents:,} documents; held out: "
        f"{unseen.num_tokens:,}"
    )
    model = new_model(settings, tokenizer, store)
    rule = MaskRule.of(tokenizer, settings.mask_rate)
    held = HeldOut(unseen, store, tokenizer, settings.length, pairs=settings.pairs == "next")
    device = choose_device("auto")
    plan = Plan(
        steps=settings.steps or STEPS, rate=settings.rate, warmup=settings.warmup, weight_decay=settings.weight_decay,
        evaluate_every=settings.evaluate_every, seed=settings.seed, device=device,
        dtype=choose_dtype(settings.dtype, device),
    )  # fmt: skip

    def steps(first: int) -> Iterator[Sequence[Batch]]:
        for epoch in count():
            examples = make_examples(
                store, length=settings.length, pairs=settings.pairs == "next", seed=settings.seed, epoch=epoch
            )
            sizes = [example.num_tokens for example in examples]
            order = shuffled(len(examples), seed=settings.seed, epoch=epoch).tolist()
            for rows in fill_budget(order, sizes, settings.batch_tokens):
                yield [masked_batch(store, examples, by_length(rows, sizes), tokenizer, rule, settings.seed, epoch)]

    if settings.minutes is not None and settings.steps is None:
        speed = seconds_a_step(model, losses, counts, steps, plan)
        plan = replace(plan, steps=max(1, int(settings.minutes * 60 / speed)))
        tell(f"{settings.minutes:g} minutes are {plan.steps} steps of {speed * 1000:.0f} ms")
    run.note(steps=plan.steps, parameters=sum(value.numel() for value in model.parameters()), **describe(store, unseen))
    with Bar("pre-training", plan.steps) as bar:

        def record(row: dict[str, Any]) -> None:
            run.metric(**row)
            bar.show(row)

        fit(model, losses, counts, steps, plan, evaluate=lambda: held.measure(model), record=record)
    figures = {**held.measure(model), "unigram_perplexity": held.unigram_perplexity}
    checkpoint.save(Checkpoint(model, tokenizer, made={**run.origin, "heldout": figures}), run.directory / "model")
    levels = {"unigram_perplexity": held.unigram_perplexity, "chance": 0.5}
    report.curves(run.metrics(), run.directory / "curves.png", title=f"Pre-training, {settings.model}", levels=levels)
    run.note(status="done", heldout=figures)
    return Result(run.directory, run.directory / "model", figures)


def split(settings: Pretrain) -> tuple[list[str], list[str]]:
    """Training and held-out documents: the files given for it, else every 20th document (of few, the last)."""
    found = list(documents(settings.corpus))
    if settings.heldout:
        return found, list(documents(settings.heldout))
    if len(found) == 1:
        raise InputError("the corpus is one document, so none can be held out; separate documents or give --heldout")
    every = min(HELD_OUT_EVERY, len(found))
    training = [text for number, text in enumerate(found, 1) if number % every]
    return training, found[every - 1 :: every]


def learn(settings: Pretrain, training: Sequence[str], tell: Tell) -> Tokenizer:
    tokenizer = Tokenizer.learn(training, size=settings.vocab_size)
    tokenizer.save(settings.out / "tokenizer")
    tell(f"learned a vocabulary of {len(tokenizer):,} entries")
    return tokenizer


def new_model(settings: Pretrain, tokenizer: Tokenizer, store: TokenStore) -> Model:
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
    heads = {"masked_words": 0, **({"next_sentence": 2} if settings.pairs == "next" else {})}
    model = Model(config, heads, pooler=True)
    initialize(model, config.initializer_range, torch.Generator().manual_seed(settings.seed))
    words = model.heads["masked_words"]
    if settings.frequency_bias and isinstance(words, MaskedWords):
        shares_V = metrics.unigram_shares(np.bincount(store.ids, minlength=len(tokenizer)))
        words.bias.data = torch.from_numpy(np.log(shares_V)).float()
    return model


def describe(store: TokenStore, unseen: TokenStore) -> dict[str, Any]:
    return {
        "data": {
            "train": {"documents": store.num_documents, "tokens": store.num_tokens, "fingerprint": store.fingerprint},
            "heldout": {
                "documents": unseen.num_documents,
                "tokens": unseen.num_tokens,
                "fingerprint": unseen.fingerprint,
            },
        }
    }
