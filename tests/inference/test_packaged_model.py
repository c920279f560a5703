"""The model in the package: found offline by name or by default, sensible, and the same in other libraries."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import bothways
from bothways import pretrained
from bothways.base.errors import InputError
from bothways.cli import main
from bothways.model.checkpoint import checkpoint, hub
from bothways.model.checkpoint.formats.packed import PACKED_WEIGHTS
from bothways.settings import Classify, Embed, Fill, Info

ROOT = Path(__file__).parent.parent.parent
TEXTS = ["The capital of France is Paris.", "An otter slid down the muddy bank into the water.", "Why?"]


@pytest.fixture(scope="module")
def model():
    return bothways.load(dtype="float32", device="cpu")


def test_it_is_small_and_has_a_card():
    directory = pretrained.locate("bothways-en")
    assert sum(file.stat().st_size for file in directory.rglob("*") if not file.name.startswith(".")) < 24e6
    assert (directory / "README.md").read_text(encoding="utf-8") == (ROOT / "docs/model.md").read_text(encoding="utf-8")
    config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    assert config["quantization_config"]["sha256"][:12] in (ROOT / "docs/model.md").read_text(encoding="utf-8")


def test_it_is_found_by_name_and_by_default_unless_a_directory_has_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert hub.locate("bothways-en") == hub.locate(Path("bothways-en")) == pretrained.locate("bothways-en")
    assert pretrained.locate("bothways-de") is None and pretrained.locate("a/bothways-en") is None
    Path("bothways-en").mkdir()
    assert hub.locate("bothways-en") == Path("bothways-en")
    default = Path("bothways-en")
    assert Fill(text="[MASK]").model == Embed(file="a.txt", out="b.npy").model == default
    assert Classify(train=[{"text": "a", "label": "b"}], out="c").model == Info().path[0] == default


def test_it_fills_masks_with_sensible_words(model):
    guesses = {text: {guess.token for guess in model.fill(text, top=5)[0]} for text in (
        "The capital of France is [MASK].", "She opened the [MASK] and walked into the room.",
        "They were married and had three [MASK].", "The river flows into the [MASK].",
    )}  # fmt: skip
    expected = ({"paris"}, {"door", "doors"}, {"children", "sons", "daughters"}, {"sea", "river", "lake", "ocean"})
    assert sum(bool(words & tokens) for words, tokens in zip(expected, guesses.values(), strict=True)) >= 3, guesses


def test_it_predicts_which_sentence_follows(model):
    from bothways.cli.demo import read_texts

    firsts, rights, wrongs = map(list, zip(*read_texts()["next"], strict=True))
    assert (model.is_next(firsts, rights) > model.is_next(firsts, wrongs)).all()


def test_it_decides_among_options_that_it_has_not_seen(model):
    options = ["delivery", "billing", "returns"]
    texts = ["My parcel never came.", "The invoice is wrong, I was charged twice.", "I want to send this back."]
    decisions = model.decide(texts, options, none=False)
    assert [decision.label for decision in decisions[:2]] == options[:2]
    assert (
        model.decide("The stock market fell on Monday.", ["a football match", "finance"], none=False).label == "finance"
    )
    head = pretrained.locate("bothways-en") / "statements.safetensors"
    assert head.stat().st_size < 1 << 20


def test_vectors_of_the_same_meaning_are_close(model):
    vectors = model.embed(["A cat sat on the mat.", "A kitten lay on the rug.", "Interest rates rose again."])
    assert vectors[0] @ vectors[1] > 0.4 > vectors[0] @ vectors[2] + 0.2
    assert np.linalg.norm(vectors, axis=1) == pytest.approx([1, 1, 1], abs=1e-5)


@pytest.mark.slow
def test_other_libraries_have_its_numbers_from_the_unpacked_files(model, tmp_path):
    transformers, sentence_transformers = map(pytest.importorskip, ("transformers", "sentence_transformers"))
    main.main(["unpack", "bothways-en", "-o", str(tmp_path / "model")])
    assert not (tmp_path / "model" / PACKED_WEIGHTS).exists()
    embedder = sentence_transformers.SentenceTransformer(str(tmp_path / "model"), device="cpu")
    np.testing.assert_allclose(embedder.encode(TEXTS), model.embed(TEXTS), rtol=0, atol=1e-5)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    whole, info = transformers.AutoModelForPreTraining.from_pretrained(tmp_path / "model", output_loading_info=True)
    assert type(whole).__name__ == "BertForPreTraining" and not any(info.values())
    text, pair = "The [MASK] chased the cat.", ("The dog chased the cat.", "It ran away.")
    with torch.no_grad():
        words = whole(**tokenizer(text, return_tensors="pt")).prediction_logits[0, 2].softmax(-1)
        follows = whole(**tokenizer(*pair, return_tensors="pt")).seq_relationship_logits.softmax(-1)[0, 0]
        fills = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "model")
        again = fills(**tokenizer(text, return_tensors="pt")).logits[0, 2].softmax(-1)
    guesses = model.fill(text, top=5)[0]
    values, indices = words.topk(5)
    assert [guess.token for guess in guesses] == tokenizer.convert_ids_to_tokens(indices.tolist())
    np.testing.assert_allclose([guess.score for guess in guesses], values.numpy(), rtol=0, atol=1e-5)
    torch.testing.assert_close(words, again, rtol=0, atol=1e-6)
    assert model.is_next(*pair) == pytest.approx(float(follows), abs=1e-5)


def test_it_is_unpacked_to_the_same_bits_in_another_number_format():
    whole, half = (checkpoint.load("bothways-en", dtype=dtype).model for dtype in (torch.float32, torch.bfloat16))
    for name, value in whole.state_dict().items():
        assert torch.equal(value.to(torch.bfloat16), half.state_dict()[name].to(torch.bfloat16)), name


@pytest.mark.slow
def test_processes_that_load_it_at_once_and_without_a_network_agree(tmp_path):
    code = (
        "import socket; socket.socket.connect = None; import bothways; "
        "print(bothways.load(dtype='float32').fill('The [MASK] chased the cat.')[0][0])"
    )
    command, options = [sys.executable, "-c", code], {"cwd": tmp_path, "stdout": subprocess.PIPE, "text": True}
    running = [subprocess.Popen(command, **options) for _ in range(2)]
    outputs = [process.communicate()[0] for process in running]
    assert outputs[0] == outputs[1] and "chased the cat" in outputs[0]


def test_a_damaged_installation_is_named_in_one_line(tmp_path, monkeypatch, capsys):
    shutil.copytree(pretrained.locate("bothways-en"), tmp_path / "bothways-en")
    monkeypatch.setattr(pretrained, "locate", lambda path: tmp_path / "bothways-en")
    file = tmp_path / "bothways-en" / PACKED_WEIGHTS
    content = bytearray(file.read_bytes())
    content[5_000_000] ^= 16
    file.write_bytes(content)
    with pytest.raises(InputError, match="damaged"):
        bothways.load()
    file.unlink()
    with pytest.raises(SystemExit) as stopped:
        main.main(["fill", "The [MASK] chased the cat."])
    lines = capsys.readouterr().err.strip().splitlines()
    assert stopped.value.code == 1 and "using bothways-en" in lines[0]
    assert len(lines) == 2 and PACKED_WEIGHTS in lines[1] and "install the package" in lines[1]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["fill", "A [MASK]."], {"text": "A [MASK]."}),
        (["fill", "--top", "2", "A [MASK]."], {"text": "A [MASK].", "top": 2}),
        (["fill", "A [MASK].", "--json", "--top=2"], {"text": "A [MASK].", "top": 2, "json": True}),
        (["fill", "other", "A [MASK]."], {"model": Path("other"), "text": "A [MASK]."}),
        (["embed", "-", "-o", "a.npy"], {"file": "-"}),
        (["embed", "--no-normalize", "a.txt", "-o", "a.npy"], {"file": "a.txt", "normalize": False}),
        (["embed", "other", "a.txt", "-o", "a.npy"], {"model": Path("other"), "file": "a.txt"}),
        (["info"], {"path": (Path("bothways-en"),)}),
        (["finetune classify", "--train", "a.csv", "-o", "b"], {"train": Path("a.csv")}),
    ],
)
def test_a_command_without_a_model_takes_this_one(arguments, expected):
    settings = main.parse(arguments[0], arguments[1:])
    assert getattr(settings, "model", Path("bothways-en")) == expected.pop("model", Path("bothways-en"))
    assert {name: getattr(settings, name) for name in expected} == expected


@pytest.mark.parametrize("arguments", [["fill"], ["embed", "-o", "a.npy"], ["fill", "a", "b", "c"]])
def test_too_few_or_too_many_arguments_are_wrong_usage_in_one_line(arguments, capsys):
    with pytest.raises(SystemExit) as stopped:
        main.main(arguments)
    assert stopped.value.code == 2 and capsys.readouterr().err.count("\n") == 1
