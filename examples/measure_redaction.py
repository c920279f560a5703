"""What a redaction misses, on labelled rows that the tagger has not seen: entities of which a character stays visible.

The threshold: a word is hidden from this probability of a label on, beside that of being outside of all entities. The
second command lists what is missed and writes a tagger with this threshold, for `bothways extract`.

    python examples/measure_redaction.py my-tagger dev.conll
    python examples/measure_redaction.py my-tagger test.conll 0.02 my-redactor
"""

import math
import sys
from collections import defaultdict
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import torch

import bothways
from bothways.base.errors import InputError
from bothways.measure.metrics import mean_intervals
from bothways.tasks.tag.examples import documents_of
from bothways.text.data.examples import read_tagged
from bothways.text.data.tags import detect_scheme, join_words, tags_to_spans, word_starts

THRESHOLDS = (0.9, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01)


@dataclass
class Document:
    """Sentences that stand in one text. entities: (label, start, end); outside: (start, end) of all other words."""

    name: str
    text: str
    entities: list
    outside: list


def read_documents(path):
    """The documents of labelled rows, in any format that `bothways finetune tag` reads."""
    sentences = read_tagged(path)
    scheme = detect_scheme([sentence.tags for sentence in sentences])
    if scheme == "plain":
        sys.exit(f"{path}: its tags are no entities, such as B-PER")

    documents = []
    pairs = zip(documents_of(sentences), sentences, strict=True)
    for name, group in groupby(pairs, key=lambda pair: pair[0]):
        document = Document(name, "", [], [])
        for _, sentence in group:
            starts = [len(document.text) + start for start in word_starts(sentence.words)]
            ends = [start + len(word) for start, word in zip(starts, sentence.words, strict=True)]
            for label, first, last in tags_to_spans(sentence.tags, scheme):
                document.entities.append((label, starts[first], ends[last - 1]))
            for tag, start, end in zip(sentence.tags, starts, ends, strict=True):
                if tag == "O":
                    document.outside.append((start, end))
            document.text += join_words(sentence.words) + "\n"
        documents.append(document)
    return documents


def load_tagger(path, threshold):
    """The tagger with another threshold: a label wins as soon as label / (label + outside) exceeds it."""
    model = bothways.load(path, backend="torch", dtype="float32")
    if model.task != "tag" or "O" not in model.labels:
        sys.exit(f"{path}: is no tagger of entities; train one with `bothways finetune tag`")
    outside = model.labels.index("O")
    with torch.no_grad():
        model.module.heads["tokens"].output.bias[outside] += math.log(threshold / (1 - threshold))
    return model


def measure(model, documents):
    """Each entity as (is missed, document, label, text around it), and for each other word whether it is hidden."""
    entities = []
    needless = []
    for document, found in zip(documents, model.tag([one.text for one in documents]), strict=True):
        text = document.text
        hidden = {index for entity in found for index in range(entity.start, entity.end)}
        # White space says nothing, also between two placeholders.
        visible = {index for index, character in enumerate(text) if index not in hidden and not character.isspace()}

        for label, start, end in document.entities:
            is_missed = not visible.isdisjoint(range(start, end))
            around = f"{text[max(0, start - 30) : start]}>{text[start:end]}<{text[end : end + 30]}"
            entities.append((is_missed, document.name, label, " ".join(around.split())))
        needless += [visible.isdisjoint(range(start, end)) for start, end in document.outside]
    return entities, needless


def missed_share(entities):
    """Per cent, with its 95 % interval over documents."""
    missed = [float(is_missed) for is_missed, *_ in entities]
    low, high = mean_intervals({"missed": missed}, [name for _, name, *_ in entities])["missed"]
    return f"{100 * sum(missed) / len(missed):5.1f} % missed ({100 * low:.1f} to {100 * high:.1f})"


def compare_thresholds(path, documents):
    for threshold in THRESHOLDS:
        entities, needless = measure(load_tagger(path, threshold), documents)
        share = 100 * sum(needless) / max(1, len(needless))
        print(f"{threshold:4}  {missed_share(entities)}, {share:.1f} % of other words hidden")


def save_redactor(path, documents, threshold, out):
    model = load_tagger(path, threshold)
    entities, _ = measure(model, documents)
    entities_by_label = defaultdict(list)
    for entity in entities:
        entities_by_label[entity[2]].append(entity)

    for label, of_label in sorted(entities_by_label.items()):
        print(f"{label:8} {len(of_label):5} entities, {missed_share(of_label)}")
    for is_missed, _, label, around in entities:
        if is_missed:
            print(f"  {label:8} {around}")
    model.save(out)
    print(f"all      {len(entities):5} entities, {missed_share(entities)}; tagger in {out}")


def read_threshold(text):
    try:
        threshold = float(text)
    except ValueError:
        threshold = math.nan
    if not 0 < threshold < 1:
        sys.exit(f"threshold ({text}) must be a number between 0 and 1, such as 0.05")
    return threshold


def main(model, rows, threshold=None, out=None):
    chosen = None if threshold is None else read_threshold(threshold)
    documents = read_documents(Path(rows))
    if not any(document.entities for document in documents):
        sys.exit(f"{rows}: has no entities, so nothing can be missed")
    if chosen is None:
        compare_thresholds(model, documents)
    else:
        save_redactor(model, documents, chosen, out)


if __name__ == "__main__":
    if len(sys.argv) not in (3, 5):
        sys.exit("usage: python examples/measure_redaction.py TAGGER ROWS [THRESHOLD OUT]")
    try:
        main(*sys.argv[1:])
    except InputError as error:
        sys.exit(f"{error}")
