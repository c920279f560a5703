"""README.md of a saved model, its card: what it says, that it names nobody and no place, and that its code runs."""

import getpass
import json
import platform
import re
import socket

import pytest
import yaml
from huggingface_hub import ModelCard as HubCard

import bothways
from bothways.model.checkpoint.card_file import CARD, MARK
from bothways.settings import Classify
from bothways.tasks import TASKS
from bothways.training.finetuning import card
from tests.soaked import in_soak
from tests.training.finetuning.gallery import class_rows, small_settings

PLANTED = "zebrafinch"  # in rows, paths and names


def card_of_run(run):
    return (run.result.model_directory / CARD).read_text(encoding="utf-8")


def code_of(text, language):
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "tag", "metric"),
    [
        ("classify", "text-classification", "accuracy"),
        *in_soak(
            ("regress", "text-classification", "spearmanr"),
            ("tag", "token-classification", "f1"),
            ("answer", "question-answering", "f1"),
            ("embed", "sentence-similarity", "ndcg@10"),
        ),
    ],
)
def test_a_card_has_the_task_the_score_and_code_that_runs(task, tag, metric, gallery, capsys, global_seed):
    run = getattr(gallery, task)
    text = card_of_run(run)
    front = yaml.safe_load(text.split("---\n")[1])
    assert front["pipeline_tag"] == tag and front["tags"] == ["bothways", task]

    (scores,) = HubCard(text).data.eval_results
    assert scores.metric_type == metric and scores.metric_value == pytest.approx(run.result.mean, rel=1e-5)
    assert f"| this model | {100 * run.result.mean:.1f} % |" in text
    for name, value in run.result.baselines.items():
        assert f"| {name} | {100 * value:.1f} % |" in text
    for rows in run.metadata["rows"].values():
        assert f"{rows:,} to " in text

    blocks = code_of(text, "python")
    assert len(blocks) == 1 + (front["library_name"] != "bothways")
    for block in blocks:
        exec(block.replace(card.MODEL, str(run.result.model_directory)), {})
        assert capsys.readouterr().out.strip()


@pytest.mark.parametrize("form", ["bothways-tfidf", "bothways-int8", "bothways-adapter", "bothways-static"])
def test_a_card_names_no_library_that_does_not_read_the_model(form):
    text = card.ModelCard("classify", form, ("a", "b"), False, {"verb": "finetune classify"}).text()
    assert "library_name: bothways" in text and "pipeline(" not in text
    assert "has no score" in text


@pytest.mark.parametrize("task", [name for name, entry in TASKS.items() if entry.is_trained])
@pytest.mark.parametrize("form", ["bert", "bothways-linear", "bothways-int8"])
@pytest.mark.parametrize("has_pairs", [False, True])
def test_all_code_of_a_card_is_python_and_all_bodies_are_json(task, form, has_pairs):
    metadata = {"verb": f"finetune {task}", "reads_pairs": has_pairs}
    text = card.ModelCard(task, form, ("a", "b"), False, metadata).text()
    for block in code_of(text, "python"):
        compile(block, CARD, "exec")
        assert block.count(card.MODEL) >= 1
    (commands,) = code_of(text, "sh")
    assert json.loads(re.search("-d '(.+)' localhost", commands)[1])


def test_labels_cannot_break_the_card():
    labels = ("`x`\n---\nlicense: mit", "| a |", "long " * 40)
    text = card.ModelCard("classify", "bert", labels, False, {"verb": "finetune classify"}).text()
    assert "license" not in yaml.safe_load(text.split("---\n")[1])
    assert text.count("\n---\n") == 1 and "'x' --- license: mit" in text
    assert max(map(len, text.splitlines())) < 400


