"""A pre-training run from files to a model others load, on text made here, in seconds."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers
from PIL import Image

import bothways
from bothways import checkpoint
from bothways.data.corpus import documents
from bothways.data.store import build
from bothways.errors import InputError
from bothways.settings import Pretrain
from bothways.tasks import evaluate, heldout, info, pretrain
from bothways.tasks.progress import silence

SUBJECTS = "king queen farmer sailor doctor baker".split()
PLACES = "castle palace field harbour clinic bakery".split()
FEELINGS = "proud gentle patient brave careful cheerful".split()


def corpus(seed, num_documents):
    """Documents about one person each, whose place and feeling follow from who it is."""
    rng = np.random.default_rng(seed)
    documents = []
    for _ in range(num_documents):
        who = int(rng.integers(6))
        lines = []
        for _ in range(int(rng.integers(5, 12))):
            start = ["Every day", "At night", "In spring", "Long ago"][int(rng.integers(4))]
            lines.append(f"{start} the {SUBJECTS[who]} of the {PLACES[who]} was very {FEELINGS[who]}.")
        documents.append("\n".join(lines))
    return "\n\n".join(documents) + "\n"


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    directory = tmp_path_factory.mktemp("texts")
    (directory / "train.txt").write_text(corpus(0, 60), encoding="utf-8")
    (directory / "new.txt").write_text(corpus(1, 12), encoding="utf-8")
    return directory


@pytest.fixture(scope="module")
def settings(texts, tmp_path_factory):
    return Pretrain(
        corpus=(texts / "train.txt",), heldout=(texts / "new.txt",), out=tmp_path_factory.mktemp("runs") / "run",
        model="tiny", vocab_size=150, steps=85, batch_tokens=512, length=48, dropout=0.0, rate=3e-3, init=0.06,
        evaluate_every=40, seed=7, dtype="float32",
    )  # fmt: skip


@pytest.fixture(scope="module")
def told():
    return []


@pytest.fixture(scope="module")
def result(settings, told):
    return pretrain.run(settings, told.append)


@pytest.fixture(scope="module")
def rows(result):
    return [json.loads(line) for line in (result.directory / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def made(result):
    return json.loads((result.directory / "bothways.json").read_text(encoding="utf-8"))


def test_a_run_leaves_a_model_its_metrics_its_curves_and_how_it_was_made(result):
    names = {entry.name for entry in result.directory.iterdir()}
    assert names == {"bothways.json", "curves.png", "metrics.jsonl", "model", "tokenizer"}
    assert {entry.name for entry in result.model.iterdir()} == {
        "bothways.json", "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "vocab.txt",
    }  # fmt: skip


def test_metrics_have_a_row_a_step_with_what_others_script_against(rows):
    assert all({"step", "split", "loss", "tokens", "seconds"} <= set(row) for row in rows)
    assert [row["step"] for row in rows if row["split"] == "train"] == list(range(1, 86))
    assert [row["step"] for row in rows if row["split"] == "heldout"] == [40, 80, 85]
    for key in ("tokens", "seconds"):
        values = [row[key] for row in rows]
        assert values == sorted(values) and values[0] > 0
    assert 85 * 256 < rows[-1]["tokens"] <= 85 * 512


def test_losses_are_kept_in_full_precision(rows):
    assert all(len(repr(row["loss"])) > 12 for row in rows)


def test_training_learns_the_words_and_beats_their_frequencies(rows, result):
    losses = [row["loss"] for row in rows if row["split"] == "train"]
    assert np.mean(losses[-5:]) < 0.85 * np.mean(losses[:5])
    heldout = [row["loss"] for row in rows if row["split"] == "heldout"]
    assert heldout[-1] < heldout[0]
    assert result.figures["perplexity"] < 0.6 * result.figures["unigram_perplexity"]


def test_perplexity_is_exp_of_the_mean_loss(rows, result):
    for figures in [*(row for row in rows if row["split"] == "heldout"), result.figures]:
        assert figures["perplexity"] == pytest.approx(math.exp(figures["masked_lm"]), rel=1e-12)
        assert figures["loss"] == pytest.approx(figures["masked_lm"] + figures["next_sentence"], rel=1e-12)


def test_curves_are_a_picture_with_lines_in_it(result):
    with Image.open(result.directory / "curves.png") as picture:
        assert picture.format == "PNG" and picture.size[0] > 1000 and picture.size[1] > 300
        pixels = np.asarray(picture.convert("RGB")).reshape(-1, 3).astype(int)
    colourful = pixels.max(1) - pixels.min(1) > 60
    assert 0.001 < colourful.mean() < 0.2
    orange, blue = np.abs(pixels - [255, 127, 14]).sum(1) < 30, np.abs(pixels - [31, 119, 180]).sum(1) < 30
    assert orange.sum() > 100 and blue.sum() > 100


def test_the_run_says_how_it_was_made_and_from_which_data(made, result, settings):
    assert made["status"] == "done" and made["verb"] == "pretrain" and made["steps"] == 85
    assert made["settings"]["seed"] == 7 and made["settings"]["corpus"] == [str(settings.corpus[0])]
    assert made["data"]["train"]["documents"] == 60 and made["data"]["heldout"]["documents"] == 12
    fingerprints = {made["data"][split]["fingerprint"] for split in ("train", "heldout")}
    assert len(fingerprints) == 2 and all(len(value) == 16 for value in fingerprints)
    assert made["heldout"] == json.loads(json.dumps(dict(result.figures)))
    beside = json.loads((result.model / "bothways.json").read_text(encoding="utf-8"))
    assert beside["heldout"] == made["heldout"] and beside["data"] == made["data"]
    assert "status" not in beside  # a model has none


def test_what_is_told_says_sizes(told):
    assert any("learned a vocabulary of" in line for line in told)
    assert any("60 documents" in line for line in told)


# --- the model in the hands of others
# -------------------------------------------------------------------------------------


def padded(batch):
    """A ragged batch as transformers reads it: ids, segments, mask, labels."""
    lengths = batch.lengths.tolist()
    shape = (len(lengths), max(lengths))
    ids, segments, mask = (torch.zeros(shape, dtype=torch.long) for _ in range(3))
    labels = torch.full(shape, -100)
    flat_labels = torch.full((batch.num_tokens,), -100)
    flat_labels[batch.masked_places] = batch.masked_labels
    start = 0
    for row, length in enumerate(lengths):
        span = slice(start, start + length)
        ids[row, :length], segments[row, :length] = batch.input_ids[span], batch.segment_ids[span]
        labels[row, :length], mask[row, :length] = flat_labels[span], 1
        start += length
    return {"input_ids": ids, "token_type_ids": segments, "attention_mask": mask}, labels


@pytest.fixture(scope="module")
def held(result, settings):
    loaded = checkpoint.load(result.model)
    unseen = build(documents(settings.heldout), loaded.tokenizer)
    return heldout.HeldOut(unseen, None, loaded.tokenizer, settings.length, pairs=True)


def test_transformers_loads_the_model_and_agrees_on_the_held_out_losses(result, held):
    transformers.logging.disable_progress_bar()
    peer, report = transformers.BertForPreTraining.from_pretrained(result.model, output_loading_info=True)
    assert not any(report.values())
    masked = sentences = 0.0
    num_masked = num_pairs = 0
    with torch.no_grad():
        for batch in held.batches:
            given, labels = padded(batch)
            found = peer.eval()(**given)
            cross_entropy = torch.nn.functional.cross_entropy
            masked += cross_entropy(found.prediction_logits.flatten(0, 1), labels.flatten(), reduction="sum").item()
            sentences += cross_entropy(found.seq_relationship_logits, batch.labels, reduction="sum").item()
            num_masked += int((labels >= 0).sum())
            num_pairs += len(batch)
    assert num_masked > 100 and num_pairs > 30
    assert result.figures["masked_lm"] == pytest.approx(masked / num_masked, rel=1e-5)
    assert result.figures["next_sentence"] == pytest.approx(sentences / num_pairs, rel=1e-5)
    assert result.figures["pairs"] == num_pairs


def test_transformers_reads_the_text_as_the_model_did(result):
    theirs = transformers.AutoTokenizer.from_pretrained(result.model)
    ours = bothways.Tokenizer.load(result.model)
    text, pair = "The sailor of the harbour, unbelievably!", "was very brave."
    assert theirs(text, pair)["input_ids"] == ours.encode(text, pair).ids
    assert theirs.mask_token_id == ours.mask_id


def test_what_was_learned_can_be_asked_for(result):
    model = bothways.load(result.directory, dtype="float32")  # a run where a model is asked for
    fills = model.fill("Every day the king of the [MASK] was very proud.", top=3)[0]
    assert len(fills) == 3 and all(0 < fill.score < 1 for fill in fills)
    words = {fill.token for fill in model.fill("Every day the king of the [MASK] was very proud.", top=12)[0]}
    assert words & set(PLACES)


def test_evaluating_on_the_held_out_text_gives_the_figures_of_the_run(result, texts):
    from bothways.settings import Evaluate

    found = evaluate.run(Evaluate(model=result.directory, file=(texts / "new.txt",), length=48, dtype="float32"))
    for name in ("loss", "masked_lm", "next_sentence", "perplexity", "next_sentence_accuracy", "pairs"):
        assert found[name] == pytest.approx(result.figures[name], rel=1e-6), name
    store = build(documents([texts / "new.txt"]), bothways.Tokenizer.load(result.model))
    assert found["tokens"] == store.num_tokens


def test_info_tells_of_the_run_of_its_model_and_of_a_model_without_a_tokenizer(result, tmp_path):
    of_run, of_model = info.run(result.directory), info.run(result.model)
    assert of_run["run"] == "pretrain" and of_run["status"] == "done" and of_run["steps"] == 85
    assert of_run["data"]["train"]["documents"] == 60
    assert of_run["trained"].startswith("85 steps")
    assert of_run["files"] == sorted(entry.name for entry in result.directory.iterdir())
    assert of_run["parameters"] == of_model["parameters"]
    assert of_model["made by"] == "bothways pretrain" and of_model["heads"] == "masked_words, next_sentence"
    assert of_model["model"] == "bert, 2 layers x 128, 2 heads, reads 48 tokens"
    bare = tmp_path / "bare"
    checkpoint.save(replace(checkpoint.load(result.model), tokenizer=None), bare)
    assert info.run(bare)["vocabulary"] == of_model["vocabulary"]


# --- the same again, and other settings
# -----------------------------------------------------------------------------------


def losses_of(directory):
    lines = (directory / "metrics.jsonl").read_text().splitlines()
    return [row["loss"] for row in map(json.loads, lines) if row["split"] == "train"]


def test_the_same_seed_gives_the_same_losses_bit_for_bit_and_another_does_not(result, settings, tmp_path):
    short = replace(settings, steps=6, dropout=0.1, tokenizer=result.model)
    for name, seed in (("one", 7), ("same", 7), ("other", 8)):
        torch.manual_seed(len(name))
        np.random.seed(len(name))
        pretrain.run(replace(short, out=tmp_path / name, seed=seed), silence)
    assert losses_of(tmp_path / "one") == losses_of(tmp_path / "same")
    weights = [(tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("one", "same", "other")]
    assert weights[0] == weights[1] != weights[2]
    assert losses_of(tmp_path / "one")[0] != losses_of(tmp_path / "other")[0]


def test_without_pairs_only_masked_words_are_learned(result, settings, tmp_path):
    short = replace(settings, steps=3, tokenizer=result.model, pairs="none", out=tmp_path / "run")
    found = pretrain.run(short, silence)
    assert "next_sentence_accuracy" not in found.figures
    assert heldout.next_sentence_verdict(found.figures) == "not measured (no pairs)"
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert all(row["loss"] == row["masked_lm"] and "next_sentence" not in row for row in rows)
    transformers.logging.disable_progress_bar()
    _, report = transformers.BertForMaskedLM.from_pretrained(found.model, output_loading_info=True)
    assert not report["missing_keys"] and not report["mismatched_keys"]


def test_minutes_become_a_number_of_steps_before_the_run_counts(result, settings, tmp_path):
    told = []
    short = replace(settings, steps=None, minutes=0.02, tokenizer=result.model, out=tmp_path / "run")
    pretrain.run(short, told.append)
    steps = json.loads((tmp_path / "run" / "bothways.json").read_text())["steps"]
    assert len(losses_of(tmp_path / "run")) == steps
    assert any(f"0.02 minutes are {steps} steps" in line for line in told)


def test_steps_win_over_minutes(result, settings, tmp_path):
    pretrain.run(replace(settings, steps=2, minutes=9.0, tokenizer=result.model, out=tmp_path / "run"), silence)
    assert len(losses_of(tmp_path / "run")) == 2


def test_a_run_in_half_precision_saves_float32(result, settings, tmp_path):
    short = replace(settings, steps=4, dtype="bfloat16", tokenizer=result.model, out=tmp_path / "run")
    found = pretrain.run(short, silence)
    weights = transformers.BertForPreTraining.from_pretrained(found.model).state_dict()
    assert all(value.dtype is torch.float32 for value in weights.values())
    assert math.isfinite(found.figures["loss"])


def test_every_twentieth_document_is_held_out_and_of_few_the_last(settings, tmp_path):
    for number, held_out in ((45, [19, 39]), (20, [19]), (7, [6]), (2, [1])):
        names = [f"document {index}" for index in range(number)]
        (tmp_path / "text.txt").write_text("\n\n".join(names), encoding="utf-8")
        training, heldout = pretrain.split(replace(settings, corpus=(tmp_path / "text.txt",), heldout=()))
        assert heldout == [names[index] for index in held_out]
        assert training == [name for index, name in enumerate(names) if index not in held_out]


def test_held_out_files_are_not_trained_on_and_all_others_are(settings):
    training, heldout = pretrain.split(settings)
    assert len(training) == 60 and len(heldout) == 12
    with pytest.raises(InputError, match="one document, so none can be held out"):
        settings.heldout[0].parent.joinpath("one.txt").write_text("one line\nanother\n")
        pretrain.split(replace(settings, corpus=(settings.heldout[0].parent / "one.txt",), heldout=()))


def test_guesses_begin_with_the_frequencies_of_the_words(settings, result):
    tokenizer = bothways.Tokenizer.load(result.model)
    store = build(pretrain.split(settings)[0], tokenizer)
    model = pretrain.new_model(settings, tokenizer, store)
    counts = np.bincount(store.ids, minlength=len(tokenizer))
    bias = model.heads["masked_words"].bias.detach().exp().numpy()
    assert bias.sum() == pytest.approx(1, rel=1e-4)
    assert bias == pytest.approx((counts + 1) / (counts + 1).sum(), rel=1e-4)
    plain = pretrain.new_model(replace(settings, frequency_bias=False), tokenizer, store)
    assert not plain.heads["masked_words"].bias.any()


def test_the_baseline_guesses_by_frequency_in_the_training_text(held, settings, result):
    tokenizer = bothways.Tokenizer.load(result.model)
    seen = build(pretrain.split(settings)[0], tokenizer)
    counts = np.bincount(seen.ids, minlength=len(tokenizer))
    shares = (counts + 1) / (len(seen.ids) + len(tokenizer))
    losses = [-math.log(shares[label]) for batch in held.batches for label in batch.masked_labels.tolist()]
    expected = math.exp(sum(losses) / len(losses))
    assert result.figures["unigram_perplexity"] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("accuracy", "interval", "chance", "called"),
    [(0.8, [0.7, 0.9], 0.52, True), (0.6, [0.49, 0.7], 0.5, False), (0.6, [0.52, 0.7], 0.55, False)],
)
def test_next_sentence_is_called_learned_only_above_chance(accuracy, interval, chance, called):
    figures = {"next_sentence_accuracy": accuracy, "next_sentence_interval": interval, "chance": chance}
    assert ("not learned yet" not in heldout.next_sentence_verdict(figures)) == called


def test_train_is_the_function_however_the_package_was_imported(settings, result, tmp_path):
    # The package bothways.train has the function's name; importing it must not hide the function.
    short = replace(settings, steps=1, tokenizer=result.model, out=tmp_path / "run")
    assert bothways.train(short).model == tmp_path / "run" / "model"
    with pytest.raises(InputError, match="dict is no training"):
        bothways.train({})
