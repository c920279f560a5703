"""A backend of Predictor is one class and one entry in BACKENDS: a toy backend of static word vectors embeds texts."""

import json

import numpy as np
import pytest

from bothways.base.errors import InputError
from bothways.cli.main import main
from bothways.inference.backends.backend import Backend
from bothways.inference.load import BACKENDS, load, open_backend
from bothways.model.checkpoint.description import CONFIG, Description

WORDS = {"cat": [1.0, 0.0, 0.2], "dog": [0.9, 0.1, 0.3], "rate": [0.0, 1.0, 0.0]}


class StaticBackend(Backend):
    """The sum of the vectors of a text's words."""

    def __init__(self, directory, **options):
        self.words = json.loads((directory.path / "words.json").read_text(encoding="utf-8"))
        self.description = Description(model_type="test-static", pooling="mean")
        self.heads, self.device, self.dtype = {}, "cpu", "float32"

    def refusal(self):
        return InputError("a table of word vectors; it has embed only")

    def facts(self):
        return {"model": f"{len(self.words)} word vectors"}

    def save(self, target):
        raise self.refusal()

    def text_vectors(self, texts, pooling, options):
        rows = [[self.words[word] for word in text.split() if word in self.words] for text in texts]
        return np.array([np.sum([[0.0] * 3, *row], axis=0) for row in rows], np.float32).reshape(len(texts), 3)


@pytest.fixture
def directory(tmp_path, monkeypatch):
    monkeypatch.setitem(BACKENDS.entries, "test-static", StaticBackend)
    (tmp_path / "static").mkdir()
    (tmp_path / "static" / CONFIG).write_text('{"model_type": "test-static"}', encoding="utf-8")
    (tmp_path / "static/words.json").write_text(json.dumps(WORDS), encoding="utf-8")
    return tmp_path / "static"


def test_a_backend_is_one_entry(directory, tmp_path, capsys):
    model = load(directory)
    vectors = model.embed(["a cat", "a dog", "the rate"])
    assert vectors.shape == (3, 3) and np.linalg.norm(vectors, axis=1) == pytest.approx(1)
    assert vectors[0] @ vectors[1] > 0.9 > 0.2 > vectors[0] @ vectors[2]
    assert (model.task, model.labels, model.reads_pairs) == ("embed", (), None)
    assert "test-static" in repr(model)
    main(["info", str(directory), "--json"])
    assert json.loads(capsys.readouterr().out)["model"] == "3 word vectors"
    pairs = tmp_path / "pairs.jsonl"
    rows = [("a cat", "a dog", 4.5), ("a cat", "the rate", 0.5), ("rate", "a rate", 5.0), ("dog", "rate", 0.0)]
    pairs.write_text("\n".join(json.dumps({"text": a, "pair": b, "score": s}) for a, b, s in rows), encoding="utf-8")
    main(["evaluate", str(directory), str(pairs), "--json"])
    assert json.loads(capsys.readouterr().out)["metrics"]["spearman"] > 0.7


def test_what_a_backend_cannot_do_is_refused_by_its_name(directory):
    model = load(directory)
    for call in (
        lambda: model.hidden_states("a cat"), lambda: model.tokenizer, lambda: model.module, lambda: model.checkpoint,
        lambda: model.window_policy, lambda: model.save("elsewhere"),
    ):  # fmt: skip
        with pytest.raises(InputError, match="a table of word vectors; it has embed only"):
            call()
    for method in ("classify", "tag", "fill"):
        with pytest.raises(InputError, match=r"no head for .* \(heads: none\)"):
            getattr(model, method)("a cat")
    with pytest.raises(InputError, match="a table of word vectors"):
        next(model.backend.text_scores("classes", ["a"], None, {}))


def test_a_directory_of_another_type_is_an_encoder(directory, make_predictor, tmp_path):
    make_predictor("bert", {"classes": 2}, labels=("n", "y")).save(tmp_path / "model")
    backend = open_backend(tmp_path / "model", dtype="float32", device="cpu")
    assert backend.encoder is backend and backend.task == "classify"
    assert backend.heads == {"classes": 2} and backend.description.labels == ("n", "y")
