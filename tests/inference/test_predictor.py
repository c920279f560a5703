"""Results of a Predictor, against slow formulas and `transformers`. For their invariants, see test_invariants.py."""

import pickle
import random
import subprocess
import sys
from copy import deepcopy
from dataclasses import replace
from itertools import pairwise
from shutil import rmtree

import numpy as np
import pytest
import torch
import transformers

import bothways
from bothways.base.device import choose_device, choose_dtype
from bothways.base.errors import InputError, MissingFile
from bothways.inference import runner
from bothways.inference.backends import encoder, tokens
from bothways.inference.predictor import Predictor
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.contents import Checkpoint
from bothways.tasks.class_decoding import Prediction
from bothways.text.batch import Batch
from bothways.text.tokenizer import worker_processes
from tests.soaked import in_soak

LABELS = ("red", "green", "blue", "black", "white")
TAGS = ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
STEP = 46  # tokens from one window to the next where windows of 64 share 16


@pytest.fixture(scope="module")
def filler(make_predictor):
    return make_predictor("bert", {"masked_words": 0})


def peer_of(predictor, architecture, directory):
    checkpoint.save(predictor.checkpoint, directory)
    transformers.logging.disable_progress_bar()
    return getattr(transformers, architecture).from_pretrained(directory).eval()


def masked_probabilities(predictor, ids, place):
    """Probabilities of one window by itself, computed directly."""
    batch = Batch.from_arrays(np.array(ids), np.zeros(len(ids), int), np.array([len(ids)]))
    with torch.no_grad():
        return predictor.module.word_scores(predictor.module(batch)[place][None])[0].softmax(-1)


# --- fill -----------------------------------------------------------------------------------------------------------


def test_words_for_a_mask_are_those_of_transformers(filler, tmp_path):
    peer = peer_of(filler, "BertForMaskedLM", tmp_path / "model")
    text = "the [MASK] sat on the [MASK]."
    tokens = ["[CLS]", "the", "[MASK]", "sat", "on", "the", "[MASK]", ".", "[SEP]"]
    ids = [filler.tokenizer.vocab[token] for token in tokens]
    with torch.no_grad():
        probabilities = peer(torch.tensor([ids])).logits[0].softmax(-1)
    results = filler.fill(text, top=97)
    assert len(results) == 2
    for fills, place in zip(results, (2, 6), strict=True):
        values, order = probabilities[place].sort(descending=True)
        assert [fill.score for fill in fills] == pytest.approx(values.tolist(), abs=1e-6)
        assert [fill.token for fill in fills[:5]] == [filler.tokenizer.tokens[index] for index in order[:5]]
        assert sum(fill.score for fill in fills) == pytest.approx(1, abs=1e-5)
        assert {fill.token for fill in fills} == set(filler.tokenizer.tokens)
    assert [[fill.token for fill in fills] for fills in filler.fill(text, top=3)] == [
        [fill.token for fill in fills[:3]] for fills in results
    ]


def test_the_text_with_a_word_in_place_of_its_mask(filler):
    text = "The  [MASK] sat, [MASK]!"
    first, second = filler.fill(text, top=97)
    assert {fill.token: fill.text for fill in first}["dog"] == "The  dog sat, [MASK]!"
    assert {fill.token: fill.text for fill in second}["dog"] == "The  [MASK] sat, dog!"
    assert {fill.token: fill.text for fill in first}["##s"] == "Thes sat, [MASK]!"
    assert {fill.token: fill.text for fill in second}["##ing"] == "The  [MASK] sat,ing!"


def test_other_special_tokens_in_a_text_are_text(filler):
    typed = "a [SEP] b [CLS] [MASK] [PAD]"
    results = filler.fill(typed, top=3)
    words = ["a", "[", "s", "##e", "##p", "]", "b", "[", "c", "##l", "##s", "]", "[MASK]", "[", "p", "##a", "##d", "]"]
    ids = [filler.tokenizer.vocab[word] for word in ["[CLS]", *words, "[SEP]"]]
    assert filler.tokenizer.encode(typed, allow_special=("[MASK]",)).ids == ids
    values = masked_probabilities(filler, ids, ids.index(filler.tokenizer.mask_id)).topk(3).values
    assert [fill.score for fill in results[0]] == pytest.approx(values.tolist(), abs=1e-6)


@pytest.mark.parametrize(("size", "overlap"), [(20, 9), (20, 8), (19, 7)])
def test_a_mask_in_a_long_text_is_filled_in_its_most_central_window(filler, size, overlap):
    for place in range(60):
        words = ["cat", "dog", "mat", "on"] * 15
        words[place] = "[MASK]"
        (fills,) = filler.fill(" ".join(words), top=4, window=size, overlap=overlap)
        ids = filler.tokenizer.encode(" ".join(words), allow_special=("[MASK]",))
        best, chosen = -1, None
        for window in filler.tokenizer.split_windows(ids, size=size, overlap=overlap):
            row = window.ids.index(filler.tokenizer.mask_id) if filler.tokenizer.mask_id in window.ids else None
            if row is not None and min(row, len(window) - 1 - row) > best:
                best, chosen = min(row, len(window) - 1 - row), (window.ids, row)
        values = masked_probabilities(filler, *chosen).topk(4).values
        assert [fill.score for fill in fills] == pytest.approx(values.tolist(), abs=1e-6), place


