"""Cloze classification: the scores of words at a mask, without training, after training, and as a teacher."""

import json

import pytest
import torch

import bothways
from bothways.errors import InputError
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.cloze import mask_position, with_cloze_head, words_by_label
from bothways.model.checkpoint.contents import Checkpoint
from bothways.settings import Classify, Predict

PHRASE, WORDS = "on the [MASK] .", {"feline": "cat", "canine": "dog"}
TEXTS = ["the cat sat", "a dog ran and ran", "b"]


def rows(number=60):
    words = ["the", "sat", "on", "mat", "and", "ran"]
    return [
        {
            "text": f"{words[row % 6]} {('dog', 'cat')[row % 2]} {'on ' * (row // 6)}",
            "label": ("canine", "feline")[row % 2],
        }
        for row in range(number)
    ]


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert", "modernbert"])
def test_its_scores_are_those_of_the_words_at_the_mask(family, make_predictor, tokenizer):
    model = make_predictor(family, {"masked_words": 0})
    found = model.cloze(PHRASE, WORDS)
    assert found.task == "classify" and found.labels == ("feline", "canine")
    ids = [tokenizer.vocab[word] for word in WORDS.values()]
    for text, prediction in zip(TEXTS, found.classify(TEXTS), strict=True):
        encoding = tokenizer.encode_after(PHRASE, text)
        with torch.no_grad():
            from bothways.text.batch import Batch

            hidden = model.module(Batch.from_encodings([encoding]))
            scores = model.module.word_scores(hidden[encoding.ids.index(tokenizer.mask_id)][None])[0, ids]
        assert [*prediction.scores.values()] == pytest.approx(scores.softmax(-1).tolist(), abs=1e-5)


def test_masks_in_the_text_itself_are_text(tokenizer):
    encoding = tokenizer.encode_after(PHRASE, "the [MASK] sat")
    assert encoding.ids.count(tokenizer.mask_id) == 1 and mask_position(tokenizer, PHRASE) == 3
    assert encoding.segment_ids[:6] == [0] * 6 and encoding.segment_ids[-1] == 1


def test_long_texts_are_read_in_windows_with_the_phrase_in_each(make_predictor):
    model = make_predictor("bert", {"masked_words": 0}, max_position_embeddings=256).cloze(PHRASE, WORDS)
    long = " ".join(["the cat sat on the mat"] * 30)
    windows = model.split([model.tokenizer.encode_after(PHRASE, long)], {"window": 80, "overlap": 4})[0]
    assert len(windows) >= 3 and all(part.ids[:6] == windows[0].ids[:6] for part in windows)
    assert model.classify(long, window=80).label in WORDS


def test_words_belong_to_labels_by_name_or_order():
    labels = ("bad", "good")
    assert words_by_label(("terrible", "great"), labels) == {"bad": "terrible", "good": "great"}
    assert words_by_label(("good=great", "bad=terrible"), labels) == {"bad": "terrible", "good": "great"}
    assert words_by_label(("terrible", "great"), ()) == {"terrible": "terrible", "great": "great"}
    for words, message in (
        (("great",), "1 for 2 labels"),
        (("good=great", "mad=angry"), "the data has bad, good"),
        (("great", "great"), "each label needs a different one"),
    ):
        with pytest.raises(InputError, match=message):
            words_by_label(words, labels)


@pytest.mark.parametrize(
    ("phrase", "words", "message"),
    [
        ("on the mat", WORDS, r"must have one \[MASK\], not 0"),
        ("[MASK] [MASK]", WORDS, r"must have one \[MASK\], not 2"),
        (PHRASE, {"a": "zebra", "b": "cat"}, r"words \('zebra'\) is 5 pieces"),
    ],
)
def test_phrases_and_words_that_do_not_fit_are_refused(phrase, words, message, make_predictor):
    with pytest.raises(InputError, match=message):
        make_predictor("bert", {"masked_words": 0}).cloze(phrase, words)


def test_models_that_fill_no_masks_are_refused(make_predictor):
    with pytest.raises(InputError, match="cloze needs a head for masked words"):
        make_predictor("bert").cloze(PHRASE, WORDS)
    with pytest.raises(InputError, match="narrower than its hidden states"):
        make_predictor("electra", {"masked_words": 0}).cloze(PHRASE, WORDS)


@pytest.fixture(scope="module")
def run(table, checkpoint_of, finetuned):
    return finetuned(
        Classify, model=checkpoint_of(), train=table(rows()), cloze=PHRASE, words=("dog", "cat"), epochs=4.0
    )


