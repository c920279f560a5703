"""Training starts from the linear solution on frozen features, and keeps it if training does not help."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import bothways
from bothways.base.errors import InputError
from bothways.base.log import messages_to
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.contents import Checkpoint
from bothways.model.linear import linear_head
from bothways.settings import Classify, Export, Regress, Tag
from bothways.shrink.export import export
from bothways.tasks.arrays import softmax
from bothways.tasks.classify.training import Classification
from bothways.text.data.split_tables import read_tables
from bothways.training.finetuning.finetune import run as run_task
from bothways.training.finetuning.ground.linear_candidates import FewRows
from bothways.training.finetuning.plan import make_plan
from bothways.training.run_checkpoints import TrainingState
from bothways.training.schedule import TrainingOptions
from bothways.training.trainer import Trainer
from tests.soaked import in_soak

pytestmark = pytest.mark.slow

FROZEN = "was best on dev; kept"


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """A text's class is whether it holds a cat or a dog, its number is how many words it has."""
    folder = tmp_path_factory.mktemp("tables")
    draw = np.random.default_rng(0)
    rows = []
    for index in range(240):
        words = draw.choice("the and on a b mat ran".split(), int(draw.integers(3, 9))).tolist()
        words.insert(int(draw.integers(len(words) + 1)), ("cat", "dog")[index % 2])
        rows.append({"tokens": words, "tags": ["B-PET" if word in ("cat", "dog") else "O" for word in words]})
        rows[-1] |= {"text": " ".join(words), "label": ("feline", "canine")[index % 2], "score": len(words) * 100}
    for name, columns in {"texts": ("text", "label"), "numbers": ("text", "score"), "tags": ("tokens", "tags")}.items():
        lines = [json.dumps({column: row[column] for column in columns}) for row in rows]
        (folder / f"{name}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def start(checkpoint_of):
    return checkpoint_of(heads={"masked_words": 0, "next_sentence": 2}, num_hidden_layers=2)


@pytest.fixture
def options(start, tmp_path):
    return {
        "model": start,
        "out": tmp_path / "run",
        "epochs": 1.0,
        "batch_tokens": 256,
        "learning_rate": 1e-4,
        "dropout": 0.0,
        "dtype": "float32",
        "linear_start": True,
    }


def rows_of(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def measured(run):
    return [row for row in rows_of(run) if row["split"] == "heldout"]


def task_of(settings):
    return Classification.build(settings, checkpoint.load(settings.model), read_tables(settings))


def test_no_other_head_has_a_lower_loss_on_the_frozen_features(options, tables, global_seed):
    settings = Classify(**options, train=tables / "texts.jsonl")
    task = task_of(settings)
    model = task.initial_checkpoint(0).model
    task.fit_head(model)
    head = model.heads["classes"].output
    targets = torch.from_numpy(task.data["train"].targets)
    loss = torch.nn.functional.cross_entropy(torch.from_numpy(task.scoring.outputs(model, "train")), targets)
    torch.manual_seed(0)

    def score(scores_NC, targets):
        return task.scoring.score(scores_NC.numpy(), targets.numpy())

    strength = linear_head.fit(*frozen_rows(task, model), 2, score=score).strength
    deviation_H = frozen_rows(task, model)[0][0].std(0, correction=0)
    objective = loss + strength / 2 * (head.weight * deviation_H).square().sum()
    for _ in range(20):
        other = model.heads["classes"].output.weight.detach() + 0.02 * torch.randn(2, 24)
        scores_NC = frozen_rows(task, model)[0][0] @ other.T + head.bias
        worse = torch.nn.functional.cross_entropy(scores_NC, targets)
        assert worse + strength / 2 * (other * deviation_H).square().sum() > objective


def frozen_rows(task, model):
    with torch.no_grad():
        x_NH = model.pooler(task.frozen["train"]["head"])
    return (x_NH, torch.from_numpy(task.data["train"].targets)), task_loss(task)


def task_loss(task):
    return task.objective.loss


@pytest.mark.parametrize("linear_start", [True, False])
@pytest.mark.parametrize(("settings_of", "name"), [(Classify, "texts"), (Regress, "numbers"), (Tag, "tags")])
def test_the_line_on_the_head_says_whether_it_is_fitted(settings_of, name, linear_start, options, tables):
    settings = settings_of(**options | {"linear_start": linear_start}, train=tables / f"{name}.jsonl")
    task = make_plan(settings).task
    with messages_to((messages := []).append):
        task.initial_checkpoint(0)
    [line] = [message for message in messages if "head '" in message]
    assert line.startswith("fitted to the frozen encoder: head" if linear_start else "newly initialized: head")


@pytest.mark.parametrize("kind", ["classify", "tag", *in_soak("regress")])
def test_a_run_measures_its_linear_start_which_is_better_than_a_head_drawn_by_chance(kind, options, tables):
    settings_of, name = {
        "classify": (Classify, "texts"), "regress": (Regress, "numbers"), "tag": (Tag, "tags")
    }[kind]  # fmt: skip
    settings = settings_of(**options, train=tables / f"{name}.jsonl")
    result = run_task(settings)
    first, last = measured(settings.out)[0], measured(settings.out)[-1]
    assert first["step"] == 0 and last["step"] > 0
    other = replace(settings, out=settings.out.with_name("chance"), linear_start=False, baselines=False)
    run_task(other)
    assert measured(other.out)[0]["step"] > 0
    assert first["loss"] < measured(other.out)[0]["loss"] - 0.05
    metadata = json.loads((settings.out / "bothways.json").read_text(encoding="utf-8"))
    # What is kept lies between the start and the last weights, and has the lowest loss of these points.
    assert metadata["result"]["scores"]["dev"][0] >= first[result.metric] - 0.05


def test_a_model_that_training_only_harms_stays_frozen_with_a_message(options, tables):
    settings = Classify(**{**options, "learning_rate": 0.5}, train=tables / "texts.jsonl", baselines=False)
    messages = []
    with messages_to(messages.append):
        run_task(settings)
    assert any(FROZEN in line for line in messages)
    metadata = json.loads((settings.out / "bothways.json").read_text(encoding="utf-8"))
    assert metadata["result"]["frozen"] is True
    after = checkpoint.load(settings.out).model.encoder.state_dict()
    before = checkpoint.load(settings.model).model.encoder.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    dev = [row["accuracy"] for row in measured(settings.out)]
    assert metadata["result"]["scores"]["dev"] == [dev[0]] and dev[1] < dev[0]


def test_a_model_that_training_improves_is_the_trained_one(options, tables):
    settings = Classify(
        **{**options, "learning_rate": 1e-3, "epochs": 4.0}, train=tables / "texts.jsonl", baselines=False
    )
    run_task(settings)
    metadata = json.loads((settings.out / "bothways.json").read_text(encoding="utf-8"))
    assert metadata["result"]["frozen"] is False and metadata["figures"]["dev"]["best_step"] > 0


def test_of_equally_good_weights_those_of_the_lower_loss_are_kept(global_seed):
    module = torch.nn.Linear(1, 1, bias=False)
    trainer = Trainer(
        module,
        lambda *_: {},
        lambda _: {},
        TrainingOptions(steps=9, learning_rate=1.0, best_by="score", evaluate_first=True),
    )
    progress = TrainingState(step=1)
    for step, (score, loss, best_step) in enumerate([(0.5, 2.0, 1), (0.5, 1.0, 2), (0.5, 1.5, 2), (0.6, 9.0, 4)], 1):
        progress = trainer.mark_best(replace(progress, step=step), {"score": score, "loss": loss})
        assert progress.best_step == best_step


def test_linear_starts_of_cross_validation_are_fitted_on_each_folds_own_rows(options, tables, monkeypatch):
    fitted = []
    fit = linear_head.fit
    monkeypatch.setattr(
        linear_head,
        "fit",
        lambda rows, *arguments, **named: fitted.append(len(rows[1])) or fit(rows, *arguments, **named),
    )
    run_task(Classify(**options, train=tables / "texts.jsonl", folds=3, baselines=False))
    assert len(fitted) == 4 and max(fitted[:3]) <= 160 < fitted[3]


def test_the_head_of_a_tagger_is_fitted_once_for_its_baseline_and_all_seeds(options, tables, monkeypatch):
    fitted, fit = [], linear_head.fit
    monkeypatch.setattr(
        linear_head,
        "fit",
        lambda rows, *arguments, **named: fitted.append(len(rows[1])) or fit(rows, *arguments, **named),
    )
    run_task(Tag(**options, train=tables / "tags.jsonl", seeds=2))
    assert len(fitted) == 1 and len({row["seed"] for row in measured(options["out"]) if row["step"] == 0}) == 2


def test_the_setting_is_checked(options, tables):
    with pytest.raises(InputError, match="linear_start"):
        Classify(**{**options, "linear_start": "yes"}, train=tables / "texts.jsonl")


def test_of_few_pairs_a_checkpoint_for_vectors_compares_those_of_both_texts(
    options, tables, make_model, tokenizer, global_seed, monkeypatch
):
    import sentence_transformers  # which takes five seconds

    def distance(self):
        return next(one for one in self.candidates if one.reads.pooling == "distance" and not one.word_share)

    monkeypatch.setattr(FewRows, "chosen", property(distance))
    texts = [json.loads(line)["text"] for line in (tables / "texts.jsonl").read_text(encoding="utf-8").splitlines()]
    long = " ".join(texts[200:215])
    texts[1], texts[102] = long, long  # read in windows
    rows = [
        {"text": one, "pair": other, "label": ("no", "yes")[("cat" in one) == ("cat" in other)]}
        for one, other in zip(texts[:100], texts[101:201], strict=True)
    ]
    directory = options["out"].with_name("vectors")
    start = Checkpoint(make_model("bert", num_hidden_layers=2, pooler=True), tokenizer, pooling="mean", normalized=True)
    checkpoint.save(start, directory)
    recipe = {**options, "model": directory, "epochs": None, "learning_rate": None, "window": 16}
    settings = Classify(**recipe, train=rows[:40], test=rows[40:])
    result = run_task(settings)
    model = bothways.load(settings.out, dtype="float32")
    assert result.frozen and model.module.config.pooler_act == "distance"
    first, second = ([row[name] for row in rows] for name in ("text", "pair"))
    predictions = model.classify(first, second)
    labels, scores = [one.label for one in predictions], np.array([one.score for one in predictions])
    right = [label == row["label"] for label, row in zip(labels, rows, strict=True)]
    assert np.mean(right[40:]) == result.mean
    outputs = softmax(task_of(settings).scoring.outputs(model.module, "test")).max(1)
    assert np.allclose(outputs, scores[40:], atol=1e-5)

    # A linear layer on |u - v|, where u and v are the vectors of the whole encoder.
    def vectors(texts):
        windows = model.split(model.tokenizer.encode_many(texts))
        hidden = [[torch.from_numpy(model.hidden_states([text], long="truncate")[0]).mean(0)] for text in texts]
        return torch.stack([one[0] for one in hidden]), [len(parts) for parts in windows]

    (u_NH, sizes), (v_NH, others) = vectors(first), vectors(second)
    short = [row for row in range(100) if sizes[row] == others[row] == 1]
    assert 50 < len(short) < 100
    layer, length = model.module.heads.classes.output, model.module.pooler.length
    distance_NH = length * (torch.nn.functional.normalize(u_NH) - torch.nn.functional.normalize(v_NH)).abs()
    expected = layer(distance_NH).softmax(1).max(1).values.detach().numpy()
    assert np.allclose(scores[short], expected[short], atol=1e-5) and scores[short].std() > 1e-3
    assert np.allclose([one.score for one in model.classify(second, first)], scores, atol=1e-6)
    again = options["out"].with_name("again")
    model.save(again)
    after = [one.score for one in bothways.load(again, dtype="float32").classify(first, second)]
    assert np.allclose(after, scores, atol=1e-6)
    vector = sentence_transformers.SentenceTransformer(str(settings.out / "model")).encode(first[:1])
    assert np.allclose(vector, bothways.load(directory, dtype="float32").embed(first[:1]), atol=1e-5)
    for call in ((first,), (first, second[:3])):
        with pytest.raises(InputError, match="pairs"):
            model.classify(*call)
    with pytest.raises(InputError, match="run.model: .*pair"):
        export.run(Export(model=settings.out, out=options["out"].with_name("onnx")))
