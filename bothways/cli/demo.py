"""The demo: a small BERT from vocabulary to predictions, on the novels in the package."""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import Any

from bothways.checkpoint.checkpoint import load as load_checkpoint
from bothways.corpus.documents import read_lines, sample
from bothways.corpus.store import sentences
from bothways.device import choose_device
from bothways.finetuning import classify
from bothways.finetuning.baselines import WORSE
from bothways.inference.predictor import Predictor
from bothways.log import command_name, messages_to, muted, print_lines
from bothways.pretraining import pretrain
from bothways.rng import Purpose, generator
from bothways.settings import Classify, Demo, Pretrain
from bothways.tokenizer.tokenizer import Tokenizer
from bothways.training.run import Run

NUM_SENTENCES, NUM_SHOWN = 200, 3
SENTENCE_WORDS = range(8, 25)  # words of a sentence in which one is masked
NUM_CLASSIFIED = 3


def run(settings: Demo) -> dict[str, Any]:
    """Run all steps in one run directory; prints and returns the figures."""
    start = time.perf_counter()
    run = Run(settings.out, "demo", settings, device=choose_device(settings.device))
    books = sample()
    texts = write_texts(books, settings.out / "text")
    authors = sorted({book["author"] for book in books})
    training, heldout = ([book for book in books if book["split"] == split] for split in ("train", "test"))
    write(f"Text: {len(books)} novels by {', '.join(authors)}; {len(heldout)} of them are held out.\n")

    write(f"1. Learn a vocabulary from the {len(training)} training novels")
    with muted():
        tokenizer = Tokenizer.learn((book["text"] for book in training), size=5000)
    tokenizer.save(settings.out / "tokenizer")
    example = "An unfathomable whisper, said Mr. Rochester."
    write(f"   {len(tokenizer):,} entries: {example!r} -> {' '.join(tokenizer.encode(example).tokens)}\n")

    write(f"2. Pre-train a small BERT on masked words for {settings.minutes:g} minutes")
    with messages_to(write_indented):
        pretrained = pretrain.run(pretrain_settings(settings, texts))
    figures = dict(pretrained.figures)
    write(
        f"   masked words of the held-out novels: perplexity {figures['perplexity']:.0f} (word frequencies alone: "
        f"{figures['unigram_perplexity']:.0f})\n"
    )

    write("3. Fill in masked words in the held-out novels")
    fills = fill_masks(load_predictor(pretrained.model, settings), heldout, settings.seed)

    write("4. Fine-tune it to recognize the authors, and test it on paragraphs of the held-out novels")
    with messages_to(write_indented):
        result = classify.run(classify_settings(settings, pretrained.model, texts))
    low, high = result.interval or (0.0, 1.0)
    width = max(map(len, ("this BERT", *result.baselines)))
    write(f"   {'this BERT':{width}} {result.mean:6.1%} (95 % interval {low:.1%} to {high:.1%}), one seed")
    for name, score in result.baselines.items():
        write(f"   {name:{width}} {score:6.1%}")
    write(f"   {result.verdict}")
    if result.verdict.startswith(WORSE):
        write("   Why: with two novels per author, word counts say more than a BERT can learn in a minute.")
    write("")

    write("5. Classify new text")
    classify_paragraphs(load_predictor(result.model, settings), texts["test"], settings.seed)
    figures |= {"fills": fills, "accuracy": result.mean, "baselines": result.baselines}
    figures["seconds"] = time.perf_counter() - start
    parts = {
        "text": "the novels",
        "tokenizer": "vocabulary",
        "pretrain": "pre-training run",
        "authors": "classifier run",
    }
    run.update_metadata(status="done", figures=figures, parts=parts)
    run.close()
    write(f"\nDone in {figures['seconds']:.0f} s. Everything is in {settings.out}:")
    encoder, classifier = (quote(str(settings.out / name)) for name in ("pretrain", "authors"))
    write(f"   {command_name()} info {encoder}")
    write(f'   {command_name()} fill {encoder} "She looked at the [MASK] and smiled."')
    write(f'   {command_name()} predict {classifier} --text "The river lay grey and still under the morning fog."')
    return figures


def load_predictor(model: Path, settings: Demo) -> Predictor:
    return Predictor(load_checkpoint(model), dtype=settings.dtype, device=settings.device)


def write(text: str) -> None:
    print_lines(*text.split("\n"))


def write_indented(text: str) -> None:
    write("   " + text.replace("\n", "\n   "))


