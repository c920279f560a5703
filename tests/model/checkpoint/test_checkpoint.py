"""Broken checkpoints give a one-line error; a failed save keeps the old checkpoint."""

import errno
import json
import os
import pickle
import shutil
import subprocess
import sys
import threading
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from bothways.base import io
from bothways.base.errors import InputError, MissingFile
from bothways.base.log import messages_to
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.changes import new_head
from bothways.model.checkpoint.contents import Checkpoint
from bothways.model.checkpoint.directory import TRIES, Directory
from bothways.model.checkpoint.formats import hugging_face
from bothways.text.batch import Batch
from bothways.text.tokenizer.tokenizer import Tokenizer
from tests.replacing import save_version, versions_of

LABELS = ("red", "green", "blue", "black", "white")
MADE = {"verb": "finetune", "seed": 7}


@pytest.fixture
def held(make_model, tokenizer):
    """A whole checkpoint of ours, in memory."""
    model = make_model("bert", {"classes": 5})
    return Checkpoint(
        model=model, tokenizer=tokenizer, labels=LABELS, pooling="cls", extra={"note": "x"}, metadata=MADE
    )


@pytest.fixture
def directory(held, tmp_path):
    checkpoint.save(held, tmp_path / "model")
    return tmp_path / "model"


def quietly(path):
    return checkpoint.load(path)


def contents(directory):
    return {str(file.relative_to(directory)): file.read_bytes() for file in directory.rglob("*") if file.is_file()}


def refused(path, *parts, kind=InputError, unchanged=True):
    """Loading raises an error of one line with these parts, and changes nothing on disk."""
    before = contents(path)
    with pytest.raises(kind) as error:
        quietly(path)
    line = str(error.value)
    assert "\n" not in line and str(path) in line
    assert all(part in line for part in parts), line
    assert not unchanged or contents(path) == before


def change_config(directory, **changes):
    file = directory / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def change_weights(directory, change):
    state = load_file(directory / "model.safetensors")
    save_file(change(state), directory / "model.safetensors")


# --- there and back -------------------------------------------------------------------------------------------------


def test_everything_is_loaded_as_it_was_saved(held, directory):
    back = quietly(directory)
    before, after = held.model.state_dict(), back.model.state_dict()
    assert list(before) == list(after)
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert back.model.config == held.model.config and back.model.num_outputs == {"classes": 5}
    assert (back.labels, back.pooling, back.extra, back.model_type) == (LABELS, "cls", {"note": "x"}, "bert")
    assert {key: back.metadata[key] for key in MADE} == MADE
    assert back.tokenizer.vocab == held.tokenizer.vocab
    assert not back.model.training


@pytest.mark.parametrize("family", ["bert", "roberta", "longformer", "big_bird", "modernbert", "deberta-v2"])
def test_transformers_finds_the_special_tokens_in_the_config(family, make_model, tokenizer, tmp_path):
    """BigBird for answers finds [SEP] by this id, and uses 66 if the config lacks it."""
    checkpoint.save(Checkpoint(make_model(family, {"spans": 2}), tokenizer, model_type=family), tmp_path)
    config = transformers.AutoConfig.from_pretrained(tmp_path)
    assert (config.cls_token_id, config.sep_token_id) == (tokenizer.cls_id, tokenizer.sep_id)


def test_saving_again_writes_the_same_bytes(directory, tmp_path):
    checkpoint.save(quietly(directory), tmp_path / "again")
    assert contents(tmp_path / "again") == contents(directory)


def test_a_run_can_be_loaded_in_place_of_its_model(directory, tmp_path):
    assert Directory(tmp_path).path == directory
    assert quietly(tmp_path).labels == LABELS


def test_labels_keep_the_order_of_their_numbers(make_model, tmp_path):
    labels = tuple(f"class {index}" for index in range(13))  # as text, 10 stands before 2
    model = make_model("bert", {"tokens": 13})
    checkpoint.save(Checkpoint(model=model, labels=labels), tmp_path / "model")
    assert quietly(tmp_path / "model").labels == labels


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
def test_pooling_is_loaded_as_it_was_saved(held, pooling, tmp_path):
    checkpoint.save(Checkpoint(model=held.model, pooling=pooling), tmp_path / "model")
    assert quietly(tmp_path / "model").pooling == pooling


