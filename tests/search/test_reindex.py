"""Another embedding model for a store: computed, resumed after a kill, switched at once, or mapped."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from bothways.base.errors import InputError
from bothways.cli.main import main
from bothways.search import commands, hits, indexing, reindexing, spaces
from bothways.search.database import Database
from bothways.search.indexing import index
from bothways.search.mapping.linear_map import ORTHOGONAL, fit_map, unit_rows
from bothways.search.mapping.map_loss import neighbour_loss, query_loss
from bothways.search.reindexing import reindex
from bothways.search.store import Store
from bothways.serving.document_search import DocumentSearch
from bothways.serving.limits import Limits
from bothways.settings import Index
from tests.search.tables import WORDS, small_static

ROOT = Path(__file__).parents[2]
QUERY = "late fee of the cat report"
PASSAGES = 130  # more than the least sample

# Reindexes a store; the process kills itself when a function is called for the n-th time.
CODE = """
import os, signal, sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from bothways.search import reindexing
from tests.search import test_reindex

store, sample, name, number = sys.argv[1:]
owner = reindexing if name == "append_vectors" else reindexing.PendingVectors
original, calls = getattr(owner, name), []

def counted(*arguments, **options):
    calls.append(1)
    {before}
    result = original(*arguments, **options)
    {after}
    return result

