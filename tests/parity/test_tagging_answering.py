"""Tags and answers against `transformers` for the same tokens, both ways through a directory."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers

from bothways.inference.predictor import Predictor
from bothways.model.checkpoint import checkpoint

NAMES = ("O", "B-MISC", "I-MISC", "B-PER", "I-PER", "B-LOC", "I-LOC")  # in the order of published taggers
TEXT = "The cats, and 2 dogs of U.S. sat on a mat - xyz ran."


@pytest.fixture(scope="module")
def peer_of(tmp_path_factory):
    """What transformers loads from the directory that a Predictor saves."""

    def load(predictor, architecture):
        directory = tmp_path_factory.mktemp("model") / "model"
        checkpoint.save(predictor.checkpoint, directory)
        transformers.logging.disable_progress_bar()
        return getattr(transformers, architecture).from_pretrained(directory).eval()

    return load


def predictor_of(held, tokenizer):
    return Predictor(replace(held, tokenizer=tokenizer), dtype="float32", device="cpu")


def their_tags(peer, encoding):
    """The likeliest label of the first piece of each word, its probability, and the characters of the word."""
    with torch.no_grad():
        probabilities = peer(torch.tensor([encoding.ids])).logits[0].softmax(-1)
    words = {}
    for row, (word, (start, end)) in enumerate(zip(encoding.word_ids, encoding.offsets, strict=True)):
        if word is not None:
            first_row, first_start, _ = words.get(word, (row, start, end))
            words[word] = first_row, first_start, end
    rows = [row for row, _, _ in words.values()]
    names = [peer.config.id2label[int(label)] for label in probabilities[rows].argmax(-1)]
    return list(zip(names, probabilities[rows].amax(-1).tolist(), words.values(), strict=True))


def merged(tagged):
    """Entities as conlleval reads them: (label, start, end, mean probability)."""
    entities, before = [], "O"
    for name, probability, (_, start, end) in tagged:
        if name.startswith("I-") and before[2:] == name[2:]:
            label, begin, _, scores = entities[-1]
            entities[-1] = label, begin, end, [*scores, probability]
        elif name != "O":
            entities.append((name[2:], start, end, [probability]))
        before = name
    return [(*entity[:3], pytest.approx(float(np.mean(entity[3])), abs=1e-6)) for entity in entities]


def test_entities_of_a_transformers_tagger_follow_from_its_scores(make_peer, ours_of, tokenizer):
    num_long = 0
    for seed in range(12):
        labels = {"id2label": dict(enumerate(NAMES)), "label2id": {name: label for label, name in enumerate(NAMES)}}
        peer = make_peer("BertForTokenClassification", seed=seed, **labels)
        ours = predictor_of(ours_of(peer), tokenizer)
        assert ours.labels == NAMES
        (entities,) = ours.tag([TEXT])
        expected = merged(their_tags(peer, tokenizer.encode(TEXT)))
        assert [(entity.label, entity.start, entity.end, entity.score) for entity in entities] == expected
        num_long += sum(" " in entity.text for entity in entities)
    assert num_long > 5


def test_a_tagger_of_ours_gives_the_same_tags_in_transformers(make_predictor, peer_of, tokenizer):
    ours = make_predictor("bert", {"tokens": 7}, labels=NAMES)
    peer = peer_of(ours, "BertForTokenClassification")
    expected = merged(their_tags(peer, tokenizer.encode(TEXT)))
    (entities,) = ours.tag([TEXT])
    assert [(entity.label, entity.start, entity.end, entity.score) for entity in entities] == expected


def their_spans(peer, pair, longest):
    """(score, start, end) of every span of the passage, best first, and the score of no answer."""
    with torch.no_grad():
        output = peer(torch.tensor([pair.ids]), token_type_ids=torch.tensor([pair.segment_ids]))
    starts, ends = output.start_logits[0].tolist(), output.end_logits[0].tolist()
    rows = [row for row, which in enumerate(pair.sequence_ids) if which == 1]
    spans = [
        (starts[first] + ends[last], pair.offsets[first][0], pair.offsets[last][1])
        for first in rows
        for last in rows
        if first <= last < first + longest
    ]
    return sorted(spans, key=lambda span: (-span[0], *span[1:])), starts[0] + ends[0]


@pytest.mark.parametrize("way", ["from transformers", "to transformers"])
def test_answers_are_the_best_spans_of_transformers_scores(way, make_peer, ours_of, make_predictor, peer_of, tokenizer):
    if way == "from transformers":
        peer = make_peer("BertForQuestionAnswering")
        ours = predictor_of(ours_of(peer), tokenizer)
    else:
        ours = make_predictor("bert", {"spans": 2})
        peer = peer_of(ours, "BertForQuestionAnswering")
    for question in ("the cats?", "and", "2 dogs of U.S."):
        for longest in (3, 30):
            expected, no_answer = their_spans(peer, tokenizer.encode(question, TEXT), longest)
            (reading,) = ours.answer_candidates([question], [TEXT], num_candidates=11, max_answer_tokens=longest)
            assert [(span.start, span.end) for span in reading.spans] == [span[1:] for span in expected[:11]]
            scores = [span[0] for span in expected[:11]]
            assert [span.score for span in reading.spans] == pytest.approx(scores, abs=1e-5)
            assert reading.no_answer == pytest.approx(no_answer, abs=1e-5)
            (answer,) = ours.answer(question, TEXT, max_answer_tokens=longest)
            assert answer.text == TEXT[expected[0][1] : expected[0][2]]