@pytest.mark.parametrize(
    ("modes", "pooling"),
    [
        ({"pooling_mode": "mean"}, "mean"),
        ({"pooling_mode": "cls"}, "cls"),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "cls"),
    ],
)
def test_pooling_is_read_in_both_spellings(directory, modes, pooling):
    (directory / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 24, **modes}))
    assert quietly(directory).pooling == pooling


@pytest.mark.parametrize(
    "modes",
    [
        {"pooling_mode": "weightedmean"},
        {"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": True},
        {"pooling_mode_mean_sqrt_len_tokens": True},
        {},
    ],
)
def test_pooling_of_another_kind_is_refused(directory, modes):
    (directory / "1_Pooling" / "config.json").write_text(json.dumps(modes))
    refused(directory, "1_Pooling", "mean, cls, max")


def test_a_module_that_changes_vectors_is_refused_by_name_and_never_ignored(directory):
    kinds = ["Transformer", "Pooling", "Dense", "Normalize"]
    listed = [{"idx": i, "type": f"sentence_transformers.models.{kind}"} for i, kind in enumerate(kinds)]
    (directory / "modules.json").write_text(json.dumps(listed))
    refused(directory, "modules.json: 'Dense'")
    (directory / "modules.json").write_text("[{]")
    refused(directory, "modules.json:1: not valid JSON")
    (directory / "modules.json").write_text("[{}]")
    refused(directory, "modules.json: ")


@pytest.mark.parametrize("normalized", [True, False])
def test_vectors_keep_their_length_in_a_saved_copy(normalized, directory, tmp_path):
    kinds = ["Transformer", "Pooling", *["Normalize"] * normalized]
    listed = [{"idx": i, "type": f"sentence_transformers.models.{kind}"} for i, kind in enumerate(kinds)]
    (directory / "modules.json").write_text(json.dumps(listed))
    checkpoint.save(quietly(directory), tmp_path / "copy")
    again = json.loads((tmp_path / "copy" / "modules.json").read_text())
    assert [one["type"].rpartition(".")[2] for one in again] == kinds
    assert (tmp_path / "copy" / "2_Normalize").exists() == normalized == quietly(tmp_path / "copy").normalized


def test_half_precision_weights_are_read(directory):
    change_weights(directory, lambda state: {name: value.bfloat16() for name, value in state.items()})
    model = quietly(directory).model
    assert {value.dtype for value in model.parameters()} == {torch.float32}


def test_weights_in_several_files_are_read(directory):
    expected = quietly(directory).model.state_dict()
    state = load_file(directory / "model.safetensors")
    names = sorted(state)
    parts = {"model-1.safetensors": names[::2], "model-2.safetensors": names[1::2]}
    for part, own in parts.items():
        save_file({name: state[name] for name in own}, directory / part)
    (directory / "model.safetensors").unlink()
    index = {"weight_map": {name: part for part, own in parts.items() for name in own}}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    actual = quietly(directory).model.state_dict()
    assert all(torch.equal(actual[name], value) for name, value in expected.items())
    (directory / "model-2.safetensors").unlink()
    refused(directory, "model-2.safetensors", kind=MissingFile)


def test_old_weights_are_read_safely(directory):
    expected = quietly(directory).model.state_dict()
    torch.save(load_file(directory / "model.safetensors"), directory / "pytorch_model.bin")
    (directory / "model.safetensors").unlink()
    actual = quietly(directory).model.state_dict()
    assert all(torch.equal(actual[name], value) for name, value in expected.items())


def test_old_names_of_norms_are_read(directory):
    expected = quietly(directory).model.state_dict()
    new = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}

    def rename(state):
        for modern, old in new.items():
            state = {name.replace(modern, old): value for name, value in state.items()}
        return state

    change_weights(directory, rename)
    actual = quietly(directory).model.state_dict()
    assert all(torch.equal(actual[name], value) for name, value in expected.items())


# --- broken ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", [0, 3, 8, 100, 0.5, -1])
def test_truncated_weights_are_named(directory, kept):
    file = directory / "model.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[: int(kept * len(whole)) if isinstance(kept, float) else kept])
    refused(directory, "model.safetensors")


