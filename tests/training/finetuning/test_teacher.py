"""Task distillation: losses against slow formulas, alignment of labels and words, unlabelled texts, resuming."""

from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch

import bothways
from bothways.base.errors import InputError
from bothways.base.log import messages_to
from bothways.evaluation import evaluate
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.changes.cut import with_layers
from bothways.model.checkpoint.contents import Checkpoint
from bothways.model.losses import forward_losses, logits_loss, vector_distance
from bothways.settings import Answer, Classify, Evaluate, Regress, Tag, TrainEmbed
from bothways.tasks.answer.training import Answering
from bothways.tasks.classify.training import Classification
from bothways.tasks.embed.files import read_pairs
from bothways.tasks.embed.training import Embedding, reduce_dimensions
from bothways.tasks.losses import multi_label_distance, span_distance
from bothways.tasks.regress.training import Regression
from bothways.tasks.tag.decoding import Tagset, label_windows
from bothways.tasks.tag.examples import transfer_scores
from bothways.tasks.tag.files import read_splits
from bothways.tasks.tag.training import Tagging
from bothways.tasks.training_task import Distilled
from bothways.tasks.windows import WindowPolicy
from bothways.text.data.split_tables import read_tables
from bothways.text.tokenizer.tokenizer import SPECIAL_TOKENS, Tokenizer
from bothways.training.distributed import Replica
from bothways.training.finetuning.teacher import Teacher
from bothways.training.run import read_metrics
from bothways.training.step import backward

FILLERS = "the and on a b mat ran".split()
CLASSES = {"feline": "cat", "canine": "dog", "none": "sat"}
TAGS = ("O", "B-CANINE", "I-CANINE", "B-FELINE", "I-FELINE")
SIZES = {"train": 37, "dev": 11, "test": 13}


def texts(seed, number):
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice([*FILLERS, "cat", "dog-sat,"], int(rng.integers(3, 9)))) for _ in range(number)]


def class_rows(seed, number):
    rows = [{"text": text, "label": [*CLASSES][row % 3]} for row, text in enumerate(texts(seed, number))]
    return [{**row, "text": f"{CLASSES[row['label']]} {row['text']}"} for row in rows]


def label_rows(seed, number):
    return [{"text": row["text"], "label": [row["label"], "none"][: 1 + seed]} for row in class_rows(seed, number)]


def number_rows(seed, number):
    return [{"text": text, "label": 3.0 + 7 * text.count("cat")} for text in texts(seed, number)]


def pair_rows(seed, number):
    return [
        {"text": text, "pair": other} for text, other in zip(texts(seed, number), texts(seed + 9, number), strict=True)
    ]


def tag_rows(seed, number):
    rows = []
    for text in texts(seed, number):
        tags = [{"cat": "B-FELINE", "dog-sat,": "B-CANINE"}.get(word, "O") for word in text.split()]
        rows.append({"words": text.split(), "tags": tags})
    return rows


def question_rows(seed, number):
    rows = []
    for row, text in enumerate(texts(seed, number)):
        answers = {"text": [text.split()[1]], "answer_start": [text.index(" ") + 1]}
        rows.append({"id": f"{seed}-{row}", "question": "the cat", "context": text, "answers": answers})
    return rows


# settings, rows, task of settings and checkpoint, head and outputs of the teacher, its labels, further options
KINDS = {
    "classes": (Classify, class_rows, ("classes", 3), ("none", "feline", "canine"), {}),
    "labels": (Classify, label_rows, ("classes", 3), ("none", "feline", "canine"), {"multi_label": True}),
    "numbers": (Regress, number_rows, ("classes", 1), (), {}),
    "tags": (Tag, tag_rows, ("tokens", 5), TAGS[::-1], {"window": 24}),
    "spans": (Answer, question_rows, ("spans", 2), (), {}),
    "pairs": (TrainEmbed, pair_rows, None, (), {}),
}


