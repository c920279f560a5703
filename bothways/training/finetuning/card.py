"""The card of a fine-tuned model, README.md of its directory, in the form of the Hugging Face hub.

It has what the run knows: the task and its labels, numbers of rows, scores, limits, licences, and how the model is
loaded. It has no text of a row, no path, and no name of a machine or a person: all facts are numbers, labels, names of
our own, or names of the hub. The same model has the same card, byte for byte.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bothways import pretrained
from bothways.base.errors import format_count, shorten
from bothways.model.checkpoint.card_file import MODEL, card_text, fenced
from bothways.model.checkpoint.contents import Checkpoint
from bothways.model.checkpoint.description import MULTI_LABEL, WORDS
from bothways.model.checkpoint.directory import Directory
from bothways.model.checkpoint.formats import FORMATS, format_of
from bothways.tasks import TASKS, task_from_heads
from bothways.tasks.class_decoding import CALIBRATION
from bothways.tasks.model_use import ModelUse

MOST_LABELS = 40  # that are listed
LABEL_SIZE = 60  # characters of a label
FEW_ROWS = 300  # with fewer rows the score is called uncertain
TFIDF = "bothways-tfidf"  # format of a model without an encoder
ADAPTER = "bothways-adapter"
HEAD_ON_VECTORS = "bothways-linear"  # format of a head that sentence-transformers computes
# The hub's names of our metrics, where they differ.
METRICS = {
    "f1_macro": "f1",
    "f1_micro": "f1",
    "matthews": "matthews_correlation",
    "pearson": "pearsonr",
    "spearman": "spearmanr",
}


@dataclass(frozen=True)
class StartModel:
    """The model that a training starts from, as far as it may be told.

    name: for people.
    hub: its name on the hub; "" if it has none.
    language: code of its language; "" if unknown.
    licence: front matter about its licence.
    terms: the licence in words.
    decides: the sources of the part that reads options, of a model that decides.
    """

    name: str
    hub: str = ""
    language: str = ""
    licence: Mapping[str, str] | None = None
    terms: str = "unknown: nothing that the run has read says so. Find out before you pass the model on."
    decides: str = ""


# docs/model.md and NOTICE have the sources.
PACKAGED = {
    pretrained.DEFAULT: StartModel(
        name=f"{pretrained.DEFAULT}, the model in the package of Bothways",
        hub="sentence-transformers/all-MiniLM-L6-v2",
        language="en",
        licence={"license": "other", "license_name": "apache-2.0-and-mit"},
        terms=(
            "Apache-2.0 AND MIT. The weights were made from sentence-transformers/all-MiniLM-L6-v2 (Apache-2.0) and "
            "changed; that one was made from microsoft/MiniLM-L12-H384-uncased (MIT)."
        ),
        decides=(
            "that of the start model. It was trained on statements about passages of English Wikipedia (CC BY-SA) and "
            "of SQuAD 1.1 (CC BY-SA 4.0), none of which is in it."
        ),
    ),
    pretrained.STATIC: StartModel(
        name=f"{pretrained.STATIC}, the static vectors in the package of Bothways",
        language="en",
        licence={"license": "apache-2.0"},
        terms="Apache-2.0.",
    ),
}
NO_START = StartModel(name="none", terms="there is no start model: the model was fitted to the rows alone.")


def card_of(checkpoint: Checkpoint, *, of_all_rows: bool = False) -> str:
    """The card of a checkpoint. of_all_rows: see ModelCard."""
    return ModelCard(
        task=task_of_run(checkpoint.metadata),
        form=format_of(checkpoint).model_type or checkpoint.model_type,
        labels=checkpoint.labels,
        multi_label=checkpoint.multi_label,
        metadata=checkpoint.metadata,
        of_all_rows=of_all_rows,
    ).text()


def card_of_changed(checkpoint: Checkpoint, scores: Iterable[str]) -> str:
    """The card of a model that was changed after its training: such as one with fewer layers.

    scores: lines of the section about scores.
    """
    # bothways.json may have the scores of the model before the change.
    metadata = {name: value for name, value in checkpoint.metadata.items() if name != "result"}
    task = task_from_heads(checkpoint.model.num_outputs, checkpoint)
    return ModelCard(
        task=task if TASKS[task].is_trained else "",
        form=format_of(checkpoint).model_type or checkpoint.model_type,
        labels=checkpoint.labels,
        multi_label=checkpoint.multi_label,
        metadata=metadata,
        scores=tuple(scores),
    ).text()


def card_of_directory(directory: Directory) -> str:
    """The card of a model that has none, such as one that another library has trained. It has no scores: bothways.json
    may have those of a model before it was changed."""
    metadata = {name: value for name, value in directory.metadata.items() if name != "result"}
    if directory.is_adapter:
        described = metadata.get("adapter") or {}
        labels = described.get("labels") or ()
        multi_label = bool(described.get("multi_label"))
    else:
        labels = (directory.config.get("id2label") or {}).values()
        multi_label = directory.config.get("problem_type") == MULTI_LABEL
    return ModelCard(
        task=task_of_run(directory.metadata),
        form=directory.format,
        labels=tuple(map(str, labels)),
        multi_label=multi_label,
        metadata=metadata,
    ).text()


def task_of_run(metadata: Mapping[str, Any]) -> str:
    """The name of the task that a run of `finetune` was for; "" if the model is of no such run."""
    verb, _, task = str(metadata.get("verb", "")).partition(" ")
    return task if verb == "finetune" and task in TASKS else ""


@dataclass(frozen=True)
class ModelCard:
    """What the card of a model is made of.

    task: name of the task that it was fine-tuned for; "" if it was not.
    form: name of the format of its files, or its family.
    labels, multi_label: of its head.
    metadata: content of bothways.json.
    of_all_rows: whether the scores are those of a model that was trained on fewer rows.
    scores: lines of the section about scores, of a model that was changed after the run; none: the scores of the run.
    """

    task: str
    form: str
    labels: tuple[str, ...]
    multi_label: bool
    metadata: Mapping[str, Any]
    of_all_rows: bool = False
    scores: tuple[str, ...] = ()

    def text(self) -> str:
        """The card."""
        sections = {
            "What it is": self._what(),
            "Data": self._data(),
            "Scores": self._scores(),
            "Limits": self._limits(),
            "How to load it": self._loading(),
            "Licence": self._licence(),
        }
        return card_text(self._front_matter(), self._title(), sections)

    # --- what it is ---------------------------------------------------------------------------------------------------

    @property
    def reads_pairs(self) -> bool:
        return bool(self.metadata.get("reads_pairs"))

    @property
    def use(self) -> ModelUse | None:
        """How a model of its task is used; None if that is unknown."""
        if not self.task:
            return None
        task = TASKS[self.task].load()
        return (self.reads_pairs and task.pair_use) or task.use

    @property
    def settings(self) -> Mapping[str, Any]:
        settings: Mapping[str, Any] = self.metadata.get("settings") or {}
        return settings

    @property
    def result(self) -> Mapping[str, Any]:
        """Of the run; empty for a model that was not scored."""
        result: Mapping[str, Any] = self.metadata.get("result") or {}
        return result

    @property
    def has_score(self) -> bool:
        return self.result.get("mean") is not None

    @property
    def has_words(self) -> bool:
        """Whether its files have words of the training texts."""
        return self.form == TFIDF or WORDS in self.metadata

    @property
    def start(self) -> StartModel:
        if self.form == TFIDF:
            return NO_START

        commit = (self.metadata.get("hub") or {}).get("model")
        if commit:
            name = str(commit).partition("@")[0]
            terms = f"that of {name}, which its page on the hub names."
            return StartModel(name=name, hub=name, terms=terms)

        name = str(self.settings.get("model", ""))
        is_packaged = name in PACKAGED and not Path(name).exists()  # a directory of the name comes first
        return PACKAGED[name] if is_packaged else StartModel(name="a model of the author's own")

    @property
    def library(self) -> str:
        """The library beside Bothways that reads the whole model; "" if none does."""
        use = self.use
        if use is None or self.has_words or self.form == ADAPTER:
            return ""
        if self.form == HEAD_ON_VECTORS:
            return "sentence-transformers" if use.scored and not self.reads_pairs else ""

        is_read = self.form not in FORMATS or FORMATS[self.form].is_read_by_others
        return next(iter(use.libraries), "") if is_read else ""

    def _title(self) -> str:
        kind = self.use.kind if self.use else "a text encoder"
        return kind[:1].upper() + kind[1:]

    def _what(self) -> Iterator[str]:
        kind = "a linear model over TF-IDF, without an encoder" if self.form == TFIDF else f"an encoder ({self.form})"
        if self.form == ADAPTER:
            kind = "an adapter, which needs the model that it belongs to"
        yield f"- Kind: {kind}."
        yield f"- Start model: {self.start.name}."
        if self.has_words and self.form != TFIDF:
            yield "- A part of its scores comes from a linear model over TF-IDF."
        if self.multi_label:
            yield "- A text has any number of labels."
        if self.labels:
            listed = ", ".join(map(code, self.labels[:MOST_LABELS]))
            more = f" and {len(self.labels) - MOST_LABELS:,} more" if len(self.labels) > MOST_LABELS else ""
            yield f"- {format_count(len(self.labels), 'label')}: {listed}{more}."
        version = (self.metadata.get("versions") or {}).get("bothways")
        yield f"- Made with Bothways{f' {version}' if version else ''}."

    # --- data and scores ----------------------------------------------------------------------------------------------

    def _data(self) -> Iterator[str]:
        roles = {
            "train": "to train",
            "dev": "to select the weights (dev)",
            "test": "to measure the score (test)",
        }
        rows = self.metadata.get("rows") or {}
        counts = [f"{rows[split]:,} {role}" for split, role in roles.items() if isinstance(rows.get(split), int)]
        yield f"- Rows: {', '.join(counts) or 'unknown'}."
        if self.labels:
            yield f"- {format_count(len(self.labels), 'label')}."

        given = [split for split in ("dev", "test") if self.settings.get(split) is not None]
        if self.result.get("split") == "folds":
            yield "- Split: cross-validation. Each row is scored by a model that was not fitted to it."
        elif given:
            yield f"- Split: {' and '.join(given)} are tables of their own."
        elif "dev" in rows:
            yield "- Split: dev and test were drawn from one table by the run."
        if self.settings.get("group_column"):
            yield "- Rows of one group are on one side of a split."
        yield "- The rows are not published with the model."
        if self.has_words:
            yield "- `terms.json` has words and parts of words of the training texts."

    def _scores(self) -> Iterator[str]:
        if self.scores:
            yield from self.scores
            return
        if not self.has_score:
            yield "The run has no score of this model."
            return

        result = self.result
        intervals = result.get("baseline_intervals") or {}
        leads = result.get("differences") or {}
        yield f"| model | {result['metric']}, {self._where()} | 95 % interval | lead of this model, in points (95 %) |"
        yield "|---|---|---|---|"
        yield f"| this model | {percent(result['mean'])} | {interval(result.get('interval'))} | |"
        for name, value in (result.get("baselines") or {}).items():
            lead = points(leads.get(name))
            yield f"| {name} | {percent(value)} | {interval(intervals.get(name))} | {lead} |"

        yield ""
        yield f"Measured on {format_count(result.get('rows') or 0, 'row')}."
        if result.get("measured"):
            yield f"How: {result['measured']}."
        elif result.get("n", 1) > 1:
            unit = "folds" if result.get("split") == "folds" else "seeds"
            yield f"The mean of {result['n']} {unit}; standard deviation {100 * result['std']:.1f} points."
        yield "A lead whose interval has 0 in it is no clear lead."

    def _where(self) -> str:
        if self.result.get("measured"):
            return "out-of-fold"
        split = str(self.result.get("split", ""))
        return "cross-validated" if split == "folds" else f"on {split}"

    # --- limits -------------------------------------------------------------------------------------------------------

    def _limits(self) -> Iterator[str]:
        result = self.result
        rows = result.get("rows") or 0
        if self.has_score and rows < FEW_ROWS:
            yield f"- Few rows: the score is measured on {rows}, so read its interval and not its mean."
        if self.has_score and result.get("split") == "folds":
            yield "- The score is out-of-fold: that of models of the same recipe, each fitted to a part of the rows."
        if self.has_score and result.get("split") == "dev":
            yield "- The score is on the rows that selected the weights; on new text it may be lower."
        if self.of_all_rows:
            yield "- The score is that of a model trained on fewer rows; this one was trained on all of them later."
        if result.get("frozen") and self.form != TFIDF:
            yield "- The encoder is that of the start model, frozen: only what is on top of it was fitted."
        yield from self._label_limits()
        yield "- Not measured: texts of another source, time or language; fairness between groups; attacks; speed."

    def _label_limits(self) -> Iterator[str]:
        if not self.labels or self.task != "classify":
            return
        if not self.multi_label:
            yield (
                "- None of these: a text that fits no label gets one all the same. In Bothways, `min_score` and "
                "`in_scope` of `classify` leave such texts without a label."
            )
        calibration = self.metadata.get(CALIBRATION)
        if calibration:
            rows = format_count(calibration["rows"], "row")
            yield f"- Probabilities are calibrated on {rows} like the training rows."
        else:
            yield "- Probabilities are not calibrated."

    # --- loading ------------------------------------------------------------------------------------------------------

    def _loading(self) -> Iterator[str]:
        use = self.use
        yield "Bothways:"
        yield from fenced("python", "import bothways", "", f'model = bothways.load("{MODEL}")', self._call())
        yield ""

        library = self.library
        if use and library:
            snippet = use.scored if self.form == HEAD_ON_VECTORS else use.libraries[library]
            yield f"{library}:"
            yield from fenced("python", *snippet.replace("MODEL", MODEL).splitlines())
            yield ""
            yield "It reads at most the longest input of the model; Bothways reads all of a long text, in windows."
        elif self.form == ADAPTER:
            yield "Other libraries need the model that the adapter belongs to; `readers` in `adapter_config.json` says"
            yield "what they leave out."
        else:
            yield "Only Bothways reads the whole model."
        yield ""

        yield "HTTP, from any language:"
        body = use.body if use else '{"inputs": "The train was late."}'
        yield from fenced(
            "sh",
            f"bothways serve {MODEL}",
            f"curl -H 'Content-Type: application/json' -d '{body}' localhost:8080{use.route if use else '/embed'}",
        )

    def _call(self) -> str:
        return f"print({self.use.call})" if self.use else "print(model)"

    def _licence(self) -> Iterator[str]:
        yield f"- Of the start model: {self.start.terms}"
        if self.task == "decide" and self.start.decides:
            yield f"- Of the part that reads options: {self.start.decides}"
        yield "- Of the training rows: unknown to the program that wrote this page."
        yield "- Of this model: for its author to say, within the two."

    # --- front matter -------------------------------------------------------------------------------------------------

    def _front_matter(self) -> Iterator[str]:
        """YAML. Strings are quoted as in JSON, which is YAML."""
        start = self.start
        tag = self.use.tag if self.use else "feature-extraction"
        yield f"library_name: {self.library or 'bothways'}"
        yield f"pipeline_tag: {tag}"
        for name, value in (start.licence or {}).items():
            yield f"{name}: {value}"
        if start.hub:
            yield f"base_model: {quoted(start.hub)}"
        if start.language:
            yield f"language: {start.language}"

        yield "tags:"
        for word in ("bothways", self.task, "tf-idf" if self.form == TFIDF else ""):
            if word:
                yield f"- {word}"
        if self.has_score:
            yield from self._model_index(tag)

    def _model_index(self, tag: str) -> Iterator[str]:
        name = str(self.result["metric"])
        kind = METRICS.get(name, name)
        yield "metrics:"
        yield f"- {quoted(kind)}"
        yield "model-index:"
        yield f"- name: {quoted(self._title())}"
        yield "  results:"
        yield "  - task:"
        yield f"      type: {tag}"
        yield "    dataset:"
        yield '      name: "rows of the author, not published"'
        yield "      type: private"
        yield f"      split: {quoted(self._where())}"
        yield "    metrics:"
        yield f"    - type: {quoted(kind)}"
        yield f"      name: {quoted(f'{name}, {self._where()}')}"
        yield f"      value: {self.result['mean']:.6g}"


# --- words ------------------------------------------------------------------------------------------------------------


def quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def code(label: str) -> str:
    """A label as code, on one line."""
    printable = "".join(character if character.isprintable() else " " for character in label)
    return f"`{shorten(printable.replace('`', chr(39)), LABEL_SIZE)}`"


def percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def interval(ends: tuple[float, float] | None) -> str:
    return f"{percent(ends[0])} to {percent(ends[1])}" if ends else ""


def points(ends: tuple[float, float] | None) -> str:
    return f"{100 * ends[0]:+.1f} to {100 * ends[1]:+.1f}" if ends else ""