@pytest.mark.parametrize(
    "garbage", [b"\xff" * 999, b"<html>404</html>" * 9, b"version https://git-lfs.github.com/spec/v1\n"]
)
def test_garbage_weights_are_named(directory, garbage):
    (directory / "model.safetensors").write_bytes(garbage)
    refused(directory, "model.safetensors")


def test_missing_files_are_named(directory, tmp_path):
    with pytest.raises(MissingFile, match="nowhere: "):
        quietly(tmp_path / "nowhere")
    (directory / "model.safetensors").unlink()
    refused(directory, "model.safetensors", "pytorch_model.bin", kind=MissingFile)
    (directory / "config.json").unlink()
    refused(directory, "config.json", kind=MissingFile)


def test_a_file_in_place_of_a_directory_is_named(tmp_path):
    (tmp_path / "model").write_text("not a directory")
    with pytest.raises(InputError, match="model: a file"):
        quietly(tmp_path / "model")


@pytest.mark.parametrize(
    ("text", "part"), [("{", "not valid JSON"), ("[1]", "expected a JSON object"), ("", "not valid")]
)
def test_a_broken_config_is_named(directory, text, part):
    (directory / "config.json").write_text(text)
    refused(directory, "config.json", part)


@pytest.mark.parametrize("kind", ["gpt2", None, 3])
def test_the_error_for_an_unknown_kind_of_model_lists_the_known_ones(directory, kind):
    change_config(directory, model_type=kind)
    refused(
        directory,
        f"model_type {kind!r}",
        "albert, bert, ",
        ", modernbert, roberta, static, xlm-roberta",
    )


def test_a_tensor_of_another_shape_is_named_with_both_shapes(directory):
    name = "bert.encoder.layer.1.output.dense.weight"
    change_weights(directory, lambda state: {**state, name: state[name].T.contiguous()})
    refused(directory, name, "[40, 24]", "[24, 40]")


def test_a_stacked_tensor_of_another_shape_is_named(directory):
    name = "bert.encoder.layer.2.attention.self.key.weight"
    change_weights(directory, lambda state: {**state, name: torch.zeros(24, 23)})
    refused(directory, name)


def test_labels_that_do_not_fit_the_head_are_named(directory):
    change_config(directory, id2label={"0": "a", "1": "b"})
    refused(directory, "classifier.weight", "[5, 24]", "[2, 24]")


@pytest.mark.parametrize("names", [["a", "b"], {"neg": 0, "pos": 1}, {"0": "neg", "one": "pos"}, "ab"])
def test_labels_that_are_not_names_by_number_are_refused(names, directory):
    change_config(directory, id2label=names)
    refused(directory, "config.json: id2label ")


def test_a_name_that_two_classes_have_is_refused_where_there_are_classes(directory, make_model, tmp_path):
    change_config(directory, id2label={str(index): name for index, name in enumerate("xyxzw")})
    refused(directory, "config.json: id2label ", "'x'")
    checkpoint.save(Checkpoint(make_model("bert")), tmp_path / "encoder")
    change_config(tmp_path / "encoder", id2label={"0": "x", "1": "x"})
    assert quietly(tmp_path / "encoder").labels == ()


@pytest.mark.parametrize(
    ("number", "dtype"), [(float("nan"), torch.float32), (float("inf"), torch.float32), (-3.4e38, torch.bfloat16)]
)
@pytest.mark.parametrize("name", ["bert.embeddings.word_embeddings.weight", "classifier.bias"])
def test_weights_that_are_not_finite_are_refused_with_their_names(number, dtype, name, directory):
    def spoil(state):
        state[name].view(-1)[5 % state[name].numel()] = number
        return state

    change_weights(directory, spoil)
    if name == "classifier.bias" and dtype is torch.bfloat16:  # stays float32, which holds the number
        assert (
            float(checkpoint.load(directory, dtype=dtype).model.state_dict()["heads.classes.output.bias"].min()) < -3e38
        )
        return
    with pytest.raises(InputError, match=name):
        checkpoint.load(directory, dtype=dtype)


