"""The gallery of finished runs is read-only (tests/isolation.py), and its settings train nothing."""

from tests.training.finetuning.gallery import forbid_writing


def test_files_of_a_run_have_no_permission_to_write(tmp_path):
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    forbid_writing(tmp_path)
    assert not (tmp_path / "config.json").stat().st_mode & 0o222


def test_settings_are_made_once_and_train_nothing(gallery):
    for task in ("classify", "regress", "tag", "answer", "embed"):
        settings = gallery.settings(task)
        assert gallery.settings(task) is settings and settings.train.exists()
        assert settings.model.exists() and settings.out == settings.train.with_name("run")
