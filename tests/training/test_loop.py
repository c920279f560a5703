"""The loop: micro-batches add up, the same seed gives the same losses, a loss that is not finite stops a run."""

import signal
from dataclasses import replace
from itertools import repeat

import numpy as np
import pytest
import torch
import transformers
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from bothways.base.errors import InputError
from bothways.model import encoder
from bothways.model.layout import Bucketed, Varlen
from bothways.model.losses import forward_losses, mse_loss
from bothways.tasks.answer.scoring import SpanObjective
from bothways.tasks.forward import text_scores
from bothways.tasks.losses import multi_label_loss, weighted_class_loss
from bothways.tasks.tag.scoring import TagObjective
from bothways.text.batch import Batch
from bothways.training import schedule
from bothways.training.distributed import Replica, sum_by_name
from bothways.training.loop import fit
from bothways.training.pretraining import pretrain as timing
from bothways.training.pretraining.objectives import PretrainingObjective
from bothways.training.pretraining.pretrain import seconds_per_step
from bothways.training.run_checkpoints import Checkpoints
from bothways.training.schedule import TrainingOptions
from bothways.training.signals import Stopped
from bothways.training.step import backward
from bothways.training.transfers import Readout

OBJECTIVE = PretrainingObjective("next")
LOSSES = forward_losses(OBJECTIVE)
LENGTHS = (3, 5, 5, 7, 11, 13, 17, 19, 23, 29, 31)  # N=11
HEADS = {"masked_words": 0, "next_sentence": 2}
CUT = ([0], [1, 2, 3], [4], [5, 6], [7], [8], [9], [10])  # 8 micro-batches of unequal size
CUTS = {1: [range(11)], 2: [range(3), range(3, 11)], 4: [[0], range(1, 5), range(5, 10), [10]], 8: CUT}


