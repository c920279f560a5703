"""The head of statements in the package, from data of free licences: `python -m tools.decide -o DIR`.

It needs Wikipedia and SQuAD in $BOTHWAYS_DATA (docs/model.md names their licences), and about two seconds of a core for
each of its 400 steps; it resumes in the same folder. DIR/statements.safetensors is the file that belongs beside the
encoder's weights.
"""

import argparse
import os
from dataclasses import replace
from pathlib import Path

import torch

from bothways.base.device import retain_freed_memory
from bothways.model.checkpoint import checkpoint
from tools.decide.rules import make_examples
from tools.decide.train import Trainer

SEED = 7
STEPS = 400  # more learn the rules by heart: they know held-out statements better and other texts less (docs/LOG.md)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--out", type=Path, required=True, help="folder of the run")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("BOTHWAYS_DATA", "../shared/data")))
    parser.add_argument("--model", default="bothways-en", help="the encoder")
    parser.add_argument("--steps", type=int, default=STEPS, help="of 16 texts")
    parser.add_argument("--minutes", type=float, default=60.0, help="after which the run stops; it may be resumed")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    options = parser.parse_args()

    torch.set_num_threads(options.threads)
    retain_freed_memory()
    options.out.mkdir(parents=True, exist_ok=True)
    examples = make_examples(options.data, SEED)
    print(f"{len(examples):,} examples")

    trainer = Trainer(checkpoint.load(options.model), examples, options.out, options.steps)
    trainer.run(60 * options.minutes)
    shift = trainer.choice_shift()
    replace(trainer.model.to_head(), choice_shift=shift).write(options.out)
    print(f"options of a choice have {shift:+.2f} of log-odds against none")
    for kind, (right, chosen) in trainer.accuracy().items():
        print(f"{kind}: {right:.1%} of statements, {chosen:.1%} of choices")
    print(f"{trainer.step} of {options.steps} steps; {options.out / 'statements.safetensors'}")


if __name__ == "__main__":
    main()
