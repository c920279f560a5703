"""Small fine-tuning runs, and a gallery of finished ones, one for each task: made on first use, and only read.

    def test_cats_are_found(gallery):
        assert gallery.classify.predictor.classify(["the cat"])[0].label == "feline"

Tests that need no trained model take `gallery.settings("classify")`, which are those of the run, and train nothing.
"""

import csv
import json
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

import bothways
from bothways.base.log import messages_to
from bothways.settings import Answer, Classify, Regress, Tag, TrainEmbed
from bothways.training.run import read_metrics
from tests.isolation import watch

# The linear start takes half of the time of a run as small as these. A test that is about it, or about all defaults
# together, says `linear_start=True`. Answer has none, and that of TrainEmbed costs nothing.
SMALL = {
    "epochs": 1.0,
    "batch_tokens": 256,
    "learning_rate": 5e-3,
    "dropout": 0.0,
    "dtype": "float32",
    "baselines": False,
}
WITHOUT_START = {**SMALL, "linear_start": False}
SMALL_BY_SETTINGS = {Answer: SMALL, TrainEmbed: SMALL}  # of the others: WITHOUT_START


def small_settings(settings_class, **options):
    """Settings of a run of a second, with exact numbers."""
    return settings_class(**{**SMALL_BY_SETTINGS.get(settings_class, WITHOUT_START), **options})


@dataclass
class FinetunedRun:
    """A finished run: its settings, its result and what was logged."""

    settings: Any
    result: Any
    messages: list[str] = field(default_factory=list)

    @property
    def log(self):
        return "\n".join(self.messages)

    @property
    def metadata(self):
        """bothways.json."""
        return json.loads((self.result.directory / "bothways.json").read_text(encoding="utf-8"))

    @property
    def metrics(self):
        """The rows of metrics.jsonl."""
        return read_metrics(self.result.directory)

    @property
    def predictions(self):
        """The rows of predictions.csv."""
        with (self.result.directory / "predictions.csv").open(encoding="utf-8-sig", newline="") as file:
            return [*csv.DictReader(file)]

    @property
    def report(self):
        return (self.result.directory / "report.html").read_text(encoding="utf-8")

    @cached_property
    def predictor(self):
        return bothways.load(self.result.model_directory, dtype="float32")


def finish(settings):
    """Fine-tune with these settings."""
    messages = []
    with messages_to(messages.append):
        return FinetunedRun(settings, bothways.train(settings), messages)


# --- rows -------------------------------------------------------------------------------------------------------------


FILLERS = "the and on a b mat ran".split()
SIGNS = {"feline": "cat", "canine": "dog", "none": "sat"}  # sorted otherwise than they appear
LETTERS = "abcdefghij"
PAIR_FILLERS = "the and on mat ran sat".split()


def class_rows(seed, number, *, words=(4, 9), signs=1):
    """Texts of common words in which one word, inserted `signs` times, determines the class."""
    rng = np.random.default_rng(seed)
    rows = []
    for index in range(number):
        label = [*SIGNS][index % 3 if index % 5 else 0]
        text = rng.choice(FILLERS, int(rng.integers(*words))).tolist()
        for _ in range(signs):
            text.insert(int(rng.integers(len(text) + 1)), SIGNS[label])
        rows.append({"text": " ".join(text), "label": label})
    return rows


def number_rows(seed, count):
    """Texts with their number of cats, in an odd unit."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        cats = int(rng.integers(0, 4))
        words = [*rng.choice(FILLERS, 5).tolist(), *["cat"] * cats, *["dog"] * (3 - cats)]
        rows.append({"text": " ".join(rng.permutation(words).tolist()), "score": 7000 + 500 * cats})
    return rows


def tagged_sentences(seed, number):
    """(words, IOB2 tags)"""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(number):
        words, tags = [], []
        for _ in range(int(rng.integers(4, 10))):
            kind = rng.random()
            if kind < 0.2:
                words, tags = [*words, "cat"], [*tags, "B-FELINE"]
            elif kind < 0.35:
                words, tags = [*words, "a", "dog"], [*tags, "B-CANINE", "I-CANINE"]
            else:
                words, tags = [*words, str(rng.choice("the and on b mat ran".split()))], [*tags, "O"]
        rows.append((words, tags))
    return rows


def write_conll(file, rows, *, every=7):
    """CoNLL columns, a new document every so many sentences."""
    lines = []
    for number, (words, tags) in enumerate(rows):
        if number % every == 0:
            lines += ["-DOCSTART- O", ""]
        lines += [f"{word} {label}" for word, label in zip(words, tags, strict=True)] + [""]
    file.write_text("\n".join(lines), encoding="utf-8")
    return file


def squad(seed, number, *, length=9, impossible=0.0):
    """SQuAD's JSON: an animal does something in every passage, or another one is there and does nothing."""
    rng = np.random.default_rng(seed)
    paragraphs = []
    for index in range(number):
        words = rng.choice("the and on a b".split(), length).tolist()
        absent = rng.random() < impossible
        animal, place = str(rng.choice(["cat", "dog"])), int(rng.integers(length))
        done = str(rng.choice(["sat", "ran", "mat"]))
        other = {"cat": "dog", "dog": "cat"}[animal]
        words[place:place] = [other] if absent else [animal, done]
        context = " ".join(words)
        start = len(" ".join(words[: place + 1])) + 1
        answers = [] if absent else [{"text": done, "answer_start": start}]
        question = {"id": f"q{seed}-{index}", "question": f"the {animal}", "answers": answers}
        paragraphs.append({"context": context, "qas": [{**question, "is_impossible": absent}]})
    return {"version": "v2.0" if impossible else "1.1", "data": [{"title": "t", "paragraphs": paragraphs}]}