def test_the_error_for_a_missing_mask_names_the_mask_token(filler):
    for text in ("the cat", "", "[mask]", "the cat " * 99):
        with pytest.raises(InputError, match=r"write \[MASK\]") as error:
            filler.fill(text)
        assert len(str(error.value)) < 150


def test_a_mask_that_was_cut_off_is_named(filler):
    text = "cat " * 30 + "[MASK]"
    with pytest.raises(InputError, match="cut off.*long='windows'"):
        filler.fill(text, long="truncate", window=20)
    with pytest.raises(InputError, match="longer than 20 tokens"):
        filler.fill(text, long="error", window=20)


def test_rows_of_the_table_beyond_the_vocabulary_are_never_predicted(make_predictor):
    """Tables are often padded to a round size."""
    padded = make_predictor("bert", {"masked_words": 0}, vocab_size=131)
    (fills,) = padded.fill("the [MASK]", top=131)
    assert len(fills) == 97 and {fill.token for fill in fills} == set(padded.tokenizer.tokens)
    ids = padded.tokenizer.encode("the [MASK]", allow_special=True).ids
    expected = masked_probabilities(padded, ids, 2)
    values = expected[:97].sort(descending=True).values
    assert [fill.score for fill in fills] == pytest.approx(values.tolist(), abs=1e-6)


# --- classify and score ---------------------------------------------------------------------------------------------


def test_classes_of_texts_and_pairs_are_those_of_transformers(make_predictor, tmp_path):
    ours = make_predictor("bert", {"classes": 5}, labels=LABELS)
    peer = peer_of(ours, "BertForSequenceClassification", tmp_path / "model")
    texts, pairs = ["the cat sat", "a dog", "on the mat and ran"], ["dogs ran.", "", "the cats"]
    for seconds in (None, pairs):
        predictions = ours.classify(texts, seconds)
        for row, prediction in enumerate(predictions):
            encoding = ours.tokenizer.encode(texts[row], seconds and seconds[row])
            kinds = torch.tensor([encoding.segment_ids])
            with torch.no_grad():
                expected = peer(torch.tensor([encoding.ids]), token_type_ids=kinds).logits[0].softmax(-1)
            assert list(prediction.scores) == list(LABELS)
            assert list(prediction.scores.values()) == pytest.approx(expected.tolist(), abs=1e-6)
            assert prediction.label == LABELS[int(expected.argmax())]
            assert prediction.label == peer.config.id2label[int(expected.argmax())]
            assert prediction.score == pytest.approx(float(expected.max()), abs=1e-6)
            assert sum(prediction.scores.values()) == pytest.approx(1, abs=1e-6)


def test_multi_label_models_decide_each_label_independently(make_predictor):
    one = make_predictor("bert", {"classes": 5}, labels=LABELS)
    several = Predictor(replace(one.checkpoint, multi_label=True), dtype="float32", device="cpu")
    texts = ["the cat sat", "a dog", "on the mat and ran"]
    numbers = set()
    for prediction, alone in zip(several.classify(texts), one.classify(texts), strict=True):
        odds = {label: prediction.scores[label] / (1 - prediction.scores[label]) for label in LABELS}  # e^score
        total = sum(odds.values())
        for label in LABELS:
            assert odds[label] / total == pytest.approx(alone.scores[label], abs=1e-6)
        assert prediction.labels == tuple(label for label in LABELS if odds[label] > 1)
        assert (prediction.label, prediction.score) == (alone.label, prediction.scores[alone.label])
        assert alone.labels == (alone.label,)
        numbers.add(len(prediction.labels))
    assert numbers & {0, 2, 3, 4}


def test_top_returns_only_the_most_probable_labels(make_predictor, monkeypatch):
    one = make_predictor("bert", {"classes": 5}, labels=LABELS)
    texts = ["the cat sat", "a dog", "on the mat and ran"]
    for several in (False, True):
        classifier = Predictor(replace(one.checkpoint, multi_label=several), dtype="float32", device="cpu")
        whole = classifier.classify(texts)
        for top in (1, 3, 5, 99):
            for prediction, expected in zip(classifier.classify(texts, top=top), whole, strict=True):
                best = sorted(expected.scores.items(), key=lambda entry: -entry[1])[:top]
                assert list(prediction.scores.items()) == best
                assert (prediction.label, prediction.score, prediction.labels) == (
                    expected.label,
                    expected.score,
                    expected.labels,
                )
        with monkeypatch.context() as patched:
            patched.setattr(tokens, "MAX_SCORES", 7)  # one text at a time
            for prediction, expected in zip(classifier.classify(texts), whole, strict=True):
                assert (
                    prediction.scores == pytest.approx(expected.scores, abs=1e-6) and prediction.label == expected.label
                )


