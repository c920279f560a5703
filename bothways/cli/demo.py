"""The whole life of a small BERT on the novels in the package: vocabulary, pre-training, gaps, a classifier, new
text."""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import Any

from bothways.checkpoint.checkpoint import load as load_checkpoint
from bothways.corpus.documents import read_lines, sample
from bothways.corpus.store import sentences
from bothways.finetuning import classify
from bothways.finetuning.baselines import NOT_BETTER
from bothways.inference.predictor import Predictor
from bothways.log import command_name, messages_to, muted, print_lines
from bothways.pretraining import pretrain
from bothways.rng import Purpose, generator
from bothways.settings import Classify, Demo, Pretrain
from bothways.tokenizer.tokenizer import Tokenizer
from bothways.training.run import Run

NUM_GAPS, NUM_SHOWN = 200, 3
GAP_WORDS = range(8, 25)  # words of a sentence with a gap
NUM_NEW = 3


def run(settings: Demo) -> dict[str, Any]:
    """Everything in one run directory; prints and returns the figures."""
    began = time.perf_counter()
    run = Run(settings.out, "demo", settings)
    books = sample()
    texts = write_texts(books, settings.out / "text")
    authors = sorted({book["author"] for book in books})
    trained, unread = ([book for book in books if book["split"] == split] for split in ("train", "test"))
    write(f"The novels: {len(books)} books by {', '.join(authors)}; {len(unread)} of them stay unread.\n")

    write("1. Learn a vocabulary from the books to be read")
    with muted():
        tokenizer = Tokenizer.learn((book["text"] for book in trained), size=5000)
    tokenizer.save(settings.out / "tokenizer")
    words = "An unfathomable whisper, said Mr. Rochester."
    write(f"   {len(tokenizer):,} entries: {words!r} -> {' '.join(tokenizer.encode(words).tokens)}\n")

    write(f"2. Pre-train a small BERT with masked words, {settings.minutes:g} minutes")
    with messages_to(indented):
        told = pretrain.run(pretraining(settings, texts))
    figures = dict(told.figures)
    write(
        f"   masked words, books not read: perplexity {figures['perplexity']:.0f}; by word frequency alone "
        f"{figures['unigram_perplexity']:.0f}\n"
    )

    write("3. Fill gaps in sentences of the unread books")
    filled = fill_gaps(Predictor(load_checkpoint(told.model), dtype=settings.dtype), unread, settings.seed)

    write("4. Fine-tune it to tell the authors apart, and ask about paragraphs from books it has not read")
    with messages_to(indented):
        result = classify.run(fine_tuning(settings, told.model, texts))
    low, high = result.interval or (0.0, 1.0)
    width = max(map(len, ("this BERT", *result.baselines)))
    write(f"   {'this BERT':{width}} {result.mean:6.1%} (95 % interval {low:.1%} to {high:.1%}), one seed")
    for name, score in result.baselines.items():
        write(f"   {name:{width}} {score:6.1%}")
    write(f"   {result.verdict}")
    if result.verdict.startswith(NOT_BETTER):
        write("   Why: of two books an author, the words tell more than what a BERT has learned in a minute.")
    write("")

    write("5. Ask it about new text")
    ask(Predictor(load_checkpoint(result.model), dtype=settings.dtype), texts["test"], settings.seed)
    figures |= {
        "fills": filled,
        "accuracy": result.mean,
        "baselines": result.baselines,
    }
    figures["seconds"] = time.perf_counter() - began
    parts = {
        "text": "the novels",
        "tokenizer": "vocabulary",
        "pretrain": "pre-training run",
        "authors": "classifier run",
    }
    run.update_metadata(status="done", figures=figures, parts=parts)
    run.close()
    write(f"\nDone in {figures['seconds']:.0f} s. All of it is in {settings.out}:")
    pretrained, classifier = (quote(str(settings.out / name)) for name in ("pretrain", "authors"))
    write(f"   {command_name()} info {pretrained}")
    write(f'   {command_name()} fill {pretrained} "She looked at the [MASK] and smiled."')
    write(f'   {command_name()} predict {classifier} --text "The river lay grey and still under the morning fog."')
    return figures


def write(text: str) -> None:
    print_lines(*text.split("\n"))


def indented(text: str) -> None:
    write("   " + text.replace("\n", "\n   "))


