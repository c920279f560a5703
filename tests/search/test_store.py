"""A store: indexing of folders, searching, changes, refusals."""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from bothways.base.errors import InputError
from bothways.search import indexing, spaces
from bothways.search.database import DATABASE, Database
from bothways.search.indexing import index
from bothways.search.readers import DocumentPart
from bothways.search.store import Store
from bothways.search.writing import StoreWriter, writer_lock
from tests.search.tables import small_static

FILES = {
    "fees.txt": "A late fee is paid of the invoice.\n\nThe cat sat.",
    "cats.md": "# Cat\n\nA kitten sat a mat.\n\n# Report\n\nannual report of the year",
    "rows.csv": "text,year\nlate payment,2015\ncat report,2009\n",
}


class CountingEncoder:
    """Stands for an encoder: vectors of another space, and the texts that were computed."""

    def __init__(self, name: str = "encoder") -> None:
        self.static, self.model, self.texts = small_static(6, seed=3), name, []
        self.fingerprint, self.tokenizer = f"fingerprint of {name}", self.static.tokenizer

    def embed(self, texts):
        self.texts += texts
        return self.static.embed(texts)


@pytest.fixture
def models(monkeypatch):
    """Static vectors of the name "small", and an encoder."""
    static, encoder = small_static(), CountingEncoder()

    def open_vectors(space, model):
        return encoder if space == "encoder" else static

    monkeypatch.setattr(spaces, "open_vectors", open_vectors)
    monkeypatch.setattr(indexing, "open_vectors", open_vectors)
    monkeypatch.setattr(indexing, "EncoderVectors", lambda name, **options: encoder)
    return static, encoder


@pytest.fixture
def folder(tmp_path) -> Path:
    root = tmp_path / "documents"
    root.mkdir()
    for name, text in FILES.items():
        (root / name).write_text(text)
    old = 1_700_000_000_000_000_000
    for path in root.iterdir():
        os.utime(path, ns=(old, old))  # so that times are settled
    return root


def build(folder: Path, store: Path, **options):
    return index([folder], store, static_model="small", encoder=options.pop("encoder", None), **options)


def texts(store: Store, query: str, **options) -> list[str]:
    return [hit.text for hit in store.search(query, **options)]


def contents(directory: Path) -> list[tuple]:
    """All that searches can see of a store, independent of the history of its slots."""
    with Store(directory) as store:
        return sorted(
            (str(hit.path), hit.start, hit.line, hit.text, hit.heading, round(hit.score, 5), json.dumps(hit.metadata))
            for how in ("words", "vectors", "hybrid")
            for hit in store.search("late fee of the cat report", how=how, top=50)
        )


def test_passages_have_their_file_line_and_characters(models, folder, tmp_path):
    result = build(folder, tmp_path / "store")
    assert (result.new, result.files, result.skipped) == (3, 3, {})
    with Store(tmp_path / "store") as store:
        (hit, *_) = store.search("annual report", how="words")
        assert (hit.path.name, hit.line, hit.heading) == ("cats.md", 5, "Report")
        assert FILES["cats.md"][hit.start : hit.end] == hit.text == "# Report\n\nannual report of the year"
        (hit, *_) = store.search("late payment", how="words")
        assert (hit.path.name, hit.line, hit.metadata, hit.text) == (
            "rows.csv",
            2,
            {"row": 0, "year": 2015},
            "late payment",
        )
        assert repr(store).endswith(f"{result.passages} passages of 3 files)")


def test_words_vectors_and_both(models, folder, tmp_path):
    build(folder, tmp_path / "store")
    with Store(tmp_path / "store") as store:
        assert texts(store, "kitten", how="words") == ["# Cat\n\nA kitten sat a mat."]
        assert len(texts(store, "kitten", how="vectors", top=50)) == store.passages
        assert texts(store, "kitten", top=1) == ["# Cat\n\nA kitten sat a mat."]
        assert texts(store, "zzz", how="words") == []
        # No word in common, but near by vectors.
        assert texts(store, "fees", how="vectors", top=2)[-1] in ("late payment", FILES["fees.txt"])