def test_a_prediction_prints_as_a_line_and_keeps_all_scores():
    probabilities = np.random.default_rng(0).dirichlet(np.full(77, 0.1))
    scores = {f"intent_{number:02}": float(value) for number, value in enumerate(probabilities)}
    best = sorted(scores, key=scores.__getitem__, reverse=True)
    prediction = Prediction(best[0], scores[best[0]], scores, labels=tuple(best[:9]), is_set=True)
    line = repr(prediction)
    assert len(line) < 400 and len(prediction.scores) == 77 and prediction.to_json()["scores"] == scores
    positions = [line.index(f"'{name}': {scores[name]:.4g}") for name in best[:5]]
    assert positions == sorted(positions) and f"'{best[5]}': " not in line
    assert "... 72 more}" in line and line.endswith("... 4 more))") and f"label={best[0]!r}" in line
    few = Prediction("b", 0.6, {"a": 0.25, "b": 0.75}, ("b",))
    assert repr(few) == "Prediction(label='b', score=0.6, scores={'b': 0.75, 'a': 0.25}, labels=('b',))"
    assert "labels=()" in repr(Prediction("b", 0.4, {"a": 0.1, "b": 0.4}))


def test_a_regression_score_is_that_of_transformers(make_predictor, tmp_path):
    ours = make_predictor("bert", {"classes": 1})
    peer = peer_of(ours, "BertForSequenceClassification", tmp_path / "model")
    assert peer.config.problem_type == "regression" and peer.config.num_labels == 1
    texts = ["the cat sat", "a dog", "on the mat and ran"]
    scores = ours.regress(texts)
    with torch.no_grad():
        expected = [float(peer(torch.tensor([ours.tokenizer.encode(text).ids])).logits) for text in texts]
    assert scores.shape == (3,) and scores.dtype == np.float32
    assert scores.tolist() == pytest.approx(expected, abs=1e-6)
    loaded = Predictor(checkpoint.load(tmp_path / "model"), dtype="float32", device="cpu")
    assert loaded.regress(texts).tolist() == pytest.approx(scores.tolist(), abs=1e-6)
    with pytest.raises(InputError, match="use regress"):
        loaded.classify(texts)


def test_the_error_for_a_missing_head_names_the_alternatives(make_predictor):
    encoder, classes = make_predictor("bert"), make_predictor("bert", {"classes": 5}, labels=LABELS)
    with pytest.raises(InputError, match=r"masked words \(heads: none\)"):
        encoder.fill("the [MASK]")
    with pytest.raises(InputError, match=r"text classes \(heads: none\)"):
        encoder.classify(["a"])
    with pytest.raises(InputError, match=r"masked words \(heads: classes\)"):
        classes.fill("the [MASK]")
    with pytest.raises(InputError, match="5 classes; use classify"):
        classes.regress(["a"])


# --- tag and answer -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tagger(make_predictor):
    return make_predictor("bert", {"tokens": 5}, labels=TAGS)


@pytest.fixture(scope="module")
def reader(make_predictor):
    return make_predictor("bert", {"spans": 2}, max_position_embeddings=96)


def words_of(number, seed=0):
    draw = random.Random(seed)
    return [draw.choice(["the", "cat", "cats", "on", "mat", "xyz", "dog", "U.S."]) for _ in range(number)]


def without_context(predictor):
    """The same model with the context removed: a token's vector depends on the token alone."""
    with torch.no_grad():
        for name, parameter in predictor.module.named_parameters():
            if "attention.output" in name or "positions" in name or "segments" in name:
                parameter.zero_()
    return predictor


def places_of(entities):
    return [(entity.label, entity.start, entity.end) for entity in entities]


@pytest.mark.slow
def test_without_context_windows_do_not_change_results(make_predictor):
    """Entities and answers across the borders of windows come out once and whole."""
    config = {"max_position_embeddings": 1500}
    tagger = without_context(make_predictor("bert", {"tokens": 5}, labels=TAGS, seed=4, **config))
    reader = without_context(make_predictor("bert", {"spans": 2}, **config))
    text = " ".join(words_of(400))
    (whole,) = tagger.tag([text], window=1500)
    for window, overlap in ((64, 16), (37, 0), (50, 31)):
        (entities,) = tagger.tag([text], window=window, overlap=overlap)
        assert places_of(entities) == places_of(whole)
        assert [entity.score for entity in entities] == pytest.approx([entity.score for entity in whole], abs=1e-5)
    assert max(len(entity.text.split()) for entity in whole) > 7
    expected = all_spans(reader, text, window=1500)
    for window, overlap in ((96, 29), (80, 59)):  # no span is longer than 30 tokens
        spans = all_spans(reader, text, window=window, overlap=overlap)
        assert spans.keys() == expected.keys()
        assert max(abs(spans[span] - expected[span]) for span in spans) < 1e-4