def build(settings, model):
    if isinstance(settings, Classify | Regress):
        task = Classification if isinstance(settings, Classify) else Regression
        return task.build(settings, model, read_tables(settings))
    if isinstance(settings, Tag):
        return Tagging.build(settings, model, read_splits(settings))
    if isinstance(settings, Answer):
        return Answering.build(settings, model)
    return Embedding.build(settings, model, read_pairs(settings))


@pytest.fixture(scope="session")
def make_task(checkpoint_of, table):
    """A task with a teacher of random weights: make_task("tags", alpha=0.3) -> task."""
    models = {}

    def make(kind, **changes):
        settings_class, rows_of, head, labels, options = KINDS[kind]
        if kind not in models:
            several = {"multi_label": True} if kind == "labels" else {}
            teacher = {"heads": dict([head] if head else []), "options": {"labels": labels, **several}}
            files = {split: table(rows_of(seed, SIZES[split])) for seed, split in enumerate(SIZES)}
            student = checkpoint_of(num_hidden_layers=1, seed=1)
            models[kind] = {"model": student, "teacher": checkpoint_of(**teacher), "out": student / "run", **files}
        settings = settings_class(**{**models[kind], "dtype": "float32", "dropout": 0.0, **options, **changes})
        return build(settings, checkpoint.load(settings.model))

    return make


@pytest.fixture(scope="session")
def unlabelled(table, tmp_path_factory):
    """More rows by kind, whose labels may not be read."""
    plain = tmp_path_factory.mktemp("more") / "more.txt"
    plain.write_text("\n".join(texts(5, 9)), encoding="utf-8")
    return lambda kind: table(question_rows(5, 9)) if kind == "spans" else plain


def gradient_of(function, scores):
    scores = scores.clone().requires_grad_()
    function(scores).backward()
    return scores.grad


@pytest.mark.parametrize("temperature", range(1, 9))
def test_gradients_of_the_distance_to_the_teacher_equal_the_formula(temperature):
    """T^2 dKL/ds = T (softmax(s / T) - softmax(t / T)) (Hinton 2015, eq. 2), or with sigmoids."""
    student, teacher = torch.randn(2, 5, 7, generator=torch.Generator().manual_seed(0)) * 3
    exact, target = student.double() / temperature, teacher.double() / temperature
    slow = temperature * (exact.softmax(-1) - target.softmax(-1))
    assert (gradient_of(lambda s: logits_loss(s, teacher, temperature)[0], student) - slow).abs().max() < 1e-6
    slow = temperature * (exact.sigmoid() - target.sigmoid())
    assert (gradient_of(lambda s: multi_label_distance(s, teacher, temperature)[0], student) - slow).abs().max() < 1e-6
    windows = zip(exact.split([2, 3]), target.split([2, 3]), strict=True)
    slow = temperature * torch.cat([part.softmax(0) - of.softmax(0) for part, of in windows]) / 2
    fast = gradient_of(lambda s: span_distance(s, teacher, [2, 3], temperature)[0], student)
    assert (fast - slow).abs().max() < 1e-6


@pytest.mark.parametrize("kind", KINDS)
def test_a_student_that_is_the_teacher_has_no_distance_to_it(kind, make_task):
    task = make_task(kind)
    teacher = Teacher.of(task, checkpoint.load(task.settings.teacher))
    model = teacher.checkpoint.model.eval().requires_grad_(False)
    if kind == "numbers":
        task = replace(task, mean=0.0, deviation=1.0)
        teacher = Teacher.of(task, teacher.checkpoint)
    batch = teacher.teach().training_examples(0, 0).batch([5, 0, 9, 3])
    total, count = task.objective.teacher_loss(task.objective.forward(model, batch), batch)
    assert count > 3 and abs(float(total)) < 1e-5 * count


