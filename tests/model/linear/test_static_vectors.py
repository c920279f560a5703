"""Static vectors: the mean of rows, packed rows, files of this and other libraries."""

import json
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import bothways
from bothways.base.errors import InputError
from bothways.model.linear import static_vectors
from bothways.model.linear.static_vectors import (
    WEIGHTS,
    StaticVectors,
    VectorTable,
    packed_table,
    read_static,
    write_static,
)
from bothways.model.linear.word_vector_files import open_static

TEXTS = ["the cat sat on the mat", "", "a dog ran, and ran!", "\U0001f98a", "mat"]


@pytest.fixture
def static(tokenizer):
    rows = np.random.default_rng(3).normal(size=(len(tokenizer), 10)).astype(np.float32)
    rows[1] = 0
    return StaticVectors(tokenizer, VectorTable(rows), unknown=[1])


def test_a_vector_is_the_mean_of_rows_of_length_1(static, tokenizer):
    vectors = static.embed(TEXTS)
    for text, vector in zip(TEXTS, vectors, strict=True):
        rows = static.table.rows[[index for index in tokenizer.ids(text) if index != 1]]
        mean = rows.sum(0) if len(rows) else np.zeros(10)
        np.testing.assert_allclose(vector, mean / max(np.linalg.norm(mean), 1e-30), atol=1e-6)
    assert not vectors[1].any()
    assert not vectors[3].any()


def test_without_normalization_it_is_the_mean(static, tokenizer):
    plain = StaticVectors(tokenizer, static.table, unknown=[1], normalize=False)
    rows = static.table.rows[tokenizer.ids(TEXTS[0])]
    np.testing.assert_allclose(plain.embed(TEXTS[:1])[0], rows.mean(0), atol=1e-6)


def test_many_texts_have_the_vectors_of_few(static, monkeypatch):
    few = static.embed(TEXTS)
    monkeypatch.setattr(static_vectors, "BATCH", 2)
    static.texts = 1 << 20  # enough for the sparse product
    np.testing.assert_allclose(static.embed(TEXTS * 3), np.tile(few, (3, 1)), atol=1e-6)


def test_packed_rows_are_near_and_read_alike(static, tokenizer, tmp_path):
    table = packed_table(static.table.rows)
    near = table[np.arange(len(tokenizer))]
    assert table.rows.shape == (len(tokenizer), 5)
    error = np.linalg.norm(near - static.table.rows, axis=1) / np.maximum(
        np.linalg.norm(static.table.rows, axis=1), 1e-9
    )
    assert error.max() < 0.12
    assert near[1].tolist() == [0] * 10
    write_static(static, tmp_path / "packed", packed=True)
    write_static(static, tmp_path / "plain")
    packed, plain = read_static(tmp_path / "packed"), read_static(tmp_path / "plain")
    np.testing.assert_array_equal(packed.embed(TEXTS), StaticVectors(tokenizer, table, unknown=[1]).embed(TEXTS))
    np.testing.assert_allclose(plain.embed(TEXTS), static.embed(TEXTS), atol=1e-6)
    assert packed.fingerprint != plain.fingerprint == static.fingerprint


@pytest.mark.slow
def test_other_libraries_read_our_files_and_we_read_theirs(static, tmp_path):
    from model2vec import StaticModel
    from sentence_transformers import SentenceTransformer

    write_static(static, tmp_path / "ours")
    ours = static.embed(TEXTS[:3:2])
    theirs = StaticModel.from_pretrained(tmp_path / "ours")
    np.testing.assert_allclose(theirs.encode(TEXTS[:3:2]), ours, atol=1e-5)
    other = SentenceTransformer(str(tmp_path / "ours"), device="cpu")
    np.testing.assert_allclose(other.encode(TEXTS[:3:2]), ours, atol=1e-5)
    theirs.save_pretrained(tmp_path / "theirs")
    other.save(str(tmp_path / "others"))
    for name in ("theirs", "others"):
        loaded = bothways.load(tmp_path / name)
        np.testing.assert_allclose(loaded.embed(TEXTS[:3:2]), ours, atol=1e-5)


