"""Whether more pre-training on a domain's text helps (Gururangan 2020): MiniLM-L6 unchanged, after pre-training on
abstracts of the ACL, and with the domain's words added to its vocabulary, each fine-tuned on ACL-ARC and SciERC.

    python -m benchmarks.adaptation -o DIR [--steps 3000] [--words 2000] [--epochs 8] [--seeds 3] [--only ROW ...]

ACL-ARC: why a paper is cited, macro F1; SciERC: entities, F1; selected on dev, reported on test, over the seeds. The
first row is the unchanged checkpoint. A run whose directory is already in DIR is not repeated. Data: $BOTHWAYS_DATA
(default: ../shared/data).
"""

import argparse
import json
import os
import shutil
from pathlib import Path
from typing import Any

import bothways
from benchmarks.finetune_scores import minilm
from bothways.settings import Classify, FineTune, Pretrain, Tag

DATA = Path(os.environ.get("BOTHWAYS_DATA", "../shared/data")) / "scientific"

UNCHANGED, WITH_WORDS = "unchanged", "with added words"
ROWS = (UNCHANGED, "on ACL abstracts", WITH_WORDS)


def copy_files(out: Path) -> dict[str, dict[str, Path]]:
    """Copy the tasks' files to names whose extensions state the format."""
    files: dict[str, dict[str, Path]] = {}
    for name, kind in (("acl-arc", "jsonl"), ("scierc", "conll")):
        files[name] = {split: out / "data" / f"{name}-{split}.{kind}" for split in ("train", "dev", "test")}
        for split, file in files[name].items():
            file.parent.mkdir(parents=True, exist_ok=True)
            if not file.exists():
                shutil.copyfile(DATA / name / f"{split}.txt", file)
    return files


def continued_pretraining(folder: Path, steps: int, words: int) -> Pretrain:
    return Pretrain(
        corpus=(DATA / "acl-abstracts/train.parquet",),
        out=folder / "pretrained",
        from_checkpoint=minilm(),
        extend_vocab=words,
        steps=steps,
        batch_tokens=4096,
        max_length=256,
        pairs="none",
        learning_rate=1e-4,
        dropout=0.0,
        evaluate_every=500,
        checkpoint_every=500,
    )


def finetuning_settings(
    model: Path, folder: Path, files: dict[str, dict[str, Path]], epochs: float, seeds: int
) -> dict[str, FineTune]:
    common: dict[str, Any] = {"model": model, "seeds": seeds, "epochs": epochs}
    return {
        "ACL-ARC": Classify(**common, **files["acl-arc"], out=folder / "acl-arc", metric="f1_macro", batch_size=16),
        "SciERC": Tag(**common, **files["scierc"], out=folder / "scierc", batch_tokens=512),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--words", type=int, default=2000)
    parser.add_argument("--epochs", type=float, default=8)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="+", default=list(ROWS), choices=list(ROWS))
    options = parser.parse_args()
    files = copy_files(options.out)
    print(f"{'MiniLM-L6':40} {'held-out perplexity':>20}  {'ACL-ARC':>16}  {'SciERC':>16}")
    for name in options.only:
        folder, model, perplexity = options.out / name.replace(" ", "-"), minilm(), "-"
        if name != UNCHANGED:
            settings = continued_pretraining(folder, options.steps, options.words if name == WITH_WORDS else 0)
            if not (settings.out / "model").exists():
                bothways.train(settings)
            metadata = json.loads((settings.out / "bothways.json").read_text(encoding="utf-8"))
            model, perplexity = settings.out, f"{metadata['heldout']['perplexity']:.1f}"
        scores = []
        for task in finetuning_settings(model, folder, files, options.epochs, options.seeds).values():
            if not (task.out / "model").exists():
                bothways.train(task)
            result = json.loads((task.out / "bothways.json").read_text(encoding="utf-8"))["result"]
            scores.append(f"{result['mean']:7.2%} +- {result['std']:6.2%}")
        print(f"{name:40} {perplexity:>20}  {'  '.join(scores)}", flush=True)


if __name__ == "__main__":
    main()