@pytest.mark.parametrize("kind", KINDS)
def test_losses_are_mixed_by_example_for_any_micro_batches(kind, make_task, unlabelled):
    """alpha * teacher + (1 - alpha) * labels, the mean over all examples; those without a label have only the first."""
    task = make_task(kind, alpha=0.3, unlabelled=(unlabelled(kind),), gradient_accumulation=1)
    lessons = Teacher.of(task, checkpoint.load(task.settings.teacher)).teach()
    examples, model = lessons.training_examples(0, 0), task.initial_checkpoint(0).model
    number = len(task.data["train"].sizes)
    assert len(examples.sizes) > number + (3 if kind == "pairs" else 8)
    rows = [0, number, 1, number + 1, number + 2]
    whole, labelled, alone = examples.batch(rows), examples.batch([0, 1]), examples.batch([number, number + 1])
    plain, mixed = task.objective, Distilled(task.objective, 0.3)
    losses_of = forward_losses(mixed)
    with torch.no_grad():
        outputs, count, losses = plain.forward(model, whole), plain.num_targets(whole), losses_of(model, whole)
        alone_losses = losses_of(model, alone)
        hard = plain.label_loss(plain.forward(model, labelled), labelled)[0]
    assert mixed.counts(whole) == {"teacher": count, plain.target: count}
    assert float(losses["teacher"][0]) == pytest.approx(0.3 * float(plain.teacher_loss(outputs, whole)[0]))
    assert float(alone_losses[plain.target][0]) == 0
    assert float(losses[plain.target][0]) == pytest.approx(0.7 * float(hard), rel=1e-4)
    if kind != "pairs":  # which are negatives of each other
        replica = Replica(model, losses_of)
        gradients = []
        for parts in ([rows], [rows[:1], rows[1:2], rows[2:]]):
            model.zero_grad()
            backward(replica, mixed.counts, [examples.batch(part) for part in parts])
            gradients.append(
                torch.cat([value.grad.flatten() for value in model.parameters() if value.grad is not None])
            )
        assert torch.norm(gradients[0] - gradients[1]) < 1e-5 * torch.norm(gradients[0])


@pytest.mark.parametrize("kind", ["classes", "tags"])
def test_labels_in_another_order_are_aligned_by_name(kind, make_task):
    task = make_task(kind)
    teacher = checkpoint.load(task.settings.teacher)
    model, order = deepcopy(teacher.model), [*range(1, len(teacher.labels)), 0]
    output = model.heads[KINDS[kind][2][0]].output
    output.weight.data, output.bias.data = output.weight.data[order], output.bias.data[order]
    other = replace(teacher, model=model, labels=tuple(teacher.labels[index] for index in order))
    first, second = (Teacher.of(task, model).teach() for model in (teacher, other))
    for left, right in zip(first.soft_labels, second.soft_labels, strict=True):
        torch.testing.assert_close(left, right, equal_nan=True)
    assert first.scores == second.scores


def test_a_teacher_with_another_tokenizer_gives_a_word_the_scores_of_the_same_word(tokenizer):
    """A score is the character at which its token starts. The student drops the accent of the first word."""
    words = "\u0301the dog-sat, cat ... on mat".split()
    letters = [*"thedogsacmn-,.", *map("##{}".format, "thedogsacmn")]
    other = Tokenizer(
        {token: index for index, token in enumerate(dict.fromkeys([*SPECIAL_TOKENS, *letters]))}, strip_accents=False
    )
    tagset = Tagset.from_names(["O", "B-X", "I-X"], "iob2")
    policy = WindowPolicy(12, 4)
    (student,), (teacher,) = (policy.split([reader.encode(" ".join(words))]) for reader in (tokenizer, other))
    assert len(teacher) > len(student)
    source = teacher[0].ranges[0][0]
    starts = [span.start for span in source.token_spans]
    scores_SC = np.array([[-1.0] * 3, *([start] * 3 for start in starts), [-1.0] * 3], np.float32)
    labelled = label_windows(student, words, ["O"] * len(words), tagset)
    scores_by_start = {}
    for window, scores in zip(labelled, transfer_scores(teacher, scores_SC, labelled, words), strict=True):
        rows = np.flatnonzero(~np.isnan(scores[:, 0]))
        assert rows.tolist() == window.rows.tolist()
        spans = window.window.ranges[0][0].token_spans
        first = window.window.ranges[0][1]
        scores_by_start |= {spans[row - 1 + first].start: scores[row, 0] for row in rows}
    assert len(scores_by_start) > len(words) and scores_by_start.pop(1) == 0
    assert all(start == score for start, score in scores_by_start.items())