def test_large_finite_weights_are_read(directory):
    change_weights(directory, lambda state: {**state, "classifier.bias": torch.full((5,), 3e38)})
    assert quietly(directory).model.state_dict()["heads.classes.output.bias"].tolist() == [pytest.approx(3e38)] * 5


def test_weights_of_another_type_of_number_are_refused(directory):
    change_weights(directory, lambda state: {**state, "classifier.bias": torch.zeros(5, dtype=torch.int64)})
    refused(directory, "classifier.bias", "int64")


SPOILED = {
    "a config nested too deep": ("config.json", lambda config: "[" * 100_000, "values nested"),
    "objects nested too deep": ("config.json", lambda config: '{"a":' * 100_000, "values nested"),
    "a number of many digits": (
        "config.json",
        lambda config: {**config, "vocab_size": "DIGITS"},
        "a number too long",
    ),
    "a kind that is a list": ("config.json", lambda config: {**config, "model_type": ["bert"]}, "model_type ['bert']"),
    "labels in a list of lists": ("config.json", lambda config: {**config, "id2label": [["a"]]}, "id2label"),
    "labels that are objects": ("config.json", lambda config: {**config, "id2label": {"0": {}}}, "id2label"),
    "labels not from 0": ("config.json", lambda config: {**config, "id2label": {"1": "a", "2": "b"}}, "id2label"),
    "a billion labels": ("config.json", lambda config: {**config, "id2label": None, "num_labels": 10**9}, "num_labels"),
    "a billion entries": ("config.json", lambda config: {**config, "vocab_size": 10**9}, "parameters needed"),
    "a billion layers": ("config.json", lambda config: {**config, "num_hidden_layers": 10**9}, "num_hidden_layers"),
    "a billion positions": (
        "config.json",
        lambda config: {**config, "max_position_embeddings": 10**9},
        "parameters needed",
    ),
    "fewer than no segments": ("config.json", lambda config: {**config, "type_vocab_size": -1}, "type_vocab_size (-1)"),
    "an act that is a list": ("config.json", lambda config: {**config, "hidden_act": ["gelu"]}, "hidden_act=['gelu']"),
    "a norm without end": ("config.json", lambda config: {**config, "layer_norm_eps": 10**400}, "layer_norm_eps"),
    "settings in a list": ("bothways.json", lambda made: {**made, "settings": [1]}, "settings"),
    "a window in text": ("bothways.json", lambda made: {**made, "settings": {"window": "8"}}, "window ('8')"),
    "an overlap below 0": ("bothways.json", lambda made: {**made, "settings": {"overlap": -1}}, "overlap (-1)"),
    "a threshold in text": ("bothways.json", lambda made: {**made, "no_answer_threshold": "x"}, "no_answer_threshold"),
}


@pytest.mark.parametrize("case", SPOILED)
def test_values_of_another_type_or_size_are_named(case, directory):
    name, change, part = SPOILED[case]
    new = change(json.loads((directory / name).read_text()))
    text = new if isinstance(new, str) else json.dumps(new)
    (directory / name).write_text(text.replace('"DIGITS"', "9" * 5000))
    refused(directory, f"{name}: ", part)


