"""`model.explain`: effects of words, against predictions for texts that lack the word, and integrated gradients."""

import csv
import json

import numpy as np
import pyarrow.parquet
import pytest
import torch

from benchmarks.explain import integrated_gradients
from bothways.base.errors import InputError
from bothways.inference.explanation import Cut, Explanation, WordEffect, leave_out, word_cuts
from bothways.inference.jobs.verbs import predict, predict_blocks
from bothways.inference.predictor import Predictor
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.contents import Checkpoint
from bothways.settings import Predict
from bothways.text.batch import Batch

LABELS = ("red", "green", "blue")
TAGS = ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
TEXT = "the cat sat, and  a dog ran on the mat."


def without_each_word(text):
    return [cut.apply(text) for cut in word_cuts(text)]


def effects(explanation):
    return [word.effect for word in explanation.words]


@pytest.fixture(scope="module")
def classifier(make_predictor):
    return make_predictor("bert", {"classes": 3}, labels=LABELS)


@pytest.mark.parametrize(
    ("text", "word", "left"),
    [
        ("the cat sat", "the", "cat sat"),
        ("the cat sat", "cat", "the sat"),
        ("the cat sat", "sat", "the cat"),
        ("the  cat sat", "cat", "the  sat"),
        ("a cat, a dog", "cat", "a , a dog"),
        ("a cat.", ".", "a cat"),
        ("semi-dry", "-", "semi dry"),
        ("(cat)", "cat", "()"),
        ("cat", "cat", ""),
    ],
)
def test_a_word_is_left_out_with_a_space_and_its_neighbours_stay_apart(text, word, left):
    start = text.index(word)
    assert Cut.of(text, start, start + len(word)).apply(text) == left


def test_characters_behind_a_cut_are_found_in_the_shorter_text():
    for cut in word_cuts(TEXT):
        shorter = cut.apply(TEXT)
        for other in word_cuts(TEXT):
            if other != cut:
                start = cut.moved(other.start)
                assert shorter[start : start + other.end - other.start] == TEXT[other.start : other.end]


def test_several_words_are_left_out_together():
    words = [WordEffect(TEXT[cut.start : cut.end], cut.start, cut.end, 0.0) for cut in word_cuts(TEXT)]
    assert [word.word for word in words] == "the cat sat , and a dog ran on the mat .".split()
    assert leave_out(TEXT, [words[1], words[9], words[6]]) == "the sat, and  a ran on mat."


@pytest.mark.parametrize("label", [None, *LABELS])
def test_the_effect_of_a_word_is_what_the_probability_loses_without_it(classifier, label):
    explanation = classifier.explain(TEXT, label=label)
    whole = classifier.classify(TEXT)
    assert explanation.label == (label or whole.label)
    assert explanation.score == pytest.approx(whole.scores[explanation.label], abs=1e-5)
    assert all(TEXT[word.start : word.end] == word.word for word in explanation.words)
    losses = [explanation.score - one.scores[explanation.label] for one in classifier.classify(without_each_word(TEXT))]
    assert effects(explanation) == pytest.approx(losses, abs=1e-5) and max(map(abs, losses)) > 1e-4


def test_many_texts_are_explained_as_one_by_one(classifier):
    texts = [TEXT, "a cat", "dog", TEXT[:9], "a cat"]
    pairs = ["the mat", "", "b", "a b a", "a dog"]
    for explained, text, pair in zip(classifier.explain(texts, pairs), texts, pairs, strict=True):
        alone = classifier.explain(text, pair)
        assert effects(explained) == pytest.approx(effects(alone), abs=1e-5)
        assert [(word.word, word.text) for word in explained.words] == [
            ((text, pair)[number][cut.start : cut.end], number)
            for number, shown in enumerate((text, pair))
            for cut in word_cuts(shown)
        ]


def test_long_texts_are_explained_in_windows(classifier):
    text = " ".join(["the cat sat on a mat"] * 8)
    explanation = classifier.explain(text, window=24, overlap=6)
    assert explanation.score == pytest.approx(classifier.classify(text, window=24, overlap=6).score, abs=1e-5)
    assert len(explanation.words) == 48
    shorter = classifier.classify(text[4:], window=24, overlap=6).scores[explanation.label]
    assert explanation.words[0].effect == pytest.approx(explanation.score - shorter, abs=1e-5)


def test_a_text_of_one_word_is_compared_with_the_empty_text(classifier):
    (word,) = classifier.explain(" cat\n").words
    whole = classifier.classify(" cat\n")
    assert word.effect == pytest.approx(whole.score - classifier.classify("\n").scores[whole.label], abs=1e-5)


