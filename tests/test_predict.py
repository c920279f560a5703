"""What a Predictor says, against slow formulas and `transformers`. That nothing else matters: test_invariants.py."""

import numpy as np
import pytest
import torch
import transformers

import bothways
from bothways import checkpoint
from bothways.batch import Batch
from bothways.checkpoint import Checkpoint
from bothways.device import choose_device, choose_dtype
from bothways.errors import InputError
from bothways.predict import Predictor

LABELS = ("red", "green", "blue", "black", "white")


@pytest.fixture(scope="module")
def filler(make_predictor):
    return make_predictor("bert", {"masked_words": 0})


def peer_of(predictor, architecture, directory):
    checkpoint.save(predictor.checkpoint, directory)
    transformers.logging.disable_progress_bar()
    return getattr(transformers, architecture).from_pretrained(directory).eval()


def masked_probabilities(predictor, ids, place):
    """Of one window by itself, the plain way."""
    batch = Batch.of_arrays(np.array(ids), np.zeros(len(ids), int), np.array([len(ids)]))
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
    found = filler.fill(text, top=97)
    assert len(found) == 2
    for fills, place in zip(found, (2, 6), strict=True):
        values, order = probabilities[place].sort(descending=True)
        assert [fill.score for fill in fills] == pytest.approx(values.tolist(), abs=1e-6)
        assert [fill.token for fill in fills[:5]] == [filler.tokenizer.tokens[index] for index in order[:5]]
        assert sum(fill.score for fill in fills) == pytest.approx(1, abs=1e-5)
        assert {fill.token for fill in fills} == set(filler.tokenizer.tokens)
    assert [[fill.token for fill in fills] for fills in filler.fill(text, top=3)] == [
        [fill.token for fill in fills[:3]] for fills in found
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
    found = filler.fill(typed, top=3)
    words = ["a", "[", "s", "##e", "##p", "]", "b", "[", "c", "##l", "##s", "]", "[MASK]", "[", "p", "##a", "##d", "]"]
    ids = [filler.tokenizer.vocab[word] for word in ["[CLS]", *words, "[SEP]"]]
    assert filler.tokenizer.encode(typed, specials=("[MASK]",)).ids == ids
    values = masked_probabilities(filler, ids, ids.index(filler.tokenizer.mask_id)).topk(3).values
    assert [fill.score for fill in found[0]] == pytest.approx(values.tolist(), abs=1e-6)


@pytest.mark.parametrize(("size", "overlap"), [(20, 9), (20, 8), (19, 7)])
def test_a_mask_in_a_long_text_is_read_where_it_stands_most_central(filler, size, overlap):
    for place in range(60):
        words = ["cat", "dog", "mat", "on"] * 15
        words[place] = "[MASK]"
        (found,) = filler.fill(" ".join(words), top=4, window=size, overlap=overlap)
        ids = filler.tokenizer.encode(" ".join(words), specials=("[MASK]",))
        best, chosen = -1, None
        for window in filler.tokenizer.slide(ids, size=size, overlap=overlap):
            row = window.ids.index(filler.tokenizer.mask_id) if filler.tokenizer.mask_id in window.ids else None
            if row is not None and min(row, len(window) - 1 - row) > best:
                best, chosen = min(row, len(window) - 1 - row), (window.ids, row)
        values = masked_probabilities(filler, *chosen).topk(4).values
        assert [fill.score for fill in found] == pytest.approx(values.tolist(), abs=1e-6), place


def test_no_mask_is_an_error_that_says_what_to_write(filler):
    for text in ("the cat", "", "[mask]", "the cat " * 99):
        with pytest.raises(InputError, match=r"write \[MASK\] where a word is to be guessed") as error:
            filler.fill(text)
        assert len(str(error.value)) < 150


def test_a_mask_that_was_cut_off_is_named(filler):
    text = "cat " * 30 + "[MASK]"
    with pytest.raises(InputError, match="cut off; use long='windows'"):
        filler.fill(text, long="truncate", window=20)
    with pytest.raises(InputError, match="longer than 20 tokens"):
        filler.fill(text, long="error", window=20)


def test_rows_of_the_table_beyond_the_vocabulary_are_no_words(make_predictor):
    """Tables are often padded to a round size."""
    padded = make_predictor("bert", {"masked_words": 0}, vocab_size=131)
    (found,) = padded.fill("the [MASK]", top=131)
    assert len(found) == 97 and {fill.token for fill in found} == set(padded.tokenizer.tokens)
    ids = padded.tokenizer.encode("the [MASK]", specials=True).ids
    expected = masked_probabilities(padded, ids, 2)
    values = expected[:97].sort(descending=True).values
    assert [fill.score for fill in found] == pytest.approx(values.tolist(), abs=1e-6)


# --- classify and score ---------------------------------------------------------------------------------------------


def test_classes_of_texts_and_pairs_are_those_of_transformers(make_predictor, tmp_path):
    ours = make_predictor("bert", {"classes": 5}, labels=LABELS)
    peer = peer_of(ours, "BertForSequenceClassification", tmp_path / "model")
    texts, pairs = ["the cat sat", "a dog", "on the mat and ran"], ["dogs ran.", "", "the cats"]
    for seconds in (None, pairs):
        found = ours.classify(texts, seconds)
        for row, prediction in enumerate(found):
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


def test_a_regression_score_is_that_of_transformers(make_predictor, tmp_path):
    ours = make_predictor("bert", {"classes": 1})
    peer = peer_of(ours, "BertForSequenceClassification", tmp_path / "model")
    assert peer.config.problem_type == "regression" and peer.config.num_labels == 1
    texts = ["the cat sat", "a dog", "on the mat and ran"]
    scores = ours.score(texts)
    with torch.no_grad():
        expected = [float(peer(torch.tensor([ours.tokenizer.encode(text).ids])).logits) for text in texts]
    assert scores.shape == (3,) and scores.dtype == np.float32
    assert scores.tolist() == pytest.approx(expected, abs=1e-6)
    loaded = Predictor(checkpoint.load(tmp_path / "model"), dtype="float32", device="cpu")
    assert loaded.score(texts).tolist() == pytest.approx(scores.tolist(), abs=1e-6)
    with pytest.raises(InputError, match="use score"):
        loaded.classify(texts)


def test_what_a_model_cannot_do_is_said_with_what_it_can(make_predictor):
    encoder, classes = make_predictor("bert"), make_predictor("bert", {"classes": 5}, labels=LABELS)
    with pytest.raises(InputError, match=r"no head for masked words \(heads: none\)"):
        encoder.fill("the [MASK]")
    with pytest.raises(InputError, match=r"no head for text classes \(heads: none\)"):
        encoder.classify(["a"])
    with pytest.raises(InputError, match=r"no head for masked words \(heads: classes\)"):
        classes.fill("the [MASK]")
    with pytest.raises(InputError, match="5 classes apart; use classify"):
        classes.score(["a"])


# --- what is given --------------------------------------------------------------------------------------------------


def test_wrong_choices_are_refused_with_the_right_ones(make_predictor):
    predictor = make_predictor("bert", {"classes": 5}, labels=LABELS)
    with pytest.raises(InputError, match=r"'windows'|windows, error, truncate"):
        predictor.encode(["a"], long="window")
    with pytest.raises(InputError, match="auto, mean, cls, max"):
        predictor.embed(["a"], pooling="average")
    with pytest.raises(InputError, match=r"give a list of texts: \[text\]"):
        predictor.encode("one text")
    with pytest.raises(InputError, match="2 texts but 1 pairs"):
        predictor.classify(["a", "b"], ["c"])
    with pytest.raises(InputError, match=r"overlap \(-3\) must be at least 0 and less than the 18"):
        predictor.encode(["cat " * 30], window=20, overlap=-3)


def test_an_overlap_that_leaves_no_step_is_a_quarter_of_the_window(make_predictor):
    predictor = make_predictor("bert")
    texts = ["cat dog mat " * 31]
    assert torch.equal(
        torch.tensor(predictor.encode(texts, window=20)[0]),
        torch.tensor(predictor.encode(texts, window=20, overlap=5)[0]),
    )


def test_the_pooling_of_the_checkpoint_is_taken_unless_another_is_asked_for(make_predictor):
    texts = ["the cat sat", "a dog"]
    plain = make_predictor("bert")
    for pooling in ("mean", "cls", "max"):
        chosen = make_predictor("bert", pooling=pooling)
        assert np.array_equal(chosen.embed(texts), plain.embed(texts, pooling=pooling))
    assert np.array_equal(plain.embed(texts), plain.embed(texts, pooling="mean"))
    assert not np.allclose(plain.embed(texts, pooling="cls"), plain.embed(texts, pooling="max"))


def test_a_checkpoint_without_a_tokenizer_says_so_when_one_is_needed(make_model):
    bare = Predictor(Checkpoint(model=make_model("bert")), dtype="float32", device="cpu")
    with pytest.raises(InputError, match="no tokenizer files"):
        bare.encode(["a"])


def test_dtypes_and_devices_are_checked():
    cpu = choose_device("cpu")
    names = {"float32": torch.float32, "bf16": torch.bfloat16, "bfloat16": torch.bfloat16, "fp16": torch.float16}
    assert {name: choose_dtype(name, cpu) for name in names} == names
    assert choose_dtype("auto", cpu) in (torch.float32, torch.bfloat16)
    with pytest.raises(InputError, match="dtype 'int3' is not supported; one of auto, float32"):
        choose_dtype("int3", cpu)
    for name in ("gpu", "cuda:99"):
        with pytest.raises(InputError, match=f"device '{name}' cannot be used") as error:
            choose_device(name)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(("able", "chosen"), [({}, torch.float32), ({"avx512_bf16": True}, torch.bfloat16)])
def test_auto_takes_half_precision_where_the_processor_has_units_for_it(able, chosen, monkeypatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: able)
    assert choose_dtype("auto", torch.device("cpu")) is chosen


# --- half precision, and saving -------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["bert", "electra", "distilbert", "modernbert"])
def test_half_precision_gives_nearly_the_same_in_float32(family, make_predictor):
    texts = ["the cat sat", "a dog " * 40, "on"]
    exact, half = (make_predictor(family, pooling="mean", dtype=dtype) for dtype in ("float32", "bf16"))
    for one, other in zip(exact.encode(texts), half.encode(texts), strict=True):
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