def test_an_index_with_the_words_of_another_version_is_named_in_a_message_and_made_anew(
    models, folder, tmp_path, caplog
):
    build(folder, tmp_path / "store")
    before = contents(tmp_path / "store")
    assert not caplog.messages
    database = Database(tmp_path / "store")
    database.execute("DELETE FROM lists")
    database.execute("DELETE FROM meta WHERE key = 'words'")  # as the first version left it
    database.close()
    Store(tmp_path / "store").close()
    assert "words" in caplog.messages[0]
    result = build(folder, tmp_path / "store")
    assert (result.unchanged, result.changed) == (1, 2)  # front matter and cells were read otherwise
    caplog.clear()
    assert contents(tmp_path / "store") == before
    assert not caplog.messages


def test_passages_without_lines_have_neighbours(models, folder, tmp_path):
    words = [f"<h2>{word}</h2><p>{'mat ' * 150}</p>" for word in ("kitten", "invoice", "annual")]
    (folder / "page.html").write_text("".join(words))
    build(folder, tmp_path / "store")
    with Store(tmp_path / "store") as store:
        (hit,) = store.search("invoice", how="words", globs=["*.html"])
        before, after = store.neighbours(hit, 1)
        assert [(one.heading, one.line) for one in (*before, hit, *after)] == [
            ("kitten", None),
            ("invoice", None),
            ("annual", None),
        ]


def test_pages_have_neighbours_on_other_pages(models, folder, tmp_path, monkeypatch):
    pages = [DocumentPart(word, page=page, first_line=None) for page, word in enumerate(("kitten", "fee", "mat"), 1)]
    (folder / "a.pdf").write_bytes(b"")
    monkeypatch.setattr(indexing.Readers, "read", lambda self, path: pages)
    build(folder / "a.pdf", tmp_path / "store")
    with Store(tmp_path / "store") as store:
        (hit,) = store.search("fee", how="words")
        assert [[one.page for one in side] for side in store.neighbours(hit, 2)] == [[1], [3]]


def test_the_path_of_a_single_file_can_be_filtered(models, folder, tmp_path):
    build(folder / "fees.txt", tmp_path / "store")
    with Store(tmp_path / "store") as store:
        assert texts(store, "cat", how="words", condition="path = 'fees.txt'")
        assert not texts(store, "cat", how="words", condition="path != 'fees.txt'")


def test_filters_and_globs(models, folder, tmp_path):
    build(folder, tmp_path / "store")
    with Store(tmp_path / "store") as store:
        assert texts(store, "cat report", condition="year < 2010") == ["cat report"]
        assert {hit.path.name for hit in store.search("cat", globs=["*.md"])} == {"cats.md"}
        assert {hit.path.name for hit in store.search("cat", globs=["!*.md"], top=50)} == {"fees.txt", "rows.csv"}
        assert texts(store, "cat", condition="year > 3000") == []
        with pytest.raises(InputError, match="filter"):
            store.search("cat", condition="year >")
        with pytest.raises(InputError, match=r"'yer'.*path, page, heading, row, year.*did you mean 'year'"):
            store.search("cat", condition="year > 3000 and yer = 1")


def test_only_changes_are_read(models, folder, tmp_path):
    store = tmp_path / "store"
    build(folder, store)
    result = build(folder, store)
    assert (result.new, result.changed, result.deleted, result.unchanged) == (0, 0, 0, 3)
    (folder / "new.txt").write_text("annual fee")
    (folder / "fees.txt").write_text("the invoice")
    (folder / "rows.csv").unlink()
    os.utime(folder / "cats.md")  # another time, the same content
    result = build(folder, store)
    assert (result.new, result.changed, result.deleted, result.unchanged) == (1, 1, 1, 1)
    fresh = tmp_path / "fresh"
    build(folder, fresh)
    assert contents(store) == contents(fresh)


def test_a_store_that_is_open_sees_commits_of_others(models, folder, tmp_path):
    build(folder, tmp_path / "store")
    with Store(tmp_path / "store") as store:
        assert texts(store, "zebra", how="words") == []
        (folder / "zebra.txt").write_text("a zebra")
        build(folder, tmp_path / "store")
        assert texts(store, "zebra", how="words") == ["a zebra"]