def write_texts(books: Sequence[dict[str, Any]], directory: Path) -> dict[str, Path]:
    """Write a corpus (a document per novel) and a table of labelled paragraphs for each split."""
    directory.mkdir(parents=True)
    files = {}
    for split in ("train", "test"):
        novels = [book for book in books if book["split"] == split]
        rows = [{"text": text, "label": book["author"]} for book in novels for text in book["text"].split("\n\n")]
        for name, content in ((f"{split}_books", [{"text": book["text"]} for book in novels]), (split, rows)):
            files[name] = directory / f"{name}.jsonl"
            files[name].write_text(
                "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in content), encoding="utf-8"
            )
    return files


def read_rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for _, line in read_lines(file)]


def pretrain_settings(settings: Demo, texts: dict[str, Path]) -> Pretrain:
    # Small steps and short texts give more steps in a minute, and learn faster (docs/LOG.md).
    return Pretrain(
        corpus=(texts["train_books"],), heldout=(texts["test_books"],), out=settings.out / "pretrain", model="tiny",
        token_store=settings.out / "pretrain" / "store", tokenizer=settings.out / "tokenizer", minutes=settings.minutes,
        batch_tokens=1024, max_length=64, evaluate_every=250, seed=settings.seed, dtype=settings.dtype,
        device=settings.device,
    )  # fmt: skip


def classify_settings(settings: Demo, model: Path, texts: dict[str, Path]) -> Classify:
    return Classify(
        model=model,
        train=texts["train"],
        test=texts["test"],
        out=settings.out / "authors",
        epochs=1.0,
        learning_rate=5e-4,
        seed=settings.seed,
        dtype=settings.dtype,
        device=settings.device,
    )


def fill_masks(predictor: Predictor, books: Sequence[dict[str, Any]], seed: int) -> dict[str, float]:
    """Mask one word in each of some sentences. Prints examples, and the accuracy of the first and the top five
    guesses."""
    rng = generator(seed, Purpose.MASK)
    candidates = [
        line for book in books for line in sentences(book["text"], "en") if len(line.split()) in SENTENCE_WORDS
    ]
    num_first = num_top5 = num_masks = 0
    hits: dict[str, str] = {}  # by the masked word, so that the examples differ
    misses: dict[str, str] = {}
    for index in rng.permutation(len(candidates))[:NUM_SENTENCES].tolist():
        words = candidates[index].split()
        positions = [
            position
            for position, word in enumerate(words[1:-1], 1)
            if word.isalpha() and word.islower() and len(word) > 2
        ]
        if not positions:
            continue
        position = positions[int(rng.integers(len(positions)))]
        word = words[position]
        text = " ".join([*words[:position], "[MASK]", *words[position + 1 :]])
        guesses = [fill.token for fill in predictor.fill(text)[0]]
        hit = word in guesses
        num_first += guesses[0] == word
        num_top5 += hit
        num_masks += 1
        example = f"   {'hit ' if hit else 'miss'}  {text}\n         {word!r}; guesses: {', '.join(guesses)}"
        (hits if hit else misses)[word] = example
    write("\n".join([*list(hits.values())[:NUM_SHOWN], *list(misses.values())[: NUM_SHOWN - 1]]))
    first, top5 = num_first / num_masks, num_top5 / num_masks
    write(f"   {num_masks} masked words: {first:.0%} are the first guess, {top5:.0%} are among the first five\n")
    return {"masks": num_masks, "top1": first, "top5": top5}


def classify_paragraphs(predictor: Predictor, test: Path, seed: int) -> None:
    """Print the predicted and the true authors of some held-out paragraphs."""
    rows = read_rows(test)
    order = generator(seed, Purpose.ORDER).permutation(len(rows))[:NUM_CLASSIFIED].tolist()
    paragraphs = [rows[index] for index in order]
    for row, prediction in zip(paragraphs, predictor.classify([row["text"] for row in paragraphs]), strict=True):
        beginning = " ".join(row["text"].split())[:88]
        write(f"   {beginning}...\n         predicted {prediction.label} ({prediction.score:.0%}), gold {row['label']}")
    longest = max(rows, key=lambda row: len(row["text"]))
    prediction = predictor.classify([longest["text"]])[0]
    windows = len(predictor.split([predictor.tokenizer.encode(longest["text"])])[0])
    write(
        f"   the longest paragraph, read in {windows} windows:\n         predicted {prediction.label} "
        f"({prediction.score:.0%}), gold {longest['label']}"
    )
