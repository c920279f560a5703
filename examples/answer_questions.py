"""Train a model that finds the answer to a question in a passage, on questions in memory.

A few steps on a few questions show the format but teach little: expect wrong answers. Useful models are trained on
the 88,000 questions of SQuAD 1.1 (`bothways finetune answer --train train-v1.1.json -o my-reader`).

    python examples/answer_questions.py
"""

from tempfile import TemporaryDirectory

import bothways
from bothways.settings import Answer

QUESTIONS = {  # passage: (question, answer), ...
    "The library opens at nine and closes at six. It is in Mill Street, next to the old bakery.": (
        ("When does the library open?", "nine"), ("When does it close?", "six"), ("Where is it?", "Mill Street"),
    ),
    "Nora planted forty apple trees in 1998. Her brother Paul built the wall around the garden.": (
        ("Who planted the trees?", "Nora"), ("When were they planted?", "1998"), ("Who built the wall?", "Paul"),
    ),
    "The ferry to the island takes two hours. Tickets cost twelve euros and are sold on board.": (
        ("How long does the ferry take?", "two hours"), ("What does a ticket cost?", "twelve euros"),
    ),
    "The bridge was designed by Clara Weber. It is made of steel and crosses the river Aar.": (
        ("Who designed the bridge?", "Clara Weber"), ("What is it made of?", "steel"), ("What does it cross?", "Aar"),
    ),
}  # fmt: skip
rows = [
    {
        "id": f"{passage[:20]} {question}", "question": question, "context": passage,
        "answers": {"text": [answer], "answer_start": [passage.index(answer)]},
    }
    for passage, pairs in QUESTIONS.items() for question, answer in pairs
]  # fmt: skip

with TemporaryDirectory() as folder:  # use a directory of your own to keep the model and report.html
    # The last three questions, with a passage of their own, select the best weights.
    result = bothways.train(Answer(train=rows[:-3], dev=rows[-3:], out=f"{folder}/run", epochs=5, batch_size=4))
    print(f"F1 {result.mean:.0%} on {result.rows} questions after a few steps; {result.verdict}")
    passage = "Lena moved to Bern in 2019. She works for a bank."
    for answer in bothways.load(result.model_directory).answer("Where did Lena move?", passage, top=3):
        print(f"{answer.text!r} (characters {answer.start} to {answer.end}, {answer.score:.2f})")
