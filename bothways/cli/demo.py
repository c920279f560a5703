"""The demo in three acts: the packaged model is used, learns from labels, and a small BERT learns from scratch."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer

from bothways.base.device import choose_device
from bothways.base.errors import RowLocation
from bothways.base.log import muted
from bothways.base.results import Facts
from bothways.base.rng import Purpose, generator
from bothways.base.terminal import command_name, print_lines
from bothways.evaluation import check
from bothways.inference.load import load
from bothways.inference.predictor import Predictor
from bothways.measure.report import Section, demo_sections, page
from bothways.measure.report.score_tables import ScoreSummary
from bothways.measure.report.training_curves import TrainingCurves
from bothways.pretrained import DEFAULT
from bothways.settings.finetune import Classify
from bothways.settings.predict import Check
from bothways.settings.pretrain import Pretrain
from bothways.settings.tables_in_memory import as_source
from bothways.settings.tools import Demo
from bothways.text.corpus.documents import sample
from bothways.text.tokenizer.tokenizer import Tokenizer
from bothways.training.finetuning import finetune
from bothways.training.pretraining import pretrain
from bothways.training.run import Run
from bothways.training.run_lock import read_metrics

NUM_GAPS = 150  # in unread messages
NUM_SHOWN = 3  # of these gaps
NUM_HITS = 3  # passages of a question
NUM_PLANTED = 24  # labels that are changed
NUM_READ = 40  # rows that are looked through to find the changed labels
TRIVIAL = ("most frequent answer",)  # not among the figures at the top of the page
AUTHORS = "docs/guide/classify.md#where-words-win"
TEXT = "The postman says nobody was home."
Rows = list[dict[str, Any]]


@dataclass
class Results:
    """Results of the steps: for the page, and as figures for bothways.json. failures: a line on each that is weak."""

    sections: list[Section] = field(default_factory=list)
    scores: list[ScoreSummary] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)


def run(settings: Demo) -> Facts:
    """Run all steps in one run directory; prints and returns the figures, and writes demo.html."""
    start = time.perf_counter()
    run = Run(settings.out, "demo", settings, device=choose_device(settings.device))
    model = load(dtype=settings.dtype, device=settings.device)
    messages = read_sample("support.jsonl")
    results = Results()

    write(f"Act one: use the English model that comes with Bothways ({DEFAULT}, 17 MB), as it is\n")
    for step in (compare_senses, fill_gaps, follow, search):
        step(model, messages, settings, results)

    write("Act two: learn from labels, on this machine\n")
    learn_messages(messages, settings, results)
    find_errors(messages, settings, results)

    write("Act three: a BERT from scratch\n")
    pretrain_small(settings, results)

    seconds = time.perf_counter() - start
    figures = Facts(results.figures, seconds=seconds)
    write("Where it fails\n   " + "\n   ".join(results.failures))
    commands, python = go_on(settings)
    write_page(settings, results, seconds, [*commands, "", *python])

    parts = {"all": "classifier run", "pretrain": "pre-training run"}
    run.update_metadata(status="done", figures=figures, parts=parts)
    run.close()
    page_file = settings.out / "demo.html"
    write(f"\nDone in {seconds:.0f} s. The results as a page: {page_file}. Go on with:")
    write("\n".join(f"   {line}".rstrip() for line in [*commands, "", "or in Python:", "", *python]))
    return figures


def go_on(settings: Demo) -> tuple[list[str], list[str]]:
    """Commands that use the trained classifier, the last a server with a page; and the same in Python."""
    classifier = quote(str(settings.out / "all"))
    name = command_name()
    commands = [
        f'{name} predict {classifier} --text "{TEXT}"',
        f"{name} check YOUR-TABLE.csv",
        f"{name} serve {classifier}",
    ]
    directory = str(settings.out / "all")
    python = [
        "import bothways",
        f"model = bothways.open_run({directory!r}).model",
        f"print(model.classify({TEXT!r}).label)",
    ]
    return commands, python


def write(text: str) -> None:
    print_lines(*text.split("\n"))


def read_sample(name: str) -> Rows:
    text = files("bothways").joinpath("sample", name).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def read_texts() -> dict[str, Any]:
    """Texts with gaps, a word in several senses (sentences by word and sense), and sentences that follow each other."""
    texts: dict[str, Any] = json.loads(files("bothways").joinpath("sample", "demo.json").read_text(encoding="utf-8"))
    return texts


# --- act one ----------------------------------------------------------------------------------------------------------


def compare_senses(model: Predictor, messages: Rows, settings: Demo, results: Results) -> None:
    """Vectors of one word in sentences with different senses."""
    write("1. One word, several senses: how alike its vectors are in different sentences (cosine; 1: the same)")
    words = []
    for word, sentences_by_sense in read_texts()["senses"].items():
        senses = [sense for sense, sentences in sentences_by_sense.items() for _ in sentences]
        sentences = [sentence for own in sentences_by_sense.values() for sentence in own]
        vectors = np.stack([word_vector(model, sentence, word) for sentence in sentences])
        words.append(demo_sections.WordSenses(word=word, sentences=sentences, senses=senses, vectors_NH=vectors))
        same, different = words[-1].mean_cosines
        names = " and ".join(sentences_by_sense)
        write(f"   {word!r} ({names}): {same:.2f} within a sense, {different:.2f} across")
        results.figures[f"senses of {word}"] = {"same": same, "different": different}
    write("")
    results.sections.append(demo_sections.SenseMap(words))


def word_vector(model: Predictor, sentence: str, word: str) -> np.ndarray:
    """The last hidden state of the word in a sentence, of length 1, [H]."""
    tokenizer = model.tokenizer
    assert tokenizer is not None
    vector: np.ndarray = model.hidden_states(sentence)[tokenizer.encode(sentence).tokens.index(word)]
    return vector / np.linalg.norm(vector)


def fill_gaps(model: Predictor, messages: Rows, settings: Demo, results: Results) -> None:
    """Fill some sentences, and a word of each of some messages, which the model has not read."""
    write("2. Fill gaps")
    rng = generator(settings.seed, Purpose.MASK)
    gaps = [(text, "") for text in read_texts()["gaps"]]
    num_fixed = len(gaps)
    for index in rng.permutation(len(messages)).tolist():
        words = messages[index]["text"].split()
        places = [place for place, word in enumerate(words[1:-1], 1) if word.isalpha() and word.islower()]
        if places and len(gaps) < num_fixed + NUM_GAPS:
            place = places[int(rng.integers(len(places)))]
            gaps.append((" ".join([*words[:place], "[MASK]", *words[place + 1 :]]), words[place]))

    tops = [[guess.token for guess in fills[0]] for fills in model.fill([text for text, _ in gaps], top=5)]

    rows = []
    for (text, word), guesses in [*zip(gaps, tops, strict=True)][: num_fixed + NUM_SHOWN]:
        note = f"written: {word}" if word else ""
        write(f"   {text}\n         {', '.join(guesses)}{f' ({note})' if note else ''}")
        rows.append((text, ", ".join(guesses), note))

    unread = [*zip(gaps, tops, strict=True)][num_fixed:]
    first = float(np.mean([word in guesses[:1] for (_, word), guesses in unread]))
    five = float(np.mean([word in guesses[:5] for (_, word), guesses in unread]))
    write("")

    results.sections.append(demo_sections.Gaps(rows))
    results.failures.append(
        f"Gaps: of {len(unread)} words of messages that it has not read, {first:.0%} are its first guess, {five:.0%} "
        "among the first five. It is small, and has no knowledge of the world."
    )
    results.figures["gaps"] = {"number": len(unread), "first": first, "five": five}


def follow(model: Predictor, messages: Rows, settings: Demo, results: Results) -> None:
    """The probability that each of two sentences follows a first one."""
    write("3. Which sentence follows? (probability that it does)")
    firsts, rights, wrongs = zip(*read_texts()["next"], strict=True)
    of_right = model.is_next([*firsts], [*rights]).tolist()
    of_wrong = model.is_next([*firsts], [*wrongs]).tolist()
    rows = [*zip(firsts, rights, of_right, wrongs, of_wrong, strict=True)]
    for first, right, p, wrong, q in rows:
        write(f"   {first}\n      {p:4.0%}  {right}\n      {q:4.0%}  {wrong}")

    write("")
    results.sections.append(demo_sections.NextSentences(rows))
    right = sum(p > q for p, q in zip(of_right, of_wrong, strict=True))
    results.figures["next"] = {"right": right, "pairs": len(rows)}


def search(model: Predictor, messages: Rows, settings: Demo, results: Results) -> None:
    """Questions whose passages share no word with them, by vectors and by TF-IDF."""
    write("4. Search by meaning: no question shares a word with the passage that answers it (marked *)")
    rows = read_sample("passages.jsonl")
    passages = [row for row in rows if "text" in row]
    questions = [row for row in rows if "question" in row]
    texts = [row["text"] for row in passages]
    asked = [row["question"] for row in questions]

    cosines_QP = model.embed(asked) @ model.embed(texts).T
    words = TfidfVectorizer().fit(texts)
    words_QP = (words.transform(asked) @ words.transform(texts).T).toarray()

    hits: Rows = []
    for question, *rows_P in zip(questions, cosines_QP, words_QP, strict=True):
        best = ([passages[place] for place in np.argsort(-row, kind="stable")[:NUM_HITS].tolist()] for row in rows_P)
        found, by_words = ([(one["text"], one["id"] == question["id"]) for one in passages] for passages in best)
        hits.append({"question": question["question"], "found": found, "by_words": by_words})
        write(f"   {question['question']}")
        write("\n".join(f"      {'*' if right else ' '} {text}" for text, right in found))

    first, three = (
        [sum(any(right for _, right in hit[by][:top]) for hit in hits) for by in demo_sections.WAYS]
        for top in (1, NUM_HITS)
    )
    of = f"of {len(hits)}"
    write(f"   right passage among the first {NUM_HITS}: {three[0]} {of} by meaning, {three[1]} by words (TF-IDF)\n")

    results.sections.append(demo_sections.SearchHits(hits))
    results.failures.append(
        f"Search: the very first passage is right for {first[0]} {of} questions ({first[1]} by words)."
    )
    results.figures["search"] = {
        "first": first[0], "among three": three[0], "by words": three[1], "questions": len(hits)
    }  # fmt: skip


# --- act two ----------------------------------------------------------------------------------------------------------


def learn_messages(messages: Rows, settings: Demo, results: Results) -> None:
    """A classifier of support messages, beside simple models that learn from the same rows."""
    train = [row for row in messages if row["split"] == "train"]
    test = [row for row in messages if row["split"] == "test"]
    kinds = len({row["label"] for row in train})
    write(f"5. Sort messages into {kinds} kinds, from {len(train)} examples (some seconds)")
    with muted():
        result = finetune.run(
            Classify(
                train=as_source("train", labelled(train)),
                test=as_source("test", labelled(test)),
                out=settings.out / "all",
                seed=settings.seed,
                dtype=settings.dtype,
                device=settings.device,
            )
        )

    rows = [("this model", result.mean, result.interval), *((*one, None) for one in result.baselines.items())]
    width = max(len(name) for name, *_ in rows)
    for name, score, interval in rows:
        bounds = f" (95 % interval {interval[0]:.1%} to {interval[1]:.1%})" if interval else ""
        write(f"   {name:{width}} {score:6.1%}{bounds}")
        results.scores.append(
            ScoreSummary(
                metric="Right",
                split=name,
                mean=score,
                std=0.0,
                n=1,
                interval=interval,
                over="folds",
            )
        )

    report = settings.out / "all" / "report.html"
    write(f"   of {len(test)} messages that none of them has read; mistakes and more: {report}\n")
    results.sections.append(demo_sections.DemoComparison(rows))
    results.failures.append(
        "Words: where labels depend on a few words and names, TF-IDF is better. With the authors of novels it is "
        f"({AUTHORS}); `finetune` then names it, and saves it for you."
    )
    results.figures["all"] = {"accuracy": result.mean, "interval": result.interval, "baselines": result.baselines}


def labelled(rows: Rows) -> Rows:
    return [{"text": row["text"], "label": row["label"]} for row in rows]


def find_errors(messages: Rows, settings: Demo, results: Results) -> None:
    """Labels that were changed on purpose, among those that the check of a table suspects."""
    rng = generator(settings.seed, Purpose.FOLDS)
    rows = labelled(messages)
    names = sorted({row["label"] for row in rows})
    planted = min(NUM_PLANTED, len(rows) // 10)

    changed = rng.permutation(len(rows))[:planted].tolist()
    for row in changed:
        others = [name for name in names if name != rows[row]["label"]]
        rows[row]["label"] = others[int(rng.integers(len(others)))]
    write(f"6. Find wrong labels, without training: {planted} of {len(rows)} were changed on purpose (marked *)")
    source = as_source("messages", rows)
    wrong = {RowLocation("messages", row) for row in changed}
    with muted():
        remarks = check.run(Check(file=source, dtype=settings.dtype, device=settings.device)).remarks
    suspects = [remark for remark in remarks if remark.kind == "label"][:NUM_READ]
    shown = [(remark.text, remark.label, remark.suggested, remark.where in wrong) for remark in suspects[:5]]
    for text, label, suggested, is_changed in shown:
        write(f"   {'*' if is_changed else ' '} {text}\n        labelled {label}, suggested {suggested}")
    found = sum(remark.where in wrong for remark in suspects)
    summary = f"{found} of the {planted} are among the first {len(suspects)} rows that `bothways check` suspects"
    write(f"   {summary}\n")
    results.sections.append(demo_sections.PlantedErrors(shown, f"{summary}. The first five:"))
    results.figures["label errors"] = {"planted": planted, "found": found, "read": len(suspects)}


# --- act three --------------------------------------------------------------------------------------------------------


def pretrain_small(settings: Demo, results: Results) -> None:
    """A two-layer BERT from scratch: its vocabulary, then masked words for some minutes."""
    write(f"7. Read the included novels for {60 * settings.minutes:.0f} seconds (--minutes {settings.minutes:g})")

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
    with muted():
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
                evaluate_every=100,
                seed=settings.seed,
                dtype=settings.dtype,
                device=settings.device,
            )
        )

    figures = result.figures
    gap = read_texts()["gaps"][-1]
    scratch = [guess.token for guess in result.model.fill(gap)[0]]
    perplexity = figures["perplexity"]
    unigram = figures["unigram_perplexity"]
    scores = f"{perplexity:.0f}; by word frequencies alone: {unigram:.0f}"
    write(f"   gaps in other novels, number of words that it wavers between (perplexity): {scores}")
    write(f"   {gap}\n         {', '.join(scratch)}\n")

    rows = read_metrics(result.directory)
    results.sections.append(
        TrainingCurves(
            rows=rows,
            metric="perplexity",
            name="Perplexity",
            unit="number",
            heldout="other novels",
            heading="From scratch",
        )
    )
    results.failures.append(
        f"From scratch: after {60 * settings.minutes:.0f} seconds it has frequent words and some grammar, no more. A "
        "model worth using takes hours (docs/guide/pretraining.md)."
    )
    results.figures["pretrain"] = {key: figures[key] for key in ("perplexity", "unigram_perplexity")}


# --- the page ---------------------------------------------------------------------------------------------------------


def write_page(settings: Demo, results: Results, seconds: float, commands: Sequence[str]) -> None:
    facts = (
        ("model", f"{DEFAULT}, packaged with Bothways; docs/model.md describes it"),
        ("messages", "written for this package; paraphrases of a test message are not in the training rows"),
        ("novels", "18 books by 6 authors; those that measure are not among those that were read"),
        ("seconds", f"{seconds:.0f} for all steps"),
    )
    content = page.Page(
        title="What a small BERT can do",
        subtitle="The demo of Bothways: one model of 17 MB, no download.",
        scores=[score for score in results.scores if score.split not in TRIVIAL],
        sections=[
            *results.sections,
            demo_sections.Remarks("Where it fails", results.failures),
            demo_sections.Remarks("Go on", commands, is_code=True),
        ],
        facts=facts,
        command=f"{command_name()} demo --out {quote(str(settings.out))}",
        origin="How this was made",
        has_score_table=False,
        files=[
            ("all/report.html", "the report of the classifier, with its mistakes"),
            ("all/label_errors.csv", "labels of the messages that are worth a second look, as a table"),
        ],
    )
    page.write(content, Path(settings.out / "demo.html"))