def test_few_examples_train_it_and_it_is_stored(run):
    assert not run.result.frozen and run.result.mean > 0.8
    assert (run.result.model / "cloze.safetensors").exists()
    config = json.loads((run.result.model / "config.json").read_text())
    assert config["model_type"] == "bothways-cloze" and config["cloze_config"]["pooling_position"] == 3
    predictor = run.predictor
    assert predictor.labels == ("canine", "feline")
    assert [one.label for one in predictor.classify(["sat cat", "the dog"])] == ["feline", "canine"]
    half = bothways.load(run.result.model, dtype="bfloat16").classify(["sat cat"])[0]
    assert half.label == "feline"


def test_before_the_first_step_it_is_the_classifier_without_training(table, checkpoint_of, finetuned):
    start = checkpoint_of()
    run = finetuned(
        Classify,
        model=start,
        train=table(rows()),
        cloze=PHRASE,
        words=("dog", "cat"),
        learning_rate=0.0,
        calibrate=False,
    )
    untrained = bothways.load(start, dtype="float32").cloze(PHRASE, {"canine": "dog", "feline": "cat"})
    expected = [one.scores["feline"] for one in untrained.classify(TEXTS)]
    assert [one.scores["feline"] for one in run.predictor.classify(TEXTS)] == pytest.approx(expected, abs=1e-6)


def test_it_teaches_a_usual_classifier(run, table, checkpoint_of, finetuned):
    options = {"train": table(rows()), "teacher": run.result.model, "alpha": 1.0, "epochs": 3.0}
    student = finetuned(Classify, model=checkpoint_of(), **options)
    assert student.result.teacher["test"] > 0.8 and (student.result.model / "model.safetensors").exists()


def test_it_is_not_changed_by_other_verbs(run, table, tmp_path):
    with pytest.raises(InputError, match="a cloze classifier can be used, and teach, but not changed"):
        bothways.train(Classify(model=run.result.model, train=table(rows()), out=tmp_path / "run"))


def test_predict_classifies_without_training(checkpoint_of, tmp_path):
    from bothways.inference.jobs.jobs import predict_blocks

    file = tmp_path / "texts.txt"
    file.write_text("\n".join(TEXTS), encoding="utf-8")
    settings = Predict(model=checkpoint_of(), file=str(file), cloze=PHRASE, words=("cat", "dog"), dtype="float32")
    found = [row for block in predict_blocks(settings) for row in block]
    assert len(found) == 3 and {row["label"] for row in found} <= {"cat", "dog"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cloze": PHRASE}, "cloze and words need each other"),
        ({"words": ("a", "b")}, "cloze and words need each other"),
        ({"cloze": PHRASE, "words": ("dog", "cat"), "adapter": "lora"}, "adapter is not supported with cloze"),
    ],
)
def test_settings_that_make_no_sense_are_refused(options, message, table, checkpoint_of, tmp_path):
    with pytest.raises(InputError, match=message):
        Classify(model=checkpoint_of(), train=table(rows()), out=tmp_path / "run", **options)


def test_pairs_are_refused(table, checkpoint_of, tmp_path):
    pairs = [{**row, "pair": "the mat"} for row in rows()]
    settings = Classify(
        model=checkpoint_of(), train=table(pairs), out=tmp_path / "run", cloze=PHRASE, words=("dog", "cat")
    )
    with pytest.raises(InputError, match="is for single texts with one label each, not for pairs"):
        bothways.train(settings)
    assert not settings.out.exists()


def test_a_broken_file_is_refused(run, tmp_path):
    import shutil

    folder = tmp_path / "broken"
    shutil.copytree(run.result.model, folder)
    (folder / "cloze.safetensors").write_bytes(b"x" * 50)
    with pytest.raises(InputError, match=r"cloze\.safetensors: broken"):
        checkpoint.load(folder)
    (folder / "cloze.safetensors").unlink()
    with pytest.raises(InputError, match="declares a cloze classifier"):
        checkpoint.load(folder)


def test_a_head_is_made_of_a_checkpoint(make_model, tokenizer):
    found = with_cloze_head(Checkpoint(make_model("bert", {"masked_words": 0}), tokenizer), PHRASE, WORDS)
    assert found.model.config.pooling_position == 3 and found.metadata["cloze"]["words"] == WORDS


def test_rows_to_label_are_chosen_without_training(checkpoint_of, tmp_path):
    from bothways.inference.jobs.rows_to_label import write_rows_to_label

    file, out = tmp_path / "texts.jsonl", tmp_path / "next.csv"
    file.write_text("\n".join(json.dumps({"text": row["text"]}) for row in rows(12)), encoding="utf-8")
    options = {"cloze": PHRASE, "words": ("cat", "dog"), "dtype": "float32"}
    write_rows_to_label(Predict(model=checkpoint_of(), file=str(file), out=out, label_next=3, **options))
    lines = out.read_text(encoding="utf-8-sig").splitlines()
    assert len(lines) == 4 and all(line.split(",")[-2] in ("cat", "dog") for line in lines[1:])
