"""Packed weights: the same bits everywhere, little error, and one line for a damaged or missing file."""

import json
import math
import shutil

import numpy as np
import pytest
import torch

import bothways
from bothways.base.errors import InputError, MissingFile
from bothways.inference.predictor import Predictor
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.changes.pack import pack_codes, pack_matrix, save_packed
from bothways.model.checkpoint.contents import Checkpoint
from bothways.model.checkpoint.formats.packed import (
    CODES,
    PACKED_WEIGHTS,
    SCALES,
    PackedFormat,
    unpack_matrix,
)
from bothways.model.checkpoint.weights import open_safetensors
from bothways.text.tokenizer.tokenizer import SPECIAL_TOKENS, Tokenizer

SIZES = {"hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 96, "max_position_embeddings": 80}


METADATA = {"verb": "distill", "settings": {"train": "/home/me/a.csv", "corpus": ["b/c.txt", "d.txt"], "seed": 3}}


@pytest.fixture(scope="module")
def words():
    return Tokenizer({token: index for index, token in enumerate([*SPECIAL_TOKENS, *(f"w{i}" for i in range(120))])})


@pytest.fixture(scope="module")
def source(make_model, words):
    heads = {"masked_words": 0, "next_sentence": 2}
    model = make_model("bert", heads, vocab_size=len(words), pad_token_id=words.pad_id, **SIZES)
    return Checkpoint(model, words, pooling="mean", extra={"note": "x"}, metadata=METADATA)


@pytest.fixture(scope="module")
def packed(source, tmp_path_factory):
    directory = tmp_path_factory.mktemp("packed") / "model"
    save_packed(source, directory)
    return directory


@pytest.fixture
def copy(packed, tmp_path):
    return shutil.copytree(packed, tmp_path / "model")


def reference(packed_codes, scales_RG, bits):
    """The values of codes and scales, from their description, bit by bit."""
    number, high = scales_RG.size * 32, {4: 0, 5: 1, 6: 2, 8: 4}[bits]
    values = []
    for index in range(number):
        code = packed_codes[index // 2] >> 4 * (index % 2) & 15
        if high:
            byte, place = divmod(index, 8 // high)
            code |= (packed_codes[number // 2 + byte] >> high * place & 2**high - 1) << 4
        values.append((int(code) - 2 ** (bits - 1)) * float(scales_RG.flat[index // 32]))
    return np.array(values, np.float64).reshape(len(scales_RG), -1)


@pytest.mark.parametrize("bits", [4, 5, 6, 8])
def test_values_are_codes_times_scales_to_the_last_bit(bits):
    draw = np.random.default_rng(bits)
    codes_N = torch.from_numpy(draw.integers(0, 2**bits, 6 * 96).astype(np.uint8))
    scales_RG = torch.from_numpy(draw.normal(size=(6, 3)).astype(np.float16))
    stored = pack_codes(codes_N, bits)
    assert stored.numel() == 6 * 96 * bits // 8
    expected = reference(stored.numpy(), scales_RG.numpy(), bits)
    assert (unpack_matrix(stored.numpy(), scales_RG.numpy(), bits) == expected).all()  # exact in float32 too
    back_N = unpack_matrix(stored.numpy(), np.ones((6, 3), np.float16), bits).flatten() + 2 ** (bits - 1)
    assert back_N.tolist() == codes_N.tolist()


@pytest.mark.parametrize(("bits", "most"), [(4, 0.1), (5, 0.05), (6, 0.025), (8, 0.006)])
def test_rounding_errs_less_than_with_the_largest_number_as_scale(bits, most):
    matrix_RC = torch.randn(40, 96, generator=torch.Generator().manual_seed(bits))
    codes, scales_RG = pack_matrix(matrix_RC, bits)
    rounded_RC = torch.from_numpy(unpack_matrix(codes.numpy(), scales_RG.numpy(), bits))
    error = (rounded_RC - matrix_RC).norm() / matrix_RC.norm()
    assert most / 3 < error < most
    largest_RG = matrix_RC.reshape(40, 3, 32).abs().amax(-1)
    plain = (matrix_RC.reshape(40, 3, 32) / (largest_RG / (2 ** (bits - 1) - 1))[..., None]).round()
    plain = (plain * (largest_RG / (2 ** (bits - 1) - 1))[..., None]).reshape(40, 96)
    assert error < (plain - matrix_RC).norm() / matrix_RC.norm()  # better than scaling by the largest number alone


def test_zeros_and_numbers_too_small_for_float16_stay_finite():
    matrix_RC = torch.zeros(2, 64)
    matrix_RC[0, :32] = 1e-12
    codes, scales_RG = pack_matrix(matrix_RC, 4)
    values_RC = unpack_matrix(codes.numpy(), scales_RG.numpy(), 4)
    assert np.isfinite(values_RC).all() and np.abs(values_RC).max() <= 1e-6


def test_a_packed_model_is_small_and_has_everything_else(source, packed):
    loaded = checkpoint.load(packed)
    assert loaded.model.num_outputs == source.model.num_outputs and loaded.pooling == "mean"
    assert loaded.extra == {"note": "x"} and loaded.metadata["verb"] == "distill"
    assert loaded.tokenizer.tokens == source.tokenizer.tokens and loaded.model.config == source.model.config
    assert loaded.settings == {"train": "a.csv", "corpus": ["c.txt", "d.txt"], "seed": 3}  # no directory of its maker
    parameters = sum(value.numel() for value in source.model.parameters())
    assert (packed / PACKED_WEIGHTS).stat().st_size < 1.1 * parameters
    config = json.loads((packed / "config.json").read_text())
    assert config["model_type"] == PackedFormat.model_type and config["quantization_config"]["model_type"] == "bert"
    stored = open_safetensors(packed / PACKED_WEIGHTS)
    table = "bert.embeddings.word_embeddings.weight"
    assert stored[table + CODES].size * 2 == stored[table + SCALES].size * 32
    for name, value in loaded.model.state_dict().items():
        difference = (value - source.model.state_dict()[name]).norm() / source.model.state_dict()[name].norm()
        bits = 4 if "words" in name else 6
        assert difference < {4: 0.1, 6: 0.025}[bits], name


def test_it_predicts_nearly_what_the_original_does(source, packed):
    texts = ["w1 w2 w3 [MASK] w5", "w9 w8"]
    ours = Predictor(source, dtype="float32", device="cpu").embed(texts)
    theirs = bothways.load(packed, dtype="float32", device="cpu").embed(texts)
    assert (ours * theirs).sum(1).min() > 0.99 and not math.isclose((ours * theirs).sum(1).min(), 1, abs_tol=1e-9)


def test_unpacked_files_have_exactly_the_values_of_the_packed_model(packed, tmp_path):
    before = checkpoint.load(packed)
    checkpoint.save(before, tmp_path / "unpacked")
    after = checkpoint.load(tmp_path / "unpacked")
    assert not (tmp_path / "unpacked" / PACKED_WEIGHTS).exists()
    for name, value in before.model.state_dict().items():
        assert torch.equal(value, after.model.state_dict()[name]), name
    assert json.loads((tmp_path / "unpacked" / "config.json").read_text())["model_type"] == "bert"


def test_loading_writes_nothing_so_that_processes_can_share_it(copy):
    before = {file: (file.stat().st_mtime_ns, file.stat().st_ino) for file in copy.rglob("*")}
    checkpoint.load(copy)
    assert {file: (file.stat().st_mtime_ns, file.stat().st_ino) for file in copy.rglob("*")} == before


def refused(directory, *parts, kind=InputError):
    with pytest.raises(kind) as error:
        checkpoint.load(directory)
    line = str(error.value)
    assert "\n" not in line and str(directory) in line and all(part in line for part in parts), line


def test_one_flipped_bit_is_an_error(copy):
    content = bytearray((copy / PACKED_WEIGHTS).read_bytes())
    content[-1000] ^= 1
    (copy / PACKED_WEIGHTS).write_bytes(content)
    refused(copy, PACKED_WEIGHTS, "damaged", "install the package")


def test_a_file_that_was_cut_or_is_missing_is_an_error(copy):
    content = (copy / PACKED_WEIGHTS).read_bytes()
    (copy / PACKED_WEIGHTS).write_bytes(content[:-7])
    refused(copy, PACKED_WEIGHTS, "damaged")
    (copy / PACKED_WEIGHTS).unlink()
    refused(copy, PACKED_WEIGHTS, "not found", "install the package", kind=MissingFile)


@pytest.mark.parametrize("bits", [7, "4", None, {"bert.nothing.weight": 4}])
def test_bits_that_do_not_fit_the_file_are_an_error(copy, bits):
    config = json.loads((copy / "config.json").read_text())
    entries = config["quantization_config"]["bits"]
    if isinstance(bits, dict):
        entries |= bits
    else:
        entries[next(iter(entries))] = bits
    (copy / "config.json").write_text(json.dumps(config))
    refused(copy, "config.json", "bits")


def test_models_that_cannot_be_packed_are_refused_and_nothing_is_written(make_model, words, tmp_path):
    linear = make_model("bert", {"classes": 2}, vocab_size=len(words), pad_token_id=words.pad_id, **SIZES)
    linear.config = linear.config.replace(pooling="mean", pooler_act="none")
    with pytest.raises(InputError, match="cannot be packed"):
        save_packed(Checkpoint(linear, words, labels=("a", "b"), pooling="mean"), tmp_path / "out")
    assert not (tmp_path / "out").exists()
