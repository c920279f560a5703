"""The demo: the packaged English model fills, compares, searches and learns; then a small BERT from scratch."""

import json
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer

from bothways.device import choose_device
from bothways.inference.load import load
from bothways.inference.predictor import Predictor
from bothways.log import command_name, messages_to, muted, print_lines
from bothways.measure.report import Section, page
from bothways.measure.report.demo_sections import DemoComparison, Gaps, NextSentences, SearchHits, SenseMap, WordSenses
from bothways.measure.report.score_tables import ScoreSummary
from bothways.pretrained import DEFAULT
from bothways.rng import Purpose, generator
from bothways.settings.finetune import Classify
from bothways.settings.pretrain import Pretrain
from bothways.settings.tables_in_memory import as_source
from bothways.settings.tools import Demo
from bothways.text.corpus.documents import sample
from bothways.text.tokenizer.tokenizer import Tokenizer
from bothways.training.finetuning import finetune
from bothways.training.finetuning.compare import WORSE
from bothways.training.finetuning.deliver import FineTuneResult
from bothways.training.pretraining import pretrain
from bothways.training.run import Run

NUM_GAPS, NUM_SHOWN = 150, 4  # gaps in unread messages
SHOTS = 8  # examples a class in the first fine-tuning
PARAGRAPHS, TEST_PARAGRAPHS = 900, 450  # of novels
Rows = list[dict[str, Any]]


@dataclass
class Results:
    """Results of the steps: for the page, and as figures for bothways.json."""

    sections: list[Section] = field(default_factory=list)
    comparison: list[tuple[str, str, float, tuple[float, float] | None]] = field(default_factory=list)
    scores: list[ScoreSummary] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)


def run(settings: Demo) -> dict[str, Any]:
    """Run all steps in one run directory; prints and returns the figures, and writes demo.html."""
    start = time.perf_counter()
    run = Run(settings.out, "demo", settings, device=choose_device(settings.device))
    model = load(dtype=settings.dtype, device=settings.device)
    messages, results = read_sample("support.jsonl"), Results()
    write(f"The English model that comes with Bothways ({DEFAULT}), without any training:\n")
    for step in (fill_gaps, compare_senses, follow, search):
        step(model, messages, settings, results)
    write("Training, on this machine:\n")
    learn_messages(messages, settings, results)
    learn_authors(settings, results)
    pretrain_small(settings, results)
    seconds = time.perf_counter() - start
    figures = {**results.figures, "seconds": seconds}
    write_page(settings, results, seconds)
    parts = {"few": "classifier run, few examples", "all": "classifier run", "authors": "classifier run, novels"}
    run.update_metadata(status="done", figures=figures, parts={**parts, "pretrain": "pre-training run"})
    run.close()
    write(f"\nDone in {seconds:.0f} s. The results as a page: {settings.out / 'demo.html'}. Go on with:")
    classifier = quote(str(settings.out / "all"))
    write(f'   {command_name()} fill "She looked at the [MASK] and smiled."')
    write(f'   {command_name()} predict {classifier} --text "The postman says nobody was home."')
    write(f"   {command_name()} info {classifier}")
    return figures


def write(text: str) -> None:
    print_lines(*text.split("\n"))


def write_indented(text: str) -> None:
    write("   " + text.replace("\n", "\n   "))


def read_sample(name: str) -> Rows:
    text = files("bothways").joinpath("sample", name).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def read_texts() -> dict[str, Any]:
    """Texts with gaps, a word in several senses (sentences by word and sense), and sentences that follow each other."""
    texts: dict[str, Any] = json.loads(files("bothways").joinpath("sample", "demo.json").read_text(encoding="utf-8"))
    return texts


# --- without training -------------------------------------------------------------------------------------------------


