"""Pre-training runs in seconds, from synthetic files to a model that transformers loads."""

import json
import math
import re
import shutil
import socket
from dataclasses import replace
from functools import partial
from unittest import mock

import numpy as np
import pytest
import torch
import transformers
import yaml

import bothways
from bothways.base.errors import InputError
from bothways.base.log import messages_to
from bothways.cli import info
from bothways.evaluation import evaluate
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.card_file import CARD, MARK, MODEL
from bothways.model.checkpoint.contents import Checkpoint
from bothways.settings import Pretrain
from bothways.text.corpus.documents import Corpus, documents
from bothways.text.corpus.token_store import build_in_memory
from bothways.training.distributed import SINGLE_PROCESS
from bothways.training.pretraining import heldout, pretrain, setup, text_data
from bothways.training.pretraining import recipes as resolve
from bothways.training.run import read_metrics
from tests.pictures import charts_of, is_standalone
from tests.soaked import in_soak

pytestmark = pytest.mark.slow

SUBJECTS = "king queen farmer sailor doctor baker".split()
PLACES = "castle palace field harbour clinic bakery".split()
FEELINGS = "proud gentle patient brave careful cheerful".split()
OLD = {"model": Pretrain.model, "family": None, "vocab_size": None}  # settings that a continued model already has


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
        corpus=(texts / "train.txt",),
        heldout=(texts / "new.txt",),
        out=tmp_path_factory.mktemp("runs") / "run",
        model="tiny",
        family="bert",
        vocab_size=150,
        steps=85,
        batch_tokens=512,
        max_length=48,
        dropout=0.0,
        learning_rate=3e-3,
        evaluate_every=40,
        seed=7,
        dtype="float32",
    )


@pytest.fixture(scope="module")
def messages():
    return []


@pytest.fixture(scope="module")
def result(settings, messages):
    with messages_to(messages.append):
        return pretrain.run(settings)