setattr(owner, name, counted)
reindexing.EncoderVectors = test_reindex.OtherEncoder
test_reindex.make_small(reindexing)
reindexing.reindex(Path(store), "new", sample=int(sample) or None)
"""
KILL = "if len(calls) == int(number): os.kill(os.getpid(), signal.SIGKILL)"


class OtherEncoder:
    """Stands for an encoder, whose name chooses its vectors: "old" has 8 dimensions, "rotated" the same vectors in 11
    dimensions, "new" other vectors of 6."""

    def __init__(self, name: str, **options: object) -> None:
        self.model = name
        self.fingerprint = f"fingerprint of {name}"
        self.static = small_static(6, seed=3) if name == "new" else small_static()
        self.tokenizer = self.static.tokenizer

    def embed(self, texts):
        vectors_NH = self.static.embed(texts)
        return vectors_NH @ rotation() if self.model == "rotated" else vectors_NH


def rotation() -> np.ndarray:
    """Orthonormal rows, float32 [8, 11]."""
    square, _ = np.linalg.qr(np.random.default_rng(5).normal(size=(11, 11)))
    return square[:8].astype(np.float32)


def make_small(module) -> None:
    module.ENCODER_PASSAGES = 40
    module.MAPPED_ROWS = 50
    module.files_state = lambda model: f"state of {model}"


@pytest.fixture(autouse=True)
def small_models(monkeypatch):
    static = small_static()

    def open_vectors(space, model):
        return OtherEncoder(model) if space == "encoder" else static

    for module in (indexing, reindexing):
        monkeypatch.setattr(module, "EncoderVectors", OtherEncoder)
        monkeypatch.setattr(module, "ENCODER_PASSAGES", 40)
        monkeypatch.setattr(module, "files_state", lambda model: f"state of {model}")
    monkeypatch.setattr(reindexing, "MAPPED_ROWS", 50)
    monkeypatch.setattr(indexing, "open_vectors", open_vectors)
    monkeypatch.setattr(spaces, "open_vectors", open_vectors)


@pytest.fixture
def folder(tmp_path) -> Path:
    """A table of passages, each a row of random words."""
    root = tmp_path / "documents"
    root.mkdir()
    rng = np.random.default_rng(1)
    rows = [" ".join(rng.choice(WORDS, 7)) for _ in range(PASSAGES)]
    (root / "rows.csv").write_text("\n".join(["text", *rows, ""]))
    os.utime(root / "rows.csv", (1e9, 1e9))
    return root


@pytest.fixture
def store(folder, tmp_path) -> Path:
    return build(folder, tmp_path / "store", "old")


def build(folder: Path, store: Path, encoder: str) -> Path:
    index([folder], store, static_model="small", encoder=encoder)
    return store


def contents(directory: Path) -> list[tuple]:
    """All that searches find."""
    with Store(directory) as store:
        assert store.space() == "encoder"
        found = []
        for how in ("words", "vectors", "hybrid"):
            found += [(how, hit.text, hit.start, hit.score) for hit in store.search(QUERY, how=how, top=PASSAGES)]
        return found


def vectors(directory: Path) -> bytes:
    """The vectors that are searched. There are no others."""
    (file,) = directory.glob("encoder-*.f32")
    database = Database(directory)
    assert database.get("encoder_file") == file.name
    database.close()
    return file.read_bytes()


def run(store: Path, name: str, number: int, at: str, sample: int = 0) -> int:
    code = CODE.format(**{"before": "", "after": "", at: KILL})
    command = [sys.executable, "-c", code, str(store), str(sample), name, str(number)]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}).returncode


def refuse(match: str, *arguments, **options) -> None:
    with pytest.raises(InputError, match=match) as error:
        reindex(*arguments, **options)
    assert "\n" not in str(error.value)


# --- all vectors are computed -----------------------------------------------------------------------------------------


def test_a_store_with_another_model_is_as_a_fresh_one(folder, store, tmp_path):
    result = reindex(store, "new")
    fresh = build(folder, tmp_path / "fresh", "new")
    assert (result.passages, result.computed, result.mapped) == (PASSAGES, PASSAGES, None)
    assert vectors(store) == vectors(fresh)
    assert contents(store) == contents(fresh)

    (folder / "more.md").write_text("The cat paid a late fee.")
    assert index([folder], store, static_model="small", encoder="new").new == 1


def test_an_open_store_searches_the_old_vectors_until_the_new_ones_are_complete(store, folder, tmp_path, monkeypatch):
    before = contents(store)
    fresh = contents(build(folder, tmp_path / "fresh", "new"))
    assert before != fresh
    seen = []
    append = reindexing.PendingVectors.append

    def watched(self, vectors_nH):
        append(self, vectors_nH)
        seen.append(contents(store))

    monkeypatch.setattr(reindexing.PendingVectors, "append", watched)
    with Store(store) as opened:
        first = opened.search(QUERY, how="vectors")
        reindex(store, "new")
        assert opened.search(QUERY, how="vectors") != first
    assert seen == [before] * 4
    assert contents(store) == fresh


# Before and after each commit of four, at the switch, and before the old file is deleted.
KILLS = [
    ("append_vectors", 2, "after"),
    ("switch", 1, "before"),
    ("delete_other_files", 2, "before"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "number", "at"), KILLS)
def test_a_killed_reindex_goes_on_and_ends_with_the_same_bytes(store, folder, tmp_path, name, number, at):
    before = contents(store)
    fresh = build(folder, tmp_path / "fresh", "new")
    assert run(store, name, number, at) == -signal.SIGKILL

    if name == "delete_other_files":
        assert contents(store) == contents(fresh)
        refuse("already", store, "new")
    else:
        assert contents(store) == before
        done = 40 if name == "append_vectors" else PASSAGES
        assert reindex(store, "new").computed == PASSAGES - done
    assert vectors(store) == vectors(fresh)
    assert contents(store) == contents(fresh)


def interrupt(store: Path, monkeypatch) -> None:
    """Leave a reindex with the model "new" after its first commit."""
    with monkeypatch.context() as patched:
        append = reindexing.append_vectors

        def interrupted(path, first, vectors_nH):
            if first:
                raise KeyboardInterrupt
            append(path, first, vectors_nH)

        patched.setattr(reindexing, "append_vectors", interrupted)
        with pytest.raises(KeyboardInterrupt):
            reindex(store, "new")


def test_nothing_else_changes_a_store_while_its_vectors_are_incomplete(store, folder, monkeypatch):
    before = contents(store)
    interrupt(store, monkeypatch)
    with pytest.raises(InputError, match="vectors of new are not complete; finish them with .*new.*, or drop .*old"):
        build(folder, store, "old")
    refuse("of new are not complete", store, "rotated")
    refuse("of new are not complete", store, "new", sample=100)
    assert contents(store) == before


def test_naming_the_old_model_drops_the_incomplete_vectors(store, folder, monkeypatch):
    before = contents(store)
    interrupt(store, monkeypatch)
    result = reindex(store, "old")
    assert (result.dropped, result.model, result.computed) == ("new", "old", 0)
    assert contents(store) == before
    assert len(vectors(store)) == PASSAGES * 8 * 4
    assert build(folder, store, "old") == store


def test_a_model_that_changed_since_starts_again_with_a_message(store, folder, tmp_path, monkeypatch, caplog):
    interrupt(store, monkeypatch)
    database = Database(store)
    database.put(pending_fingerprint="before it was trained anew")
    database.close()
    assert reindex(store, "new").computed == PASSAGES
    assert "computing all vectors again" in caplog.text
    assert vectors(store) == vectors(build(folder, tmp_path / "fresh", "new"))


# --- the old vectors are mapped ---------------------------------------------------------------------------------------


def test_a_mapped_store_recovers_an_exactly_linear_relation(store, folder, tmp_path):
    fresh = build(folder, tmp_path / "fresh", "rotated")
    result = reindex(store, "rotated", sample=100)
    assert result.computed == result.mapped.sample == 100
    assert result.mapped.penalty is ORTHOGONAL
    assert result.mapped.loss.value > 0.99
    mapped, exact = (np.frombuffer(vectors(path), np.float32) for path in (store, fresh))
    assert np.abs(mapped - exact).max() < 1e-5

    found, expected = ({text: score for how, text, _, score in contents(path)} for path in (store, fresh))
    assert found == pytest.approx(expected, abs=1e-3)


def test_a_mapped_store_says_so_until_its_vectors_are_computed(store, folder, tmp_path):
    reindex(store, "new", sample=100)
    with Store(store) as opened:
        assert opened.mapped_from == "old"
        assert opened.space() == "encoder"
        with ThreadPoolExecutor(1) as other_thread:  # as the server asks
            facts = other_thread.submit(DocumentSearch(opened, [], Limits()).facts).result()
        assert facts == {"files": opened.files, "passages": opened.passages, "mapped_from": "old"}
    refuse("mapped already", store, "rotated", sample=100)

    reindex(store, "new")
    with Store(store) as opened:
        assert opened.mapped_from is None
        assert "mapped_from" not in DocumentSearch(opened, [], Limits()).facts()
    fresh = build(folder, tmp_path / "fresh", "new")
    assert vectors(store) == vectors(fresh)
    assert contents(store) == contents(fresh)


@pytest.mark.slow
def test_a_map_that_is_killed_leaves_the_store_and_starts_again(store, folder, tmp_path):
    before = contents(store)
    other = build(folder, tmp_path / "other", "old")
    assert run(store, "append_vectors", 2, "after", sample=100) == -signal.SIGKILL
    assert contents(store) == before
    for path in (store, other):
        assert reindex(path, "new", sample=100).computed == 100
    assert vectors(store) == vectors(other)


def test_the_penalty_of_a_map_is_smaller_with_less_noise():
    rng = np.random.default_rng(0)
    old_NG = unit_rows(rng.normal(size=(217, 23)))
    # No rotation: the columns have unlike scales.
    clean_NH = old_NG @ (rng.normal(size=(23, 13)) * np.geomspace(0.1, 3, 13))
    noise_NH = rng.normal(size=clean_NH.shape)
    exact, noisy = (fit_map(old_NG, unit_rows(clean_NH + share * noise_NH)) for share in (0.0, 2.0))
    assert exact.penalty < noisy.penalty
    assert exact.cosine > 0.95 > noisy.cosine > 0.3
    assert exact.heldout_NH.shape == (217, 13)
    assert np.linalg.norm(exact.apply(old_NG), axis=1) == pytest.approx(np.ones(217))


def test_neighbours_are_counted_among_other_passages():
    exact_NH = unit_rows(np.random.default_rng(2).normal(size=(97, 5)))
    assert neighbour_loss(exact_NH, exact_NH).value == 1
    # Reversed rows are the nearest passages of other passages: by chance a tenth stays.
    assert neighbour_loss(exact_NH[::-1], exact_NH).value < 0.25


def test_queries_are_ranked_against_computed_vectors_or_their_judgements():
    rng = np.random.default_rng(3)
    exact_NH = unit_rows(rng.normal(size=(61, 7)))
    queries_QH = exact_NH[:9]
    same = query_loss(queries_QH, exact_NH, exact_NH)
    assert (same.measure, same.value, same.exact, same.number) == ("ranking", 1, 1, 9)
    other = query_loss(queries_QH, exact_NH[::-1], exact_NH)
    assert other.value < 0.5

    # Each query is a passage, which is its right one, and stands second after the map has exchanged two.
    exchanged_NH = exact_NH.copy()
    exchanged_NH[0] = unit_rows(exact_NH[:1] + 0.001)[0]
    exchanged_NH[60] = exact_NH[0]
    judged = query_loss(exact_NH[:1], exchanged_NH, exact_NH, [{0: 1.0}])
    assert (judged.measure, judged.exact) == ("judgements", 1)
    assert judged.value == pytest.approx(1 / np.log2(3))


def test_the_loss_is_measured_on_queries_of_the_user(store, tmp_path, folder):
    queries = tmp_path / "queries.txt"
    queries.write_text("late fee\nannual report\n\nlate fee\n")
    loss = reindex(store, "rotated", sample=100, queries=queries).mapped.loss
    assert (loss.measure, loss.number, loss.passages) == ("ranking", 2, 100)
    assert loss.value > 0.99


def test_what_is_printed_of_right_passages_is_measured_beside_the_sample(store, folder, tmp_path, caplog):
    passages = (folder / "rows.csv").read_text().splitlines()[1:]
    queries = tmp_path / "queries.csv"
    rows = [("late fee", passages[3]), ("late fee", passages[7]), ("cat", passages[9]), ("mat", "not in the index")]
    queries.write_text("\n".join(["query,passage", *map(",".join, rows), ""]))
    result = reindex(store, "rotated", sample=100, queries=queries)
    assert result.computed == 103
    loss = result.mapped.loss
    assert (loss.measure, loss.number, loss.passages) == ("judgements", 2, 103)
    assert loss.value == pytest.approx(loss.exact, abs=0.05)
    assert "1 row with a passage that is not in the index" in caplog.text


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_refusals_are_one_line_with_a_way_out(store, folder, tmp_path):
    refuse("no search index; make one", tmp_path / "nowhere", "new")
    refuse("those of old already; name another --model", store, "old")
    refuse("--map 99 is too small a sample; name at least 100", store, "new", sample=99)
    refuse(f"--map {PASSAGES} is no sample of {PASSAGES} passages; leave it out", store, "new", sample=PASSAGES)

    (tmp_path / "empty.txt").write_text("\n")
    with pytest.raises(InputError, match=r"empty\.txt"):
        reindex(store, "new", sample=100, queries=tmp_path / "empty.txt")
    (tmp_path / "other.csv").write_text("query,passage\nfee,of another index\n")
    refuse("none of its passages is in the index", store, "new", sample=100, queries=tmp_path / "other.csv")

    index([folder], tmp_path / "static", static_model="small", encoder=None)
    refuse("has no vectors of an encoder", tmp_path / "static", "new")
    with pytest.raises(InputError, match="change its model with --reindex"):
        build(folder, store, "new")


def test_options_of_indexing_have_no_effect_on_a_reindex(tmp_path):
    for options in (
        {"folders": ["documents"]},
        {"remove": ["documents"]},
        {"glob": ["*.md"]},
        {"encoder": False},
        {"language": "de"},
        {"queries": "queries.txt"},
    ):
        with pytest.raises(InputError, match=next(iter(options))):
            Index(**{"folders": (), "out": tmp_path, "reindex": True, **options})
    for options in ({"map": 500}, {"queries": "queries.txt"}):
        with pytest.raises(InputError, match="needs --reindex"):
            Index(folders=["documents"], out=tmp_path, **options)


def test_the_command_line_prints_the_loss_of_a_map(store, capsys):
    main(["index", "-o", str(store), "--reindex", "--model", "rotated", "--map", "100"])
    printed = capsys.readouterr().out
    assert "mapped from old by a sample of 100" in printed
    assert "of the ten nearest of 100 sample passages" in printed


def test_a_search_of_mapped_vectors_says_so_in_a_message(store, monkeypatch, caplog):
    for module in (commands, hits):
        monkeypatch.setattr(module, "open_vectors", lambda space, model, **options: OtherEncoder(model))
    search = ["search", QUERY, str(store)]
    caplog.set_level("INFO")
    main(search)
    assert "mapped" not in caplog.text

    reindex(store, "rotated", sample=100)
    main(search)
    assert "its vectors are mapped from old; --reindex computes them" in caplog.text
    caplog.clear()
    main([*search, "--how", "words"])
    assert "mapped" not in caplog.text
