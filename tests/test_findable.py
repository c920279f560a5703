"""Each feature is found by its usual name: in a file name or in the first line of its docstring."""

import pytest

from tests.test_architecture import modules, summary

# A word that people look for, and the part of it to search for.
WORDS = {
    "learning rate": "learning rate", "warmup": "warmup", "gradient accumulation": "gradient accumulation",
    "attention mask": "attention mask", "padding": "padding", "positional": "position", "distributed": "distributed",
    "checkpoint": "checkpoint", "resume": "resume", "tokenizer": "tokenizer", "vocabulary": "vocabulary", "F1": "f1",
    "SQuAD": "squad", "NER": "ner)", "pooling": "pooling", "quantization": "quantiz", "ONNX": "onnx", "LLRD": "llrd",
    "schedule": "schedule", "logging": "logging",
}  # fmt: skip


@pytest.fixture(scope="module")
def lines():
    return [f"{name} {summary(path)}".lower() for name, path in modules().items()]


@pytest.mark.parametrize("word", WORDS)
def test_a_file_is_found_by_the_usual_word(word, lines):
    assert any(WORDS[word] in line for line in lines)