@pytest.fixture(scope="module")
def rows(result):
    return [json.loads(line) for line in (result.directory / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def made(result):
    return json.loads((result.directory / "bothways.json").read_text(encoding="utf-8"))


def test_a_run_leaves_a_model_its_metrics_its_curves_and_how_it_was_made(result):
    names = {entry.name for entry in result.directory.iterdir()}
    assert names == {"bothways.json", "checkpoints", "curves.svg", "metrics.jsonl", "model", "tokenizer"}
    assert {entry.name for entry in result.model_directory.iterdir()} == {
        "README.md",
        "bothways.json",
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "vocab.txt",
    }


def test_metrics_have_a_row_per_step_with_the_documented_keys(rows):
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


def test_curves_are_a_picture_of_the_metrics(result, rows):
    picture = (result.directory / "curves.svg").read_text(encoding="utf-8")
    panels = charts_of(picture)
    titles = ["Loss", "Perplexity, held out", "Next-sentence accuracy, held out", "Learning rate"]
    assert is_standalone(picture) and [*panels] == titles
    (line,) = panels["Loss"].lines("train")
    losses = [(row["step"], row["loss"]) for row in rows if row["split"] == "train"]
    assert line == [(pytest.approx(step, abs=0.1), pytest.approx(loss, abs=0.02)) for step, loss in losses]
    perplexities = [row["perplexity"] for row in rows if row["split"] == "heldout"]
    shown = panels["Perplexity, held out"].dots("heldout", is_log=True)
    assert [value for _, value in shown] == pytest.approx(perplexities, rel=0.01)
    ((_, level), _) = panels["Perplexity, held out"].lines("level", is_log=True)[0]
    assert level == pytest.approx(result.figures["unigram_perplexity"], rel=0.01)
    assert panels["Perplexity, held out"].legend == ["held out", "unigram perplexity"]


def test_the_result_plots_the_same_curves(result, tmp_path):
    result.plot(tmp_path / "curves.svg")
    written, shown = (
        charts_of((folder / "curves.svg").read_text(encoding="utf-8")) for folder in (result.directory, tmp_path)
    )
    assert [*written] == [*shown]
    for name in shown:
        assert written[name].lines("train") == shown[name].lines("train")
        assert written[name].dots("heldout") == shown[name].dots("heldout")


def test_the_metadata_records_settings_versions_and_data(made, result, settings):
    assert made["status"] == "done" and made["verb"] == "pretrain" and made["steps"] == 85
    assert made["settings"]["seed"] == 7 and made["settings"]["corpus"] == [str(settings.corpus[0])]
    assert made["data"]["train"]["documents"] == 60 and made["data"]["heldout"]["documents"] == 12
    fingerprints = {made["data"][split]["fingerprint"] for split in ("train", "heldout")}
    assert len(fingerprints) == 2 and all(len(value) == 16 for value in fingerprints)
    assert made["heldout"] == json.loads(json.dumps(dict(result.figures)))
    beside = json.loads((result.model_directory / "bothways.json").read_text(encoding="utf-8"))
    assert beside["heldout"] == made["heldout"] and beside["data"] == made["data"]
    assert "status" not in beside  # a model has none


def test_the_card_has_sizes_and_held_out_scores_and_names_no_place(result, rows, made, settings):
    card = (result.model_directory / CARD).read_text(encoding="utf-8")
    assert MARK in card.splitlines()
    assert yaml.safe_load(card.split("---\n")[1])["pipeline_tag"] == "fill-mask"

    assert f"{made['parameters']:,}" in card
    assert f"{rows[-1]['tokens']:,} tokens in {made['steps']:,} steps" in card
    assert f"| masked words, perplexity | {result.figures['perplexity']:,.1f} |" in card
    low, high = result.figures["next_sentence_accuracy_interval"]
    assert f"{100 * low:.1f} % to {100 * high:.1f} %" in card

    # Neither the files of the text nor the directory of the run, nor the machine.
    for name in (settings.out.parent.name, settings.corpus[0].name, settings.heldout[0].name, socket.gethostname()):
        assert name not in card


def test_the_code_of_the_card_runs(result, capsys):
    card = (result.model_directory / CARD).read_text(encoding="utf-8").replace(MODEL, str(result.model_directory))
    blocks = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        exec(block, {})


def test_sizes_are_logged(result, messages):
    assert any("learned a vocabulary of" in line for line in messages)
    assert any("60 documents" in line for line in messages)


# --- the model in the hands of others
# -------------------------------------------------------------------------------------


def padded(batch):
    """A ragged batch as transformers reads it: ids, segments, mask, labels."""
    lengths = batch.lengths.tolist()
    shape = (len(lengths), max(lengths))
    ids, segments, mask = (torch.zeros(shape, dtype=torch.long) for _ in range(3))
    labels = torch.full(shape, -100)
    flat_labels = torch.full((batch.num_tokens,), -100)
    flat_labels[batch.masked_positions] = batch.masked_labels
    start = 0
    for row, length in enumerate(lengths):
        span = slice(start, start + length)
        ids[row, :length], segments[row, :length] = batch.input_ids[span], batch.segment_ids[span]
        labels[row, :length], mask[row, :length] = flat_labels[span], 1
        start += length
    return {"input_ids": ids, "token_type_ids": segments, "attention_mask": mask}, labels


@pytest.fixture(scope="module")
def held(result, settings):
    loaded = checkpoint.load(result.model_directory)
    unseen = build_in_memory(documents(settings.heldout), loaded.tokenizer)
    return heldout.HeldOut(unseen, np.arange(12), loaded.tokenizer, settings.max_length, pairs="next")


def test_transformers_loads_the_model_and_agrees_on_the_held_out_losses(result, held):
    transformers.logging.disable_progress_bar()
    peer, report = transformers.BertForPreTraining.from_pretrained(result.model_directory, output_loading_info=True)
    assert not any(report.values())
    masked = sentences = 0.0
    num_masked = num_pairs = 0
    with torch.no_grad():
        for batch in held.batches:
            inputs, labels = padded(batch)
            outputs = peer.eval()(**inputs)
            cross_entropy = torch.nn.functional.cross_entropy
            masked += cross_entropy(outputs.prediction_logits.flatten(0, 1), labels.flatten(), reduction="sum").item()
            sentences += cross_entropy(outputs.seq_relationship_logits, batch.labels, reduction="sum").item()
            num_masked += int((labels >= 0).sum())
            num_pairs += len(batch)
    assert num_masked > 100 and num_pairs > 30
    assert result.figures["masked_lm"] == pytest.approx(masked / num_masked, rel=1e-5)
    assert result.figures["next_sentence"] == pytest.approx(sentences / num_pairs, rel=1e-5)
    assert result.figures["pairs"] == num_pairs


def test_transformers_reads_the_text_as_the_model_did(result):
    theirs = transformers.AutoTokenizer.from_pretrained(result.model_directory)
    ours = bothways.Tokenizer.load(result.model_directory)
    one, pair = "The sailor of the harbour, unbelievably!", "was very brave."
    assert theirs(one, pair)["input_ids"] == ours.encode(one, pair).ids
    assert theirs.mask_token_id == ours.mask_id


def test_trained_heads_can_be_used(result):
    model = bothways.load(result.directory, dtype="float32")  # the directory of a run in place of a model
    fills = model.fill("Every day the king of the [MASK] was very proud.", top=3)[0]
    assert len(fills) == 3 and all(0 < fill.score < 1 for fill in fills)
    words = {fill.token for fill in model.fill("Every day the king of the [MASK] was very proud.", top=12)[0]}
    assert words & set(PLACES)


def test_evaluating_on_the_held_out_text_gives_the_figures_of_the_run(result, texts):
    from bothways.settings import Evaluate

    metrics = evaluate.run(Evaluate(model=result.directory, file=(texts / "new.txt",), max_length=48, dtype="float32"))
    for name in ("loss", "masked_lm", "next_sentence", "perplexity", "next_sentence_accuracy", "pairs"):
        assert metrics[name] == pytest.approx(result.figures[name], rel=1e-6), name
    store = build_in_memory(documents([texts / "new.txt"]), bothways.Tokenizer.load(result.model_directory))
    assert metrics["tokens"] == store.num_tokens


def test_info_describes_a_run_its_model_and_a_model_without_a_tokenizer(result, tmp_path):
    of_run, of_model = info.describe(result.directory), info.describe(result.model_directory)
    assert of_run["run"] == "pretrain" and of_run["status"] == "done" and of_run["steps"] == 85
    assert of_run["data"]["train"]["documents"] == 60
    assert of_run["trained"].startswith("85 steps")
    assert of_run["files"] == sorted(entry.name for entry in result.directory.iterdir())
    assert of_run["parameters"] == of_model["parameters"]
    assert of_model["made with"] == "bothways pretrain" and of_model["heads"] == "masked_words, next_sentence"
    assert of_model["model"] == "bert, 2 layers x 128, 2 heads, up to 48 tokens"
    bare = tmp_path / "bare"
    checkpoint.save(replace(checkpoint.load(result.model_directory), tokenizer=None), bare)
    assert info.describe(bare)["vocabulary"] == of_model["vocabulary"]


# --- the same again, and other settings
# -----------------------------------------------------------------------------------


def losses_of(directory):
    lines = (directory / "metrics.jsonl").read_text().splitlines()
    return [row["loss"] for row in map(json.loads, lines) if row["split"] == "train"]


def test_the_same_seed_gives_the_same_losses_bit_for_bit_and_another_does_not(result, settings, tmp_path, global_seed):
    short = replace(settings, steps=6, dropout=0.1, tokenizer=result.model_directory)
    for name, seed in (("one", 7), ("same", 7), ("other", 8)):
        torch.manual_seed(len(name))
        np.random.seed(len(name))
        pretrain.run(replace(short, out=tmp_path / name, seed=seed))
    assert losses_of(tmp_path / "one") == losses_of(tmp_path / "same")
    weights = [(tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("one", "same", "other")]
    assert weights[0] == weights[1] != weights[2]
    assert losses_of(tmp_path / "one")[0] != losses_of(tmp_path / "other")[0]


def test_without_pairs_only_masked_words_are_learned(result, settings, tmp_path):
    short = replace(settings, steps=3, tokenizer=result.model_directory, pairs="none", out=tmp_path / "run")
    run = pretrain.run(short)
    assert "next_sentence_accuracy" not in run.figures
    assert heldout.next_sentence_verdict(run.figures) == "not measured (no pairs)"
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert all(row["loss"] == row["masked_lm"] and "next_sentence" not in row for row in rows)
    transformers.logging.disable_progress_bar()
    _, report = transformers.BertForMaskedLM.from_pretrained(run.model_directory, output_loading_info=True)
    assert not report["missing_keys"] and not report["mismatched_keys"]


def test_minutes_become_a_number_of_steps_before_the_run_counts(result, settings, tmp_path, monkeypatch):
    monkeypatch.setattr(pretrain, "seconds_per_step", lambda *_, **__: 0.25)
    short = replace(settings, steps=None, minutes=0.02, tokenizer=result.model_directory, out=tmp_path / "run")
    pretrain.run(short)
    steps = json.loads((tmp_path / "run" / "bothways.json").read_text())["steps"]
    assert len(losses_of(tmp_path / "run")) == steps == 4


def test_held_out_copies_of_training_documents_are_counted_in_a_message(settings, result, tmp_path):
    rng, files = np.random.default_rng(2), [tmp_path / "train.txt", tmp_path / "held.txt"]
    words = [*SUBJECTS, *PLACES, *FEELINGS]
    train, other = ([" ".join(rng.choice(words, 150)) + "." for _ in range(number)] for number in (9, 5))
    for file, documents_of_file in zip(files, (train, [*other, *train[3:6]]), strict=True):
        file.write_text("\n\n".join(documents_of_file), encoding="utf-8")
    messages = []
    own = {"corpus": (files[0],), "heldout": (files[1],), "tokenizer": result.model_directory, "out": tmp_path / "run"}
    with messages_to(messages.append):
        pretrain.run(replace(settings, steps=1, **own))
    assert any("3 of 8 held-out documents" in line for line in messages)
    facts = json.loads((tmp_path / "run" / "bothways.json").read_text(encoding="utf-8"))
    assert facts["data"]["heldout"]["copies"] == 3


def test_steps_or_minutes_end_a_run_whichever_comes_first(result, settings, tmp_path, monkeypatch):
    monkeypatch.setattr(pretrain, "seconds_per_step", lambda *_, **__: 0.25)
    pretrain.run(replace(settings, steps=2, minutes=9.0, tokenizer=result.model_directory, out=tmp_path / "run"))
    assert len(losses_of(tmp_path / "run")) == 2
    run, alone = mock.Mock(metadata={}), SINGLE_PROCESS
    assert setup.Length(100, 1.0).num_steps(run, alone, lambda: 0.5) == 100
    assert setup.Length(1000, 1.0).num_steps(run, alone, lambda: 0.5) == 120
    assert setup.Length(None, 1.0).num_steps(run, alone, lambda: 0.5) == 120
    run = mock.Mock(metadata={"steps": 120})
    assert setup.Length(1000, 1.0).num_steps(run, alone, lambda: pytest.fail("timed again")) == 120


def test_a_run_that_its_minutes_ended_resumes_with_the_same_steps(result, settings, tmp_path, monkeypatch):
    monkeypatch.setattr(pretrain, "seconds_per_step", lambda *_, **__: 0.25)
    both = replace(settings, steps=10**6, minutes=0.02, tokenizer=result.model_directory, out=tmp_path / "run")
    steps = []

    def stop(row):
        steps.append(row["steps"])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pretrain.run(both, callbacks=[stop])
    monkeypatch.setattr(pretrain, "seconds_per_step", lambda *_, **__: pytest.fail("timed again"))
    pretrain.run(replace(both, resume=True), callbacks=[lambda row: steps.append(row["steps"])])
    assert {*steps} == {4} and len(losses_of(tmp_path / "run")) == 4


def test_a_run_in_half_precision_saves_float32(result, settings, tmp_path):
    short = replace(settings, steps=4, dtype="bfloat16", tokenizer=result.model_directory, out=tmp_path / "run")
    run = pretrain.run(short)
    weights = transformers.BertForPreTraining.from_pretrained(run.model_directory).state_dict()
    assert all(value.dtype is torch.float32 for value in weights.values())
    assert math.isfinite(run.figures["loss"])


def read_data(settings, tokenizer):
    return text_data.read_data(setup.open_text(settings), tokenizer)


def learn_tokenizer(settings, directory):
    """The tokenizer that a run of these settings learns."""
    vocabulary = setup.choose_vocabulary(settings, None)
    return text_data.prepare_tokenizer(setup.open_text(settings), vocabulary, directory, SINGLE_PROCESS)


def initial_of(settings, data, start=None):
    """The initial model of a run of these settings."""
    settings = resolve.resolve_settings(settings, start)
    return setup.build_setup(settings, start, data, torch.device("cpu")).initial


def test_every_twentieth_document_is_held_out_and_of_few_the_last(settings, result, tmp_path):
    tokenizer = bothways.Tokenizer.load(result.model_directory)
    for number, held_out in ((45, [19, 39]), (20, [19]), (7, [6]), (2, [1])):
        file = tmp_path / f"{number}.txt"
        file.write_text("\n\n".join("abcdefghijklmnopqrst"[: index + 1] for index in range(number)), encoding="utf-8")
        data = read_data(replace(settings, corpus=(file,), heldout=()), tokenizer)
        assert data.heldout.tolist() == held_out and data.unseen is data.store
        assert "from the same sources" in data.facts["data"]["heldout"]["measured_on"]
        assert data.training.tolist() == [index for index in range(number) if index not in held_out]
    (tmp_path / "one.txt").write_text("one line\nanother\n")
    with pytest.raises(InputError, match="one document.* held out"):
        read_data(replace(settings, corpus=(tmp_path / "one.txt",), heldout=()), tokenizer)


def test_of_many_files_whole_files_are_held_out(settings, result, tmp_path):
    tokenizer, folder = bothways.Tokenizer.load(result.model_directory), tmp_path / "texts"
    folder.mkdir()
    for number in range(21):
        (folder / f"{number:02}.txt").write_text(f"{'the king ' * (20 + number)}\n\n" * 30, encoding="utf-8")
    (folder / "00.txt").write_text("the queen\n\n" * 30 * 400, encoding="utf-8")  # 28 % of the text
    changed = replace(settings, corpus=(folder,), heldout=(), token_store=tmp_path / "store")
    data, again = read_data(changed, tokenizer), read_data(changed, tokenizer)
    assert (data.store.fingerprint, data.unseen.fingerprint) == (again.store.fingerprint, again.unseen.fingerprint)
    assert data.store.num_documents == len(data.training) and data.unseen.num_documents == len(data.heldout)
    assert len(data.training) + len(data.heldout) == 600 + 12_000 and len(data.heldout) % 30 == 0
    share = data.unseen.num_tokens / (data.unseen.num_tokens + data.num_tokens)
    measured_on = data.facts["data"]["heldout"]["measured_on"]
    assert 0.01 < share < 0.1 and measured_on.startswith(
        f"{share:.1%} of the text, {len(data.heldout) // 30} of 21 files"
    )
    named = [name for name in (f"{number:02}.txt" for number in range(21)) if name in measured_on]
    rest = replace(changed, corpus=tuple(f for f in sorted(folder.iterdir()) if f.name not in named))
    explicit = read_data(replace(rest, heldout=tuple(folder / name for name in named)), tokenizer)
    assert (
        explicit.store.fingerprint == data.store.fingerprint and explicit.unseen.fingerprint == data.unseen.fingerprint
    )


def test_few_large_documents_are_held_out_in_part(settings, result, tmp_path):
    tokenizer = bothways.Tokenizer.load(result.model_directory)
    for number, size in enumerate((900, 800, 1200)):
        lines = (f"the {SUBJECTS[number]} was proud {'very ' * (line % 7)}\n" for line in range(size))
        (tmp_path / f"{number}.txt").write_text("".join(lines), encoding="utf-8")
    files = tuple(sorted(tmp_path.glob("*.txt")))
    whole = read_data(replace(settings, corpus=files, heldout=(), documents="file"), tokenizer)
    share = whole.unseen.num_tokens / (whole.unseen.num_tokens + whole.num_tokens)
    assert len(whole.training) == len(whole.heldout) == 3 and share == pytest.approx(0.05, abs=0.003)
    ids = [store.ids for store in (whole.store, whole.unseen)]
    everything = build_in_memory(Corpus(files, "file").documents(), tokenizer)
    assert np.bincount(np.concatenate(ids)).tolist() == np.bincount(everything.ids).tolist()
    assert "the last 5% of each document" in whole.facts["data"]["heldout"]["measured_on"]


def test_held_out_files_are_not_trained_on_and_all_others_are(settings, result):
    data = read_data(settings, bothways.Tokenizer.load(result.model_directory))
    assert len(data.training) == data.store.num_documents == 60
    assert len(data.heldout) == data.unseen.num_documents == 12
    assert data.facts["data"]["heldout"]["measured_on"] == "the text that was named as held out"


def test_the_vocabulary_is_learned_without_held_out_documents(settings, tmp_path):
    file = tmp_path / "text.txt"
    file.write_text("cat cat\n\n" * 19 + "zebra zebra\n\n" + "dog dog\n\n", encoding="utf-8")
    changed = replace(settings, corpus=(file,), heldout=(), tokenizer=None)
    learned = learn_tokenizer(changed, tmp_path)
    assert "cat" in learned.vocab and "dog" in learned.vocab and "z" not in learned.vocab
    once = learn_tokenizer(replace(changed, drop_duplicates=True), tmp_path / "once")
    assert "cat" in once.vocab and "zebra" in once.vocab and "dog" not in once.vocab  # the last of three is held out


def test_text_is_read_once_and_again_when_something_changed(settings, result, tmp_path):
    tokenizer = bothways.Tokenizer.load(result.model_directory)
    (tmp_path / "a.txt").write_text("the king\n\nthe queen\n\nthe king\n", encoding="utf-8")
    changed = replace(settings, corpus=(tmp_path / "a.txt",), heldout=(), token_store=tmp_path / "store")
    first, again = read_data(changed, tokenizer), read_data(changed, tokenizer)
    assert len(list((tmp_path / "store").glob("[!.]*"))) == 1
    assert first.store.fingerprint == again.store.fingerprint and first.store.num_documents == 3
    assert read_data(replace(changed, drop_duplicates=True), tokenizer).store.num_documents == 2
    (tmp_path / "a.txt").write_text("the king\n\nthe baker\n", encoding="utf-8")
    assert read_data(changed, tokenizer).store.fingerprint != first.store.fingerprint
    assert len(list((tmp_path / "store").glob("[!.]*"))) == 3


def test_rows_that_cannot_be_read_are_skipped_and_counted(settings, result, tmp_path):
    rows = [json.dumps({"text": f"the {name}"}) for name in SUBJECTS]
    (tmp_path / "rows.jsonl").write_text("\n".join([*rows[:3], '{"text": 5}', "{", *rows[3:]]), encoding="utf-8")
    changed = replace(settings, corpus=(tmp_path / "rows.jsonl",), heldout=(), token_store=tmp_path / "store")
    tokenizer = bothways.Tokenizer.load(result.model_directory)
    with pytest.raises(InputError, match=r"rows.jsonl: row \d+ \(line 4\): .*--on-error skip"):
        read_data(changed, tokenizer)
    data = read_data(replace(changed, on_error="skip"), tokenizer)
    assert data.store.num_documents == 6 and data.facts["data"]["train"]["skipped"] == 2


def test_guesses_begin_with_the_frequencies_of_the_words(settings, result):
    data = read_data(settings, bothways.Tokenizer.load(result.model_directory))
    model = initial_of(settings, data).model
    counts = np.bincount(data.store.ids, minlength=len(data.tokenizer))
    bias = model.heads["masked_words"].bias.detach().exp().numpy()
    assert bias.sum() == pytest.approx(1, rel=1e-4)
    assert bias == pytest.approx((counts + 1) / (counts + 1).sum(), rel=1e-4)


def test_the_baseline_guesses_by_frequency_in_the_training_text(held, settings, result):
    tokenizer = bothways.Tokenizer.load(result.model_directory)
    seen = read_data(settings, tokenizer).store
    counts = np.bincount(seen.ids, minlength=len(tokenizer))
    shares = (counts + 1) / (len(seen.ids) + len(tokenizer))
    losses = [-math.log(shares[label]) for batch in held.batches for label in batch.masked_labels.tolist()]
    expected = math.exp(sum(losses) / len(losses))
    assert result.figures["unigram_perplexity"] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("accuracy", "interval", "chance", "called"),
    [(0.8, [0.7, 0.9], 0.52, True), (0.6, [0.49, 0.7], 0.5, False), (0.6, [0.52, 0.7], 0.55, False)],
)
def test_next_sentence_is_printed_as_learned_only_above_chance(accuracy, interval, chance, called):
    figures = {"next_sentence_accuracy": accuracy, "next_sentence_accuracy_interval": interval, "chance": chance}
    assert ("not learned yet" not in heldout.next_sentence_verdict(figures)) == called


def test_train_is_the_function_however_the_package_was_imported(settings, result, tmp_path):
    # The package bothways.train has the function's name; importing it must not hide the function.
    short = replace(settings, steps=1, tokenizer=result.model_directory, out=tmp_path / "run")
    assert bothways.train(short).model_directory == tmp_path / "run" / "model"
    with pytest.raises(InputError, match="dict"):
        bothways.train({})


# --- going on -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pairs", "masks", "dtype"),
    [
        ("next", "tokens", "float32"),
        ("order", "words", "bfloat16"),
        *in_soak(("none", "spans", "bfloat16")),
    ],
)
def test_a_resumed_run_has_the_losses_of_an_uninterrupted_run(
    result, settings, tmp_path, pairs, masks, dtype, monkeypatch
):
    monkeypatch.setattr(setup, "Checkpoints", partial(setup.Checkpoints, keep=9))
    whole = replace(
        settings,
        steps=14,
        tokenizer=result.model_directory,
        dropout=0.1,
        checkpoint_every=4,
        evaluate_every=5,
        pairs=pairs,
        masking=masks,
        dtype=dtype,
        mask_rate=0.3,
        schedule="one-cycle",
    )
    expected = pretrain.run(replace(whole, out=tmp_path / "whole"))
    undisturbed = read_metrics(tmp_path / "whole")
    shutil.copytree(tmp_path / "whole", tmp_path / "cut")
    shutil.rmtree(tmp_path / "cut" / "model")
    shutil.rmtree(tmp_path / "cut" / "checkpoints" / "step-00000014")
    newest = tmp_path / "cut" / "checkpoints" / "step-00000012" / "state.safetensors"
    newest.write_bytes(newest.read_bytes()[:-7])
    rows = []
    run = pretrain.run(replace(whole, out=tmp_path / "cut", resume=True), callbacks=[rows.append])
    assert rows[0]["step"] == 9  # after the newest checkpoint that is whole
    resumed = read_metrics(tmp_path / "cut")
    same = ("step", "split", "loss", "masked_lm", "tokens", "norm", "learning_rate", "perplexity")
    assert [[row.get(key) for key in same] for row in resumed] == [
        [row.get(key) for key in same] for row in undisturbed
    ]
    weights = [(tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("whole", "cut")]
    assert weights[0] == weights[1] and run.figures == expected.figures


def test_resuming_without_a_checkpoint_starts_with_a_message(result, settings, tmp_path):
    messages = []
    with messages_to(messages.append):
        pretrain.run(replace(settings, steps=2, tokenizer=result.model_directory, out=tmp_path / "run", resume=True))
    assert any("starting at step 0" in line for line in messages)
    assert len(losses_of(tmp_path / "run")) == 2


def test_a_finished_run_can_be_resumed_for_more_steps(result, settings, tmp_path):
    short = replace(settings, steps=2, tokenizer=result.model_directory, out=tmp_path / "run", schedule="constant")
    pretrain.run(short)
    pretrain.run(replace(short, steps=5, resume=True))
    assert len(losses_of(tmp_path / "run")) == 5
    with pytest.raises(InputError, match=r"rate: 0.003 -> 0.004"):
        pretrain.run(replace(short, steps=5, resume=True, learning_rate=4e-3))


def test_micro_batches_change_no_loss(result, settings, tmp_path):
    short = replace(settings, steps=5, tokenizer=result.model_directory)
    for parts in (1, 3):
        pretrain.run(replace(short, out=tmp_path / str(parts), gradient_accumulation=parts))
    assert losses_of(tmp_path / "1") == pytest.approx(losses_of(tmp_path / "3"), rel=1e-5)


def test_pre_training_continues_on_new_text_with_an_extended_vocabulary(result, texts, settings, tmp_path):
    new = "\n\n".join(f"Every day the keeper of the island was very {word}." for word in FEELINGS * 4)
    (tmp_path / "new.txt").write_text(new, encoding="utf-8")
    further = replace(
        settings, corpus=(tmp_path / "new.txt",), from_checkpoint=result.model_directory, tokenizer=None,
        extend_vocab=2, steps=3, learning_rate=1e-4, **OLD,
    )  # fmt: skip
    run = pretrain.run(replace(further, out=tmp_path / "longer"))
    before, after = checkpoint.load(result.model_directory), checkpoint.load(run.model_directory)
    assert after.tokenizer.tokens[: len(before.tokenizer)] == before.tokenizer.tokens
    assert set(after.tokenizer.tokens[len(before.tokenizer) :]) == {"keeper", "island"}
    assert after.model.config.vocab_size == before.model.config.vocab_size + 2
    begun = initial_of(further, read_data(replace(further, token_store=tmp_path), after.tokenizer), before).model
    table = before.model.encoder.embeddings.words.weight
    pieces = before.tokenizer.ids("keeper")
    new_row = begun.encoder.embeddings.words.weight[after.tokenizer.vocab["keeper"]]
    assert len(pieces) > 1 and torch.allclose(new_row, table[pieces].mean(0))
    kept = pretrain.run(replace(further, extend_vocab=0, out=tmp_path / "kept"))
    assert checkpoint.load(kept.model_directory).tokenizer.tokens == before.tokenizer.tokens
    assert kept.figures["loss"] < 1.5 * result.figures["loss"]  # it continues, and does not start anew


@pytest.mark.parametrize("option", [{"model": "base"}, {"vocab_size": 9000}])
def test_options_for_new_models_are_errors_with_from(option, settings, tmp_path):
    name, value = next(iter(option.items()))
    with pytest.raises(InputError, match=rf"{name} \({value}\) .*--from \("):
        replace(settings, **{**OLD, **option}, from_checkpoint=tmp_path, tokenizer=None)


def test_a_length_that_no_model_reads_is_refused_before_anything_is_read(settings, minilm_directory, tmp_path):
    long = replace(settings, max_length=600, out=tmp_path / "run", token_store=tmp_path / "store")
    for options, message in (
        ({}, r"max_length \(600\) .*\b512 tokens of bert"),
        ({"from_checkpoint": minilm_directory, **OLD}, r"max_length \(600\) .*\b512 positions of"),
    ):
        with pytest.raises(InputError, match=message):
            pretrain.run(replace(long, **options))
    assert not any(tmp_path.iterdir())


def test_training_text_is_not_held_out(settings, texts, tmp_path):
    both = replace(settings, corpus=(texts,), out=tmp_path / "run")
    with pytest.raises(InputError, match=r"new\.txt: is also training text"):
        pretrain.run(both)
    assert not (tmp_path / "run").exists()


def test_skipped_files_and_unknown_words_are_named_in_messages(settings, texts, tmp_path):
    folder = tmp_path / "corpus"
    (folder / "deep").mkdir(parents=True)
    shutil.copy(texts / "train.txt", folder)
    for name in ("a.bz2", "deep/b.bz2", "LICENSE", "c.json.gz", ".hidden.md"):
        (folder / name).write_text("more")
    messages = []
    ignorant = bothways.Tokenizer.learn([corpus(0, 60)], size=100, alphabet=12)
    with messages_to(messages.append):
        read_data(replace(settings, corpus=(folder,), token_store=tmp_path / "store"), ignorant)
    line = next(line for line in messages if "2 .bz2, " in line)
    assert "1 .json.gz" in line and "1 LICENSE" in line and "md" not in line
    assert any("of the training text are unknown words" in line for line in messages)
    messages.clear()
    known = learn_tokenizer(replace(settings, tokenizer=None), tmp_path / "own")
    with messages_to(messages.append):
        data = read_data(replace(settings, corpus=(folder / "*.txt",), token_store=tmp_path / "store"), known)
    assert data.unknown_fraction < 0.01 and not any("left out" in line or "unknown words" in line for line in messages)


def test_a_held_out_tenth_is_not_counted(settings, texts, tokenizer, tmp_path):
    data = read_data(replace(settings, heldout=(), token_store=tmp_path), tokenizer)
    bounds = data.store.sentences[data.store.documents]
    ids = [data.store.ids[bounds[number] : bounds[number + 1]] for number in data.training]
    counts_V = np.bincount(np.concatenate(ids), minlength=len(tokenizer))
    assert data.heldout.size and (counts_V == data.frequencies).all()


def test_a_vector_model_gets_the_heads_it_lacks(minilm_directory, settings, tmp_path):
    start = checkpoint.load(minilm_directory)
    settings = replace(settings, from_checkpoint=minilm_directory, tokenizer=None, **OLD)
    initial = initial_of(settings, read_data(settings, start.tokenizer), start)
    assert set(initial.model.num_outputs) == {"masked_words", "next_sentence"}
    assert torch.equal(
        initial.model.encoder.layers[5].attention.qkv.weight, start.model.encoder.layers[5].attention.qkv.weight
    )


def test_rows_of_a_padded_vocabulary_are_kept(make_model, tokenizer, settings):
    start = Checkpoint(make_model("bert", {"classes": 3}, vocab_size=128), tokenizer)
    settings = replace(settings, tokenizer=None)
    model = initial_of(settings, read_data(settings, tokenizer), start).model
    assert len(model.heads["masked_words"].bias) == 128
    assert float(model.heads["masked_words"].bias.detach().exp().sum()) == pytest.approx(1, rel=1e-4)


def test_a_run_is_not_resumed_on_other_text_and_stays_as_it_is(result, settings, tmp_path):
    (tmp_path / "held.txt").write_text(settings.heldout[0].read_text(encoding="utf-8"), encoding="utf-8")
    short = replace(
        settings, steps=2, tokenizer=result.model_directory, out=tmp_path / "run", heldout=(tmp_path / "held.txt",)
    )
    pretrain.run(short)
    before = (tmp_path / "run" / "bothways.json").read_bytes()
    (tmp_path / "held.txt").write_text("The king.\n\nThe queen of the castle was proud.\n", encoding="utf-8")
    with pytest.raises(InputError, match="heldout: '.*' -> '.*'; start a new run"):
        pretrain.run(replace(short, steps=4, resume=True))
    assert (tmp_path / "run" / "bothways.json").read_bytes() == before


def test_a_run_is_not_resumed_with_another_vocabulary(result, settings, tmp_path):
    shutil.copytree(result.model_directory, tmp_path / "own")
    short = replace(settings, steps=2, tokenizer=tmp_path / "own" / "vocab.txt", out=tmp_path / "run")
    pretrain.run(short)
    newest = max((tmp_path / "run" / "checkpoints").glob("step-*")) / "state.json"
    with (tmp_path / "own" / "vocab.txt").open("a") as file:
        file.write("unheard-of\n")
    with pytest.raises(InputError, match="vocabulary: '.*' -> '.*'; start a new run"):
        pretrain.run(replace(short, steps=4, resume=True))
    shutil.copy(result.model_directory / "vocab.txt", tmp_path / "own")
    state = json.loads(newest.read_text())
    del state["order"]["vocabulary"]  # as older runs have it
    newest.write_text(json.dumps(state))
    pretrain.run(replace(short, steps=4, resume=True))


def test_info_works_if_the_newest_checkpoint_is_broken(result, tmp_path):
    shutil.copytree(result.directory, tmp_path / "run")
    (max((tmp_path / "run" / "checkpoints").glob("step-*")) / "state.json").write_text('{"best')
    facts = info.describe(tmp_path / "run")
    assert "step-00000085 (the newest is broken: " in facts["checkpoints"] and facts["status"] == "done"


def test_a_vocabulary_half_written_by_a_killed_run_is_written_again(settings, tmp_path):
    (tmp_path / ".tokenizer.0123abcd").mkdir()
    (tmp_path / ".tokenizer.0123abcd" / "vocab.txt").write_text("[PAD]")
    learned = learn_tokenizer(replace(settings, tokenizer=None), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"tokenizer"} and len(learned) > 50


def test_a_checkpoint_has_the_steps_of_the_sections_so_far(result):
    newest = sorted((result.directory / "checkpoints").glob("step-*"))[-1]
    memo = json.loads((newest / "state.json").read_text())["memo"]
    assert memo and sum(memo) >= 85 > sum(memo[:-1])


def test_tensorboard_files_hold_the_losses(result, settings, tmp_path):
    pytest.importorskip("tensorboard", reason="the extra `tensorboard` is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    pretrain.run(replace(settings, steps=3, tokenizer=result.model_directory, out=tmp_path / "run", tensorboard=True))
    board = EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    assert [event.value for event in board.Scalars("loss/train")] == pytest.approx(
        losses_of(tmp_path / "run"), rel=1e-6
    )


def test_for_a_gpu_a_few_cores_build_batches(monkeypatch):
    built = []
    for cores in (2, 4, 16, 64):
        monkeypatch.setattr(setup, "num_cores", lambda cores=cores: cores)
        built.append((setup.num_builders(torch.device("cpu")), setup.num_builders(torch.device("cuda"))))
    assert built == [(0, 0), (0, 1), (0, 4), (0, 4)]
