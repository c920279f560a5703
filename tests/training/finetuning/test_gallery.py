"""The gallery notices a test that changes one of its runs."""

import pytest

from tests.training.finetuning.gallery import Gallery, digest, forbid_writing


@pytest.mark.parametrize("change", ["content", "time", "new file", "removed"])
def test_a_changed_file_of_a_run_is_found(change, tmp_path):
    run = tmp_path / "run" / "model"
    run.mkdir(parents=True)
    file = run / "config.json"
    file.write_text("{}", encoding="utf-8")
    gallery = Gallery(None, None)
    gallery.digests[tmp_path] = digest(tmp_path)
    assert gallery.changed() == []
    if change == "content":
        file.write_text("{ }", encoding="utf-8")
    elif change == "time":
        file.touch()
    elif change == "new file":
        (run / "more.json").write_text("", encoding="utf-8")
    else:
        file.unlink()
    name = "more.json" if change == "new file" else "config.json"
    assert gallery.changed() == [str(run / name)]


def test_files_of_a_run_have_no_permission_to_write(tmp_path):
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    forbid_writing(tmp_path)
    assert not (tmp_path / "config.json").stat().st_mode & 0o222


def test_settings_are_made_once_and_train_nothing(gallery):
    for task in ("classify", "regress", "tag", "answer", "embed"):
        settings = gallery.settings(task)
        assert gallery.settings(task) is settings and settings.train.exists()
        assert settings.model.exists() and settings.out == settings.train.with_name("run")
