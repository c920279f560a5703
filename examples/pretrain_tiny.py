"""Pre-train a tiny BERT from scratch, with a vocabulary of its own, on excerpts of the novels in the package.

The score is the perplexity of masked words in novels that are not in the training text. A model that knows only how
frequent each word is has the second figure. A useful model takes half an hour or more: see docs/guide/pretraining.md.

    python examples/pretrain_tiny.py
"""

from tempfile import TemporaryDirectory

import bothways
from bothways.settings import Pretrain
from bothways.text.corpus.documents import sample

CHARACTERS = 25_000  # of each novel
texts: dict[str, list[str]] = {"train": [], "test": []}
for book in sample():
    texts[book["split"]].append(book["text"][:CHARACTERS])

with TemporaryDirectory() as folder:  # use a directory of your own to keep the model
    settings = Pretrain(
        corpus={"text": texts["train"]},
        heldout={"text": texts["test"]},
        out=f"{folder}/run",
        token_store=f"{folder}/tokens",
        model="tiny",
        vocab_size=2000,
        max_length=64,
        batch_tokens=1024,
        steps=50,
        heldout_examples=128,
        processes=1,
    )
    result = bothways.train(settings)
    figures = result.figures
    print(f"perplexity {figures['perplexity']:.0f}; {figures['unigram_perplexity']:.0f} by word frequencies alone")
    for guess in bothways.load(result.model_directory).fill("He looked at [MASK] and said nothing.", top=3)[0]:
        print(f"{guess.score:.2f} {guess.token}")
