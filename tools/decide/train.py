"""Train the adapter and the head of statements on examples, on a CPU; the encoder stays as it is.

A run is resumed from its folder: `state.pt` has the weights, the optimizer and the place among the examples.
"""

import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bothways.model.checkpoint.contents import Checkpoint
from bothways.model.statements import StatementModel, StatementTensors, read_statements
from bothways.text.statements import StatementBatch
from tools.decide.rules import Example

RANK = 16
RATE = 1e-3  # peak learning rate of the adapter
HEAD_RATE = 1e-2  # of scale and bias
GATE_RATE = 5e-2
WARM_UP = 40  # steps
TEXTS = 16  # of a step
POOL = 32  # steps whose examples are sorted by length together
TEXT_TOKENS, STATEMENT_TOKENS = 150, 40
CHOICE_WEIGHT = 0.4  # of the loss of choices, beside that of each statement
HELD_OUT = 500  # examples
KEPT = 0.95  # of held-out texts with a right option, which are not to be "none of these"
FEWEST_KEPT = 20  # texts of a kind, of which such a share can be told
SAVED_SECONDS = 120
STATE = "state.pt"


class Trainer:
    """A training run of a number of steps."""

    def __init__(self, checkpoint: Checkpoint, examples: Sequence[Example], folder: Path, steps: int) -> None:
        self.encoder = checkpoint.model.encoder.float().eval().requires_grad_(False)
        self.tokenizer = checkpoint.need_tokenizer()
        self.held_out = examples[:HELD_OUT]
        self.examples = examples[HELD_OUT:]
        self.folder = folder
        self.steps = steps

        self.model = StatementModel(checkpoint.model.config, RANK)
        slow = [self.model.cosine_scale, self.model.linear.bias]
        special = {id(parameter) for parameter in (*slow, self.model.gates)}
        rest = [parameter for parameter in self.model.parameters() if id(parameter) not in special]
        groups = [
            {"params": rest, "rate": RATE},
            {"params": slow, "rate": HEAD_RATE},
            {"params": [self.model.gates], "rate": GATE_RATE},
        ]
        self.optimizer = torch.optim.AdamW(groups, lr=0.0, weight_decay=0.01, betas=(0.9, 0.98))
        self.step = 0
        self.resume()

    def resume(self) -> None:
        file = self.folder / STATE
        if file.exists():
            state = torch.load(file, weights_only=True)
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.step = state["step"]

    def save(self) -> None:
        state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "step": self.step}
        part = self.folder / f"{STATE}.part"
        torch.save(state, part)
        part.replace(self.folder / STATE)

    def batches(self) -> Iterator[list[Example]]:
        """The examples of each step from the first one on, of similar lengths; a resumed run leaves out those read."""
        epoch = 0
        while True:
            rng = random.Random(epoch)
            order = rng.sample(self.examples, len(self.examples))
            size = TEXTS * POOL
            for start in range(0, len(order) - size + 1, size):
                pool = sorted(order[start : start + size], key=lambda example: len(example.text))
                steps = [pool[first : first + TEXTS] for first in range(0, size, TEXTS)]
                yield from rng.sample(steps, len(steps))
            epoch += 1

    def run(self, seconds: float) -> None:
        """Train until all steps are done or the time is over. seconds: from now."""
        start = last_saved = time.monotonic()
        for number, examples in enumerate(self.batches()):
            if number < self.step:
                continue
            if self.step == self.steps or time.monotonic() - start > seconds:
                break

            factor = min(1.0, (self.step + 1) / WARM_UP) * max(0.02, 1 - self.step / self.steps)
            for group in self.optimizer.param_groups:
                group["lr"] = group["rate"] * factor
            loss = self.loss(examples)
            self.optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.step += 1

            if self.step % 25 == 0:
                spent = time.monotonic() - start
                print(f"step {self.step} of {self.steps}, {spent:.0f} s: loss {loss.item():.3f}", flush=True)
            if time.monotonic() - last_saved > SAVED_SECONDS:
                self.save()
                last_saved = time.monotonic()
        self.save()

    def scores(self, examples: Sequence[Example]) -> tuple[Tensor, Tensor, Tensor]:
        """Of each statement: its log-odds, whether it holds, and the number of its text, [P]."""
        texts = self.ids([example.text for example in examples], TEXT_TOKENS)
        flat = self.ids([text for example in examples for text in example.statements], STATEMENT_TOKENS)
        behind = iter(flat)
        statements = [[next(behind) for _ in example.statements] for example in examples]
        tensors = StatementTensors.of(StatementBatch.of(texts, statements), torch.device("cpu"))

        x_TH, x_UH = read_statements(self.encoder, tensors, self.model)
        texts_NH = means(x_TH, tensors.texts.lengths)
        text_P = torch.tensor([number for number, example in enumerate(examples) for _ in example.statements])
        scores_P = self.model.scores(texts_NH[text_P], means(x_UH, tensors.statements.lengths))
        holds_P = torch.tensor([float(holds) for example in examples for holds in example.holds])
        return scores_P, holds_P, text_P

    def ids(self, texts: Sequence[str], limit: int) -> list[list[int]]:
        """The ids of texts, special tokens included, of at most `limit`."""
        encodings = self.tokenizer.encode_many(texts)
        return [[*encoding.ids[: limit - 1], encoding.ids[-1]][:limit] for encoding in encodings]

    def loss(self, examples: Sequence[Example]) -> Tensor:
        """The cross-entropy of each statement, and of the right one among those of a choice."""
        scores_P, holds_P, text_P = self.scores(examples)
        of_each = F.binary_cross_entropy_with_logits(scores_P, holds_P)

        choices = []
        for number, example in enumerate(examples):
            if example.is_choice and any(example.holds):
                row = text_P == number
                choices.append(scores_P[row].logsumexp(0) - scores_P[row][holds_P[row] > 0].sum())
        if not choices:
            return of_each
        return of_each + CHOICE_WEIGHT * torch.stack(choices).mean()

    def choice_shift(self) -> float:
        """What is added to the scores of options, so that of each kind of held-out choices KEPT of those with a right
        option have an option above none."""
        shifts = []
        for kind in sorted({example.kind for example in self.held_out}):
            examples = [one for one in self.held_out if one.kind == kind and one.is_choice and any(one.holds)]
            if len(examples) < FEWEST_KEPT:
                continue
            with torch.no_grad():
                scores_P, _, text_P = self.scores(examples)
            best_N = [float(scores_P[text_P == number].max()) for number in range(len(examples))]
            shifts.append(-float(np.quantile(best_N, 1 - KEPT)))
        return max(shifts)

    def accuracy(self) -> dict[str, tuple[float, float]]:
        """Of held-out examples by kind: the share of statements on the right side of 0, and of choices that are right
        (of examples with a right statement)."""
        result = {}
        for kind in sorted({example.kind for example in self.held_out}):
            examples = [example for example in self.held_out if example.kind == kind]
            with torch.no_grad():
                scores_P, holds_P, text_P = self.scores(examples)
            right = ((scores_P > 0) == (holds_P > 0)).float().mean().item()
            chosen = []
            for number, example in enumerate(examples):
                row = text_P == number
                if example.is_choice and any(example.holds):
                    chosen.append(bool(holds_P[row][scores_P[row].argmax()]))
            result[kind] = right, sum(chosen) / len(chosen) if chosen else float("nan")
        return result


def means(x_TH: Tensor, lengths_N: Tensor) -> Tensor:
    """The mean of each run of rows, [N, H]."""
    number_T = torch.repeat_interleave(torch.arange(len(lengths_N)), lengths_N)
    sums_NH = x_TH.new_zeros(len(lengths_N), x_TH.shape[1]).index_add(0, number_T, x_TH)
    return sums_NH / lengths_N[:, None]