def test_rows_that_entries_share_and_their_weights(static, tmp_path):
    write_static(static, tmp_path / "shared")
    size = len(static.tokenizer)
    mapping, weights = np.arange(size)[::-1] % 7, np.linspace(0.5, 2, size).astype(np.float16)
    rows = static.table.rows[:7].astype(np.float16)
    tensors = {"embeddings": rows, "mapping": mapping.copy(), "weights": weights}
    save_file(tensors, tmp_path / "shared" / "model.safetensors")
    loaded = read_static(tmp_path / "shared")
    expected = rows[mapping].astype(np.float32) * weights.astype(np.float32)[:, None]
    np.testing.assert_allclose(loaded.table[np.arange(size)], expected, rtol=1e-6)


def test_a_predictor_embeds_and_refuses_the_rest(static, tmp_path):
    write_static(static, tmp_path / "static")
    model = bothways.load(tmp_path / "static")
    assert model.task == "embed"
    np.testing.assert_allclose(model.embed(TEXTS), static.embed(TEXTS), atol=1e-6)
    assert len(model.tokenizer) == len(static.tokenizer)
    for use in (lambda: model.classify("a"), lambda: model.fill("[MASK]"), lambda: model.hidden_states("a")):
        with pytest.raises(InputError):
            use()
    with pytest.raises(InputError, match="pooling"):
        model.embed("a", pooling="cls")
    model.save(tmp_path / "again")
    np.testing.assert_allclose(bothways.load(tmp_path / "again").embed(TEXTS), static.embed(TEXTS), atol=1e-6)


def test_the_packaged_vectors_need_no_torch():
    code = (
        "import sys; from pathlib import Path; from bothways.pretrained import locate, STATIC\n"
        "from bothways.model.linear.static_vectors import read_static\n"
        "texts = ['A cat sat on the mat.', 'A kitten lay on the rug.', 'Interest rates']\n"
        "vectors = read_static(locate(STATIC)).embed(texts)\n"
        "assert vectors[0] @ vectors[1] > 0.4 > 0.2 > vectors[0] @ vectors[2], vectors @ vectors.T\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.slow
def test_the_packaged_vectors_are_in_the_space_of_the_packaged_model():
    from bothways.inference.fingerprint import vector_space

    model, static = bothways.load(), bothways.load("bothways-en-static")
    assert static.backend.vectors.space == vector_space(model)
    texts = ["The opera was composed in Vienna.", "Late fees are two per cent a month.", "How do plants make sugar?"]
    assert ((model.embed(texts) * static.embed(texts)).sum(1) > 0.75).all()


@pytest.mark.parametrize("damage", ["weights", "table", "missing", "rows"])
def test_damaged_directories_are_refused(static, tmp_path, damage):
    write_static(static, tmp_path / "static")
    file = tmp_path / "static" / "model.safetensors"
    if damage == "weights":
        file.write_bytes(file.read_bytes()[:100])
    elif damage == "table":
        save_file({"other": static.table.rows}, file)
    elif damage == "rows":
        save_file({"embeddings": static.table.rows[:5].copy()}, file)
    else:
        file.unlink()
    with pytest.raises(InputError):
        read_static(tmp_path / "static")


@pytest.mark.parametrize("part", ["embeddings", "weights", "embeddings.scales"])
@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_values_that_are_no_numbers_are_refused_with_the_token(static, tmp_path, part, value):
    write_static(static, tmp_path / "static", packed=part.endswith("scales"))
    (file,) = (tmp_path / "static").glob("*.safetensors")
    tensors = load_file(file)
    tensors["weights"] = np.ones(len(static.tokenizer), np.float16)
    tensors[part][40:42, ...] = value
    save_file(tensors, file)
    with pytest.raises(InputError, match=rf"\.safetensors: .* 2 vectors, .*'{static.tokenizer.tokens[40]}'"):
        read_static(tmp_path / "static")


def test_large_values_of_16_bits_are_numbers(static, tmp_path):
    write_static(static, tmp_path / "static")
    save_file({"embeddings": np.full((len(static.tokenizer), 9), 6e4, np.float16)}, tmp_path / "static" / WEIGHTS)
    assert np.isfinite(read_static(tmp_path / "static").embed(TEXTS)).all()


# --- files of word vectors --------------------------------------------------------------------------------------------

WORDS = {"cat": [1.0, 0.0, 2.0], "Dog": [0.0, 1.0, -1.0], ",": [0.5, 0.5, 0.5]}


def as_text(words, header):
    lines = [f"{len(words)} 3"] if header else []
    return "".join(
        f"{line}\n" for line in [*lines, *(f"{word} {' '.join(map(str, row))}" for word, row in words.items())]
    )


def as_binary(words):
    rows = (word.encode() + b" " + np.array(row, "<f4").tobytes() + b"\n" for word, row in words.items())
    return f"{len(words)} 3\n".encode() + b"".join(rows)


@pytest.mark.parametrize("kind", ["glove", "word2vec text", "word2vec binary"])
def test_word_vectors(tmp_path, kind):
    path = tmp_path / "vectors.bin"
    path.write_bytes(as_binary(WORDS) if kind.endswith("binary") else as_text(WORDS, kind != "glove").encode())
    model = bothways.load(path)
    vector = np.array(WORDS["cat"]) + WORDS["Dog"] + WORDS[","]
    np.testing.assert_allclose(model.embed("CAT, Dog zebra"), vector / np.linalg.norm(vector), atol=1e-6)


@pytest.mark.parametrize("has_header", [True, False])
def test_a_byte_order_mark_is_no_part_of_the_first_word_vector(tmp_path, has_header):
    path = tmp_path / "vectors.txt"
    path.write_bytes(as_text(WORDS, has_header).encode("utf-8-sig"))
    static = open_static(path)
    assert static.tokenizer.tokens == [*WORDS]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no vectors here\n",
        b"2 3\ncat 1 2 3\ndog 1 2\n",
        as_binary(WORDS)[:-6],
        b"3 3\ncat 1 2 3\ndog 1 2 3\n",
        b"1 3\ncat 1 2 3\ndog 1 2 3\n",
        b"2 3\n",
    ],
)
def test_damaged_word_vectors_are_refused(tmp_path, content):
    path = tmp_path / "vectors.txt"
    path.write_bytes(content)
    with pytest.raises(InputError, match="vectors.txt"):
        open_static(path)


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
@pytest.mark.parametrize("kind", ["glove", "binary"])
def test_word_vectors_that_are_no_numbers_are_refused_with_the_word(tmp_path, kind, value):
    path, words = tmp_path / "vectors.bin", {**WORDS, "Dog": [0.0, float(value), 1.0]}
    path.write_bytes(as_binary(words) if kind == "binary" else as_text(words, header=False).encode())
    with pytest.raises(InputError, match=r"vectors\.bin: .* 1 vector, .*'Dog'"):
        open_static(path)


