"""Pre-training (Devlin 2018, section 3.1): text -> pairs -> masked batch -> scores at the masked places -> loss -> step."""

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
from bothways.data.draws import Purpose, generator
from bothways.data.masking import MaskRule, mask_tokens
from bothways.data.order import by_length, fill_budget, shuffled
from bothways.data.pairs import Example, make_examples, to_batch
from bothways.data.store import TokenStore, build
from bothways.device import choose_device, choose_dtype
from bothways.errors import InputError
from bothways.model.heads import MaskedWords
from bothways.model.model import Model, initialize
from bothways.settings import Pretrain
from bothways.tasks.progress import Bar, Tell, lines
from bothways.tokenizer.tokenizer import Tokenizer
from bothways.train.loop import Plan, fit, seconds_a_step
from bothways.train.losses import Loss, class_loss, masked_lm_loss
from bothways.train.state import Run

HELD_OUT_EVERY = 20  # documents
HELD_OUT_EXAMPLES = 256
STEPS = 1000


@dataclass(frozen=True)
class Result:
    """What a run came to: its directory, the model in it, and its last held-out figures."""

    directory: Path
    model: Path
    figures: Mapping[str, Any]


def run(settings: Pretrain, tell: Tell = lines) -> Result:
    """Pre-train as told; leaves model, metrics, curves and bothways.json in the run's directory."""
    run = Run(settings.out, "pretrain", settings)
    training, heldout = split(settings)
    tokenizer = learn_or_load(settings, training, tell)
    store, unseen = (build(texts, tokenizer, language=settings.language) for texts in (training, heldout))
    tell(
        f"training text: {store.num_tokens:,} tokens in {store.num_documents:,} documents; held out: {unseen.num_tokens:,}"
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
    checkpoint.save(Checkpoint(model, tokenizer, made={**run.made, "heldout": figures}), run.directory / "model")
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


def learn_or_load(settings: Pretrain, training: Sequence[str], tell: Tell) -> Tokenizer:
    if settings.tokenizer:
        return Tokenizer.load(settings.tokenizer)
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
    heads = {"masked_words": 0, **({"next_sentence": 2} if settings.pairs == "next" else {})}
    model = Model(config, heads, pooler=True)
    initialize(model, config.initializer_range, torch.Generator().manual_seed(settings.seed))
    words = model.heads["masked_words"]
    if settings.frequency_bias and isinstance(words, MaskedWords):
        shares_V = metrics.unigram_shares(np.bincount(store.ids, minlength=len(tokenizer)))
        words.bias.data = torch.from_numpy(np.log(shares_V)).float()
    return model


def masked_batch(
    store: TokenStore, examples: Sequence[Example], rows: Sequence[int], tokenizer: Tokenizer, rule: MaskRule, seed: int, epoch: int
) -> Batch:  # fmt: skip
    batch, random_pair = to_batch(store, [examples[row] for row in rows], tokenizer)
    masked = mask_tokens(batch, rule, seed=seed, epoch=epoch, examples=np.array(rows))
    return replace(masked, labels=torch.from_numpy(random_pair))


def counts(batch: Batch) -> dict[str, int]:
    """Targets of each loss, known from the labels."""
    assert batch.masked_labels is not None
    return {"masked_lm": len(batch.masked_labels), "next_sentence": len(batch)}


def losses(model: Model, batch: Batch) -> dict[str, Loss]:
    """Masked words and next sentence, added up as in the paper."""
    assert batch.masked_places is not None and batch.masked_labels is not None and batch.labels is not None
    hidden_TH = model(batch)
    words = model.heads["masked_words"]
    assert isinstance(words, MaskedWords)
    table_VE = model.encoder.embeddings.words.weight
    found = {
        "masked_lm": masked_lm_loss(words(hidden_TH[batch.masked_places]), table_VE, words.bias, batch.masked_labels)
    }
    if "next_sentence" in model.heads:
        first_NH = hidden_TH[batch.first_tokens]
        found["next_sentence"] = class_loss(model.text_scores("next_sentence", first_NH), batch.labels)
    return found


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


class HeldOut:
    """Fixed examples with fixed masks, and what guessing by word frequency scores on the same masks."""

    def __init__(
        self, unseen: TokenStore, seen: TokenStore | None, tokenizer: Tokenizer, length: int, *, pairs: bool,
        most: int = HELD_OUT_EXAMPLES,
    ) -> None:  # fmt: skip
        pairs = pairs and unseen.num_documents > 1
        examples = make_examples(unseen, length=length, pairs=pairs, seed=0, epoch=0)
        chosen = generator(0, Purpose.HELD_OUT).permutation(len(examples))[:most].tolist()
        sizes = [example.num_tokens for example in examples]
        rule = MaskRule.of(tokenizer)
        self.pairs = pairs
        self.batches = [
            masked_batch(unseen, examples, rows, tokenizer, rule, 0, 0)
            for rows in fill_budget(by_length(chosen, sizes), sizes, 4096)
        ]
        self.unigram_perplexity = float("nan")
        if seen is not None:
            frequencies = np.bincount(seen.ids, minlength=len(tokenizer))
            targets = torch.cat([batch.masked_labels for batch in self.batches if batch.masked_labels is not None])
            self.unigram_perplexity = metrics.perplexity(metrics.unigram_loss(frequencies, targets.numpy()))

    def measure(self, model: Model) -> dict[str, Any]:
        """Loss and perplexity (exp of the mean over masked tokens) and next-sentence accuracy with its 95 % interval."""
        sums: dict[str, float] = {}
        totals: dict[str, int] = {}
        right = trials = random = 0
        device = model.encoder.embeddings.words.weight.device
        with torch.inference_mode():
            for batch in (batch.to(device) for batch in self.batches):
                for name, (value, number) in losses(model, batch).items():
                    sums[name] = sums.get(name, 0.0) + float(value)
                    totals[name] = totals.get(name, 0) + number
                if "next_sentence" in model.heads and self.pairs and batch.labels is not None:
                    scores = model.text_scores("next_sentence", model(batch)[batch.first_tokens])
                    right += int((scores.argmax(-1) == batch.labels).sum())
                    trials += len(batch)
                    random += int(batch.labels.sum())
        means = {
            name: value / max(1, totals[name]) for name, value in sums.items() if self.pairs or name == "masked_lm"
        }
        found: dict[str, Any] = {
            "loss": sum(means.values()),
            **means,
            "perplexity": metrics.perplexity(means["masked_lm"]),
        }
        if trials:
            low, high = metrics.interval(right, trials)
            found |= {"next_sentence_accuracy": right / trials, "next_sentence_interval": [low, high], "pairs": trials}
            found["chance"] = max(random, trials - random) / trials
        return found


def next_sentence_verdict(figures: Mapping[str, Any]) -> str:
    """Accuracy with its interval, called by its name while that holds 50 % (or the commoner answer's share)."""
    if "next_sentence_accuracy" not in figures:
        return "not measured (no pairs)"
    low, high = figures["next_sentence_interval"]
    verdict = " - not learned yet" if low <= max(0.5, figures["chance"]) else ""
    return f"{figures['next_sentence_accuracy']:.1%} (95 % interval {low:.1%} to {high:.1%}){verdict}"