def text_of(index):
    """A text as in pre-training; text 2 has nothing masked, text 10 has nine masks, the others index % 3 + 1."""
    rng = np.random.default_rng(index)
    length = LENGTHS[index]
    batch = Batch.from_arrays(rng.integers(5, 97, length), np.arange(length) // (length // 2 + 1), np.array([length]))
    number = {2: 0, 10: 9}.get(index, index % 3 + 1)
    places = np.sort(rng.permutation(np.arange(1, length))[:number])
    return batch, places, rng.integers(5, 97, number), int(rng.integers(2))


def batch_of(indices):
    texts = [text_of(index) for index in indices]
    starts = np.cumsum([0] + [batch.num_tokens for batch, *_ in texts])
    parts = {
        name: torch.cat([getattr(batch, name) for batch, *_ in texts])
        for name in ("input_ids", "segment_ids", "position_ids", "lengths")
    }
    places = np.concatenate([places + start for (_, places, _, _), start in zip(texts, starts, strict=False)])
    return Batch(
        **parts,
        masked_positions=torch.from_numpy(places.astype(np.int64)),
        masked_labels=torch.from_numpy(np.concatenate([labels for _, _, labels, _ in texts]).astype(np.int64)),
        labels=torch.tensor([label for *_, label in texts]),
    )


def class_batch_of(indices):
    """The same texts for a classifier: each is one text, but 9 and 10 are two windows of text 9."""
    batch = batch_of(indices)
    texts = [min(index, 9) for index in indices]
    numbers = sorted(set(texts))
    return replace(
        batch,
        text_of_window=torch.tensor([numbers.index(text) for text in texts]),
        labels=torch.tensor([text % 3 for text in numbers]),
    )


def gradient(model, losses, counts, micro_batches):
    model.zero_grad()
    means = backward(Replica(model, losses), counts, micro_batches)
    values = sum_by_name({name: mean.item() for name, mean in part.items()} for part in means)
    parts = [parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None]
    return torch.cat(parts), values


def relative_distance(actual, expected):
    return float((actual.double() - expected.double()).norm() / expected.double().norm())


@pytest.mark.parametrize("number", [2, 4, 8])
def test_micro_batches_have_the_gradient_of_one_batch_in_pre_training(number, make_model):
    model = make_model("bert", HEADS)
    whole, values = gradient(model, LOSSES, OBJECTIVE.counts, [batch_of(range(11))])
    cut, values_cut = gradient(model, LOSSES, OBJECTIVE.counts, [batch_of(rows) for rows in CUTS[number]])
    assert relative_distance(cut, whole) < 1e-6
    assert values_cut == pytest.approx(values, rel=1e-6)
    assert set(values) == {"masked_lm", "next_sentence"}


def class_losses(model, batch):
    return {"classes": weighted_class_loss(text_scores(model, batch), batch.labels, torch.tensor([0.5, 1.5, 1.0]))}


def label_losses(model, batch):
    labels_N3 = torch.stack([batch.labels == 0, batch.labels > 0, batch.labels > 1], 1).long()
    return {"classes": multi_label_loss(text_scores(model, batch), labels_N3, torch.tensor([2.0, 1.0, 3.0]))}


def number_losses(model, batch):
    return {"numbers": mse_loss(text_scores(model, batch)[:, 0], batch.labels.float())}


TAGS, SPANS = TagObjective(), SpanObjective()


def tagged_batch_of(indices):
    """Every other text has no label, the rest one at each third token."""
    batch = batch_of(indices)
    labels = [
        [place % 3 if index % 2 and place % 3 == 0 else -100 for place in range(length)]
        for index, length in zip(indices, batch.lengths.tolist(), strict=True)
    ]
    return replace(batch, labels=torch.tensor([label for text in labels for label in text]))


def answered_batch_of(indices):
    batch = batch_of(indices)
    lengths = batch.lengths.tolist()
    ends = [(n % 3, min(n % 4 + n % 3, length - 1)) for n, length in zip(indices, lengths, strict=True)]
    return replace(batch, labels=torch.tensor(ends))


EVERY_HEAD = {  # head, outputs, losses, counts, batch of texts
    "classes": ("classes", 3, class_losses, lambda batch: {"classes": len(batch.labels)}, class_batch_of),
    "labels": ("classes", 3, label_losses, lambda batch: {"classes": 3 * len(batch.labels)}, class_batch_of),
    "numbers": ("classes", 1, number_losses, lambda batch: {"numbers": len(batch.labels)}, class_batch_of),
    "tags": ("tokens", 3, forward_losses(TAGS), TAGS.counts, tagged_batch_of),
    "answers": ("spans", 2, forward_losses(SPANS), SPANS.counts, answered_batch_of),
}


@pytest.mark.parametrize("kind", EVERY_HEAD)
def test_eight_micro_batches_have_the_gradient_of_one_batch_for_any_head(kind, make_model):
    head, outputs, losses, counts, make = EVERY_HEAD[kind]
    model = make_model("bert", {head: outputs})
    rows = ([0], [1, 2], [3], [4], [5, 6], [7], [8], [9, 10])
    whole, values = gradient(model, losses, counts, [make(range(11))])
    cut, values_cut = gradient(model, losses, counts, [make(part) for part in rows])
    assert relative_distance(cut, whole) < 1e-6
    assert values_cut == pytest.approx(values, rel=1e-6)


def test_the_losses_and_gradient_of_a_step_are_those_of_transformers(make_model, tmp_path):
    from bothways.model.checkpoint import checkpoint
    from bothways.model.checkpoint.contents import Checkpoint

    model = make_model("bert", HEADS)
    checkpoint.save(Checkpoint(model), tmp_path / "model")
    transformers.logging.disable_progress_bar()
    peer = transformers.BertForPreTraining.from_pretrained(tmp_path / "model").train()
    ours = batch_of(range(11))
    shape = (len(LENGTHS), max(LENGTHS))
    ids, segments, mask = (torch.zeros(shape, dtype=torch.long) for _ in range(3))
    labels = torch.full(shape, -100)
    starts = ours.lengths.cumsum(0) - ours.lengths
    for row, (start, length) in enumerate(zip(starts.tolist(), LENGTHS, strict=True)):
        ids[row, :length] = ours.input_ids[start : start + length]
        segments[row, :length] = ours.segment_ids[start : start + length]
        mask[row, :length] = 1
        for place, label in zip(ours.masked_positions.tolist(), ours.masked_labels.tolist(), strict=True):
            if start <= place < start + length:
                labels[row, place - start] = label
    inputs = {"input_ids": ids, "token_type_ids": segments, "attention_mask": mask}
    loss = peer(**inputs, labels=labels, next_sentence_label=ours.labels).loss
    loss.backward()
    grads, values = gradient(model, LOSSES, OBJECTIVE.counts, [batch_of(rows) for rows in CUT])
    assert sum(values.values()) == pytest.approx(loss.item(), rel=1e-5)
    theirs = {name: value.grad for name, value in peer.named_parameters()}
    named = dict(model.named_parameters())
    for our_name, their_name in (
        ("encoder.embeddings.words.weight", "bert.embeddings.word_embeddings.weight"),
        ("encoder.embeddings.positions.weight", "bert.embeddings.position_embeddings.weight"),
        ("heads.next_sentence.output.weight", "cls.seq_relationship.weight"),
        ("heads.masked_words.bias", "cls.predictions.bias"),
    ):
        assert relative_distance(named[our_name].grad, theirs[their_name]) < 1e-5, our_name
    squares = sum(float(value.double().square().sum()) for value in theirs.values() if value is not None)
    assert float(grads.double().norm()) == pytest.approx(squares**0.5, rel=1e-5)


# --- whole runs
# -----------------------------------------------------------------------------------------------------------


def endless(first):
    for step in range(first, 1_000_000):
        yield [batch_of([(3 * step) % 11, (3 * step + 4) % 11])]


@pytest.mark.soak
@pytest.mark.slow
def test_micro_batches_have_the_losses_of_one_batch_for_20_steps(make_model):
    losses = []
    for cuts in CUTS.values():
        rows = []
        batches = repeat([batch_of(part) for part in cuts])
        fit(
            make_model("bert", HEADS), LOSSES, OBJECTIVE.counts, lambda first, batches=batches: batches,
            TrainingOptions(steps=20, learning_rate=1e-2), evaluate=dict, record=rows.append,
        )  # fmt: skip
        losses.append(losses_of(rows))
    assert len(losses[0]) == 20
    assert np.abs(np.array(losses[1:]) - losses[0]).max() < 1e-5


def run_of(model, **changes):
    rows = []
    options = TrainingOptions(**{"steps": 5, "learning_rate": 1e-2, "evaluate_every": 2, **changes})
    fit(model, LOSSES, OBJECTIVE.counts, endless, options, evaluate=lambda: {"loss": 1.0}, record=rows.append)
    return rows


def losses_of(rows):
    return [row["loss"] for row in rows if row["split"] == "train"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_same_seed_gives_the_same_losses_bit_for_bit_and_another_does_not(dtype, make_model, global_seed):
    dropout = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
    runs = []
    for seed in (3, 3, 4):
        torch.manual_seed(len(runs))  # what was drawn before does not count
        model = make_model("bert", HEADS, **dropout)
        runs.append((losses_of(run_of(model, seed=seed, dtype=dtype)), model.state_dict()))
    (first, weights), (second, same_weights), (other, _) = runs
    assert first == second
    assert all(torch.equal(value, same_weights[name]) for name, value in weights.items())
    assert other != first and other[0] != first[0]


def test_dropout_is_drawn_anew_at_every_step(make_model):
    model = make_model("bert", HEADS, hidden_dropout_prob=0.5, attention_probs_dropout_prob=0.0)
    rows = []
    options = TrainingOptions(steps=4, learning_rate=0.0, weight_decay=0.0)

    def same(first):
        while True:
            yield [batch_of([4, 7])]

    fit(model, LOSSES, OBJECTIVE.counts, same, options, evaluate=dict, record=rows.append)
    assert len(set(losses_of(rows))) == 4


def test_a_run_records_each_step_and_evaluates_now_and_then_and_at_the_end(make_model):
    rows = run_of(make_model("bert", HEADS), steps=5, evaluate_every=2)
    assert [row["step"] for row in rows if row["split"] == "train"] == [1, 2, 3, 4, 5]
    assert [row["step"] for row in rows if row["split"] == "heldout"] == [2, 4, 5]
    tokens = np.cumsum([sum(batch.num_tokens for batch in step) for _, step in zip(range(5), endless(0), strict=False)])
    assert [row["tokens"] for row in rows if row["split"] == "train"] == tokens.tolist()
    seconds = [row["seconds"] for row in rows]
    assert seconds == sorted(seconds) and seconds[0] > 0
    assert all(row["loss"] == row["masked_lm"] + row["next_sentence"] for row in rows if row["split"] == "train")


def test_a_run_learns(make_model):
    model = make_model("bert", HEADS)

    def same(first):
        while True:
            yield [batch_of([8, 10])]

    rows = []
    fit(
        model,
        LOSSES,
        OBJECTIVE.counts,
        same,
        TrainingOptions(steps=30, learning_rate=1e-2),
        evaluate=dict,
        record=rows.append,
    )
    losses = losses_of(rows)
    assert losses[-1] < 0.2 * losses[0]


def test_a_run_ends_in_float32_with_what_single_bf16_steps_are_too_small_to_show(make_model):
    model = make_model("bert", HEADS)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    run_of(model, learning_rate=1e-5, dtype=torch.bfloat16)
    after = model.state_dict()
    assert not model.training and all(value.dtype is torch.float32 for value in after.values())
    name = "encoder.layers.1.attention.qkv.weight"
    moved = (after[name] - before[name]).abs()
    assert 0 < moved.max() < 1e-4
    assert not torch.equal(after[name], after[name].bfloat16().float())


def test_a_loss_that_is_not_finite_stops_the_run_and_names_the_step(make_model):
    model = make_model("bert", HEADS)
    rows, weights = [], []

    def losses(module, batch):
        sums = LOSSES(module, batch)
        if len(rows) == 3:
            weights.append({name: value.clone() for name, value in module.state_dict().items()})
            value, number = sums["masked_lm"]
            sums["masked_lm"] = value * float("inf"), number
        return sums

    with pytest.raises(InputError, match=r"step 4: loss (inf|nan).*lower --learning-rate"):
        fit(
            model, losses, OBJECTIVE.counts, endless, TrainingOptions(steps=9, learning_rate=1e-2),
            evaluate=dict, record=rows.append,
        )  # fmt: skip
    assert [row["step"] for row in rows] == [1, 2, 3]
    assert all(torch.equal(value, weights[0][name]) for name, value in model.state_dict().items())


def test_memory_that_is_too_small_for_a_step_is_an_error_that_names_its_batch(make_model):
    def losses(module, batch):
        raise torch.OutOfMemoryError("no room")

    options = TrainingOptions(steps=9, learning_rate=1e-2)
    with pytest.raises(
        InputError, match=r"out of memory on cpu at step 1, .* [\d,]+ tokens; lower --batch-tokens"
    ) as error:
        fit(make_model("bert", HEADS), losses, OBJECTIVE.counts, endless, options, evaluate=dict, record=print)
    assert "--gradient-accumulation" in str(error.value)


def test_a_loss_that_is_not_finite_is_reported_with_the_batch_and_the_last_good_checkpoint(make_model, tmp_path):
    rows = []

    def losses(module, batch):
        value = float("nan") if len(rows) == 6 else 1.0
        return {name: (loss * value, number) for name, (loss, number) in LOSSES(module, batch).items()}

    saving = Checkpoints(tmp_path)
    with pytest.raises(InputError, match=r"step 6: loss nan, .*batch 16-\d+; .*/step-00000004;"):
        fit(
            make_model("bert", HEADS), losses, OBJECTIVE.counts, endless,
            TrainingOptions(steps=9, learning_rate=1e-2, checkpoint_every=4),
            evaluate=lambda: {"loss": 1.0}, record=rows.append,
            checkpoints=saving, fingerprint=lambda batch: f"16-{batch.num_tokens}",
        )  # fmt: skip


def test_an_overflow_in_float16_skips_a_step_halves_the_scale_and_recovers(make_model):
    model = make_model("bert", HEADS)
    rows, weights = [], []

    def losses(module, batch):
        weights.append(module.state_dict()["encoder.layers.1.attention.qkv.weight"].clone())
        return LOSSES(module, batch)

    options = TrainingOptions(steps=14, learning_rate=1e-3, dtype=torch.float16)
    fit(model, losses, OBJECTIVE.counts, endless, options, evaluate=dict, record=rows.append)
    rows = [row for row in rows if row["split"] == "train"]
    skipped = [row["skipped"] for row in rows]
    assert skipped[0] and 1 < sum(skipped) < 9 and not any(skipped[-3:])  # 65536 is too much at first
    assert [row["scale"] for row in rows] == [65536 / 2 ** sum(skipped[:index]) for index in range(14)]
    for index, was_skipped in enumerate(skipped[:-1]):
        assert torch.equal(weights[index], weights[index + 1]) == was_skipped
    assert all(np.isfinite(row["loss"]) for row in rows)
    assert next(model.parameters()).dtype is torch.float32


def test_a_run_ends_with_the_weights_that_were_best(make_model):
    model = make_model("bert", HEADS)
    figures, seen = iter([1.0, 3.0, 3.0, 2.0]), []

    def evaluate():
        seen.append({name: value.clone() for name, value in model.state_dict().items()})
        return {"accuracy": next(figures)}

    options = TrainingOptions(steps=8, learning_rate=1e-2, evaluate_every=2, best_by="accuracy")
    fit(model, LOSSES, OBJECTIVE.counts, endless, options, evaluate=evaluate, record=lambda row: None)
    assert all(torch.equal(value, seen[1][name]) for name, value in model.state_dict().items())
    assert not torch.equal(seen[2]["heads.masked_words.bias"], seen[1]["heads.masked_words.bias"])


@pytest.mark.parametrize(("figures", "kept"), [([0.5, 0.9, 0.8], 2), ([0.5, 0.9, 0.7], 1), ([0.9, 0.8, 0.85], 0)])
def test_of_weights_within_a_standard_error_the_last_are_kept_unless_none_is_above_the_first(make_model, figures, kept):
    """The standard error of 0.9 in 10 rows is about 0.11."""
    model, scores, seen = make_model("bert", HEADS), iter(figures), []

    def evaluate():
        seen.append({name: value.clone() for name, value in model.state_dict().items()})
        return {"accuracy": next(scores), "loss": 1.0}

    options = TrainingOptions(
        steps=4, learning_rate=1e-2, evaluate_every=2, evaluate_first=True, best_by="accuracy", best_rows=10
    )
    progress = fit(model, LOSSES, OBJECTIVE.counts, endless, options, evaluate=evaluate, record=lambda row: None)
    assert progress.best_step == 2 * kept
    assert all(torch.equal(value, seen[kept][name]) for name, value in model.state_dict().items())


def test_the_rate_follows_the_plan_and_is_recorded(make_model, monkeypatch):
    monkeypatch.setattr(schedule, "DECAY", 0.4)
    rows = run_of(make_model("bert", HEADS), steps=5, warmup=0.4, schedule="warm-up-stable-decay")
    rates = [row["learning_rate"] for row in rows if row["split"] == "train"]
    assert rates == pytest.approx([1e-2 / 3, 2e-2 / 3, 1e-2, 1e-2, 0.5e-2])


def test_a_run_evaluates_where_it_saves_and_saves_where_it_is_stopped(make_model, tmp_path):
    rows = []

    def record(row):
        rows.append(row)
        if row["step"] == 5 and row["split"] == "train":
            signal.raise_signal(signal.SIGTERM)

    def go(record, start):
        fit(
            make_model("bert", HEADS), LOSSES, OBJECTIVE.counts, endless,
            TrainingOptions(steps=9, learning_rate=1e-2, evaluate_every=4, checkpoint_every=3),
            evaluate=lambda: {"loss": 1.0},
            record=record, checkpoints=Checkpoints(tmp_path, keep=9), start=start,
        )  # fmt: skip

    with pytest.raises(Stopped, match="step 6; .*--resume"):
        go(record, None)
    assert [row["step"] for row in rows if row["split"] == "heldout"] == [3, 4, 6]
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["step-00000003", "step-00000006"]
    go(rows.append, Checkpoints(tmp_path).load_latest())
    assert [row["step"] for row in rows if row["split"] == "train"] == list(range(1, 10))
    whole = run_of(make_model("bert", HEADS), steps=9)
    assert losses_of(rows) == losses_of(whole)
    tokens = [[row["tokens"] for row in run if row["split"] == "train"] for run in (rows, whole)]
    assert tokens[0] == tokens[1]


def test_timing_steps_leaves_the_model_as_it_was(make_model, monkeypatch):
    monkeypatch.setattr(timing, "TIMED_SECONDS", 0.1)
    model = make_model("bert", HEADS)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    speed = seconds_per_step(model, LOSSES, OBJECTIVE.counts, endless, TrainingOptions(steps=5, learning_rate=1e-2))
    assert speed > 0
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_the_loop_uses_a_model_only_through_its_losses(global_seed):
    module = nn.Linear(3, 1)
    torch.nn.init.zeros_(module.weight)
    target = torch.tensor([[1.0, 2.0, 3.0]])

    def losses(module, batch):
        return {"distance": ((module.weight - target).square().sum(), 1)}

    batch = batch_of([0])
    fit(
        module, losses, lambda batch: {"distance": 1}, lambda first: iter([[batch]] * 400),
        TrainingOptions(steps=400, learning_rate=0.1, weight_decay=0.0), evaluate=dict, record=lambda row: None,
    )  # fmt: skip
    assert torch.allclose(module.weight, target, atol=0.05)


class BlockingCopies(TorchDispatchMode):
    """Collects the copies to another device for which the processor waits."""

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if "_to_copy" in str(function) and kwargs.get("device") is not None and not kwargs.get("non_blocking"):
            self.found.append((function, kwargs["device"]))
        return function(*args, **kwargs)


def attend_ragged(query, key, value, *bounds, window_size=(-1, -1), num_splits=None):
    return query * key * value


@pytest.mark.parametrize("family", ["bert", "modernbert", "distilbert", "albert", "electra", "deberta"])
@pytest.mark.parametrize("kernel", [Bucketed, Varlen])
def test_a_step_does_not_wait_for_the_device(family, kernel, make_model, monkeypatch):
    """Tensors without data stand for those of a GPU: to read one is an error, and so is a size that depends on it."""
    meta = torch.device("meta")
    if kernel is Varlen and family != "deberta":  # whose scores have biases
        monkeypatch.setattr(encoder, "choose_layout", lambda lengths, device, *rest: Varlen(lengths, device))
        monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", attend_ragged)
    model = make_model(family, HEADS).to(meta)
    batches = [batch_of([0, 1, 3, 4]), batch_of([5, 6, 10])]
    with BlockingCopies() as copies:
        parts = backward(Replica(model, LOSSES), OBJECTIVE.counts, batches, device=meta)
    assert all(parameter.grad is not None for parameter in model.encoder.layers.parameters())
    losses = [number for part in parts for number in part.values()]
    assert len(losses) == 4 and all(number.device == meta for number in losses)
    assert copies.found == []


def test_losses_are_read_in_one_copy(monkeypatch):
    assert Readout([]).values() == []
    assert Readout([torch.tensor(0.1, dtype=torch.float64)]).values() == [0.1]
    stacked = []
    stack = torch.stack
    monkeypatch.setattr(torch, "stack", lambda parts: stacked.append(stack(parts)) or torch.tensor([1.0, 2.0]))
    numbers = [torch.tensor(0.5, device="meta").bfloat16(), torch.tensor(0.5, device="meta")]
    assert Readout(numbers).values() == [1.0, 2.0]
    assert [rows.shape for rows in stacked] == [(2,)]