def write_json(file, content):
    file.write_text(json.dumps(content), encoding="utf-8")
    return file


def pair_rows(seed, number):
    """Pairs that belong together: three letters, and the digits that stand for them."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(number):
        signs = rng.choice(10, 3, replace=False)
        first = [rng.choice(PAIR_FILLERS), *(LETTERS[sign] for sign in signs)]
        second = [*map(str, rng.permutation(signs)), *rng.choice(PAIR_FILLERS, int(rng.integers(1, 4)))]
        rows.append({"text": " ".join(first), "pair": " ".join(second)})
    return rows


# --- the gallery ------------------------------------------------------------------------------------------------------


def forbid_writing(directory):
    """Take the permission to write from every file below a directory."""
    for file in Path(directory).rglob("*"):
        if file.is_file():
            file.chmod(0o444)


SIZES = {"classify": (240, 45, 61), "regress": (250, 40, 50), "tag": (200, 30, 41), "answer": (400, 40, 51)}
SIZES["embed"] = (240, 45, 61)


class Gallery:
    """Settings and finished runs by task. checkpoint_of: the fixture; make_directory: an empty one, by name."""

    def __init__(self, checkpoint_of, make_directory):
        self.checkpoint_of, self.make_directory = checkpoint_of, make_directory
        self.settings_by_task = {}

    @cached_property
    def classify(self):
        return self.run("classify")

    @cached_property
    def regress(self):
        return self.run("regress")

    @cached_property
    def tag(self):
        return self.run("tag")

    @cached_property
    def answer(self):
        return self.run("answer")

    @cached_property
    def embed(self):
        return self.run("embed")

    def settings(self, task):
        """The settings of the run of a task, whose tables and start are written on first use."""
        if task not in self.settings_by_task:
            folder = self.make_directory(task)
            settings_class, options = self.options(task)
            splits = {
                split: self.write(task, folder, split, seed, SIZES[task][seed])
                for seed, split in enumerate(("train", "dev", "test"))
            }
            self.settings_by_task[task] = small_settings(settings_class, **splits, **options, out=folder / "run")
        return self.settings_by_task[task]

    def options(self, task):
        """The class of the settings of a task, and options; the encoder is random, with the heads of a pre-training."""
        pretrained = {"heads": {"masked_words": 0, "next_sentence": 2}, "num_hidden_layers": 1}
        pretrained["options"] = {"metadata": {"verb": "pretrain"}}
        if task == "classify":
            return Classify, {"model": self.checkpoint_of(**pretrained), "epochs": 10.0, "seeds": 2}
        if task == "regress":
            return Regress, {"model": self.checkpoint_of(num_hidden_layers=1), "epochs": 12.0}
        if task == "tag":
            return Tag, {"model": self.checkpoint_of(num_hidden_layers=2), "epochs": 8.0, "window": 48}
        if task == "answer":
            model = self.checkpoint_of(num_hidden_layers=2, max_position_embeddings=128)
            return Answer, {"model": model, "epochs": 6.0, "baselines": True}
        return TrainEmbed, {
            "model": self.checkpoint_of(**pretrained), "epochs": 8.0, "batch_tokens": None, "batch_size": 24,
            "learning_rate": 1e-2, "evaluations_per_epoch": 0.5, "baselines": True,
        }  # fmt: skip

    def write(self, task, folder, split, seed, number):
        """The file of a split."""
        if task == "tag":
            return write_conll(folder / f"{split}.txt", tagged_sentences(seed, number))
        if task == "answer":
            return write_json(folder / f"{split}.json", squad(seed, number))
        rows_of = {"classify": class_rows, "regress": number_rows, "embed": pair_rows}[task]
        file = folder / f"{split}.jsonl"
        file.write_text("\n".join(map(json.dumps, rows_of(seed, number))), encoding="utf-8")
        return file

    def run(self, task):
        run = finish(self.settings(task))
        folder = run.settings.out.parent
        forbid_writing(folder)
        watch(folder)
        return run
