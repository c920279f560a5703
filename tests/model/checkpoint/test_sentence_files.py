"""Files of sentence-transformers: every setting is used, or named in an error or a warning."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

import bothways
from bothways.base.errors import InputError, MissingFile
from bothways.base.log import messages_to
from bothways.model.checkpoint import checkpoint, hub
from bothways.model.checkpoint.contents import Checkpoint
from bothways.text.tokenizer.tokenizer import Tokenizer

TEXTS = ["The CAT sat", "a dog, É", "the mat " * 30]
KINDS = ("Transformer", "Pooling", "Normalize")


@pytest.fixture
def directory(make_model, tokenizer, tmp_path):
    cased = Tokenizer({token: index for index, token in enumerate(tokenizer.tokens)}, lowercase=False)
    checkpoint.save(Checkpoint(model=make_model("bert", {}), tokenizer=cased, pooling="mean"), tmp_path / "model")
    return tmp_path / "model"


def change(file: Path, **settings):
    old = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps({**old, **settings}))


def modules(directory, *kinds, package="sentence_transformers.models", paths=("", "1_Pooling", "2_Normalize")):
    entries = [
        {"idx": index, "name": str(index), "path": path, "type": f"{package}.{kind}"}
        for index, (kind, path) in enumerate(zip(kinds, paths, strict=False))
    ]
    (directory / "modules.json").write_text(json.dumps(entries))


def warnings_of(load, directory):
    lines = []
    with messages_to(lines.append):
        load(directory)
    return [line for line in lines if "config.json: unknown keys" not in line]


@pytest.mark.slow
def test_vectors_are_those_of_sentence_transformers_with_the_settings_it_saves(directory, tmp_path, global_seed):
    library = pytest.importorskip("sentence_transformers")
    theirs = library.SentenceTransformer(str(directory), device="cpu", prompts={"query": "the "})
    theirs.max_seq_length = 20
    theirs.save(str(tmp_path / "theirs"), create_model_card=False)
    change(tmp_path / "theirs" / "sentence_bert_config.json", do_lower_case=True)
    theirs = library.SentenceTransformer(str(tmp_path / "theirs"), device="cpu")
    assert len(warnings_of(bothways.load, tmp_path / "theirs")) == 2  # the prompt, and the length
    ours = bothways.load(tmp_path / "theirs", device="cpu", dtype="float32")
    np.testing.assert_allclose(ours.embed(TEXTS, window=20, long="truncate"), theirs.encode(TEXTS), atol=1e-6)
    ours.save(tmp_path / "ours")
    again = library.SentenceTransformer(str(tmp_path / "ours"), device="cpu")
    np.testing.assert_allclose(ours.embed(TEXTS[:2]), again.encode(TEXTS[:2]), atol=1e-6)


@pytest.mark.parametrize("name", ["sentence_bert_config.json", "sentence_roberta_config.json"])
def test_texts_are_lower_cased_where_the_files_say_so(directory, name):
    (directory / "sentence_bert_config.json").unlink()
    change(directory / name, do_lower_case=True)
    lowered = checkpoint.load(directory).tokenizer
    assert lowered.ids("The CAT") == lowered.ids("the cat") and lowered.ids("é") != lowered.ids("e")
    change(directory / name, do_lower_case="yes")
    with pytest.raises(InputError, match=f"{name}: do_lower_case"):
        checkpoint.load(directory)


@pytest.mark.parametrize("prompts", [{"query": "query: ", "passage": "passage: "}, {"query": "Represent: ", "x": ""}])
def test_one_line_names_the_prompts_without_a_default_where_texts_are_embedded(directory, prompts):
    change(directory / "config_sentence_transformers.json", prompts=prompts, default_prompt_name=None)
    assert not warnings_of(checkpoint.load, directory)
    (line,) = warnings_of(bothways.load, directory)
    assert all(repr(prompt) in line for prompt in prompts.values() if prompt)
    change(directory / "config_sentence_transformers.json", prompts=dict.fromkeys(prompts, ""))
    assert not warnings_of(bothways.load, directory)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("sentence_bert_config.json", {"max_seq_length": 7}),
        ("sentence_bert_config.json", {"max_seq_length": None, "tokenizer_args": {"model_max_length": 7}}),
        ("tokenizer_config.json", {"model_max_length": 7}),
    ],
)
def test_a_length_at_which_sentence_transformers_cuts_is_logged(directory, name, settings):
    assert not warnings_of(bothways.load, directory)
    if name.startswith("tokenizer"):
        (directory / "sentence_bert_config.json").unlink()
    change(directory / name, **settings)
    (line,) = warnings_of(bothways.load, directory)
    assert "window=7" in line


def test_the_pooling_is_read_in_the_folder_that_modules_name(directory):
    (directory / "1_Pooling").rename(directory / "pool")
    change(directory / "pool" / "config.json", pooling_mode="cls")
    modules(directory, *KINDS, paths=("", "pool", "2_Normalize"))
    assert checkpoint.load(directory).pooling == "cls"
    assert hub.missing_part(directory) == ""
    (directory / "pool" / "config.json").unlink()
    assert "pool/config.json" in hub.missing_part(directory)
    with pytest.raises(MissingFile, match=r"pool/config\.json: not found"):
        checkpoint.load(directory)


@pytest.mark.parametrize("path", ["../pool", "/pool", 7, "a/b", ".."])
def test_a_folder_outside_is_refused(directory, path):
    modules(directory, *KINDS, paths=("", path, ""))
    with pytest.raises(InputError, match=r"modules\.json: path "):
        checkpoint.load(directory)


@pytest.mark.parametrize(
    ("name", "settings", "shown"),
    [
        ("config_sentence_transformers.json", {"truncate_dim": 8}, r"truncate_dim \(8\)"),
        ("config_sentence_transformers.json", {"truncate_dim": "8"}, r"truncate_dim \('8'\)"),
        ("config_sentence_transformers.json", {"model_type": "SparseEncoder"}, "model_type .*SparseEncoder"),
        ("config_sentence_transformers.json", {"new_setting": 1}, "new_setting"),
        ("sentence_bert_config.json", {"query_length": 32}, r"query_length \(32\)"),
        ("sentence_bert_config.json", {"transformer_task": "fill-mask"}, "transformer_task .*fill-mask"),
        ("sentence_bert_config.json", {"modality_config": {"text": {"method": "other"}}}, "modality_config .*other"),
        ("sentence_bert_config.json", {"tokenizer_args": {"padding_side": "left"}}, "padding_side .*left"),
        ("sentence_bert_config.json", {"new_setting": 1}, "new_setting"),
        ("1_Pooling/config.json", {"new_setting": 1}, "new_setting"),
        ("1_Pooling/config.json", {"pooling_mode": ["mean", "cls"]}, r"mean \+ cls"),
        ("2_Normalize/config.json", {"module_input_name": "token_embeddings"}, "module_input_name .*token_embeddings"),
    ],
)
def test_a_setting_that_is_not_computed_is_named(directory, name, settings, shown):
    change(directory / name, **settings)
    with pytest.raises(InputError, match=rf"{re.escape(name)}: .*{shown}"):
        checkpoint.load(directory)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("config_sentence_transformers.json", {"truncate_dim": 1000, "new_setting": None, "similarity_fn_name": "dot"}),
        ("config_sentence_transformers.json", {"truncate_dim": None, "new_setting": {}, "__version__": {"a": "1"}}),
        ("sentence_bert_config.json", {"query_length": None, "model_args": {"attn_implementation": "sdpa"}}),
        ("1_Pooling/config.json", {"include_prompt": False, "pooling_mode_lasttoken": False}),
    ],
)
def test_a_setting_without_influence_is_no_matter(directory, name, settings):
    change(directory / name, **settings)
    assert not warnings_of(bothways.load, directory)


@pytest.mark.parametrize(
    ("kinds", "package", "shown"),
    [
        (("Transformer", "Pooling", "LayerNorm"), "sentence_transformers.models", "'LayerNorm'"),
        (("Transformer",), "custom_st", "'custom_st.Transformer'"),
        (("Transformer", "Normalize"), "sentence_transformers.models", "Transformer, Normalize are"),
        (("Pooling", "Transformer"), "sentence_transformers.models", "1_Pooling"),
    ],
)
def test_modules_that_are_not_computed_are_named(directory, kinds, package, shown):
    modules(directory, *kinds, package=package)
    with pytest.raises(InputError, match=rf"modules\.json: .*{shown}"):
        checkpoint.load(directory)


@pytest.mark.parametrize(("function", "number"), [("Sigmoid", 1), ("Identity", 0)])
def test_a_function_of_scores_that_is_not_applied_is_logged(directory, function, number):
    modules = {"Sigmoid": "activation", "Identity": "linear"}
    name = f"torch.nn.modules.{modules[function]}.{function}"
    change(directory / "config_sentence_transformers.json", model_type="CrossEncoder", activation_fn=name)
    assert len([line for line in warnings_of(checkpoint.load, directory) if function in line]) == number


def test_a_prompt_that_is_added_but_not_pooled_is_refused(directory):
    change(directory / "config_sentence_transformers.json", prompts={"a": "b: "}, default_prompt_name="a")
    change(directory / "1_Pooling" / "config.json", include_prompt=False)
    with pytest.raises(InputError, match="include_prompt"):
        checkpoint.load(directory)