def test_several_labels_have_probabilities_of_their_own(make_model, tokenizer):
    loaded = Checkpoint(
        model=make_model("bert", {"classes": 3}),
        tokenizer=tokenizer,
        model_type="bert",
        labels=LABELS,
        metadata={"multi_label": True},
    )
    model = Predictor(loaded, dtype="float32", device="cpu")
    for label in LABELS:
        explanation = model.explain(TEXT, label=label)
        assert explanation.score == pytest.approx(model.classify(TEXT).scores[label], abs=1e-5)


def test_numbers_lose_what_they_are_worth(make_predictor):
    model = make_predictor("bert", {"classes": 1})
    explanation = model.explain(TEXT)
    numbers = model.regress([TEXT, *without_each_word(TEXT)])
    assert explanation.label is None
    assert explanation.score == pytest.approx(numbers[0], abs=1e-5)
    assert effects(explanation) == pytest.approx(numbers[0] - numbers[1:], abs=1e-5)


def test_each_entity_has_an_explanation_and_the_text_has_their_mean(make_predictor):
    tagger = make_predictor("bert", {"tokens": 5}, labels=TAGS, seed=3)
    found = tagger.tag(TEXT)
    explanation = tagger.explain(TEXT)
    assert len(found) > 1
    for entity, explained in zip(found, explanation.entities, strict=True):
        assert (explained.label, explained.span) == (entity.label, (entity.start, entity.end))
        assert explained.score == pytest.approx(entity.score, abs=1e-5)
    assert effects(explanation) == pytest.approx(np.mean([effects(one) for one in explanation.entities], 0))

    (label,) = {found[0].label}
    assert {one.label for one in tagger.explain(TEXT, label=label).entities} == {label}


def test_an_entity_of_one_word_is_lost_with_it(make_predictor):
    tagger = make_predictor("bert", {"tokens": 3}, labels=("O", "X", "Y"))
    explanation = tagger.explain(TEXT)
    assert explanation.entities
    for entity in explanation.entities:
        lost = next(word for word in entity.words if (word.start, word.end) == entity.span)
        assert lost.effect == entity.score
        assert all(word.effect <= entity.score for word in entity.words)

    # Where another word is missing, it is the score of the same word in the shorter text.
    compared = 0
    for number, cut in enumerate(word_cuts(TEXT)):
        shorter = {(one.start, one.label): one.score for one in tagger.tag(cut.apply(TEXT))}
        for entity in explanation.entities:
            score = shorter.get((cut.moved(entity.span[0]), entity.label))
            if score is not None and entity.span != (cut.start, cut.end):
                assert entity.words[number].effect == pytest.approx(entity.score - score, abs=1e-5)
                compared += 1
    assert compared > 20


def test_the_words_of_a_passage_support_its_answer(make_predictor):
    reader = make_predictor("bert", {"spans": 2})
    question = "the dog"
    explanation = reader.explain(question, TEXT)
    (answer,) = reader.answer(question, TEXT)
    assert (explanation.label, explanation.span) == (answer.text, (answer.start, answer.end))
    assert explanation.score == pytest.approx(answer.score, abs=1e-5)
    assert {word.text for word in explanation.words} == {1}
    for word, cut in zip(explanation.words, word_cuts(TEXT), strict=True):
        same = [
            one.score
            for one in reader.answer(question, cut.apply(TEXT), top=20)
            if cut.apply(TEXT)[one.start : one.end] == answer.text and one.start == cut.moved(answer.start)
        ]
        if not answer.start <= word.start < answer.end:
            assert word.effect == pytest.approx(answer.score - (same or [0.0])[0], abs=1e-5)


def test_the_similarity_of_two_texts_is_explained_by_the_words_of_both(make_predictor):
    model = make_predictor("bert")
    other = "a dog and a cat"
    explanation = model.explain(TEXT, other)
    vectors = model.embed([TEXT, other, *without_each_word(TEXT), *without_each_word(other)])
    num_firsts = len(word_cuts(TEXT))
    cosines = [*(vectors[2 : 2 + num_firsts] @ vectors[1]), *(vectors[2 + num_firsts :] @ vectors[0])]
    assert explanation.score == pytest.approx(vectors[0] @ vectors[1], abs=1e-5)
    assert effects(explanation) == pytest.approx(explanation.score - np.array(cosines), abs=1e-5)
    assert [word.text for word in explanation.words] == [0] * num_firsts + [1] * 5