def test_the_encoder_computes_each_passage_once(models, folder, tmp_path):
    _, encoder = models
    store = tmp_path / "store"
    build(folder, store, encoder="encoder")
    with Store(store) as opened:
        assert opened.space() == "encoder"
        computed = encoder.texts[-opened.passages :]
        assert len(encoder.texts) == opened.passages + 21  # once, those of the background
        hits = opened.search("kitten", how="vectors", top=50)
    cosines = encoder.static.embed(computed) @ encoder.static.embed(["kitten"])[0]
    assert [hit.text for hit in hits] == [computed[row] for row in np.argsort(-cosines, kind="stable")]
    encoder.texts.clear()
    (folder / "new.txt").write_text("annual fee")
    build(folder, store, encoder="encoder")
    assert encoder.texts == ["annual fee"]


def test_until_the_encoder_is_done_static_vectors_are_searched(models, folder, tmp_path, monkeypatch):
    _, encoder = models
    monkeypatch.setattr(indexing, "ENCODER_PASSAGES", 1)
    compute, seen = encoder.embed, []

    def embed(texts):
        with Store(tmp_path / "store") as store:
            seen.append((store.space(), len(store.search("kitten", how="words"))))
        return compute(texts)

    encoder.embed = embed
    build(folder, tmp_path / "store", encoder="encoder")
    assert set(seen) == {("static", 1)}
    assert len(seen) > 2


def test_another_model_is_refused(models, folder, tmp_path, monkeypatch):
    store = tmp_path / "store"
    build(folder, store)
    other = small_static(seed=9)
    monkeypatch.setattr(indexing, "open_vectors", lambda space, model: other)
    with pytest.raises(InputError, match="static fingerprint"):
        build(folder, store)
    with Store(store) as opened, pytest.raises(InputError, match="another model"):
        opened.search("cat", vectors=lambda space, model: other)


def test_one_process_writes(models, folder, tmp_path):
    with writer_lock(tmp_path / "store") as is_locked:
        assert is_locked
        with pytest.raises(InputError, match="another process"):
            build(folder, tmp_path / "store")
    build(folder, tmp_path / "store")


def test_files_that_cannot_be_read_are_named_and_skipped(models, folder, tmp_path):
    (folder / "binary.txt").write_bytes(b"\0\0\1\2" * 100)
    result = build(folder, tmp_path / "store")
    assert [Path(name).name for name in result.skipped] == ["binary.txt"]
    assert result.files == 3
    again = build(folder, tmp_path / "store")
    assert [Path(name).name for name in again.skipped] == ["binary.txt"]
    (folder / "binary.txt").write_text("zebra")
    assert build(folder, tmp_path / "store").skipped == {}


def test_a_file_that_changes_while_it_is_read_is_skipped(models, folder, tmp_path, monkeypatch):
    split = indexing.split_passages
    changes = iter(range(100))

    def changing(text, *args, **options):
        if "invoice" in text:
            (folder / "fees.txt").write_text("the invoice" + " again" * next(changes))
        return split(text, *args, **options)

    monkeypatch.setattr(indexing, "split_passages", changing)
    result = build(folder, tmp_path / "store")
    assert [*result.skipped.values()] == [f"{folder / 'fees.txt'}: changes while it is read"]
    monkeypatch.setattr(indexing, "split_passages", split)
    assert build(folder, tmp_path / "store").skipped == {}


def test_a_store_that_cannot_be_written_is_searched(models, folder, tmp_path, monkeypatch):
    build(folder, tmp_path / "a store? 100%")
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    with Store(tmp_path / "a store? 100%") as store:
        assert texts(store, "kitten", how="words") == ["# Cat\n\nA kitten sat a mat."]
        with pytest.raises(InputError, match="readonly"), store.database.transaction():
            store.database.put(slots=0)


def test_what_another_user_commits_is_seen(models, folder, tmp_path, monkeypatch):
    build(folder, tmp_path / "store")
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    with Store(tmp_path / "store") as before:  # opened when nobody writes, so that there is no log
        writer = Database(tmp_path / "store", create=True)  # which keeps the log of commits
        (folder / "zebra.txt").write_text("a zebra")
        build(folder, tmp_path / "store")
        for store in (before, Store(tmp_path / "store")):
            assert texts(store, "zebra", how="words") == ["a zebra"]
            assert (store.passages, store.files) == (6, 4)
        writer.close()
        store.close()
        (folder / "zebra.txt").write_text("an okapi")
        build(folder, tmp_path / "store")
        for store in (before, Store(tmp_path / "store")):  # when the log is gone
            assert texts(store, "okapi", how="words") == ["an okapi"]
        store.close()


