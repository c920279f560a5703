"""Train a tagger of named entities on sentences in memory: lists of words with a tag for each word.

Nine sentences show the format and teach little; a useful tagger needs hundreds.

    python examples/tag_entities.py
"""

from tempfile import TemporaryDirectory

import bothways
from bothways.settings import Tag

SENTENCES = """
Ada/B-PER Lovelace/I-PER lived in London/B-LOC .
Yesterday Tom/B-PER flew to Paris/B-LOC .
We met Maria/B-PER Silva/I-PER in Lisbon/B-LOC .
The train from Berlin/B-LOC was late .
Anna/B-PER wrote a letter to Peter/B-PER .
Rome/B-LOC is older than New/B-LOC York/I-LOC .
Nobody knew where the keys were .
John/B-PER Smith/I-PER bought a house in Dublin/B-LOC .
Next year Laura/B-PER will move to Vienna/B-LOC .
"""
DEV = """
Susan/B-PER Miller/I-PER works in Madrid/B-LOC .
The road to Athens/B-LOC is closed .
Where does Michael/B-PER live ?
"""


def make_rows(text):
    """Rows with the columns tokens and ner_tags, from word/TAG or, outside of every entity, the word alone."""
    for line in text.strip().splitlines():
        pairs = [word.partition("/") for word in line.split()]
        yield {"tokens": [word for word, _, _ in pairs], "ner_tags": [tag or "O" for _, _, tag in pairs]}


with TemporaryDirectory() as folder:  # use a directory of your own to keep the model and report.html
    # context=False: these sentences are not consecutive sentences of a text.
    settings = Tag(train=make_rows(SENTENCES), dev=make_rows(DEV), out=f"{folder}/run", epochs=5, context=False)
    result = bothways.train(settings)
    print(f"F1 of entities {result.mean:.2f} on {result.rows} sentences; {result.verdict}")
    text = "In spring Karen Jones travelled from Boston to Prague."
    for entity in bothways.load(result.model_directory).tag(text):
        print(f"{entity.label} {text[entity.start : entity.end]} ({entity.score:.2f})")
