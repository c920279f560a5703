"""Cloze classification with the packaged model: without training and with few examples, against a linear head.

    python -m benchmarks.cloze [--model bothways-en] [--few 16 64 256] [--draws 3]

SST-2: random rows of the training file, accuracy on the published dev set. The linear head is the default of
`finetune classify`; below 100 rows it keeps the encoder frozen. Data: $BOTHWAYS_DATA (default: ../shared/data).
"""

import argparse
import tempfile
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import bothways
from benchmarks.finetune_sets import glue, rows_of, sample_rows
from bothways.settings import Classify

PHRASE, WORDS = "It was [MASK].", {"0": "terrible", "1": "great"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=Path("bothways-en"))
    parser.add_argument("--few", type=int, nargs="+", default=[16, 64, 256])
    parser.add_argument("--draws", type=int, default=3)
    arguments = parser.parse_args()
    data = glue("SST-2").arguments
    train, test = (rows_of(data, split) for split in ("train", "test"))
    texts, gold = [row["text"] for row in test], [row["label"] for row in test]

    def accuracy(model: Any) -> float:
        return 100 * fmean(one.label == label for one, label in zip(model.classify(texts), gold, strict=True))

    print("| rows | cloze | linear head |\n|---|---|---|")
    print(f"| 0 | {accuracy(bothways.load(arguments.model).cloze(PHRASE, WORDS)):.1f} | |", flush=True)
    cloze: dict[str, Any] = {"cloze": PHRASE, "words": tuple(WORDS.values())}
    for number in arguments.few:
        cells = []
        for options in (cloze, {}):
            scores = []
            for draw in range(arguments.draws):
                with tempfile.TemporaryDirectory() as folder:
                    rows = sample_rows(train, number, seed=draw)
                    settings = Classify(
                        model=arguments.model, train=rows, out=Path(folder, "run"), baselines=False, **options
                    )
                    scores.append(accuracy(bothways.train(settings).load()))
            spread = f" +- {stdev(scores):.1f}" if len(scores) > 1 else ""
            cells.append(f"{fmean(scores):.1f}{spread} ({', '.join(f'{score:.1f}' for score in scores)})")
        print(f"| {number} | {cells[0]} | {cells[1]} |", flush=True)


if __name__ == "__main__":
    main()