def without_seconds(directory):
    return [{key: value for key, value in row.items() if key != "seconds"} for row in read_metrics(directory)]


@pytest.fixture(scope="module")
def settings(make_task, unlabelled, tmp_path_factory):
    return replace(
        make_task("classes").settings, unlabelled=(unlabelled("classes"),), dropout=0.1, epochs=3.0, batch_tokens=128,
        learning_rate=5e-3, checkpoint_every=3, linear_start=False, out=tmp_path_factory.mktemp("taught") / "run",
    )  # fmt: skip


@pytest.fixture(scope="module")
def run(settings):
    messages = []
    with messages_to(messages.append):
        return bothways.train(settings), messages


def test_the_teachers_score_is_logged_and_shown_beside_the_students(run, settings):
    result, messages = run
    scores = evaluate.run(Evaluate(model=settings.teacher, file=(settings.test,), dtype="float32"))
    assert result.teacher["test"] == scores["accuracy"] and {*result.teacher} == {"dev", "test"}
    assert any(f"dev accuracy {result.teacher['dev']:.4f}" in line for line in messages)
    assert "reading 46 training examples" in "".join(messages)
    page = (result.directory / "report.html").read_text(encoding="utf-8")
    assert f"teacher {result.teacher['test']:.1%}" in page and "teacher, dev accuracy" in page
    assert "teacher" not in result.baselines


def test_a_run_with_a_teacher_resumes_to_the_same_numbers(run, settings, tmp_path):
    def interrupt(row):
        if row["step"] == 5:
            raise RuntimeError("enough")

    changed = replace(settings, out=tmp_path / "run")
    with pytest.raises(RuntimeError, match="enough"):
        bothways.train(changed, callbacks=[interrupt])
    resumed = bothways.train(replace(changed, resume=True))
    assert without_seconds(resumed.directory) == without_seconds(run[0].directory)
    assert {row.get("teacher") for row in read_metrics(resumed.directory)} > {None}
    weights = [checkpoint.load(result.model_directory).model.state_dict() for result in (resumed, run[0])]
    assert all(torch.equal(value, weights[1][name]) for name, value in weights[0].items())


def test_without_weight_the_teacher_changes_nothing(settings, tmp_path):
    plain = replace(settings, unlabelled=(), alpha=0.0, baselines=False, epochs=0.5)
    runs = [
        bothways.train(replace(plain, teacher=teacher, out=tmp_path / name))
        for name, teacher in (("with", plain.teacher), ("without", None))
    ]
    assert without_seconds(runs[0].directory) == without_seconds(runs[1].directory)


@pytest.mark.parametrize("kind", KINDS)
def test_with_all_the_weight_the_labels_have_no_loss(kind, make_task):
    task = make_task(kind, alpha=1.0)
    batch = Teacher.of(task, checkpoint.load(task.settings.teacher)).teach().training_examples(0, 0).batch([0, 2])
    taught, model = Distilled(task.objective, 1.0), task.initial_checkpoint(0).model
    assert [*forward_losses(taught)(model, batch)] == [*taught.counts(batch)] == ["teacher"]


def test_folds_have_a_teacher_too(settings, tmp_path):
    cut = replace(settings, folds=2, dev=None, test=None, unlabelled=(), epochs=0.5, out=tmp_path / "run")
    result = bothways.train(replace(cut, baselines=False))
    assert result.split == "folds"
    assert all("teacher" in row for row in read_metrics(result.directory) if row["split"] == "train")


