"""Distill a student with two layers from the model in the package, on excerpts of the novels that come with it.

The student starts from two of the teacher's six layers. A few steps only show how it is done; a useful student needs an
hour and more text: see docs/guide/distillation.md.

    python examples/distill_small.py
"""

from tempfile import TemporaryDirectory

import bothways
from bothways.settings import Distill
from bothways.text.corpus.documents import sample

STEPS = 4
texts = [book["text"][:5_000] for book in sample() if book["split"] == "train"]


class Progress(bothways.Callback):
    def on_evaluate(self, row):
        print(f"step {row['step']}: cosine {row['vector_cosine']:.3f}, perplexity {row['perplexity']:.0f}")


with TemporaryDirectory() as folder:  # use a directory of your own to keep the student
    settings = Distill(
        teacher="bothways-en",
        corpus={"text": texts},
        out=f"{folder}/run",
        token_store=f"{folder}/tokens",
        layers=2,
        steps=STEPS,
        max_length=64,
        batch_tokens=512,
        evaluate_every=STEPS // 2,
        heldout_examples=16,
        processes=1,
    )
    result = bothways.train(settings, callbacks=Progress())
    student = bothways.load(result.model_directory)
    sentences = ["The ship left the harbour at dawn.", "They sailed early in the morning.", "He paid the bill."]
    vectors = student.embed(sentences)
    print(f"cosines of the student: {vectors[0] @ vectors[1]:.2f} (similar), {vectors[0] @ vectors[2]:.2f} (different)")