def test_info_and_unpack(static, tmp_path, capsys):
    from bothways.cli import main

    write_static(static, tmp_path / "static", packed=True)
    main.main(["info", str(tmp_path / "static"), "--json"])
    assert json.loads(capsys.readouterr().out)["model"] == "static vectors of size 10"
    main.main(["unpack", str(tmp_path / "static"), "-o", str(tmp_path / "plain")])
    np.testing.assert_array_equal(
        read_static(tmp_path / "plain").embed(TEXTS), read_static(tmp_path / "static").embed(TEXTS)
    )


@pytest.mark.parametrize(
    "content",
    [
        "the 1 2 3\n. . . 4 5 6\nat name@domain.com 7 8 9\n",
        ". . . 4 5 6\nthe 1 2 3\nat name@domain.com 7 8 9\n",
        "3 3\nat name@domain.com 7 8 9\nthe 1 2 3\n. . . 4 5 6\n",
    ],
)
def test_words_with_spaces_are_read_from_the_right(tmp_path, content):
    (tmp_path / "glove.txt").write_text(content)
    vectors = open_static(tmp_path / "glove.txt")
    rows = dict(zip(vectors.tokenizer.tokens, vectors.table.whole.tolist(), strict=True))
    assert rows == {"the": [1, 2, 3], ". . .": [4, 5, 6], "at name@domain.com": [7, 8, 9]}


def test_a_long_first_line_has_all_its_numbers(tmp_path):
    (tmp_path / "glove.txt").write_text(" ".join(["the", *["0.25000"] * 600]) + "\n")
    assert open_static(tmp_path / "glove.txt").dimension == 600