def all_spans(reader, text, **options):
    """The score of every span by its characters."""
    (reading,) = reader.answer_candidates(["the cat"], [text], num_candidates=10**6, **options)
    return {(span.start, span.end): span.score for span in reading.spans}


def test_ten_thousand_words_are_classified_by_all_their_windows(make_predictor):
    classifier = make_predictor("bert", {"classes": 3}, labels=("red", "green", "blue"))
    text = " ".join(words_of(10_000))
    prediction, shorter = classifier.classify([text, text[: len(text) // 2]], window=64, overlap=16)
    assert classifier.truncated_texts == 0
    (windows,) = classifier.split(classifier.tokenizer.encode_many([text]), {"window": 64, "overlap": 16})
    assert len(windows) > 100
    with torch.inference_mode():
        first_WH = torch.cat([classifier.module(Batch.from_encodings([window]))[:1] for window in windows])
        (scores,) = classifier.module.text_scores("classes", first_WH.mean(0, keepdim=True)).softmax(-1).tolist()
    assert list(prediction.scores.values()) == pytest.approx(scores, abs=1e-5)
    assert list(shorter.scores.values()) != pytest.approx(scores, abs=1e-5)


@pytest.mark.slow
def test_ten_thousand_words_are_tagged_and_answered_and_far_text_changes_no_entity(tagger, reader):
    words = words_of(10_000)
    text = " ".join(words)
    (entities,) = tagger.tag([text])
    assert all(entity.text == text[entity.start : entity.end] for entity in entities) and len(entities) > 1000
    for answer in reader.answer("the dog", text, top=5):
        assert answer.text and answer.text == text[answer.start : answer.end]

    before, after = len(" ".join(words[:6000])), len(" ".join(words[:6100]))
    (longer,) = tagger.tag([" ".join([*words[:6100], *words_of(77, seed=1), *words[6100:]])])
    near = [place for place in places_of(entities) if place[2] <= before]
    assert [place for place in places_of(longer) if place[2] <= before] == near and len(near) > 500

    inserted = ["the"] * (10 * STEP)  # whole steps, so that the windows hold the same tokens
    shift = len(" ".join(inserted)) + 1
    (longer,) = tagger.tag([" ".join([*inserted, *words])])
    far = [(label, start + shift, end + shift) for label, start, end in places_of(entities) if start >= after]
    assert [place for place in places_of(longer) if place[1] >= after + shift] == far and len(far) > 500


def test_given_words_have_the_tags_of_their_entities(tagger):
    sentences = [words_of(number, seed=number) for number in (5, 80, 0, 1, 23)]
    tags_per_sentence = tagger.tag_words(sentences)
    assert [len(tags) for tags in tags_per_sentence] == [5, 80, 0, 1, 23]
    for words, tags, entities in zip(
        sentences, tags_per_sentence, tagger.tag([" ".join(words) for words in sentences]), strict=True
    ):
        starts = np.cumsum([0, *(len(word) + 1 for word in words)])
        for start, tag in zip(starts, tags, strict=False):
            holding = [entity for entity in entities if entity.start <= start < entity.end]
            expected = [("B-" if entity.start == start else "I-") + entity.label for entity in holding] or ["O"]
            begins_inside_a_word = holding and holding[0].start not in starts
            assert begins_inside_a_word or [tag] == expected
    assert tagger.tag_words([]) == [] and tagger.tag([]) == []
    assert tagger.tag_words(sentences[0]) == tags_per_sentence[0]


def test_many_questions_in_one_call_are_answered_as_one_by_one(reader):
    questions = ["the cat?", "", "dogs", "xyz", "the cat?"]
    passages = [" ".join(words_of(number, seed=number)) for number in (9, 200, 0, 31, 9)]
    together = reader.answer(questions, passages, top=3)
    for question, passage, answers in zip(questions, passages, together, strict=True):
        alone = reader.answer(question, passage, top=3)
        assert [answer.text for answer in answers] == [answer.text for answer in alone]
        assert [answer.score for answer in answers] == pytest.approx([answer.score for answer in alone], abs=1e-5)
    assert [len(answers) for answers in together] == [3, 3, 1, 3, 3]
    assert reader.answer([], []) == []


def test_texts_without_words_have_no_entities_and_no_answers(tagger, reader):
    assert tagger.tag(["", " \u3000\n", "\u200b"]) == [[], [], []]
    assert tagger.tag_words([[], ["", "\u200b"]]) == [[], ["O", "O"]]
    for passage in ("", "  ", "\u200b"):
        (answer,) = reader.answer("the cat", passage)
        assert (answer.text, answer.start, answer.end, answer.score) == ("", 0, 0, 1.0)


def test_no_answer_is_longer_than_the_limit(reader):
    passage = " ".join(["the", "cat", "on", "mat"] * 30)
    for longest in (1, 4):
        answers = reader.answer("dog", passage, top=20, max_answer_tokens=longest)
        assert max(len(answer.text.split()) for answer in answers) == longest
    made = {"settings": {"max_answer_tokens": 2}}
    taught = Predictor(replace(reader.checkpoint, metadata=made), dtype="float32", device="cpu")
    for limit, most in ((None, 2), (4, 4)):  # without a limit, that of the fine-tuning
        answers = taught.answer("dog", passage, top=20, max_answer_tokens=limit)
        assert max(len(answer.text.split()) for answer in answers) == most


def test_a_model_trained_with_impossible_questions_may_give_no_answer(reader):
    question, passage = "the dog", " ".join(words_of(30))
    (reading,) = reader.answer_candidates([question], [passage])
    assert reader.answer(question, passage)[0].text
    for threshold in (reading.margin - 0.01, reading.margin + 0.01):
        made = {"no_answer_threshold": threshold}
        taught = Predictor(replace(reader.checkpoint, metadata=made), dtype="float32", device="cpu")
        assert (taught.answer(question, passage)[0].text == "") == (threshold < reading.margin)


def test_the_scheme_a_model_was_trained_on_is_read_from_its_metadata(tagger):
    plain = Predictor(replace(tagger.checkpoint, metadata={"scheme": "plain"}), dtype="float32", device="cpu")
    words = words_of(300)
    (tags,), (read_as_plain,) = tagger.tag_words([words]), plain.tag_words([words])
    assert any(tag.startswith("I-") and before == "O" for before, tag in pairwise(read_as_plain))
    legal = Predictor(replace(tagger.checkpoint, metadata={"scheme": "iob2"}), dtype="float32", device="cpu")
    assert legal.tag_words([words])[0] != tags


def test_long_texts_are_refused_or_truncated_with_a_message_when_tagging_and_answering(tagger, reader, caplog):
    words = words_of(90)
    passage = " ".join(words)
    with pytest.raises(InputError, match=r"1 of 2 texts .* 64 tokens \(up to \d+\)"):
        tagger.tag(["the cat", passage], long="error")
    with pytest.raises(InputError, match=r"1 of 1 texts .* 96 tokens"):
        reader.answer("the cat", passage, long="error")
    tagger.truncated_texts = reader.truncated_texts = 0
    (entities,) = tagger.tag([passage], long="truncate")
    (tags,) = tagger.tag_words([words], long="truncate")
    kept = tagger.tokenizer.encode_windows(passage, size=64, overlap=0)[0].offsets[-2][1]
    assert entities and max(entity.end for entity in entities) <= kept + 2  # to the end of the word that was cut
    assert len(tags) == 90 and set(tags[62:]) == {"O"} and set(tags[:30]) != {"O"}
    reader.answer("the cat", passage, long="truncate")
    assert (tagger.truncated_texts, reader.truncated_texts) == (2, 1)
    assert caplog.text.count("cut 1 of 1 texts") == 3


def test_a_long_question_leaves_its_passage_a_shorter_overlap(make_predictor):
    reader = make_predictor("bert", {"spans": 2}, max_position_embeddings=300)
    question, passage = " ".join(["the"] * 200), " ".join(words_of(200))
    for answer in reader.answer(question, passage, top=4, window=290, overlap=128):  # room for 87
        assert answer.text == passage[answer.start : answer.end] != ""
    with pytest.raises(InputError, match=r"leaves 63 .*\b64\b"):
        reader.answer(" ".join(["the"] * 234), passage)


def test_tags_and_answers_need_their_heads(tagger, reader):
    with pytest.raises(InputError, match=r"tags \(heads: spans\).* bothways finetune tag"):
        reader.tag(["the cat"])
    with pytest.raises(InputError, match=r"head for tags \(heads: spans\)"):
        reader.tag_words([["the", "cat"]])
    with pytest.raises(InputError, match=r"answers \(heads: tokens\).* bothways finetune answer"):
        tagger.answer("the cat", "the dog")


# --- inputs and options ---------------------------------------------------------------------------------------------


def test_attention_is_a_distribution_over_the_tokens_of_a_text_or_pair(make_predictor):
    model = make_predictor("bert")
    one, two = model.attention(["the cat sat", "a dog"], ["a dog ran", "the mat"])
    assert one.tokens == ["[CLS]", "the", "cat", "sat", "[SEP]", "a", "dog", "ran", "[SEP]"]
    assert one.weights.dtype == np.float32 and one.weights.shape == (3, 3, 9, 9) and two.weights.shape == (3, 3, 7, 7)
    assert np.abs(one.weights.sum(-1) - 1).max() < 1e-5 and one.weights.min() >= 0
    alone = model.attention("the cat sat", "a dog ran")
    assert alone.tokens == one.tokens and np.array_equal(alone.weights, one.weights)
    hidden = model.hidden_states("the cat sat on the mat")
    model.attention("the cat sat on the mat")
    assert np.array_equal(model.hidden_states("the cat sat on the mat"), hidden)


def test_one_way_halves_attend_to_one_side_each(make_predictor):
    model = make_predictor("bert", direction="halves", num_attention_heads=4, embedding_size=12)
    forward, backward = np.split(model.attention("the cat sat").weights, 2, axis=1)
    assert forward.shape == (3, 2, 5, 5) and not np.triu(forward, 1).any() and not np.tril(backward, -1).any()


def test_attention_needs_a_short_text_and_a_softmax_over_all_tokens(make_predictor):
    with pytest.raises(InputError, match="66 tokens; attention is for at most 64"):
        make_predictor("bert").attention("cat " * 64)
    for family in ("longformer", "big_bird"):
        with pytest.raises(InputError, match=family):
            make_predictor(family).attention("a cat")


def test_errors_for_invalid_choices_list_the_valid_ones(make_predictor):
    predictor = make_predictor("bert", {"classes": 5}, labels=LABELS)
    with pytest.raises(InputError, match=r"'windows'|windows, error, truncate"):
        predictor.hidden_states(["a"], long="window")
    with pytest.raises(InputError, match="auto, mean, cls, max"):
        predictor.embed(["a"], pooling="average")
    with pytest.raises(InputError, match="2 texts but 1 pairs"):
        predictor.classify(["a", "b"], ["c"])
    with pytest.raises(InputError, match=r"overlap \(-3\) must be at least 0"):
        predictor.hidden_states(["cat " * 30], window=20, overlap=-3)


def test_an_overlap_that_leaves_no_step_is_a_quarter_of_the_window(make_predictor):
    predictor = make_predictor("bert")
    texts = ["cat dog mat " * 31]
    assert torch.equal(
        torch.tensor(predictor.hidden_states(texts, window=20)[0]),
        torch.tensor(predictor.hidden_states(texts, window=20, overlap=5)[0]),
    )


@pytest.mark.parametrize(
    ("settings", "window", "overlap"),
    [({}, 512, 128), ({"window": 36}, 36, 9), ({"window": 40, "overlap": 12}, 40, 12), ({"length": 64}, 512, 128)],
)
def test_a_model_reads_in_the_windows_of_its_fine_tuning(make_predictor, settings, window, overlap):
    loaded = make_predictor("bert", max_position_embeddings=700).checkpoint
    made = replace(loaded, metadata={"settings": settings})
    predictor = Predictor(made, dtype="float32", device="cpu")
    texts = ["cat dog mat " * 200]
    (expected,) = predictor.hidden_states(texts, window=window, overlap=overlap)
    assert np.array_equal(predictor.hidden_states(texts)[0], expected)
    again = Predictor(made, dtype="float32", device="cpu", window=window)
    assert np.array_equal(again.hidden_states(texts)[0], expected)  # the window of the fine-tuning, named
    predictor = Predictor(made, dtype="float32", device="cpu", window=600)
    assert np.array_equal(predictor.hidden_states(texts)[0], predictor.hidden_states(texts, window=600, overlap=128)[0])
    assert not np.array_equal(predictor.hidden_states(texts)[0], expected)
    with pytest.raises(InputError, match=r"window \(701\) must be at most 700"):
        Predictor(made, dtype="float32", device="cpu", window=701)


@pytest.mark.parametrize("objective", ["masked", "enhanced"])
def test_fill_without_the_enhanced_decoder_is_logged(make_predictor, objective, caplog):
    loaded = make_predictor("deberta", {"masked_words": 0}).checkpoint
    made = Predictor(replace(loaded, metadata={"settings": {"objective": objective}}), dtype="float32", device="cpu")
    for _ in range(2):
        made.fill("the [MASK] sat")
    assert len(caplog.messages) == (objective == "enhanced")


def test_the_checkpoints_pooling_is_the_default(make_predictor):
    texts = ["the cat sat", "a dog"]
    plain = make_predictor("bert")
    for pooling in ("mean", "cls", "max"):
        chosen = make_predictor("bert", pooling=pooling)
        assert np.array_equal(chosen.embed(texts), plain.embed(texts, pooling=pooling))
    assert np.array_equal(plain.embed(texts), plain.embed(texts, pooling="mean"))
    assert not np.allclose(plain.embed(texts, pooling="cls"), plain.embed(texts, pooling="max"))


def test_a_missing_tokenizer_is_an_error_when_it_is_needed(make_model):
    bare = Predictor(Checkpoint(model=make_model("bert")), dtype="float32", device="cpu")
    with pytest.raises(InputError, match="no tokenizer files"):
        bare.hidden_states(["a"])


def test_dtypes_and_devices_are_checked():
    cpu = choose_device("cpu")
    names = {"float32": torch.float32, "bf16": torch.bfloat16, "bfloat16": torch.bfloat16, "fp16": torch.float16}
    assert {name: choose_dtype(name, cpu) for name in names} == names
    assert choose_dtype("auto", cpu) in (torch.float32, torch.bfloat16)
    with pytest.raises(InputError, match="^dtype 'int3' .* auto, float32"):
        choose_dtype("int3", cpu)
    for name in ("gpu", "cuda:99", "meta", "xla", *([] if torch.backends.mps.is_available() else ["mps"]), 0.5):
        with pytest.raises(InputError, match=f"^device {name!r} .* auto, cpu") as error:
            choose_device(name)
        assert len(str(error.value)) < 120


@pytest.mark.parametrize(("able", "chosen"), [({}, torch.float32), ({"avx512_bf16": True}, torch.bfloat16)])
def test_auto_is_bfloat16_if_the_cpu_has_instructions_for_it(able, chosen, monkeypatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: able)
    assert choose_dtype("auto", torch.device("cpu")) is chosen


def test_memory_is_released_regularly_and_vectors_are_not_copied(make_predictor, monkeypatch):
    predictor, released, stacked = make_predictor("bert"), [], []
    monkeypatch.setattr(runner, "TOKENS_PER_RELEASE", 128)
    monkeypatch.setattr(runner, "release_memory", lambda: released.append(True))
    plain = torch.stack
    monkeypatch.setattr(torch, "stack", lambda rows: stacked.append(len(rows)) or plain(rows))
    texts = [" ".join(words_of(10, seed=seed)) for seed in range(50)]
    tokens = sum(len(predictor.tokenizer.encode(text)) for text in texts)
    assert predictor.embed(texts, batch_tokens=64).shape == (50, 24)
    assert tokens // 200 <= len(released) <= tokens // 128
    assert max(stacked, default=0) < 10


# --- other processes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "bf16"])
def test_a_used_model_can_be_pickled_and_copied(dtype, make_predictor, tmp_path):
    checkpoint.save(make_predictor("bert", {"classes": 5}, labels=LABELS).checkpoint, tmp_path / "model")
    used = bothways.load(tmp_path / "model", dtype=dtype, device="cpu")
    expected = used.classify(["the cat", "a dog ran"])
    for again in (pickle.loads(pickle.dumps(used)), deepcopy(used)):
        assert again.classify(["the cat", "a dog ran"]) == expected
        again.save(tmp_path / f"saved-{len(list(tmp_path.iterdir()))}")
    with torch.no_grad():
        next(used.module.parameters()).mul_(1.5)
    changed = pickle.loads(pickle.dumps(used))
    assert changed.classify(["the cat"]) != expected[:1]
    if dtype == "bf16":
        with pytest.raises(InputError, match="dtype='float32'"):
            changed.save(tmp_path / "changed")


FORKED = """
import os, sys, time, torch, bothways
threads = lambda: len(os.listdir("/proc/self/task"))
torch.set_num_threads(2)
before = threads()
model = bothways.load(sys.argv[1], dtype=sys.argv[2])
assert threads() == before and torch.get_num_threads() == 2, (before, threads())
child = os.fork()
if not child:
    os._exit(model.embed(["the cat sat on the mat " * 99] * 5).shape != (5, model.module.config.hidden_size))
until = time.monotonic() + 250
while not (ended := os.waitpid(child, os.WNOHANG))[0] and time.monotonic() < until:
    time.sleep(0.02)
if not ended[0]:
    os.kill(child, 9)
print(ended[0] == child and os.waitstatus_to_exitcode(ended[1]) == 0)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts threads as Linux lists them")
@pytest.mark.parametrize("dtype", ["float32", *in_soak("bf16")])
def test_a_model_that_was_loaded_before_a_fork_works_in_the_child(dtype, minilm_directory):
    process = subprocess.run(
        [sys.executable, "-c", FORKED, minilm_directory, dtype], capture_output=True, text=True, check=True
    )
    assert process.stdout == "True\n"


# --- half precision, and saving -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "family",
    [
        "bert",
        "electra",
        "albert",
        "roberta",
        "distilbert",
        "modernbert",
        "longformer",
        "big_bird",
        "deberta",
        "deberta-v2",
    ],
)
def test_half_precision_gives_nearly_the_same_in_float32(family, make_predictor):
    texts = ["the cat sat", "a dog " * 40, "on"]
    exact, half = (make_predictor(family, pooling="mean", dtype=dtype) for dtype in ("float32", "bf16"))
    for one, other in zip(exact.hidden_states(texts), half.hidden_states(texts), strict=True):
        assert one.shape == other.shape and other.dtype == np.float32
    vectors = half.embed(texts)
    assert vectors.dtype == np.float32
    assert (exact.embed(texts) * vectors).sum(1).min() > 0.999


def test_saving_from_half_precision_loses_nothing(make_predictor, tmp_path):
    exact, half = (make_predictor("bert", dtype=dtype) for dtype in ("float32", "bf16"))
    half.save(tmp_path / "model")
    back = bothways.load(tmp_path / "model", dtype="float32", device="cpu")
    assert {value.dtype for value in half.module.parameters()} == {torch.bfloat16}
    before, after = exact.module.state_dict(), back.module.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert np.array_equal(back.embed(["the cat"]), exact.embed(["the cat"]))


def test_weights_changed_in_half_precision_are_used_and_not_saved_as_they_were(make_predictor, tmp_path):
    for dtype in ("float32", "bf16"):
        predictor = make_predictor("bert", dtype=dtype)
        before = predictor.embed(["the cat"])
        with torch.no_grad():
            for weight in predictor.module.parameters():
                weight.mul_(1.5)
            weight.data = weight.data.clone()
        assert np.abs(predictor.embed(["the cat"]) - before).max() > 0.01
        if dtype == "float32":
            predictor.save(tmp_path / dtype)
            again = bothways.load(tmp_path / dtype, dtype="float32", device="cpu")
            assert np.array_equal(again.embed(["the cat"]), predictor.embed(["the cat"]))
    with pytest.raises(InputError, match=r"dtype='float32'"):
        predictor.save(tmp_path / "half")
    assert not (tmp_path / "half").exists()


def test_half_precision_saves_what_was_loaded_or_nothing(make_predictor, tmp_path):
    source = tmp_path / "source"
    first, other = (make_predictor("bert", seed=seed).checkpoint for seed in (1, 2))
    checkpoint.save(first, source)
    half = bothways.load(source, dtype="bf16", device="cpu")
    half.save(source)  # over the source
    half.save(tmp_path / "copy")
    stored = [checkpoint.load(path).model.state_dict() for path in (source, tmp_path / "copy")]
    assert all(torch.equal(value, part[name]) for part in stored for name, value in first.model.state_dict().items())
    for spoil, kind in ((lambda: checkpoint.save(other, source), InputError), (lambda: rmtree(source), MissingFile)):
        spoil()
        with pytest.raises(kind, match="float32"):
            half.save(tmp_path / "later")
        assert not (tmp_path / "later").exists()


def test_a_model_may_be_loaded_in_inference_mode(make_predictor, tmp_path):
    checkpoint.save(make_predictor("bert").checkpoint, tmp_path / "model")
    with torch.inference_mode():
        held = bothways.load(tmp_path / "model", dtype="bf16", device="cpu")
    assert held.embed(["the cat"]).shape == (1, 24)


def test_columns_of_tables_are_read_as_lists_and_values_that_are_not_text_are_named(make_predictor):
    predictor = make_predictor("bert", {"classes": 2}, labels=("no", "yes"))
    texts, pairs = ["the cat", "a mat"], ["sat", "ran"]
    arrays = np.array(texts, dtype=object), np.array(pairs, dtype=object)
    assert predictor.classify(*arrays) == predictor.classify(texts, pairs)
    for missing in (None, float("nan")):
        with pytest.raises(InputError, match=r"^texts\[1\] .*(None|nan)"):
            predictor.embed(["the cat", missing])
        with pytest.raises(InputError, match=r"^pairs\[0\] .*(None|nan)"):
            predictor.classify(texts, [missing, "a"])
    reader = make_predictor("bert", {"spans": 2})
    with pytest.raises(InputError, match=r"^passages\[0\] .*None"):
        reader.answer(["the cat"], [None])


def test_texts_are_truncated_by_default_if_the_model_was_trained_that_way(make_predictor):
    loaded = make_predictor("bert", {"classes": 2}, labels=("no", "yes")).checkpoint
    learned = Predictor(replace(loaded, metadata={"settings": {"long": "truncate"}}), dtype="float32", device="cpu")
    other = Predictor(loaded, dtype="float32", device="cpu")
    text = " ".join(words_of(90))
    assert learned.classify([text]) == other.classify([text], long="truncate") != other.classify([text])
    assert (learned.truncated_texts, other.truncated_texts) == (1, 1)
    assert learned.classify([text], long="windows") == other.classify([text])


def test_texts_are_tokenized_ahead_of_a_gpu_with_the_same_vectors(make_predictor, monkeypatch):
    predictor = make_predictor("bert")
    texts = [*(" ".join(words_of(1 + seed % 12, seed=seed)) for seed in range(50)), "the \ud800 cat", ""]
    expected = predictor.embed(texts)
    shown, replaced = [], predictor.tokenizer.replaced_surrogates
    for module, name, value in (
        (encoder, "TEXTS_AHEAD", {"cpu": 50}),
        (encoder, "BLOCKS_PER_PART", 2),
        (encoder, "num_cores", lambda: 2),
        (worker_processes, "BLOCK", 8),
        (encoder.EncoderBackend, "token_windows", None),
    ):
        monkeypatch.setattr(module, name, value)
    ahead = predictor.embed(texts, progress=lambda done, total: shown.append((done, total)))
    assert np.abs(ahead - expected).max() < 1e-6
    # Equal texts are read once.
    assert len({*texts}) == 50 and shown == [(16, 50), (32, 50), (48, 50), (50, 50)]
    assert predictor.tokenizer.replaced_surrogates == replaced + 1