def test_a_changed_teacher_is_an_error_on_resuming(settings, tmp_path, checkpoint_of):
    def interrupt(row):
        raise RuntimeError("enough")

    teacher = checkpoint_of(heads={"classes": 3}, options={"labels": ("none", "feline", "canine")})
    changed = replace(settings, out=tmp_path / "run", teacher=teacher, baselines=False)
    with pytest.raises(RuntimeError, match="enough"):
        bothways.train(changed, callbacks=[interrupt])
    changed_teacher = checkpoint.load(teacher)
    changed_teacher.model.heads["classes"].output.bias.data += 1
    checkpoint.save(changed_teacher, teacher)
    with pytest.raises(InputError, match="weights in .*changed"):
        bothways.train(replace(changed, resume=True))


def test_kept_layers_are_those_of_the_model(make_model, tokenizer):
    source = Checkpoint(make_model("bert", {"classes": 3}, num_hidden_layers=5), tokenizer)
    model = with_layers(source, (0, 2, 3)).model
    old, new = source.model.state_dict(), model.state_dict()
    assert model.config.num_hidden_layers == 3 and len([name for name in new if ".layers.2." in name])
    for name, value in new.items():
        kept = name.replace(".layers.2.", ".layers.3.").replace(".layers.1.", ".layers.2.")
        assert torch.equal(value, old[kept]), name


@pytest.mark.parametrize(
    ("layers", "message"),
    [((0, 5), r"keep_layers \(5\): .* 0 to 4"), ((2, 1), "ascending order"), ((1, 1), "each once")],
)
def test_layers_that_the_model_lacks_are_refused(layers, message, make_model, tokenizer):
    with pytest.raises(InputError, match=message):
        with_layers(Checkpoint(make_model("bert", {}, num_hidden_layers=5), tokenizer), layers)
    with pytest.raises(InputError, match="share weights"):
        with_layers(Checkpoint(make_model("albert", {}), tokenizer), (0, 1))


def test_vectors_of_a_wider_teacher_keep_their_cosines_on_principal_components():
    """Vectors of 16 dimensions in a space of 40."""
    generator = torch.Generator().manual_seed(0)
    vectors = torch.randn(2, 30, 16, generator=generator) @ torch.randn(16, 40, generator=generator)
    reduced = reduce_dimensions(vectors, 24)
    assert reduced.shape == (2, 30, 24)
    cosines = [vector_distance(part[0], part[1])[0] for part in (vectors, reduced)]
    assert float(cosines[0]) == pytest.approx(float(cosines[1]), rel=1e-4)


@pytest.mark.parametrize(
    ("kind", "teacher", "message"),
    [
        ("classes", {"heads": {"tokens": 3}}, " tag .* classify"),
        ("classes", {"heads": {"classes": 2}, "options": {"labels": ("none", "dog")}}, "teacher has dog"),
        ("labels", {"heads": {"classes": 2}, "options": {"labels": ("none", "cat")}}, "one label"),
        ("numbers", {"heads": {"classes": 2}, "options": {"labels": ("a", "b")}}, "classify .* regress"),
        ("spans", {"heads": {"spans": 2}, "max_position_embeddings": 9}, "tokens or windows"),
        ("pairs", {"heads": {}, "hidden_size": 12}, " 12 .* 24"),
    ],
)  # fmt: skip
def test_a_model_that_cannot_teach_is_refused_before_the_run(
    kind, teacher, message, make_task, checkpoint_of, tmp_path
):
    settings = replace(make_task(kind).settings, teacher=checkpoint_of(**teacher), out=tmp_path / "run")
    with pytest.raises(InputError, match=message):
        bothways.train(settings)
    assert not settings.out.exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"alpha": 1.5}, r"alpha \(1\.5\) .*0 to 1"),
        ({"teacher": None, "unlabelled": ("x.txt",)}, "without --teacher"),
        ({"alpha": 0.0, "unlabelled": ("x.txt",)}, "--alpha 0"),
    ],
)
def test_bad_settings_are_refused(changes, message, make_task):
    with pytest.raises(InputError, match=message):
        replace(make_task("classes").settings, **changes)


def test_unlabelled_pairs_for_single_texts_are_refused(make_task, table):
    task = make_task("classes", unlabelled=(table(pair_rows(0, 5)),))
    with pytest.raises(InputError, match="pairs, .*single texts"):
        task.with_unlabelled()