@pytest.mark.parametrize("content", ["the 1 2 3\ncat 4 5 6 7\n", "2 3\nthe 1 2 3\ncat 4 5 6 7 8\n"])
def test_a_line_with_too_many_numbers_is_refused(tmp_path, content):
    (tmp_path / "glove.txt").write_text(content)
    with pytest.raises(InputError, match=r"'cat' has [45] numbers, expected 3"):
        open_static(tmp_path / "glove.txt")


def save_as_model2vec(directory, kind="WordPiece"):
    from tokenizers import Tokenizer as Library
    from tokenizers import models, normalizers, pre_tokenizers

    vocab = {token: index for index, token in enumerate(["[PAD]", "[UNK]", "the", "cat", "sat", "mat"])}
    directory.mkdir()
    library = Library(getattr(models, kind)(vocab, unk_token="[UNK]"))
    library.normalizer, library.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    library.add_special_tokens(["[PAD]", "[UNK]"])
    library.save(str(directory / "tokenizer.json"))
    rows = np.random.default_rng(1).normal(size=(len(vocab), 4)).astype(np.float32)
    save_file({"embeddings": rows}, directory / WEIGHTS)
    (directory / "config.json").write_text('{"model_type": "model2vec", "normalize": true}')


@pytest.mark.parametrize("kind", ["WordPiece", "WordLevel"])
def test_a_tokenizer_without_cls_is_read_as_model2vec_reads_it(tmp_path, kind):
    save_as_model2vec(tmp_path / "theirs", kind)
    ours = bothways.load(tmp_path / "theirs")
    rows = load_file(tmp_path / "theirs" / WEIGHTS)["embeddings"]
    mean = rows[[2, 3, 5]].sum(0)
    np.testing.assert_allclose(ours.embed("The CAT, a zebra, mat"), mean / np.linalg.norm(mean), atol=1e-6)
    ours.save(tmp_path / "again")
    np.testing.assert_array_equal(bothways.load(tmp_path / "again").embed(TEXTS), ours.embed(TEXTS))


def test_a_tokenizer_without_cls_reads_surrogates_as_others_do(tmp_path):
    save_as_model2vec(tmp_path / "theirs")
    ids = read_static(tmp_path / "theirs").tokenizer.ids
    assert ids("c\ud800at") == ids("c\ufffdat") == ids("cat")


def test_a_tokenizer_without_cls_has_no_slow_pattern(tmp_path):
    save_as_model2vec(tmp_path / "theirs")
    file = tmp_path / "theirs" / "tokenizer.json"
    slow = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
    file.write_text(json.dumps({**json.loads(file.read_text()), "pre_tokenizer": slow}))
    with pytest.raises(InputError, match=r"tokenizer\.json: the regular expression"):
        read_static(tmp_path / "theirs")


@pytest.mark.slow
def test_model2vec_embeds_its_files_without_cls_alike(tmp_path):
    from model2vec import StaticModel

    save_as_model2vec(tmp_path / "theirs")
    theirs = StaticModel.from_pretrained(tmp_path / "theirs").encode(TEXTS)
    np.testing.assert_allclose(read_static(tmp_path / "theirs").embed(TEXTS), theirs, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "values"),
    [("mapping", np.full(6, 99)), ("mapping", -np.ones(6, np.int64)), ("weights", np.ones(3, np.float32))],
)
def test_a_mapping_or_weights_beyond_the_table_are_refused(tmp_path, name, values):
    save_as_model2vec(tmp_path / "theirs")
    file = tmp_path / "theirs" / WEIGHTS
    save_file({**load_file(file), name: values}, file)
    with pytest.raises(InputError, match=rf"safetensors: .*{name}"):
        read_static(tmp_path / "theirs")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("modules.json", [{"type": "a.StaticEmbedding"}, {"type": "a.Dense"}]),
        ("modules.json", [{"type": "a.StaticEmbedding"}, 5]),
        ("config_sentence_transformers.json", {"truncate_dim": 2}),
    ],
)
def test_steps_behind_static_vectors_are_named(tmp_path, name, content):
    save_as_model2vec(tmp_path / "theirs")
    (tmp_path / "theirs" / name).write_text(json.dumps(content))
    with pytest.raises(InputError, match=f"{name}: "):
        read_static(tmp_path / "theirs")
