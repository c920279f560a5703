"""Why a text got its label: `model.explain` on SST-2, against planted words, deletions and integrated gradients.

    python -m benchmarks.explain [--rows 1000] [--planted 200] [--texts 872] [--gradients 60] [--keep]
    python -m benchmarks.explain --times 9 [--keep]

A linear head on the frozen packaged encoder is fitted on `rows` rows of train. Printed, of dev:

- planted: the share of texts in which a decisive word has the largest effect. As nobody knows which words of a review
  decide, a second head is fitted on rows of which half have one of two words, of no sentiment, that gives the label
  (shortcuts, Bastings 2022). A text counts if its label is that of either word at the same place.
- sentiment: the same with a word such as "terrible" and the first head, which need not decide.
- deleted: the three words of the largest effects are left out together, or three random ones; the share of texts whose
  probability changes more by the former. Texts of fewer than six words are left out.
- gradients: Spearman correlation of effects and integrated gradients (Sundararajan 2017) over the words of a text.

--times: the time of `explain`, divided by the time of `embed` for the same variants of the texts, in turns, instead of
all that. --keep: what was found of each text, or the ratios, are written to docs/measurements.

Data: $BOTHWAYS_DATA (default: ../shared/data).
"""

import argparse
import csv
import json
import os
import random
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from scipy.stats import spearmanr

import bothways
from benchmarks import measurements
from benchmarks.figures import explain as explain_figures
from bothways.inference.explain import Variants
from bothways.inference.explanation import Explanation, leave_out, word_cuts
from bothways.inference.predictor import Predictor
from bothways.settings import Classify
from bothways.text.batch import Batch
from bothways.training.finetuning.finetune import run as run_task