def test_what_cannot_be_explained_is_said_in_one_line(classifier, make_predictor):
    for text in ("", " \n"):
        with pytest.raises(InputError, match=r"has no words to leave out; give at least one word"):
            classifier.explain(text)
    with pytest.raises(InputError, match=r"texts\[1\] \(''\) has no words"):
        classifier.explain(["a", ""])
    with pytest.raises(InputError, match=r"label \('pink'\) is not a label .*red.*; name one"):
        classifier.explain("a", label="pink")
    with pytest.raises(InputError, match="label .* is for labels"):
        make_predictor("bert", {"classes": 1}).explain("a", label="red")
    with pytest.raises(InputError, match=r"no head .* give a second text"):
        make_predictor("bert").explain("a")
    with pytest.raises(InputError, match="give one passage per question"):
        make_predictor("bert", {"spans": 2}).explain("a")
    assert classifier.explain([]) == []


@pytest.mark.parametrize("ending", ["jsonl", "parquet", "csv"])
def test_predictions_have_the_words_of_each_text(classifier, tmp_path, ending):
    checkpoint.save(classifier.checkpoint, tmp_path / "model")
    texts = [TEXT, "a cat", "-"]
    (tmp_path / "t.txt").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    out = tmp_path / f"out.{ending}"
    file = str(tmp_path / "t.txt")
    predict(Predict(model=tmp_path / "model", file=file, out=out, explain=True, dtype="float32"))

    if ending == "jsonl":
        words = [json.loads(line)["words"] for line in out.read_text(encoding="utf-8").splitlines()]
    elif ending == "parquet":
        words = pyarrow.parquet.read_table(out)["words"].to_pylist()
    else:
        with out.open(encoding="utf-8", newline="") as file:
            words = [json.loads(row["words"]) for row in csv.DictReader(file)]
    for found, text in zip(words, texts, strict=True):
        expected = classifier.explain(text).to_json()["words"]
        assert [one["word"] for one in found] == [one["word"] for one in expected]
        assert [one["effect"] for one in found] == pytest.approx([one["effect"] for one in expected], abs=1e-5)


def test_a_printed_row_without_words_has_none(classifier, tmp_path):
    checkpoint.save(classifier.checkpoint, tmp_path / "model")
    ((row,),) = predict_blocks(Predict(model=tmp_path / "model", text=" ", explain=True, dtype="float32"))
    assert row["words"] == []


def test_an_explanation_prints_and_is_json_with_the_largest_effects_first():
    words = tuple(WordEffect(f"w{number}", 3 * number, 3 * number + 2, (-0.1) ** number) for number in range(12))
    explanation = Explanation("red", 0.9, words, span=(0, 2))
    assert [word.word for word in explanation.top(2)] == ["w0", "w2"]
    assert [word.word for word in explanation.by_size[:2]] == ["w0", "w1"]
    content = explanation.to_json()
    assert [*content] == ["label", "score", "start", "end", "words"]
    assert content["words"][1] == {"word": "w1", "start": 3, "end": 5, "effect": -0.1, "text": 0}
    lines = [*explanation.lines()]
    assert lines[:3] == ["red 0.9000", "  +1.0000  w0", "  -0.1000  w1"] and lines[-1] == "  ... 2 more"


def test_leaving_words_out_and_integrated_gradients_find_the_planted_word(make_model, tokenizer):
    """A classifier learns two planted words and texts without; both methods put the planted word of a text first."""
    draw = np.random.default_rng(0)
    planted = {"cat": 0, "dog": 1}
    others = ["the", "sat", "on", "mat", "and", "ran", "a", "b"]

    def drawn(word):
        words = [*draw.choice(others, 7)]
        words.insert(draw.integers(8), word)
        return " ".join(words)

    model = make_model("bert", {"classes": 3})
    texts = [drawn(word) for word in [*planted, "the"] * 32]
    targets = torch.tensor([*planted.values(), 2] * 32)
    batch = Batch.from_encodings(tokenizer.encode_many(texts))
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(60):
        states_NH = model.text_states(model.encoder(batch), batch)
        loss = torch.nn.functional.cross_entropy(model.text_scores("classes", states_NH), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    loaded = Checkpoint(model=model.eval(), tokenizer=tokenizer, model_type="bert", labels=("cats", "dogs", "none"))
    predictor = Predictor(loaded, dtype="float32", device="cpu")

    for word in [*planted] * 5:
        text = drawn(word)
        explanation = predictor.explain(text)
        assert explanation.label == f"{word}s"
        assert explanation.top(1)[0].word == word
        gradients_W = integrated_gradients(predictor, text, planted[word])
        assert text.split()[int(np.abs(gradients_W).argmax())] == word