@pytest.mark.parametrize("table", [["model.safetensors"], "model.safetensors", {"a": 1}, {"a": "../x"}, {"a": ""}])
def test_an_index_without_file_names_is_refused(table, directory):
    (directory / "model.safetensors").unlink()
    (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": table}))
    refused(directory, "model.safetensors.index.json: weight_map")


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin", "config.json", "modules.json", "part"])
def test_pipes_and_devices_do_not_block(name, directory):
    if name in ("pytorch_model.bin", "part"):
        (directory / "model.safetensors").unlink()
    (directory / name).unlink(missing_ok=True)
    os.mkfifo(directory / name)
    if name == "part":
        (directory / "model.safetensors.index.json").write_text('{"weight_map": {"a": "part"}}')
    with pytest.raises(InputError, match=f"{name}: not a regular file"):
        quietly(directory)


def test_a_file_in_place_of_a_checkpoint_is_named(directory):
    for name in ("model.safetensors", "config.json"):
        with pytest.raises(InputError, match=f"{name}: a file"):
            quietly(directory / name)


def test_a_number_of_labels_of_null_is_refused(directory):
    change_config(directory, id2label=None, num_labels=None)
    refused(directory, "config.json: num_labels (None)")


def test_a_regression_of_several_numbers_is_refused_and_not_taken_for_classes(directory):
    change_config(directory, problem_type="regression")
    refused(directory, "config.json: ", "5 outputs")


@pytest.mark.parametrize(
    "name",
    [
        "bert.embeddings.LayerNorm.bias",
        "bert.encoder.layer.0.attention.self.query.weight",
        "bert.pooler.dense.bias",
        "classifier.bias",
    ],
)
def test_a_missing_parameter_is_named(directory, name):
    change_weights(directory, lambda state: {key: value for key, value in state.items() if key != name})
    refused(directory, f"missing parameters: {name};")


def test_a_head_without_its_pooler_is_refused(directory):
    change_weights(directory, lambda state: {key: value for key, value in state.items() if "pooler" not in key})
    refused(directory, "pooler is missing")


def test_an_unused_parameter_is_logged(directory):
    change_weights(directory, lambda state: {**state, "bert.adapter.weight": torch.zeros(3, 7)})
    messages = []
    with messages_to(messages.append):
        checkpoint.load(directory)
    assert len([line for line in messages if "bert.adapter.weight" in line]) == 1


def test_untied_vocabulary_scores_are_refused(make_model, tmp_path):
    checkpoint.save(Checkpoint(model=make_model("bert", {"masked_words": 0})), tmp_path / "model")
    name = "cls.predictions.decoder.weight"
    table = "bert.embeddings.word_embeddings.weight"
    change_weights(tmp_path / "model", lambda state: {**state, name: state[table].clone()})
    quietly(tmp_path / "model")
    change_weights(tmp_path / "model", lambda state: {**state, name: state[table] + 1})
    refused(tmp_path / "model", name, "token table")


def test_a_vocabulary_bias_is_read_by_either_name_and_refused_where_they_differ(make_model, tmp_path, global_seed):
    saved = make_model("bert", {"masked_words": 0})
    with torch.no_grad():
        saved.heads["masked_words"].bias.normal_()
    checkpoint.save(Checkpoint(model=saved), tmp_path / "model")
    name, copy = "cls.predictions.bias", "cls.predictions.decoder.bias"
    change_weights(tmp_path / "model", lambda state: {**state, copy: state[name].clone()})
    quietly(tmp_path / "model")
    change_weights(tmp_path / "model", lambda state: {one: value for one, value in state.items() if one != name})
    assert torch.equal(quietly(tmp_path / "model").model.heads["masked_words"].bias, saved.heads["masked_words"].bias)
    change_weights(tmp_path / "model", lambda state: {**state, name: state[copy] + 1})
    refused(tmp_path / "model", copy, "vocabulary bias")


def test_the_prompt_that_sentence_transformers_adds_gives_a_warning(directory):
    prompts = {"prompts": {"passage": "passage: "}, "default_prompt_name": "passage"}
    (directory / "config_sentence_transformers.json").write_text(json.dumps(prompts))

    def warnings():
        lines = []
        with messages_to(lines.append):
            checkpoint.load(directory)
        return [line for line in lines if "config.json: unknown keys" not in line]

    (line,) = warnings()
    assert "config_sentence_transformers.json: " in line and "'passage: '" in line
    (directory / "config_sentence_transformers.json").write_text(json.dumps({**prompts, "default_prompt_name": None}))
    assert not warnings()


def test_untied_embeddings_matter_only_if_words_are_scored(directory, make_model, tmp_path):
    change_config(directory, tie_word_embeddings=False)
    quietly(directory)
    checkpoint.save(Checkpoint(model=make_model("bert", {"masked_words": 0})), tmp_path / "model")
    change_config(tmp_path / "model", tie_word_embeddings=False)
    refused(tmp_path / "model", "config.json: ", "tie_word_embeddings")


class Opens:
    """Like a malicious pickle: calls a function while it is read."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_old_weights_that_carry_code_are_refused_and_not_run(directory, tmp_path):
    (directory / "model.safetensors").unlink()
    torch.save({"weight": torch.zeros(3), "more": Opens(tmp_path / "ran")}, directory / "pytorch_model.bin")
    refused(directory, "pytorch_model.bin: ")
    (directory / "pytorch_model.bin").write_bytes(pickle.dumps(Opens(tmp_path / "ran")))
    refused(directory, "pytorch_model.bin: ")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("content", [[1, 2], {"a": 3}, torch.zeros(3)])
def test_old_weights_that_are_not_a_table_of_tensors_are_refused(directory, content):
    (directory / "model.safetensors").unlink()
    torch.save(content, directory / "pytorch_model.bin")
    refused(directory, "pytorch_model.bin")


def test_a_tokenizer_of_another_model_is_refused(directory):
    for name in ("tokenizer.json",):
        (directory / name).unlink()
    with (directory / "vocab.txt").open("a") as file:
        file.write("and-one-more\n")
    refused(directory, "98 entries", "97")


# --- a checkpoint that is replaced while it is loaded ---------------------------------------------------------------


@pytest.mark.parametrize("moment", [0, 1, 20, -1])
def test_a_checkpoint_replaced_during_a_load_is_read_again(moment, tmp_path, monkeypatch, global_seed):
    save_version(1, tmp_path / "m")
    plain, read = np.fromfile, []

    def replaced(*arguments, **options):
        read.append(arguments)
        if len(read) == moment + 1:
            save_version(2, tmp_path / "m")
        return plain(*arguments, **options)

    def replaced_last(file):
        save_version(2, tmp_path / "m")
        monkeypatch.undo()
        return Tokenizer.load(file)

    monkeypatch.setattr(np, "fromfile", replaced)  # for each array of the weights
    if moment == -1:
        monkeypatch.setattr(Tokenizer, "load", replaced_last)
    assert versions_of(quietly(tmp_path / "m")) == {2} and len(read) > moment


@pytest.mark.slow
def test_a_checkpoint_replaced_all_the_time_is_refused(tmp_path, monkeypatch, global_seed):
    versions = iter(range(1, 99))
    save_version(next(versions), tmp_path / "m")
    plain = Tokenizer.load

    def replaced(file):
        save_version(next(versions), tmp_path / "m")
        return plain(file)

    monkeypatch.setattr(Tokenizer, "load", replaced)
    refused(tmp_path / "m", f"replaced {TRIES} times", unchanged=False)


@pytest.mark.slow
def test_loads_beside_saves_never_mix_two_models(tmp_path, monkeypatch, global_seed):
    monkeypatch.setattr(io, "fsync", lambda path: None)  # a busy disk would take all the time
    save_version(1, tmp_path / "m")
    stop, asked, loads = threading.Event(), threading.Event(), []

    def save():
        """One save beside each load: more of them, on a busy machine, could replace the files at every retry."""
        for number in count(2):
            asked.wait()
            asked.clear()
            if stop.is_set():
                return
            save_version(number, tmp_path / "m")

    saver = threading.Thread(target=save)
    saver.start()
    try:
        while len(loads) < 400 and len(set(loads)) < 20:
            asked.set()
            loads.append(frozenset(versions_of(quietly(tmp_path / "m"))))
    finally:
        stop.set()
        asked.set()
        saver.join()
    assert all(len(versions) == 1 for versions in loads) and len(set(loads)) > 1


# --- a save that fails ----------------------------------------------------------------------------------------------


def test_a_directory_that_holds_something_else_is_not_touched(held, tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1.tex").write_text("years of work")
    with pytest.raises(InputError, match=r"thesis: .*chapter1\.tex"):
        checkpoint.save(held, tmp_path / "thesis")
    (tmp_path / "notes").write_text("more work")
    with pytest.raises(InputError, match="notes: "):
        checkpoint.save(held, tmp_path / "notes")
    assert contents(tmp_path) == {"thesis/chapter1.tex": b"years of work", "notes": b"more work"}


def test_a_run_is_not_replaced_by_a_checkpoint(held, tmp_path):
    checkpoint.save(held, tmp_path / "run" / "model")
    (tmp_path / "run" / "bothways.json").write_text('{"verb": "pretrain", "status": "done"}', encoding="utf-8")
    before = contents(tmp_path)
    with pytest.raises(InputError, match="run: "):
        checkpoint.save(held, tmp_path / "run")
    assert contents(tmp_path) == before


def test_a_checkpoint_of_another_program_is_not_replaced(held, make_peer, tmp_path):
    make_peer("BertModel").save_pretrained(tmp_path / "theirs")
    before = contents(tmp_path)
    with pytest.raises(InputError, match="theirs: "):
        checkpoint.save(held, tmp_path / "theirs")
    assert contents(tmp_path) == before


def test_an_empty_directory_and_missing_parents_are_filled(held, tmp_path):
    (tmp_path / "empty").mkdir()
    for target in (tmp_path / "empty", tmp_path / "a" / "b" / "c"):
        checkpoint.save(held, target)
        assert quietly(target).labels == LABELS
        assert [entry.name for entry in target.parent.iterdir() if entry.name.startswith(".")] == []


def test_saving_over_an_old_checkpoint_replaces_all_of_it(directory, make_model, tmp_path):
    other = Checkpoint(model=make_model("distilbert", {"masked_words": 0}, seed=3), model_type="distilbert")
    checkpoint.save(other, directory)
    back = quietly(directory)
    assert back.model_type == "distilbert" and back.tokenizer is None and back.pooling is None
    assert sorted(contents(directory)) == ["bothways.json", "config.json", "model.safetensors"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["model"]


def test_a_model_without_a_class_in_transformers_is_refused_and_the_old_one_stays(directory, make_model, tmp_path):
    before = contents(tmp_path)
    odd = Checkpoint(model=make_model("modernbert", {"next_sentence": 2}), model_type="modernbert")
    with pytest.raises(InputError, match="modernbert with heads next_sentence"):
        checkpoint.save(odd, directory)
    assert contents(tmp_path) == before


STAGES = [
    (hugging_face, "write_floats"), (hugging_face, "write_json"), (hugging_face, "write_modules"), (io, "fsync"),
    (io, "_replace"),
]  # fmt: skip


def full_disk(*arguments, **options):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage[1])
@pytest.mark.parametrize("calls_before", [0, 1, 2, 5])
def test_a_full_disk_at_any_stage_leaves_the_old_checkpoint(
    stage, calls_before, held, directory, monkeypatch, tmp_path
):
    before = contents(tmp_path)
    plain, calls = getattr(*stage), []

    def fails_later(*arguments, **options):
        calls.append(arguments)
        return plain(*arguments, **options) if len(calls) <= calls_before else full_disk()

    monkeypatch.setattr(*stage, fails_later)
    held = Checkpoint(model=held.model, tokenizer=held.tokenizer, labels=tuple("vwxyz"), pooling="max")
    try:
        checkpoint.save(held, directory)
    except OSError as error:
        assert "No space left" in str(error)
        assert contents(tmp_path) == before
        assert quietly(directory).labels == LABELS
    else:
        assert len(calls) <= calls_before
        assert quietly(directory).labels == tuple("vwxyz")
    assert [entry.name for entry in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("failing", [1, 2])
def test_a_rename_that_fails_leaves_the_old_checkpoint(failing, held, directory, monkeypatch, tmp_path):
    before, plain, calls = contents(tmp_path), Path.rename, []

    def rename(self, target):
        calls.append(target)
        return full_disk() if len(calls) == failing else plain(self, target)

    monkeypatch.setattr(Path, "rename", rename)
    with pytest.raises(OSError, match="No space left"):
        checkpoint.save(held, directory)
    assert contents(tmp_path) == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["model"]


SAVE = """
import resource, signal, sys
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.changes import new_head
from dataclasses import replace
held = checkpoint.load(sys.argv[1])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
for limit in sys.argv[2:]:
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), resource.RLIM_INFINITY))
    try:
        checkpoint.save(replace(held, labels=tuple("vwxyz")), sys.argv[1])
    except OSError as error:
        assert "\\n" not in str(error)
        print("refused", file=sys.stderr)