@pytest.mark.parametrize("model", ["bothways-en", "model"])
def test_the_licence_of_the_start_model_is_said_where_it_is_known(model):
    settings = {"verb": "finetune classify", "settings": {"model": model}}
    front = yaml.safe_load(card.ModelCard("classify", "bert", ("a", "b"), False, settings).text().split("---\n")[1])
    known = {"license": "other", "license_name": "apache-2.0-and-mit", "language": "en"}
    expected = known if model == "bothways-en" else {}
    assert {name: front[name] for name in known if name in front} == expected


@pytest.mark.parametrize("task", ["decide", "classify"])
def test_the_card_of_a_model_that_decides_names_the_sources_of_the_part_that_reads_options(task):
    metadata = {"verb": f"finetune {task}", "settings": {"model": "bothways-en"}}
    text = card.ModelCard(task, "bert", ("a", "b"), False, metadata).text()
    assert ("SQuAD 1.1 (CC BY-SA 4.0)" in text) == (task == "decide")


@pytest.fixture(scope="module")
def planted_runs(checkpoint_of, table, tmp_path_factory):
    """Two equal runs: a word is in each text, in every path, and it is the name of the host and of the user."""
    with pytest.MonkeyPatch.context() as patch:
        for module, name in ((platform, "node"), (socket, "gethostname"), (getpass, "getuser")):
            patch.setattr(module, name, lambda: PLANTED)
        for name in ("USER", "LOGNAME", "HOSTNAME"):
            patch.setenv(name, PLANTED)

        folder = tmp_path_factory.mktemp(PLANTED)
        rows = [{**row, "text": f"{row['text']} {PLANTED}"} for row in class_rows(0, 90)]
        train = table(rows, f"{PLANTED}.jsonl", folder)
        model = folder / "start"
        checkpoint_of(num_hidden_layers=1).rename(model)
        options = {"model": model, "train": train, "baselines": True, "linear_start": True}
        outs = [folder / name for name in ("one", "two")]
        for out in outs:
            bothways.train(small_settings(Classify, out=out, **options))
    return outs


@pytest.mark.slow
def test_a_card_has_no_text_path_host_or_user(planted_runs):
    cards = [file.read_text(encoding="utf-8") for file in planted_runs[0].rglob(CARD)]
    metadata = (planted_runs[0] / "bothways.json").read_text(encoding="utf-8")
    assert cards and PLANTED in metadata
    assert not [text for text in cards if PLANTED in text.casefold()]


@pytest.mark.slow
def test_equal_runs_have_equal_cards(planted_runs):
    one, two = ((out / "model" / CARD).read_bytes() for out in planted_runs)
    assert one == two


@pytest.mark.parametrize("is_ours", [True, False])
def test_a_card_of_the_user_is_kept(is_ours, make_model, tokenizer, tmp_path):
    from bothways.model.checkpoint import checkpoint
    from bothways.model.checkpoint.contents import Checkpoint

    saved = Checkpoint(make_model("bert", {"classes": 2}), tokenizer, labels=("a", "b"))
    checkpoint.save(saved, tmp_path / "model", card=f"{MARK}\nfirst\n")
    (tmp_path / "model" / CARD).write_text(f"{MARK}\nold\n" if is_ours else "my own\n", encoding="utf-8")
    checkpoint.save(saved, tmp_path / "model", card=f"{MARK}\nnew\n")
    expected = f"{MARK}\nnew\n" if is_ours else "my own\n"
    assert (tmp_path / "model" / CARD).read_text(encoding="utf-8") == expected


@pytest.mark.slow
def test_a_tfidf_model_has_a_card_without_a_start_model(planted_runs, tmp_path):
    settings = json.loads((planted_runs[0] / "bothways.json").read_text(encoding="utf-8"))["settings"]
    out = tmp_path / "run"
    bothways.train(Classify(model="tf-idf", train=settings["train"], out=out, baselines=False))
    text = (out / "model" / CARD).read_text(encoding="utf-8")
    front = yaml.safe_load(text.split("---\n")[1])
    assert "base_model" not in front and front["tags"][-1] == "tf-idf"
    assert "`terms.json` has words" in text and PLANTED not in text