def fill_gaps(model: Predictor, messages: Rows, settings: Demo, results: Results) -> None:
    """Fill given sentences, and a word of each of some messages, which the model has not read."""
    write("1. Fill masked words")
    rows = []
    for text in read_texts()["gaps"]:
        guesses = [guess.token for guess in model.fill(text, top=5)[0]]
        write(f"   {text}\n         {', '.join(guesses)}")
        rows.append((text, ", ".join(guesses), ""))
    rng, gaps = generator(settings.seed, Purpose.MASK), list[tuple[str, str]]()
    for index in rng.permutation(len(messages)).tolist():
        words = messages[index]["text"].split()
        places = [place for place, word in enumerate(words[1:-1], 1) if word.isalpha() and word.islower()]
        if places and len(gaps) < NUM_GAPS:
            place = places[int(rng.integers(len(places)))]
            gaps.append((" ".join([*words[:place], "[MASK]", *words[place + 1 :]]), words[place]))
    tops = [[guess.token for guess in fills[0]] for fills in model.fill([text for text, _ in gaps], top=5)]
    first, five = (
        float(np.mean([word in guesses[:top] for (_, word), guesses in zip(gaps, tops, strict=True)])) for top in (1, 5)
    )
    for (text, word), guesses in [*zip(gaps, tops, strict=True)][:NUM_SHOWN]:
        note = f"written: {word}"
        write(f"   {text}\n         {', '.join(guesses)} ({note})")
        rows.append((text, ", ".join(guesses), note))
    summary = f"{len(gaps)} words of unread messages: {first:.0%} are the first guess, {five:.0%} among the first five"
    write(f"   {summary}\n")
    results.sections.append(Gaps(rows, summary + "."))
    results.figures["gaps"] = {"number": len(gaps), "first": first, "five": five}


def compare_senses(model: Predictor, messages: Rows, settings: Demo, results: Results) -> None:
    """Vectors of one word in sentences with different senses."""
    write("2. One word, several senses: mean cosine of its vectors in different sentences")
    words = []
    for word, sentences_by_sense in read_texts()["senses"].items():
        senses = [sense for sense, sentences in sentences_by_sense.items() for _ in sentences]
        sentences = [sentence for own in sentences_by_sense.values() for sentence in own]
        vectors = np.stack([word_vector(model, sentence, word) for sentence in sentences])
        words.append(WordSenses(word, sentences, senses, vectors))
        same, different = words[-1].mean_cosines
        names = " and ".join(sentences_by_sense)
        write(f"   {word!r} ({names}): {same:.2f} within a sense, {different:.2f} across")
        results.figures[f"senses of {word}"] = {"same": same, "different": different}
    write("")
    results.sections.append(SenseMap(words))


def word_vector(model: Predictor, sentence: str, word: str) -> np.ndarray:
    """The last hidden state of the word in a sentence, of length 1, [H]."""
    tokenizer = model.tokenizer
    assert tokenizer is not None
    vector: np.ndarray = model.hidden_states(sentence)[tokenizer.encode(sentence).tokens.index(word)]
    return vector / np.linalg.norm(vector)


def follow(model: Predictor, messages: Rows, settings: Demo, results: Results) -> None:
    """The probability that each of two sentences follows a first one."""
    write("3. Which sentence follows? (probability that it does)")
    firsts, rights, wrongs = zip(*read_texts()["next"], strict=True)
    of_right, of_wrong = (model.is_next([*firsts], [*seconds]).tolist() for seconds in (rights, wrongs))
    rows = [*zip(firsts, rights, of_right, wrongs, of_wrong, strict=True)]
    for first, right, p, wrong, q in rows:
        write(f"   {first}\n      {p:4.0%}  {right}\n      {q:4.0%}  {wrong}")
    write("")
    results.sections.append(NextSentences(rows))
    results.figures["next"] = {"right": sum(p > q for p, q in zip(of_right, of_wrong, strict=True)), "pairs": len(rows)}