def write_texts(books: Sequence[dict[str, Any]], directory: Path) -> dict[str, Path]:
    """Corpora (a book a document) and labelled paragraphs, as files anyone can look at."""
    directory.mkdir(parents=True)
    files = {}
    for split in ("train", "test"):
        chosen = [book for book in books if book["split"] == split]
        rows = [{"text": text, "label": book["author"]} for book in chosen for text in book["text"].split("\n\n")]
        for name, content in ((f"{split}_books", [{"text": book["text"]} for book in chosen]), (split, rows)):
            files[name] = directory / f"{name}.jsonl"
            files[name].write_text(
                "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in content), encoding="utf-8"
            )
    return files


def read_rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for _, line in read_lines(file)]


def pretraining(settings: Demo, texts: dict[str, Path]) -> Pretrain:
    # Small steps and short texts, since a minute or two is a few hundred steps (docs/LOG.md).
    return Pretrain(
        corpus=(texts["train_books"],), heldout=(texts["test_books"],), out=settings.out / "pretrain", model="tiny",
        token_store=settings.out / "pretrain" / "store", tokenizer=settings.out / "tokenizer", minutes=settings.minutes,
        batch_tokens=1024, max_length=64, evaluate_every=250, seed=settings.seed, dtype=settings.dtype,
    )  # fmt: skip


def fine_tuning(settings: Demo, model: Path, texts: dict[str, Path]) -> Classify:
    return Classify(
        model=model,
        train=texts["train"],
        test=texts["test"],
        out=settings.out / "authors",
        epochs=1.0,
        learning_rate=5e-4,
        seed=settings.seed,
        dtype=settings.dtype,
    )


def fill_gaps(predictor: Predictor, books: Sequence[dict[str, Any]], seed: int) -> dict[str, float]:
    """One word masked in each of some sentences; tells how often it was guessed, and shows hits and misses as they
    come."""
    rng = generator(seed, Purpose.MASK)
    found = [line for book in books for line in sentences(book["text"], "en") if len(line.split()) in GAP_WORDS]
    first = best = 0
    hits: dict[str, str] = {}  # by the word that was hidden, so that different ones are shown
    misses: dict[str, str] = {}
    number = 0
    for index in rng.permutation(len(found))[:NUM_GAPS].tolist():
        words = found[index].split()
        places = [
            place for place, word in enumerate(words[1:-1], 1) if word.isalpha() and word.islower() and len(word) > 2
        ]
        if not places:
            continue
        place = places[int(rng.integers(len(places)))]
        gapped = " ".join([*words[:place], "[MASK]", *words[place + 1 :]])
        guesses = [fill.token for fill in predictor.fill(gapped)[0]]
        first += guesses[0] == words[place]
        best += words[place] in guesses
        hit = words[place] in guesses
        guessed = f"{words[place]!r}; guessed: {', '.join(guesses)}"
        (hits if hit else misses)[words[place]] = f"   {'hit ' if hit else 'miss'}  {gapped}\n         {guessed}"
        number += 1
    write("\n".join([*list(hits.values())[:NUM_SHOWN], *list(misses.values())[: NUM_SHOWN - 1]]))
    write(f"   of {number} such gaps, {first / number:.0%} guessed at once and {best / number:.0%} within five\n")
    return {"gaps": number, "first": first / number, "within_five": best / number}


def ask(predictor: Predictor, test: Path, seed: int) -> None:
    """A few unread paragraphs, with what the classifier makes of them and who wrote them."""
    rows = read_rows(test)
    chosen = [rows[index] for index in generator(seed, Purpose.ORDER).permutation(len(rows))[:NUM_NEW].tolist()]
    for row, found in zip(chosen, predictor.classify([row["text"] for row in chosen]), strict=True):
        start = " ".join(row["text"].split())[:88]
        write(f"   {start}...\n         {found.label} ({found.score:.0%}); it was {row['label']}")
    longest = max(rows, key=lambda row: len(row["text"]))
    found = predictor.classify([longest["text"]])[0]
    windows = len(predictor.split([predictor.tokenizer.encode(longest["text"])])[0])
    write(
        f"   and the longest paragraph, read in {windows} windows: {found.label} ({found.score:.0%}); it was "
        f"{longest['label']}"
    )
