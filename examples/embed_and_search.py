"""Search passages by meaning with the model in the package. Needs no training.

The passages come with Bothways. No question shares a content word with its answer, but each shares one with another
passage, which misleads a search for words.

    python examples/embed_and_search.py
"""

import json
from importlib.resources import files

import bothways

lines = files("bothways").joinpath("sample/passages.jsonl").read_text(encoding="utf-8").splitlines()
rows = [json.loads(line) for line in lines]
passages = [row for row in rows if "text" in row]
questions = [row for row in rows if "question" in row]

model = bothways.load()
# Vectors have length 1, so their products are cosines.
passage_vectors = model.embed([row["text"] for row in passages])
question_vectors = model.embed([row["question"] for row in questions])
cosines = question_vectors @ passage_vectors.T

for question, row in zip(questions, cosines, strict=True):
    best = passages[int(row.argmax())]
    print(f"{question['question']}\n  {row.max():.2f}  {best['text']}")

correct = sum(passages[best]["id"] == row["id"] for best, row in zip(cosines.argmax(1), questions, strict=True))
print(f"{correct} of {len(questions)} questions have the right passage first")