def search(model: Predictor, messages: Rows, settings: Demo, results: Results) -> None:
    """Questions whose passages share no word with them, by vectors and by TF-IDF."""
    write("4. Search by meaning: no question shares a word with the passage that answers it")
    rows = read_sample("passages.jsonl")
    passages, questions = ([row for row in rows if key in row] for key in ("text", "question"))
    texts, asked = [row["text"] for row in passages], [row["question"] for row in questions]
    cosines_QP = model.embed(asked) @ model.embed(texts).T
    words = TfidfVectorizer().fit(texts)
    words_QP = (words.transform(asked) @ words.transform(texts).T).toarray()
    hits: Rows = []
    for question, row, word_row in zip(questions, cosines_QP, words_QP, strict=True):
        best, by_words = passages[int(row.argmax())], passages[int(word_row.argmax())]
        hits.append(
            {
                "question": question["question"],
                "by_vectors": best["text"],
                "by_words": by_words["text"],
                "right": best["id"] == question["id"],
                "words_right": by_words["id"] == question["id"],
            }
        )
        write(f"   {question['question']}\n      {'right' if hits[-1]['right'] else 'WRONG'}: {best['text']}")
    right, by_words_right = (sum(hit[key] for hit in hits) for key in ("right", "words_right"))
    write(f"   first passage right: {right} of {len(hits)} by vectors, {by_words_right} by words (TF-IDF)\n")
    results.sections.append(SearchHits(hits))
    results.figures["search"] = {"right": right, "by words": by_words_right, "questions": len(hits)}


# --- training ---------------------------------------------------------------------------------------------------------


def learn_messages(messages: Rows, settings: Demo, results: Results) -> None:
    """A classifier of support messages, from SHOTS examples a class and from all."""
    train, test = ([row for row in messages if row["split"] == split] for split in ("train", "test"))
    few = take(train, SHOTS, settings.seed)
    kinds = len({row["label"] for row in train})
    for number, name, rows in ((5, "few", few), (6, "all", train)):
        size = f"{SHOTS} examples a class" if name == "few" else f"{len(rows)} examples"
        write(f"{number}. Learn to sort support messages into {kinds} kinds, from {size}")
        train_and_report(rows, test, f"messages, {size}", name, None, settings, results)
        write("")