def test_values_are_read_while_another_thread_searches_what_another_user_writes(models, folder, tmp_path, monkeypatch):
    build(folder, tmp_path / "store")
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    writer = Database(tmp_path / "store", create=True)
    writer.put(note="a log")  # so that each snapshot opens the database again
    with Store(tmp_path / "store") as store, ThreadPoolExecutor() as pool:
        searches = pool.submit(lambda: {store.passages for _ in range(100)})
        while not searches.done():
            assert store.space() == "static"
        assert searches.result() == {5}
    writer.close()


def test_a_change_while_a_file_is_read_without_locks_is_no_damage(models, folder, tmp_path, monkeypatch):
    build(folder, tmp_path / "store")
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    database = Database(tmp_path / "store")
    with pytest.raises(InputError, match="try again"), database.snapshot():
        with (tmp_path / "store" / DATABASE).open("r+b") as file:
            file.seek(4096)
            file.write(b"\xff" * 100_000)
        database.execute("SELECT text FROM passages").fetchall()
    database.close()


def test_a_single_file_and_several_folders(models, folder, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "a.txt").write_text("zebra")
    index([folder / "fees.txt", other], tmp_path / "store", static_model="small", encoder=None)
    with Store(tmp_path / "store") as store:
        assert {hit.path for hit in store.search("zebra fee", how="words")} == {folder / "fees.txt", other / "a.txt"}
        assert [hit.path for hit in store.search("fee", globs=["fees.*"])] == [folder / "fees.txt"]


def rebuilt(store: Path, *folders: Path, **options) -> indexing.Indexed:
    return index(folders, store, static_model="small", encoder=None, **options)


@pytest.mark.parametrize("names", [("", "sub"), ("sub", ""), ("", "sub", "sub/deep", "sub/a.txt", "")])
@pytest.mark.parametrize("at_once", [True, False])
def test_overlapping_folders_have_each_file_once(models, folder, tmp_path, names, at_once):
    (folder / "sub" / "deep").mkdir(parents=True)
    (folder / "sub" / "a.txt").write_text("a kitten")
    (folder / "sub" / "deep" / "b.txt").write_text("the fee")
    paths = [folder / name for name in names]
    for some in [paths] if at_once else [*([path] for path in paths), [folder]]:
        rebuilt(tmp_path / "store", *some)
    assert rebuilt(tmp_path / "store", folder).unchanged == 5
    assert rebuilt(tmp_path / "fresh", folder).files == 5
    assert contents(tmp_path / "store") == contents(tmp_path / "fresh")
    with Store(tmp_path / "store") as store:
        assert {hit.path.name for hit in store.search("kitten", globs=["sub/"], top=50)} == {"a.txt", "b.txt"}
    (folder / "sub" / "a.txt").unlink()
    assert rebuilt(tmp_path / "store", folder / "sub").deleted == 1


def test_a_folder_that_is_ignored_but_was_named_stays(models, folder, tmp_path):
    (folder / ".gitignore").write_text("fees.txt")
    rebuilt(tmp_path / "store", folder, folder / "fees.txt")
    assert (rebuilt(tmp_path / "store", folder).deleted, rebuilt(tmp_path / "store", folder).files) == (0, 3)
    result = rebuilt(tmp_path / "store", remove=[folder / "fees.txt"])
    assert (result.deleted, result.files) == (1, 2)


def test_a_folder_that_is_gone_is_forgotten_when_asked(models, folder, tmp_path, caplog):
    other = tmp_path / "other"
    other.mkdir()
    (other / "a.txt").write_text("zebra")
    rebuilt(tmp_path / "store", folder, other)
    other.rename(tmp_path / "moved")
    assert rebuilt(tmp_path / "store", folder).files == 4
    result = rebuilt(tmp_path / "store", remove=[other])
    assert (result.deleted, result.files) == (1, 3)
    with Store(tmp_path / "store") as store:
        assert texts(store, "zebra", how="words") == []
    with pytest.raises(InputError, match="no folder of the index"):
        rebuilt(tmp_path / "store", remove=[other])
    with pytest.raises(InputError, match="no search index"):
        rebuilt(tmp_path / "none", remove=[folder])