DATA = Path(os.environ.get("BOTHWAYS_DATA", "../shared/data"))
LABELS = ("negative", "positive")
SHORTCUTS = {"zebra": "negative", "violin": "positive"}
SENTIMENT = ("terrible", "awful", "worst", "wonderful", "superb", "masterpiece")
DELETED = 3  # words
STEPS = 32  # of the path of integrated gradients
TIMED = 20  # texts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--planted", type=int, default=200)
    parser.add_argument("--texts", type=int, default=872)
    parser.add_argument("--gradients", type=int, default=60)
    parser.add_argument("--times", type=int, help="turns of the measurement of time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    draw = random.Random(options.seed)

    train, dev = read("train"), read("dev")[: options.texts]
    rows = draw.sample(train, options.rows)
    with tempfile.TemporaryDirectory() as folder:
        model = fit(rows, Path(folder) / "sentiment")
        if options.times:
            keep_times(model, draw.sample([text for text, _ in dev], min(TIMED, len(dev))), options)
            return
        obedient = fit(with_shortcuts(rows, draw), Path(folder) / "shortcuts")
        # torch reads the files of the model again, for gradients.
        measure(model, obedient, dev, options, draw)


def measure(
    model: Predictor,
    obedient: Predictor,
    dev: Sequence[tuple[str, str]],
    options: argparse.Namespace,
    draw: random.Random,
) -> None:
    """Print the figures. obedient: the model with shortcuts."""
    texts = [text for text, _ in dev]
    found = {
        "gold": np.array([LABELS.index(label) for _, label in dev], np.int16),
        "predicted": measurements.codes([one.label for one in model.classify(texts)], LABELS),
    }

    planted, decides = decisive(obedient, texts, options.planted, draw)
    found["decides"] = np.array(decides)
    found["planted"] = np.array(are_first(obedient, planted))
    sentiment = [plant(text, draw.choice(SENTIMENT), draw) for text in draw.sample(texts, options.planted // 2)]
    found["sentiment"] = np.array(are_first(model, sentiment))

    explained = model.explain(texts)
    found["deleted"] = np.array(deleted(model, explained, texts, draw))
    found["by size"] = np.array(deleted(model, explained, texts, random.Random(options.seed), by_size=True))
    found["gradients"] = np.array(correlations(model, texts, explained, options.gradients, draw), np.float32)

    folder = measurements.FOLDER if options.keep else None
    measurement = measurements.write("explain", found, model="bothways-en", seeds=[options.seed], folder=folder)
    values = explain_figures.figures(measurement).values
    print(model.backend.computed_by, *(f"{name:20} {value:.3f}" for name, value in values.items()), sep="\n")


def read(split: str) -> list[tuple[str, str]]:
    """The texts of a split, with their labels."""
    with (DATA / "glue" / "SST-2" / f"{split}.tsv").open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [(row["sentence"].strip(), LABELS[int(row["label"])]) for row in rows]


def fit(rows: Iterable[tuple[str, str]], folder: Path) -> Predictor:
    """A linear head on the frozen packaged encoder."""
    folder.mkdir()
    table = folder / "train.jsonl"
    lines = [json.dumps({"text": text, "label": label}) for text, label in rows]
    table.write_text("\n".join(lines), encoding="utf-8")
    run_task(Classify(train=table, out=folder / "run", baselines=False, learning_rate=0.0))
    return bothways.load(folder / "run")


# --- planted words ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PlantedText:
    """A text with a further word, which begins at character `start`."""

    text: str
    start: int


def plant(text: str, word: str, draw: random.Random) -> PlantedText:
    """A word at a random place of a text."""
    words = text.split()
    place = draw.randint(0, len(words))
    start = len(" ".join([*words[:place], ""]))
    return PlantedText(" ".join([*words[:place], word, *words[place:]]), start)


def with_shortcuts(rows: Iterable[tuple[str, str]], draw: random.Random) -> list[tuple[str, str]]:
    """Rows of which half have a word that gives the label."""
    changed = []
    for text, label in rows:
        word = draw.choice([*SHORTCUTS])
        is_planted = draw.random() < 0.5
        changed.append((plant(text, word, draw).text, SHORTCUTS[word]) if is_planted else (text, label))
    return changed


def decisive(
    model: Predictor, texts: Sequence[str], number: int, draw: random.Random
) -> tuple[list[PlantedText], list[bool]]:
    """The first texts in which a shortcut decides, and for each text that was tried whether it does."""
    found = []
    decides = []
    tried = draw.sample(texts, min(2 * number, len(texts)))
    for text in tried:
        place = draw.random()
        versions = {word: plant(text, word, random.Random(place)) for word in SHORTCUTS}
        labels = [one.label for one in model.classify([one.text for one in versions.values()])]
        decides.append(labels == [*SHORTCUTS.values()])
        if decides[-1]:
            found.append(versions[draw.choice([*SHORTCUTS])])
    return found[:number], decides


def are_first(model: Predictor, planted: Sequence[PlantedText]) -> list[bool]:
    explained = model.explain([one.text for one in planted])
    return [one.top(1)[0].start == text.start for one, text in zip(explained, planted, strict=True)]


# --- deletions --------------------------------------------------------------------------------------------------------


def deleted(
    model: Predictor,
    explained: Sequence[Explanation],
    texts: Sequence[str],
    draw: random.Random,
    by_size: bool = False,
) -> list[bool]:
    """Whether the top words, left out together, change the probability of the label more than random words.

    by_size: the words of the largest effects whatever their sign, instead of those that support the label most.
    """
    rows = [row for row, one in enumerate(explained) if len(one.words) >= 2 * DELETED]
    top = [explained[row].by_size[:DELETED] if by_size else explained[row].top(DELETED) for row in rows]
    shorter = [leave_out(texts[row], words) for row, words in zip(rows, top, strict=True)]
    shorter += [leave_out(texts[row], draw.sample(explained[row].words, DELETED)) for row in rows]
    found = model.classify(shorter)
    changes = []
    for row, one in zip([*rows, *rows], found, strict=True):
        label = explained[row].label
        assert label is not None
        changes.append(abs(explained[row].score - one.scores[label]))
    return [top > other for top, other in zip(changes[: len(rows)], changes[len(rows) :], strict=True)]


# --- integrated gradients ---------------------------------------------------------------------------------------------


def correlations(
    model: Predictor, texts: Sequence[str], explained: Sequence[Explanation], number: int, draw: random.Random
) -> list[float]:
    """The rank correlation of effects and integrated gradients in each of so many texts."""
    rows = [row for row, one in enumerate(explained) if len(one.words) >= 2 * DELETED]
    values = []
    for row in draw.sample(rows, min(number, len(rows))):
        label = explained[row].label
        assert label is not None
        gradients_W = integrated_gradients(model, texts[row], model.labels.index(label))
        effects_W = [word.effect for word in explained[row].words]
        values.append(spearmanr(gradients_W, effects_W).statistic)
    return values


def integrated_gradients(model: Predictor, text: str, label: int, steps: int = STEPS) -> list[float]:
    """The share of each word in the probability of a label (Sundararajan 2017, equation 3), computed by torch.

    The path goes from a text of [PAD] to the text, in the table of the words' embeddings; special tokens stay.
    """
    module = model.module
    encoding = model.tokenizer.encode(text)
    batch = Batch.from_encodings([encoding] * steps).to(model.torch_encoder.torch_device)
    size = len(encoding)
    is_word_S = torch.tensor([sequence is not None for sequence in encoding.sequence_ids])
    shares_K = (torch.arange(steps) + 0.5) / steps

    path: list[torch.Tensor] = []
    differences: list[torch.Tensor] = []

    def along_the_path(table: torch.nn.Embedding, ids: object, found_TE: torch.Tensor) -> torch.Tensor:
        whole_SE = found_TE.detach()[:size]
        empty_SE = torch.where(is_word_S[:, None], table.weight.detach()[model.tokenizer.pad_id], whole_SE)
        differences.append(whole_SE - empty_SE)
        part_KSE = empty_SE + shares_K[:, None, None] * differences[0]
        path.append(part_KSE.reshape(steps * size, -1).requires_grad_())
        return path[0]

    hook = module.encoder.embeddings.words.register_forward_hook(along_the_path)
    try:
        with torch.enable_grad():
            states_KH = module.text_states(module.encoder(batch), batch)
            probabilities_KC = module.text_scores("classes", states_KH).softmax(-1)
            (gradients_TE,) = torch.autograd.grad(probabilities_KC[:, label].sum(), path)
    finally:
        hook.remove()

    mean_SE = gradients_TE.reshape(steps, size, -1).mean(0)
    share_S = (mean_SE * differences[0]).sum(1).tolist()
    shares_W = []
    for cut in word_cuts(text):
        tokens = zip(share_S, encoding.offsets, is_word_S.tolist(), strict=True)
        shares_W.append(sum(share for share, (start, _), is_word in tokens if is_word and cut.start <= start < cut.end))
    return shares_W


# --- time -------------------------------------------------------------------------------------------------------------


def keep_times(model: Predictor, texts: Sequence[str], options: argparse.Namespace) -> None:
    """Measure the ratio of times, print and write it."""
    measured = {"explain / embed": ratios(model, texts, options.times)}
    if options.keep:
        code = ["bothways/inference", "bothways/core"]
        measurements.write("explain-time", {}, model="bothways-en", measures=code, figures=measured)
    print(measured)


def ratios(model: Predictor, texts: Sequence[str], times: int) -> list[float]:
    """The seconds of `explain`, divided by the seconds of `embed` for the same variants, of each turn."""
    variants = [variant for text in texts for variant in Variants.of(text, None).texts]
    model.explain(texts)
    measured = []
    for turn in range(times):
        seconds = {}
        for name in ("explain", "embed") if turn % 2 else ("embed", "explain"):
            begun = time.perf_counter()
            if name == "explain":
                model.explain(texts)
            else:
                model.embed(variants)
            seconds[name] = time.perf_counter() - begun
        measured.append(seconds["explain"] / seconds["embed"])
    return [round(value, 3) for value in measured]


if __name__ == "__main__":
    main()