def learn_authors(settings: Demo, results: Results) -> None:
    """Authors of paragraphs: a case where words win."""
    write("7. Where words win: who wrote this paragraph? Authors have favourite words, and books have names")
    rows: dict[str, Rows] = {"train": [], "test": []}
    for book in sample():
        paragraphs = [part for part in book["text"].split("\n\n") if part]
        rows[book["split"]] += [{"text": text, "label": book["author"]} for text in paragraphs]
    authors = len({row["label"] for row in rows["train"]})
    train, test = (
        take(rows[split], number // authors, settings.seed)
        for split, number in (("train", PARAGRAPHS), ("test", TEST_PARAGRAPHS))
    )
    result = train_and_report(train, test, f"novels, {authors} authors", "authors", 1.0, settings, results)
    if result.verdict.startswith(WORSE):
        write("   So for this task the simple model is the better choice, and the run says so.")
    write("")


def take(rows: Rows, number: int, seed: int) -> Rows:
    """At most `number` rows of each label, in a random order that depends only on the seed."""
    by_label = defaultdict[str, Rows](list)
    for index in generator(seed, Purpose.ORDER).permutation(len(rows)).tolist():
        if len(by_label[rows[index]["label"]]) < number:
            by_label[rows[index]["label"]].append(rows[index])
    return [row for label in sorted(by_label) for row in by_label[label]]


def train_and_report(
    train: Rows, test: Rows, task: str, name: str, epochs: float | None, settings: Demo, results: Results
) -> FineTuneResult:
    """Fine-tune the packaged model, and print its score beside simple models on the same rows."""
    columns = ("text", "label")
    with messages_to(write_indented):
        result = finetune.run(
            Classify(
                train=as_source("train", [{key: row[key] for key in columns} for row in train]),
                test=as_source("test", [{key: row[key] for key in columns} for row in test]),
                out=settings.out / name,
                epochs=epochs,
                seed=settings.seed,
                dtype=settings.dtype,
                device=settings.device,
            )
        )
    low, high = result.interval or (0.0, 1.0)
    width = max(map(len, ("this model", *result.baselines)))
    write(f"   {'this model':{width}} {result.mean:6.1%} (95 % interval {low:.1%} to {high:.1%}), {len(test)} texts")
    results.comparison.append((task, "this model", result.mean, (low, high)))
    for baseline, score in result.baselines.items():
        write(f"   {baseline:{width}} {score:6.1%}")
        results.comparison.append((task, baseline, score, None))
    write(f"   {result.verdict}")
    results.scores.append(
        ScoreSummary("Accuracy", task, result.mean, 0.0, 1, interval=result.interval, rows=result.rows)
    )
    results.figures[name] = {"accuracy": result.mean, "interval": result.interval, "baselines": result.baselines}
    return result


def pretrain_small(settings: Demo, results: Results) -> None:
    """A two-layer BERT from scratch: its vocabulary, then masked words for some minutes."""
    write(f"8. Pre-train a small BERT from scratch on the included novels (--minutes {settings.minutes:g})")
    novels = {split: [book["text"] for book in sample() if book["split"] == split] for split in ("train", "test")}
    texts = {split: settings.out / "text" / f"{split}_books.jsonl" for split in novels}
    texts["train"].parent.mkdir(parents=True, exist_ok=True)
    for split, file in texts.items():
        file.write_text("".join(json.dumps({"text": text}) + "\n" for text in novels[split]), encoding="utf-8")
    with muted():
        tokenizer = Tokenizer.learn(novels["train"], size=5000)
    tokenizer.save(settings.out / "tokenizer")
    write(f"   learned a vocabulary of {len(tokenizer):,} entries")
    # Small steps and short texts give more steps in a minute, and learn faster (docs/LOG.md).
    with messages_to(write_indented):
        result = pretrain.run(
            Pretrain(
                corpus=(texts["train"],),
                heldout=(texts["test"],),
                out=settings.out / "pretrain",
                model="tiny",
                token_store=settings.out / "pretrain" / "store",
                tokenizer=settings.out / "tokenizer",
                minutes=settings.minutes,
                batch_tokens=1024,
                max_length=64,
                evaluate_every=250,
                seed=settings.seed,
                dtype=settings.dtype,
                device=settings.device,
            )
        )
    figures, gap = result.figures, read_texts()["gaps"][0]
    scratch = [
        guess.token for guess in load(result.model_directory, dtype=settings.dtype, device=settings.device).fill(gap)[0]
    ]
    write(
        f"   masked words of the held-out novels: perplexity {figures['perplexity']:.0f} (word frequencies alone: "
        f"{figures['unigram_perplexity']:.0f})\n   {gap}\n         {', '.join(scratch)}\n   It has learned frequent "
        "words and some grammar, no more: a model worth using takes hours (docs/guide/pretraining.md)."
    )
    results.figures["pretrain"] = {key: figures[key] for key in ("perplexity", "unigram_perplexity")}


# --- the page ---------------------------------------------------------------------------------------------------------


def write_page(settings: Demo, results: Results, seconds: float) -> None:
    pretrained = results.figures["pretrain"]
    facts = (
        ("model", f"{DEFAULT}, packaged with Bothways; docs/model.md describes it"),
        ("messages", "written for this package; paraphrases of a test message are not in the training rows"),
        (
            "novels",
            "18 books by 6 authors; the books of the test rows are not in the training rows, though the packaged model "
            "has read most of them",
        ),
        (
            "from scratch",
            f"perplexity {pretrained['perplexity']:.0f} after {settings.minutes:g} minutes; word "
            f"frequencies alone have {pretrained['unigram_perplexity']:.0f}",
        ),
        ("seconds", f"{seconds:.0f} for all steps"),
    )
    sections: Sequence[Section] = [
        results.sections[1],
        DemoComparison(results.comparison),
        *results.sections[2:],
        results.sections[0],
    ]
    content = page.Page(
        "What a small BERT can do",
        "The demo of Bothways: one model of 17 MB, no download.",
        results.scores,
        sections,
        facts=facts,
        command=f"{command_name()} demo --out {quote(str(settings.out))}",
        origin="How this was made",
    )
    page.write(content, Path(settings.out / "demo.html"))