def test_to_forget_a_folder_keeps_those_inside_that_were_named(models, folder, tmp_path):
    (folder / "sub").mkdir()
    (folder / "sub" / "a.txt").write_text("zebra")
    rebuilt(tmp_path / "store", folder, folder / "sub")
    result = rebuilt(tmp_path / "store", remove=[folder])
    assert (result.deleted, result.new, result.files) == (4, 1, 1)


def test_an_inner_folder_that_is_gone_goes_with_the_outer(models, folder, tmp_path):
    (folder / "sub").mkdir()
    (folder / "sub" / "a.txt").write_text("zebra")
    rebuilt(tmp_path / "store", folder / "sub")
    (folder / "sub").rename(tmp_path / "moved")
    assert (rebuilt(tmp_path / "store", folder).deleted, rebuilt(tmp_path / "store", folder).files) == (1, 3)


def test_an_encoder_that_is_trained_anew_in_its_place_computes_all_vectors_again(models, folder, tmp_path):
    _, encoder = models
    model = tmp_path / "model"
    model.mkdir()
    encoder.model = str(model)
    for number in (1, 2):
        (model / "weights").write_text("w" * number)
        encoder.fingerprint = f"training {number}"
        encoder.texts.clear()
        build(folder, tmp_path / "store", encoder=str(model))
        with Store(tmp_path / "store") as store:
            assert store.space() == "encoder"
            assert len(encoder.texts) == store.passages + 21  # of the background, too
            assert store.search("kitten", how="vectors")
    encoder.texts.clear()
    (model / "notes").write_text("other files, the same model")
    build(folder, tmp_path / "store", encoder=str(model))
    assert encoder.texts == []
    encoder.fingerprint = encoder.model = "another"
    with pytest.raises(InputError, match="encoder fingerprint"):
        build(folder, tmp_path / "store", encoder="another")


def test_another_version_of_an_encoder_in_the_cache_of_the_hub_computes_all_vectors_again(
    models, folder, tmp_path, monkeypatch
):
    _, encoder = models
    encoder.model = "acme/tiny"
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    cached = tmp_path / "cache" / "models--acme--tiny"
    for number, commit in enumerate(("a" * 40, "b" * 40)):
        (cached / "snapshots" / commit).mkdir(parents=True)
        (cached / "snapshots" / commit / "weights").write_text("w" * number)
        (cached / "refs").mkdir(exist_ok=True)
        (cached / "refs" / "main").write_text(commit)
        encoder.fingerprint = commit
        build(folder, tmp_path / "store", encoder=encoder.model)
        with Store(tmp_path / "store") as store:
            assert store.search("kitten", how="vectors")


def test_compaction_keeps_what_can_be_found(models, folder, tmp_path):
    store = tmp_path / "store"
    build(folder, store, encoder="encoder")
    before = contents(store)
    static, _ = models
    for round in range(3):  # every file again and again: most slots are dead
        (folder / "fees.txt").write_text(FILES["fees.txt"] + f"\n\nround {round}")
        build(folder, store, encoder="encoder")
    (folder / "fees.txt").write_text(FILES["fees.txt"])
    build(folder, store, encoder="encoder")
    writer = StoreWriter(store, static=static, static_model="small", language="en")
    assert writer.dead() > 0
    with Store(store) as opened:
        opened.search("cat")
        writer.compact()
        assert writer.dead() == 0
        assert opened.search("kitten", how="words")
        assert opened.space() == "encoder"
    writer.close()
    assert contents(store) == before
    assert len([*store.glob("*.f32")]) == 2


def test_neighbours_and_reading_on(models, tmp_path):
    root = tmp_path / "long"
    root.mkdir()
    (root / "a.md").write_text("\n\n".join(f"# Part {number}\n\nthe year {number}" for number in range(5)))
    build(root, tmp_path / "store")
    with Store(tmp_path / "store") as store:
        (hit,) = [hit for hit in store.search("year", top=9) if hit.heading == "Part 2"]
        before, after = store.neighbours(hit, 1)
        assert [one.heading for one in before + after] == ["Part 1", "Part 3"]
        assert [one.heading for one in store.passages_from(str(hit.path), hit.line, 2)] == ["Part 2", "Part 3"]
        with pytest.raises(InputError, match="no file of the index"):
            store.passages_from("missing.md", 1, 1)