"""


@pytest.mark.slow
def test_a_disk_that_fills_up_in_the_middle_of_a_file_leaves_the_old_checkpoint(directory, tmp_path):
    before = contents(tmp_path)
    sizes = sorted(file.stat().st_size for file in directory.iterdir() if file.is_file())
    assert sizes[-1] > 30_000
    command = [sys.executable, "-c", SAVE, directory, "0", "1000", str(sizes[-1] - 1)]
    root = Path(checkpoint.__file__).parents[2]
    run = subprocess.run([*map(str, command)], capture_output=True, text=True, cwd=root)
    assert run.stderr.splitlines() == ["refused"] * 3
    assert contents(tmp_path) == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["model"]


def test_a_loaded_checkpoint_does_not_depend_on_its_directory(directory):
    loaded = quietly(directory)
    shutil.rmtree(directory)
    batch = Batch.from_encodings([loaded.tokenizer.encode("the cat sat")])
    with torch.no_grad():
        assert bool(loaded.model(batch).isfinite().all())


# --- a new head -----------------------------------------------------------------------------------------------------


def test_each_new_head_is_logged_with_its_outputs(held):
    messages = []
    with messages_to(messages.append):
        for seed in (1, 2):
            new_head.with_head(held, "tokens", ("O", "B"), seed=seed, dropout=0.25)
    assert len(messages) == 2 and all("head 'tokens' (2 outputs)" in line for line in messages)


def test_a_new_head_keeps_the_encoder_and_begins_from_its_seed(held):
    heads = [new_head.with_head(held, "tokens", ("O", "B"), seed=seed, dropout=0.25) for seed in (1, 1, 2)]
    first, again, other = (new.model.state_dict() for new in heads)
    encoder = {name: value for name, value in held.model.state_dict().items() if name.startswith("encoder.")}
    assert all(torch.equal(first[name], value) for name, value in encoder.items())
    name = "heads.tokens.output.weight"
    assert torch.equal(first[name], again[name]) and not torch.equal(first[name], other[name])
    assert heads[0].labels == ("O", "B") and heads[0].metadata == {}
    assert heads[0].model.config.hidden_dropout_prob == 0.25 and held.model.config.hidden_dropout_prob == 0.0
    assert set(held.model.num_outputs) == {"classes"} and set(heads[0].model.num_outputs) == {"tokens"}


@pytest.mark.parametrize("names", [("x",), ("x", "y", "z")])
def test_multi_label_models_are_loaded_as_such_even_with_a_single_label(names, make_model, tokenizer, tmp_path):
    made = Checkpoint(make_model("bert", {"classes": len(names)}), tokenizer, labels=names, multi_label=True)
    checkpoint.save(made, tmp_path / "model")
    loaded = checkpoint.load(tmp_path / "model")
    assert loaded.multi_label and loaded.labels == names


def test_the_model_of_a_run_is_found_behind_a_save_that_was_cut_off(held, tmp_path):
    (tmp_path / "run").mkdir()
    checkpoint.save(held, tmp_path / "run" / "model")
    (tmp_path / "run" / "model").rename(tmp_path / "run" / ".model.0123abcd.old")
    warnings = []
    assert Directory(tmp_path / "run", warnings.append).path == tmp_path / "run" / ".model.0123abcd.old"
    assert len(warnings) == 1 and ".model.0123abcd.old" in warnings[0]


def test_an_export_is_not_taken_for_a_broken_checkpoint(directory):
    (directory / "model.safetensors").rename(directory / "model.onnx")
    with pytest.raises(InputError, match="ONNX"):
        checkpoint.load(directory)


def test_pickles_in_several_parts_are_named(directory):
    (directory / "model.safetensors").unlink()
    (directory / "pytorch_model.bin.index.json").write_text('{"weight_map": {}}')
    refused(directory, "pytorch_model.bin.index.json: ", "model.safetensors", kind=MissingFile)


@pytest.mark.parametrize("name", ["BertForMultipleChoice", "MyForMultipleChoice"])
def test_a_model_that_chooses_between_texts_is_refused(directory, name):
    change_config(directory, architectures=[name])
    refused(directory, "config.json: architectures", name)


@pytest.mark.parametrize(
    ("name", "ours"), [("swish", "silu"), ("gelu_fast", "gelu_tanh"), ("gelu_accurate", "gelu_tanh")]
)
def test_an_activation_is_read_by_each_of_its_names(directory, name, ours):
    change_config(directory, hidden_act=name)
    assert quietly(directory).model.config.hidden_act == ours
