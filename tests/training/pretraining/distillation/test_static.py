"""Static vectors from an encoder: principal components, weights by frequency, rows fitted to vectors of texts."""

import json

import numpy as np
import pytest
import torch

import bothways
from bothways.base.errors import InputError
from bothways.cli import main
from bothways.inference.fingerprint import vector_space
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.contents import Checkpoint
from bothways.settings import Distill
from bothways.training.pretraining.distillation.static_run import (
    count_matrix,
    fit_rows,
    principal_components,
    sample_texts,
    sif_weights,
    vocabulary_vectors,
    zipf_frequencies,
)


@pytest.fixture(scope="module")
def teacher(make_model, tokenizer, tmp_path_factory):
    directory = tmp_path_factory.mktemp("teacher") / "model"
    checkpoint.save(Checkpoint(make_model("bert"), tokenizer, pooling="mean"), directory)
    return directory


def test_an_entry_is_read_alone_between_special_tokens(make_predictor, tokenizer):
    model = make_predictor(pooling="mean")
    vectors = vocabulary_vectors(model)
    assert vectors.shape[0] == len(tokenizer)
    index = tokenizer.vocab["cat"]
    np.testing.assert_allclose(vectors[index], model.embed("cat", normalize=False), atol=1e-5)


def test_principal_components_keep_distances():
    rows = torch.randn(50, 3, generator=torch.Generator().manual_seed(2)) @ torch.randn(
        3, 9, generator=torch.Generator().manual_seed(3)
    )
    reduced = principal_components(rows, 3)
    assert reduced.shape == (50, 3)
    np.testing.assert_allclose(torch.pdist(rows.double()), torch.pdist(reduced.double()), atol=1e-4)
    assert reduced.var(0).diff().le(0).all()


def test_weights_by_frequency():
    frequencies = zipf_frequencies(["[PAD]", "é", "##東", "a", "the", "rare", "##s"])
    assert frequencies.argsort(descending=True).tolist() == [3, 4, 5, 6, 0, 1, 2]
    weights = sif_weights(torch.tensor([9999.0, 1.0]))
    np.testing.assert_allclose(weights, [1e-4 / (1e-4 + 0.9999), 1e-4 / (1e-4 + 1e-4)], rtol=1e-5)


def test_rows_are_the_solution_of_the_ridge_regression():
    generator = np.random.default_rng(4)
    ids = [generator.integers(0, 23, size).tolist() for size in generator.integers(0, 9, 60)]
    targets, start = (
        generator.normal(size=(60, 5)).astype(np.float32),
        generator.normal(size=(25, 5)).astype(np.float32),
    )
    matrix = count_matrix(ids, 25)
    dense = np.zeros((60, 25))
    for row, entries in enumerate(ids):
        for entry in entries:
            dense[row, entry] += 1 / np.sqrt(len(entries))
    np.testing.assert_allclose(matrix.toarray(), dense, atol=1e-6)
    rows = fit_rows(matrix, targets, start.copy(), penalty=0.7, steps=60)
    exact = start + np.linalg.solve(dense.T @ dense + 0.7 * np.eye(25), dense.T @ (targets - dense @ start))
    np.testing.assert_allclose(rows, exact, atol=1e-4)
    np.testing.assert_array_equal(rows[23:], start[23:])  # entries that do not occur keep their start


def test_texts_of_a_corpus_are_reproducible_and_of_all_lengths(paragraphs):
    texts = [*sample_texts(paragraphs, "en", 5)]
    assert texts == [*sample_texts(paragraphs, "en", 5)]
    assert set(texts) != {*sample_texts(paragraphs, "en", 6)}
    sizes = [len(text.split()) for text in texts]
    assert min(sizes) < 5
    assert max(sizes) > 30


def run(capsys, *arguments) -> dict:
    main.main(["distill", *map(str, arguments), "--json"])
    return json.loads(capsys.readouterr().out)


def test_static_vectors_without_text(teacher, tmp_path, capsys):
    facts = run(capsys, teacher, "--static", "--dimensions", 5, "-o", tmp_path / "static")
    assert (facts["size"], facts["entries"]) == (5, 97)
    assert bothways.load(tmp_path / "static").embed(["the cat", "a dog"]).shape == (2, 5)


def test_static_vectors_fitted_to_text(teacher, tmp_path, capsys):
    generator = np.random.default_rng(0)
    words = "the cat sat on a mat dog ran and".split()
    (tmp_path / "texts.txt").write_text(
        "\n".join(" ".join(generator.choice(words, generator.integers(3, 12))) + "." for _ in range(400))
    )
    arguments = (tmp_path / "texts.txt", "--documents", "line", "-o", tmp_path / "static")
    facts = run(capsys, teacher, *arguments, "--static")
    assert facts["fitted_texts"] > 300
    loaded, model = bothways.load(tmp_path / "static"), bothways.load(teacher)
    texts = ["the dog sat on a cat and ran.", "a mat on the mat."]
    assert ((loaded.embed(texts) * model.embed(texts)).sum(1) > 0.9).all()
    assert loaded.backend.vectors.space == vector_space(model)


def test_bad_settings_are_refused_and_nothing_is_written(teacher, tmp_path):
    with pytest.raises(InputError, match="corpus"):
        Distill(teacher=teacher, out=tmp_path / "x")
    with pytest.raises(InputError, match="dimensions"):
        Distill(teacher=teacher, corpus=(tmp_path / "a.txt",), out=tmp_path / "x", dimensions=3)
    (tmp_path / "few.txt").write_text("one\n\ntwo")
    settings = Distill(teacher=teacher, corpus=(tmp_path / "few.txt",), out=tmp_path / "x", static=True)
    from bothways.training.pretraining.distillation.distill import run as distill

    with pytest.raises(InputError, match="at least 100"):
        distill(settings)
    assert not (tmp_path / "x").exists()
