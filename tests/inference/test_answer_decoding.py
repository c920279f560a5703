"""Answers as rows of windows, and scores as slices of a passage, against exhaustive search."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bothways import Tokenizer
from bothways.base.errors import InputError
from bothways.tasks.answer.decoding import Answer, Candidates, ScoredSpan, answer_rows, encode_pairs, find_candidates
from bothways.text.tokenizer.tokenizer import SPECIAL_TOKENS

NASTY = list("ab .-é\u0301\u00a0\u200b각中\U0001f600\ufe0f\u0130\x00\x85\ud800\u0345\u20e3")
QUESTION = "the cat?"
PASSAGE = "A dog sat on the mat, and the cat ran. " * 7


@pytest.fixture(scope="module")
def hangul_tokenizer():
    """Reads the one character 각 as three pieces."""
    pieces = [*SPECIAL_TOKENS, *"ab.-\u1100", *("##" + char for char in "ab\u1161\u11a8")]
    return Tokenizer({piece: index for index, piece in enumerate(pieces)})


def windows_of(tokenizer, passage, *, size=512, overlap=0, question=QUESTION):
    (pair,) = encode_pairs(tokenizer, [question], [passage])
    return tokenizer.split_windows(pair, size=size, overlap=overlap)


def random_scores(windows, seed=0):
    generator = np.random.default_rng(seed)
    return [generator.normal(size=(len(window), 2)).astype(np.float32) for window in windows]


# --- answers -> rows ------------------------------------------------------------------------------------------------


def test_pairs_are_those_of_the_tokenizer_and_share_a_passage(tokenizer):
    questions, passages = ["the cat", "", "a [SEP] b"], ["a dog ran", "a dog ran", ""]
    pairs = encode_pairs(tokenizer, questions, passages)
    for pair, question, passage in zip(pairs, questions, passages, strict=True):
        expected = tokenizer.encode(question, passage)
        assert pair.ids == expected.ids and pair.segment_ids == expected.segment_ids
        assert pair.offsets == expected.offsets and pair.sequence_ids == expected.sequence_ids
    assert pairs[0].ranges[1][0] is pairs[1].ranges[1][0]
    with pytest.raises(InputError, match="2 questions but 1 passage"):
        encode_pairs(tokenizer, ["a", "b"], ["c"])


def test_an_answer_is_the_rows_of_the_tokens_it_touches(tokenizer):
    passage = "the cats sat"
    (window,) = windows_of(tokenizer, passage)
    assert window.tokens == ["[CLS]", "the", "cat", "?", "[SEP]", "the", "cat", "##s", "sat", "[SEP]"]
    for answer, rows in {
        (4, 8): (6, 7),
        (0, 3): (5, 5),
        (5, 10): (6, 8),
        (7, 8): (7, 7),
        (3, 10): (6, 8),
        (3, 9): (6, 7),
    }.items():
        assert answer_rows([window], answer) == [rows], answer
    assert answer_rows([window], None) == [(0, 0)]
    with pytest.raises(InputError, match="the answer ' ' at 8"):
        answer_rows([window], (8, 9))
    with pytest.raises(InputError, match="the answer '' at 0"):
        answer_rows(windows_of(tokenizer, ""), (0, 0))


def test_a_window_without_the_whole_answer_points_at_cls(tokenizer):
    windows = windows_of(tokenizer, PASSAGE, size=71, overlap=12)
    source = windows[0].ranges[1][0]
    assert len(windows) > 1
    seen = set()
    for start in range(0, len(PASSAGE) - 22, 3):
        answer = start, start + 22
        for window, (first, last) in zip(windows, answer_rows(windows, answer), strict=True):
            held = [
                row
                for row, (begins, ends), which in zip(
                    range(len(window)), window.offsets, window.sequence_ids, strict=True
                )
                if which == 1 and ends > answer[0] and begins < answer[1]
            ]
            touched = sum(place.end > answer[0] and place.start < answer[1] for place in source.token_spans)
            whole = len(held) == touched
            assert (first, last) == ((held[0], held[-1]) if whole else (0, 0))
            seen.add((whole, bool(held)))
    assert seen == {(True, True), (False, True), (False, False)}


# --- scores -> spans ------------------------------------------------------------------------------------------------


def spans_by_trying_all(windows, scores, longest):
    """(score, start, end) of every span, from the window in which its nearer end stands furthest from a cut."""
    num_tokens = len(windows[0].ranges[1][0].ids)
    places = windows[0].ranges[1][0].token_spans
    spans = []
    for first in range(num_tokens):
        for last in range(first, min(num_tokens, first + longest)):
            most, score = -1.0, None
            for window, scores_S2 in zip(windows, scores, strict=True):
                _, begins, ends = window.ranges[1]
                if not begins <= first <= last < ends:
                    continue
                room = min(
                    first - begins if begins > 0 else math.inf, ends - 1 - last if ends < num_tokens else math.inf
                )
                if room > most:
                    row = len(windows[0].ranges[0][0].ids) + 2 - begins
                    most, score = room, float(scores_S2[row + first, 0] + scores_S2[row + last, 1])
            if score is not None:
                spans.append((score, places[first].start, places[last].end))
    return sorted(spans, key=lambda span: (-span[0], *span[1:]))


@pytest.mark.parametrize(
    ("size", "overlap", "longest"), [(512, 0, 30), (71, 0, 30), (71, 13, 5), (70, 14, 30), (70, 40, 9), (70, 63, 70)]
)
def test_the_best_spans_are_those_found_by_trying_all(size, overlap, longest, tokenizer):
    windows = windows_of(tokenizer, PASSAGE, size=size, overlap=overlap)
    assert (len(windows) > 1) == (size < 512)
    for seed in range(3):
        scores = random_scores(windows, seed)
        reading = find_candidates(windows, scores, max_answer_tokens=longest, num_candidates=23)
        expected = spans_by_trying_all(windows, scores, longest)[:23]
        assert [(span.start, span.end) for span in reading.spans] == [span[1:] for span in expected]
        assert [span.score for span in reading.spans] == pytest.approx([span[0] for span in expected], abs=1e-6)
        assert reading.no_answer == pytest.approx(min(scores_S2[0, 0] + scores_S2[0, 1] for scores_S2 in scores))


def test_all_spans_are_found_if_there_are_few(tokenizer):
    windows = windows_of(tokenizer, "the cat ran")
    scores = random_scores(windows)
    spans = [(span.start, span.end) for span in find_candidates(windows, scores, num_candidates=99).spans]
    assert sorted(spans) == [(0, 3), (0, 7), (0, 11), (4, 7), (4, 11), (8, 11)]
    assert spans == [span[1:] for span in spans_by_trying_all(windows, scores, 30)]
    assert len(find_candidates(windows, scores, num_candidates=6).spans) == 6
    with pytest.raises(InputError, match=r"max_answer_tokens \(0\) must be at least 1"):
        find_candidates(windows, scores, max_answer_tokens=0)


def test_pieces_of_one_character_are_one_answer(hangul_tokenizer):
    windows = windows_of(hangul_tokenizer, "a 각", question="b")
    assert windows[0].tokens[3:] == ["a", "\u1100", "##\u1161", "##\u11a8", "[SEP]"]
    scores = random_scores(windows)
    spans = find_candidates(windows, scores).spans
    assert len(spans) == 3 and {(span.start, span.end) for span in spans} == {(0, 1), (0, 3), (2, 3)}
    best = max(scores[0][first, 0] + scores[0][last, 1] for first in (4, 5, 6) for last in range(first, 7))
    assert next(span.score for span in spans if span.start == 2) == pytest.approx(best)


def test_accents_that_bert_drops_belong_to_the_answer(tokenizer):
    windows = windows_of(tokenizer, "a cafe\u0301s")
    tokens = windows[0].tokens
    scores = [np.zeros((len(tokens), 2), np.float32)]
    scores[0][tokens.index("c", 4), 0] = scores[0][tokens.index("##e"), 1] = 5
    assert find_candidates(windows, scores).answers()[0].text == "cafe\u0301"


# --- spans -> answers -----------------------------------------------------------------------------------------------

CANDIDATES = Candidates(
    "the cat ran", (ScoredSpan(4, 7, 3.0), ScoredSpan(0, 7, 1.0), ScoredSpan(8, 11, -2.0)), no_answer=2.0
)


def test_a_model_trained_without_impossible_questions_always_answers():
    shares = np.exp([3.0, 1.0, -2.0]) / np.exp([3.0, 1.0, -2.0]).sum()
    answers = CANDIDATES.answers(top=3)
    assert [(answer.text, answer.start, answer.end) for answer in answers] == [
        ("cat", 4, 7), ("the cat", 0, 7), ("ran", 8, 11),
    ]  # fmt: skip
    assert [answer.score for answer in answers] == pytest.approx(shares)
    assert CANDIDATES.answers() == answers[:1] and CANDIDATES.answers(top=2) == answers[:2]


def test_no_answer_is_given_above_the_threshold_alone():
    assert CANDIDATES.margin == -1.0
    shares = np.exp([3.0, 1.0, -2.0, 2.0]) / np.exp([3.0, 1.0, -2.0, 2.0]).sum()
    for threshold in (-1.0, 0.0):
        (answer,) = CANDIDATES.answers(threshold=threshold)
        assert answer.text == "cat" and answer.score == pytest.approx(shares[0])
    first, second = CANDIDATES.answers(top=2, threshold=-1.01)
    assert (first.text, first.start, first.end, first.score) == ("", 0, 0, pytest.approx(shares[3]))
    assert second.text == "cat"


def test_an_empty_passage_has_no_answer(tokenizer):
    for passage in ("", " \u3000\n", "\u200b\x00"):
        windows = windows_of(tokenizer, passage)
        reading = find_candidates(windows, random_scores(windows))
        assert reading.spans == () and reading.margin == math.inf
        for threshold in (None, 9.0):
            assert reading.answers(top=4, threshold=threshold) == [Answer("", 0, 0, 1.0)]


def test_scores_far_apart_do_not_overflow():
    reading = Candidates("ab", (ScoredSpan(0, 1, 4000.0), ScoredSpan(1, 2, -4000.0)), no_answer=0.0)
    assert [answer.score for answer in reading.answers(top=2)] == [1.0, 0.0]


@settings(max_examples=100, deadline=None)
@given(
    passage=st.text(st.sampled_from(NASTY) | st.characters(), max_size=120),
    seed=st.integers(0, 99),
    size=st.sampled_from([70, 512]),
)
def test_answers_are_different_slices_of_their_passage(passage, seed, size, hangul_tokenizer):
    windows = windows_of(hangul_tokenizer, passage, size=size, overlap=11, question="a")
    answers = find_candidates(windows, random_scores(windows, seed)).answers(top=20, threshold=0.0)
    for answer in answers:
        assert answer.text == passage[answer.start : answer.end]
        assert answer.text or (answer.start, answer.end) == (0, 0)
        assert 0 <= answer.score <= 1
        assert answer.text == answer.text.strip()
    assert len({(answer.start, answer.end) for answer in answers}) == len(answers)
    assert sum(answer.score for answer in answers) <= 1 + 1e-9
