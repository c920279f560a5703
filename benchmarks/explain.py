"""Why a text got its label: `model.explain` on SST-2, against planted words, deletions and integrated gradients.

    python -m benchmarks.explain [--rows 1000] [--planted 200] [--texts 872] [--gradients 60] [--times 9] [--seed 0]

A linear head on the frozen packaged encoder is fitted on `rows` rows of train. Printed, of dev:

- planted: the share of texts in which a decisive word has the largest effect. As nobody knows which words of a review
  decide, a second head is fitted on rows of which half have one of two words, of no sentiment, that gives the label
  (shortcuts, Bastings 2022). A text counts if its label is that of either word at the same place.
- sentiment: the same with a word such as "terrible" and the first head, which need not decide.
- deleted: the three words of the largest effects are left out together, or three random ones; the share of texts whose
  probability changes more by the former. Texts of fewer than six words are left out.
- gradients: Spearman correlation of effects and integrated gradients (Sundararajan 2017) over the words of a text.
- time: of `explain`, divided by the time of `embed` for the same variants of the texts, in turns.

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
    parser.add_argument("--times", type=int, default=9)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    draw = random.Random(options.seed)

    train, dev = read("train"), read("dev")[: options.texts]
    rows = draw.sample(train, options.rows)
    with tempfile.TemporaryDirectory() as folder:
        model = fit(rows, Path(folder) / "sentiment")
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
    right = np.mean([one.label == label for one, (_, label) in zip(model.classify(texts), dev, strict=True)])
    print(f"accuracy of {len(dev)} texts: {right:.1%}; {model.backend.computed_by}", flush=True)

    planted, number = decisive(obedient, texts, options.planted, draw)
    print(
        f"planted: the decisive word is first in {share(are_first(obedient, planted))}; decisive in {number}",
        flush=True,
    )
    sentiment = [plant(text, draw.choice(SENTIMENT), draw) for text in draw.sample(texts, options.planted // 2)]
    print(f"sentiment: the word is first in {share(are_first(model, sentiment))}", flush=True)

    explained = model.explain(texts)
    changes = deleted(model, explained, texts, draw)
    print(f"deleted: the three top words change more than three random ones in {share(changes)}", flush=True)
    print(f"gradients: mean Spearman {correlation(model, texts, explained, options.gradients, draw)}", flush=True)
    print(f"time: explain / embed {ratio(model, draw.sample(texts, min(TIMED, len(texts))), options.times)}")


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


def share(values: Sequence[bool]) -> str:
    """A share with its 95 % interval (Wilson 1927)."""
    n, z = len(values), 1.96
    p = float(np.mean(values))
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return f"{p:.1%} ({middle - half:.1%} to {middle + half:.1%}) of {n}"


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


def decisive(model: Predictor, texts: Sequence[str], number: int, draw: random.Random) -> tuple[list[PlantedText], str]:
    """The first texts in which a shortcut decides, and of how many it did."""
    found = []
    tried = draw.sample(texts, min(2 * number, len(texts)))
    for text in tried:
        place = draw.random()
        versions = {word: plant(text, word, random.Random(place)) for word in SHORTCUTS}
        labels = [one.label for one in model.classify([one.text for one in versions.values()])]
        if labels == [*SHORTCUTS.values()]:
            found.append(versions[draw.choice([*SHORTCUTS])])
    return found[:number], share([True] * len(found) + [False] * (len(tried) - len(found)))


def are_first(model: Predictor, planted: Sequence[PlantedText]) -> list[bool]:
    explained = model.explain([one.text for one in planted])
    return [one.top(1)[0].start == text.start for one, text in zip(explained, planted, strict=True)]


# --- deletions --------------------------------------------------------------------------------------------------------


def deleted(
    model: Predictor, explained: Sequence[Explanation], texts: Sequence[str], draw: random.Random
) -> list[bool]:
    """Whether the top words, left out together, change the probability of the label more than random words."""
    rows = [row for row, one in enumerate(explained) if len(one.words) >= 2 * DELETED]
    shorter = [leave_out(texts[row], explained[row].top(DELETED)) for row in rows]
    shorter += [leave_out(texts[row], draw.sample(explained[row].words, DELETED)) for row in rows]
    found = model.classify(shorter)
    changes = []
    for row, one in zip([*rows, *rows], found, strict=True):
        label = explained[row].label
        assert label is not None
        changes.append(abs(explained[row].score - one.scores[label]))
    return [top > other for top, other in zip(changes[: len(rows)], changes[len(rows) :], strict=True)]


# --- integrated gradients ---------------------------------------------------------------------------------------------


def correlation(
    model: Predictor, texts: Sequence[str], explained: Sequence[Explanation], number: int, draw: random.Random
) -> str:
    """The mean rank correlation of effects and integrated gradients, with its standard deviation."""
    rows = [row for row, one in enumerate(explained) if len(one.words) >= 2 * DELETED]
    values = []
    for row in draw.sample(rows, min(number, len(rows))):
        label = explained[row].label
        assert label is not None
        gradients_W = integrated_gradients(model, texts[row], model.labels.index(label))
        effects_W = [word.effect for word in explained[row].words]
        values.append(spearmanr(gradients_W, effects_W).statistic)
    error = np.std(values) / np.sqrt(len(values))
    return f"{np.mean(values):.3f} (standard error {error:.3f}, quartiles {np.quantile(values, [0.25, 0.75]).round(2)})"


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


def ratio(model: Predictor, texts: Sequence[str], times: int) -> str:
    """The seconds of `explain`, divided by the seconds of `embed` for the same variants, in turns."""
    variants = [variant for text in texts for variant in Variants.of(text, None).texts]
    model.explain(texts)
    ratios = []
    for turn in range(times):
        seconds = {}
        for name in ("explain", "embed") if turn % 2 else ("embed", "explain"):
            begun = time.perf_counter()
            if name == "explain":
                model.explain(texts)
            else:
                model.embed(variants)
            seconds[name] = time.perf_counter() - begun
        ratios.append(seconds["explain"] / seconds["embed"])
    low, middle, high = np.quantile(ratios, [0.25, 0.5, 0.75])
    per_text = 1000 * seconds["explain"] / len(texts)
    return (
        f"{middle:.3f} (median of {times}, quartiles {low:.3f} and {high:.3f}); {len(variants):,} variants of "
        f"{len(texts)} texts, {per_text:.0f} ms a text"
    )


if __name__ == "__main__":
    main()