def test_a_cut_off_vector_file_is_refused(models, folder, tmp_path):
    build(folder, tmp_path / "store")
    (file,) = (tmp_path / "store").glob("*.f32")
    file.write_bytes(file.read_bytes()[:-4])
    with Store(tmp_path / "store") as store, pytest.raises(InputError, match="index again"):
        store.search("cat")


@pytest.mark.parametrize("options", [{"top": 0}, {"how": "magic"}])
def test_bad_options(models, folder, tmp_path, options):
    build(folder, tmp_path / "store")
    with Store(tmp_path / "store") as store, pytest.raises(InputError):
        store.search("cat", **options)


def test_an_empty_folder(models, tmp_path):
    (tmp_path / "empty").mkdir()
    assert build(tmp_path / "empty", tmp_path / "store").files == 0
    with Store(tmp_path / "store") as store:
        assert store.search("cat") == []
    assert np.array_equal(small_static().embed([""]), np.zeros((1, 8)))


# --- text from outside that UTF-8 cannot encode -----------------------------------------------------------------------


def test_file_names_that_are_not_utf8_are_indexed_found_and_removed(models, folder, tmp_path):
    names = [b"caf\xe9.txt", "caf\U0010f7e9.txt".encode(), b"\xe9\xf4\x8f\x9f\xa9.html"]  # the second is another one
    for number, name in enumerate(names):
        write_raw(folder, name, f"cat {'mat ' * number}")
    assert build(folder, tmp_path / "store").new == 6
    assert build(folder, tmp_path / "store").unchanged == 6
    with Store(tmp_path / "store") as store:
        found = {os.fsencode(hit.path.name): hit for hit in store.search("cat", how="words", top=9)}
        assert {*names} < {*found}
        assert [found[name].path.read_text().strip() for name in names] == ["cat", "cat mat", "cat mat mat"]
        assert texts(store, "cat", globs=["!*.*", os.fsdecode(names[0])]) == ["cat"]
        assert texts(store, "cat", condition=f"path = '{os.fsdecode(names[0])}'") == ["cat"]
        assert [store.passages_from(str(found[name].path), 1, 9)[0].path for name in names] == [
            found[name].path for name in names
        ]
    for name in names:
        os.unlink(os.path.join(os.fsencode(folder), name))
    assert build(folder, tmp_path / "store").deleted == 3


def test_a_folder_and_an_error_may_have_a_name_that_is_not_utf8(models, tmp_path):
    folder = tmp_path / os.fsdecode(b"\xff\xfe")
    write_raw(folder, b"a.txt", "cat")
    write_raw(folder, b"\x80.docx", "no Word document")
    result = build(folder, tmp_path / "store")
    assert [os.fsencode(Path(path).name) for path in result.skipped] == [b"\x80.docx"]
    assert build(folder, tmp_path / "store").skipped == result.skipped
    build(folder / "a.txt", tmp_path / "one")
    with Store(tmp_path / "one") as store:
        assert [hit.path for hit in store.search("cat", how="words")] == [folder / "a.txt"]


def test_lone_surrogates_of_rows_queries_and_filters_are_harmless(models, tmp_path):
    path = write_raw(tmp_path, b"a.jsonl", '{"text": "cat \\ud83d sat", "k\\udc80": "\\udfff", "title": "# \\ud800"}')
    build(path, tmp_path / "store")
    with Store(tmp_path / "store") as store:
        (hit,) = store.search("cat \udc80", how="words", globs=["!\udfff"], condition="heading != '\ud800 \udc80'")
        assert (hit.text, hit.metadata) == ("# \ufffd\n\ncat \ufffd sat", {"row": 0, "k\ufffd": "\ufffd"})


def write_raw(folder: Path, name: bytes, text: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / os.fsdecode(name)
    try:
        path.write_text(text)
    except OSError:
        pytest.skip("this file system has names in UTF-8 only")
    return path
