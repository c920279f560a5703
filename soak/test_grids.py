"""Whole grids of which tests/ has a part: characters, texts, batch sizes, and every moment of a kill."""

import pytest

from tests.conftest import make_model, make_peer, make_predictor, ours_of, paragraphs, tokenizer  # noqa: F401
from tests.inference import test_numpy_backend
from tests.inference.jobs.test_journal import ENDINGS, kill_at_writes, killed, models  # noqa: F401 (fixtures)
from tests.parity.test_model import ALL, check_fresh, check_saved
from tests.search import test_kills
from tests.search.test_kills import small_models  # noqa: F401 (a fixture)
from tests.test_invariants import check_batch_size, expected, family_predictor, predictor  # noqa: F401 (fixtures)
from tests.text.tokenizer import test_accents
from tests.text.tokenizer.conftest import (  # noqa: F401
    albert,
    big_bird,
    deberta,
    directory,
    kind,
    roberta,
    write_sentencepiece,
    xlm_roberta,
)
from tests.text.tokenizer.test_fuzz_tokenizers import check_charsmaps
from tests.text.tokenizer.test_library import AutoTokenizer, differences, ours, pair_texts, saved  # noqa: F401

pytestmark = pytest.mark.timeout(3600)


@pytest.mark.parametrize("ending", ENDINGS)
def test_killed_at_any_write_a_job_resumes_to_the_same_bytes(ending, killed, tmp_path):  # noqa: F811
    kill_at_writes(ending, killed, tmp_path, stride=1)


@pytest.mark.parametrize(("name", "number", "at"), test_kills.OTHER_KILLS)
def test_a_kill_loses_nothing_that_was_committed(tmp_path, name, number, at):
    test_kills.kill_and_resume(tmp_path, name, number, at)


def test_batches_of_all_texts_do_not_change_a_result(predictor, expected, monkeypatch):  # noqa: F811
    check_batch_size(predictor, expected, 100_000, monkeypatch)


def test_a_text_has_the_same_vector_alone_and_among_two_hundred(paragraphs):  # noqa: F811
    test_numpy_backend.check_company(paragraphs[:200])


def test_threads_and_pickles_share_a_model(paragraphs):  # noqa: F811
    test_numpy_backend.check_threads(paragraphs[:40])


def test_words_read_with_marks_and_then_stripped_are_those_of_stripping_at_once():
    test_accents.check_stripping(test_accents.written(), mixed=5_000)


def test_a_vocabulary_with_marks_gives_the_ids_of_tokenizers_for_every_code_point(tmp_path):
    test_accents.check_ids(test_accents.written(), tmp_path)


def test_a_damaged_table_of_normalizations_is_one_line(tmp_path):
    check_charsmaps(range(400), tmp_path, write_sentencepiece)


def test_pairs_of_all_fixtures_are_read_as_transformers_reads_what_we_saved(kind, ours, saved):  # noqa: F811
    peer = AutoTokenizer.from_pretrained(saved)
    assert differences(kind, ours, peer, pair_texts(ours)) == []


@pytest.mark.parametrize("architecture", ALL)
def test_what_we_save_transformers_loads_and_computes_the_same(architecture, make_peer, ours_of, tmp_path):  # noqa: F811
    check_saved(architecture, make_peer, ours_of, tmp_path / "theirs")
    check_fresh(architecture, make_peer, ours_of, tmp_path / "fresh")
