"""The report page: it says what it was given, shows users' text as text, needs nothing else, and fits a phone."""

import json
import re
import shutil
import subprocess
import tracemalloc
from dataclasses import replace
from html import escape
from html.parser import HTMLParser
from itertools import pairwise

import pytest

from bothways import report as p
from bothways.report import chart, highlight
from bothways.report.curves import histogram, thinned
from bothways.report.entities import regions
from bothways.report.markup import element, written
from bothways.report.style import STYLE

VOID = {"meta"}
HOSTILE = "<script>alert(1)</script> & \"quoted\" 'too' <img src=x onerror=alert(2)>"
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def confusion(labels, matrix):
    """matrix[gold][predicted]."""
    return p.ConfusionMatrix(labels, {(g, q): count for g, row in enumerate(matrix) for q, count in enumerate(row)})


class Tree(HTMLParser):
    """What an independent reader makes of the page; `problems` are elements closed wrongly or not at all."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open, self.tags, self.problems, self.said = [], [], [], []
        self.feed(html)
        self.close()
        self.problems += self.open

    def handle_starttag(self, tag, attributes):
        if len(dict(attributes)) < len(attributes):
            self.problems.append(f"{tag} has an attribute twice")
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(self.tags[-1])

    def handle_endtag(self, tag):
        if not self.open or self.open.pop()[0] != tag:
            self.problems.append(f"</{tag}>")

    def handle_data(self, data):
        tag, attributes = self.open[-1] if self.open else ("", {})
        if tag != "style":
            self.said.append((tag, attributes, data))

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]

    @property
    def texts(self):
        return [text for _, _, text in self.said]

    @property
    def text(self):
        return " ".join("".join(self.texts).split())


def rows(seeds=3):
    train = [
        {"step": step, "split": "train", "seed": seed, "loss": 1 / step + seed / 10}
        for seed in range(seeds)
        for step in range(1, 98)
    ]
    heldout = [
        {"step": step, "split": "heldout", "seed": seed, "loss": 0.5, "accuracy": 0.6 + step / 1000 + seed / 100}
        for seed in range(seeds)
        for step in (19, 38, 57, 97)
    ]
    return train + heldout


NORMANS = "The Normans gave their name to Normandy, a region in France."
EVERY_PART = [
    p.SeedTable(
        "Accuracy",
        [p.SeedScores(3, {"test": 0.9165, "dev": 0.9243}, kept=True), p.SeedScores(4, {"test": 0.5}, failed=True)],
    ),
    p.TrainingCurves(rows(), "accuracy", "Accuracy"),
    confusion(["no", "yes", "a-label-that-is-quite-long-and-has-no-space"], [[83, 5, 0], [7, 41, 2], [0, 0, 0]]),
    p.LabelScores([p.LabelScore("no", 0.911, 0.943, 0.9267, 88), p.LabelScore(HOSTILE, 0.0, 0.0, 0.0, 0)]),
    p.ReliabilityDiagram([p.Bin(0.55, 0.5, 13), p.Bin(0.95, 0.89, 117), p.Bin(0.0, 0.0, 0)], 0.0567),
    p.LabelMistakes(
        [p.LabelMistake(HOSTILE, "no", "yes", 0.71), p.LabelMistake("surest", "yes", "no", 0.993, "its pair")], 137
    ),
    p.ScatterPlot([0.5, 2.5, 4.75], [1.0, 2.25, 4.0]),
    p.NumberMistakes([p.NumberMistake("near", 1.0, 1.25), p.NumberMistake("far", 4.5, 1.125, "its pair")]),
    p.TagMistakes([p.TagMistake("Ada of Turin", [p.Span(0, 3, "PER")], [p.Span(7, 12, "LOC")])], 11),
    p.AnswerMistakes([p.AnswerMistake("Who?", NORMANS, [p.Span(4, 11)], p.Span(0, 11), 2 / 3)], 9),
    p.FoldTable("Accuracy", [p.SeedScores(1, {"folds": 0.875}), p.SeedScores(2, {"folds": 0.75}, failed=True)]),
    p.LabelIssues([p.LabelIssue("d/t.csv:7", "a text", "no", "yes", 0.031, 0.953, "its pair")], 41, "3 are left out"),
    p.TokenLengths("training", [5, 9, 12, 64, 130], 64),
    p.LearningRates([("embeddings", 2.5e-6, 11915136), ("head", 5e-5, 770), ("frozen part", 0.0, 3)]),
]
PAGE = p.Page(
    "Positive or not?",
    "A classifier",
    [
        p.ScoreSummary("Accuracy", "test", 0.91234567, 0.0041, 3, interval=(0.88, 0.94), rows=431),
        p.ScoreSummary("Accuracy", "dev", 0.9205, 0.0032, 3, selected=True),
        p.ScoreSummary("Loss", "test", 0.28731, 0.0, 1, unit="number"),
        p.ScoreSummary("Precision", "folds", 0.328, 0.291, 3, False, "share", (0.36, 0.576), 456, "folds", 0.4686),
    ],
    EVERY_PART,
    ["12 texts are in train and test."],
    [("Model", "mini"), ("Data", HOSTILE)],
    'bothways finetune classify --train "a & b.csv"',
)


@pytest.fixture(scope="module")
def tree():
    return Tree(p.render(PAGE))


def test_the_page_is_well_formed_and_needs_nothing_else(tree):
    assert tree.problems == []
    identities = [attributes["id"] for _, attributes in tree.tags if "id" in attributes]
    assert len(identities) == len(set(identities)) == len(EVERY_PART) + 2
    assert {attributes["href"][1:] for attributes in tree.all("a")} == set(identities)
    for tag, attributes in tree.tags:
        assert tag not in {"script", "link", "img", "iframe", "object", "base", "form"}
        assert not {"src", "srcset", "xlink:href"} & set(attributes)
        assert not any(name.startswith("on") for name in attributes), tag
        assert tag == "a" or "href" not in attributes
    assert "url(" not in STYLE and "@import" not in STYLE
    policy = next(meta["content"] for meta in tree.all("meta") if "http-equiv" in meta)
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"


def test_headings_go_down_one_by_one_and_tables_and_pictures_say_what_they_are(tree):
    levels = [int(tag[1]) for tag, _ in tree.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(later - earlier <= 1 for earlier, later in pairwise(levels))
    assert len(tree.all("table")) == 8
    assert all(attributes.get("scope") in {"row", "col"} for attributes in tree.all("th"))
    names = [tag for tag, _ in tree.tags]
    pictures = [place for place, name in enumerate(names) if name == "svg"]
    assert len(pictures) == 3 + 1 + 1 + 1
    assert all(names[place + 1 : place + 3] == ["title", "desc"] for place in pictures)
    assert all(tree.tags[place][1]["role"] == "img" for place in pictures)


def test_numbers_shown_are_the_numbers_given(tree):
    exact = [float(attributes["value"]) for attributes in tree.all("data")]
    for given in (0.91234567, 0.9205, 0.28731, 0.9165, 0.9243, 0.5, 0.911, 0.943, 0.9267):
        assert given in exact
    for words in (
        "91.2% ± 0.4, 3 seeds 95 %: 88.0% to 94.0%, 431 rows",  # scores
        "92.0% ± 0.3, 3 seeds selected on this", "0.287 one seed",
        "32.8% ± 29.1, 3 folds all rows together 46.9%, 95 %: 36.0% to 57.6%, 456 rows",
        "1 of 2 failed", "3 kept 91.6% 92.4%", "4 failed 50.0% none",  # seeds
        "83 94.3%", "5 5.7%", "7 14.0%", "41 82.0%", "0 0.0%",  # confusion
        "yes no 7 14.0%",  # the commonest confusion, in words
        "91.1% 94.3% 92.7% 85% to 96% 88",  # labels
        "error 5.7%", "95.0% 89.0% 117",  # reliability
        "2 of 137 (1.5%)", "said no (99.3% sure), is yes",  # mistakes
        "said 1.125, is 4.500 (off by -3.375)",  # regression
        "1 of 2 failed (no better than one constant answer). Fold folds 1 87.5% 2 failed 75.0%",  # folds
        "1 of 41 rows (3 are left out) may be labelled wrongly", "t.csv:7 : labelled no (3.1%), likelier yes (95.3%)",
        "1 missed 1 invented 0 wrong type 0 wrong bounds",  # tags
        "said The Normans, is Normans (F1 66.7%)",  # answers
        "median 12 tokens, longest 130. 1 (20.0%) are longer than 64 tokens and are read in windows",
        "2.50e-06 11,915,136", "frozen 3",  # rates
        "selected on this Please note 12 texts are in train and test.",
    ):  # fmt: skip
        assert words in spaced(tree), words
    assert order_in(spaced(tree), "(99.3% sure)", "(71.0% sure)")  # confident and wrong comes first
    assert order_in(spaced(tree), "(off by -3.375)", "(off by +0.250)")


def spaced(tree):
    """The text with a space between any two elements."""
    return " ".join(" ".join(tree.texts).split()).replace("( ", "(").replace(" ,", ",")


def order_in(text, *words):
    places = [text.index(word) for word in words]
    return places == sorted(places)


def test_what_users_wrote_is_shown_and_never_run():
    hostile = p.Page(
        HOSTILE, HOSTILE, [p.ScoreSummary(HOSTILE, HOSTILE, 0.5, 0.1, 2)], warnings=[HOSTILE],
        facts=[(HOSTILE, HOSTILE)],
        command=HOSTILE,
        parts=[
            p.SeedTable(HOSTILE, [p.SeedScores(0, {HOSTILE: 0.5})]),
            p.TrainingCurves(rows(1), "accuracy", HOSTILE, heldout=HOSTILE),
            confusion([HOSTILE, "b", "c"], [[1, 2, 3], [4, 5, 6], [7, 8, 9]]),
            p.LabelScores([p.LabelScore(HOSTILE, 0.1, 0.2, 0.3, 4)]), p.TokenLengths(HOSTILE, [1], 64),
            p.LabelMistakes([p.LabelMistake(HOSTILE, HOSTILE, HOSTILE, 0.5, HOSTILE)], 1),
            p.NumberMistakes([p.NumberMistake(HOSTILE, 0, 1)]),
            p.TagMistakes([p.TagMistake(HOSTILE, [p.Span(3, 20, HOSTILE)], [p.Span(7, 31, HOSTILE)])], 1),
            p.AnswerMistakes([p.AnswerMistake(HOSTILE, HOSTILE, [p.Span(2, 9)], p.Span(4, 12), 0.1)], 1),
            p.LearningRates([(HOSTILE, 1e-5, 7)]), p.FoldTable(HOSTILE, [p.SeedScores(1, {HOSTILE: 0.5})]),
            p.LabelIssues([p.LabelIssue(HOSTILE, HOSTILE, HOSTILE, HOSTILE, None, 0.5, HOSTILE)], 1, HOSTILE, HOSTILE),
            p.LabelIssues([p.LabelIssue(HOSTILE, HOSTILE, HOSTILE, HOSTILE, span=p.Span(3, 20))], 1),
        ],
    )  # fmt: skip
    tree = Tree(p.render(hostile))
    assert tree.problems == [] and not tree.all("script") and not tree.all("img")
    assert tree.text.count(HOSTILE) > 20
    assert not any(name.startswith("on") for _, attributes in tree.tags for name in attributes)


def test_no_text_can_break_the_file(tmp_path):
    odd = "nul \x00 bell \x07 delete \x7f lone \ud83d half, c1 \x85, tab\t kept"
    p.write(replace(PAGE, title=odd), tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "nul ␀ bell ␇ delete ␡ lone \ufffd half, c1 \ufffd, tab\t kept" in text
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]", text)
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]


def test_what_is_made_of_html_by_string_operations_is_escaped_again():
    bold = element("b", "1 < 2")
    assert element("p.a.b", bold, "&") == '<p class="a b"><b>1 &lt; 2</b>&amp;</p>'
    assert element("p", bold + "") == f"<p>{escape(bold)}</p>"
    assert element("i", attributes={"title": '"<'}) == '<i title="&quot;&lt;"></i>'


def test_one_seed_is_called_one_seed_and_what_is_no_number_undefined():
    tree = Tree(p.render(p.Page("t", "s", [p.ScoreSummary("Accuracy", "dev", float("nan"), 0.0, 1)])))
    assert "undefined one seed" in spaced(tree)
    assert "±" not in spaced(tree) and "selected" not in spaced(tree)
    assert [written(value, "number") for value in (12345.6789, 0.0, 0.0000321)] == ["12,345.679", "0.000", "3.2e-05"]


def test_a_line_goes_through_its_points_by_the_ticks_it_is_read_against():
    x = chart.axis("step", [0, 97], (40, 300))
    y = chart.axis("loss", [0.213, 0.871], (200, 20))
    points = [(3.0, 0.871), (41.0, 0.5), (97.0, 0.213)]
    tree = Tree(chart.plot("t", "d", x, y, chart.lines([("one", points)], x, y, dots=False), size=(340, 240)))
    places = [tuple(map(float, place.split(","))) for place in tree.all("polyline")[0]["points"].split()]
    assert read_off(tree, places) == [pytest.approx(point, rel=0.01) for point in points]


def test_dots_lie_where_their_numbers_are():
    pairs = [(0.62, 0.55), (0.81, 0.93), (0.97, 0.88)]
    bins = [p.Bin(0.0, 0.0, 0), *(p.Bin(*pair, count) for pair, count in zip(pairs, (3, 5, 90), strict=True))]
    for part in (p.ReliabilityDiagram(bins, 0.1), p.ScatterPlot(*zip(*pairs, strict=True))):
        tree = Tree(part.body())
        places = [(float(dot["cx"]), float(dot["cy"])) for dot in tree.all("circle")]
        assert read_off(tree, places) == [pytest.approx(pair, abs=0.003) for pair in pairs]
    assert "0%" not in tree.texts  # a group of none is not drawn


def read_off(tree, places):
    """The values at places of a picture, by the words at its ticks: a reader with a ruler."""
    across, down = [], []
    for tag, attributes, word in tree.said:
        value = float(word.rstrip("%")) * (0.01 if "%" in word else 1) if re.fullmatch(r"[\d.]+%?", word) else None
        if tag == "text" and attributes["class"] == "middle":
            across.append((value, float(attributes["x"])))
        elif tag == "text" and attributes["class"] == "end":
            down.append((value, float(attributes["y"]) - 4))  # words stand 4 below what they name
    assert across[0][1] < across[-1][1] and down[0][1] > down[-1][1]
    return [(between(across, left), between(down, top)) for left, top in places]


def between(ticks, place):
    """The value at a place, from the first and last tick."""
    (low, start), (high, end) = ticks[0], ticks[-1]
    return low + (place - start) / (end - start) * (high - low)


@pytest.mark.parametrize(
    "values, ticks",
    [
        ((0.82, 0.917), ["82%", "84%", "86%", "88%", "90%", "92%"]),
        ((0.9051, 0.9064), ["90.50%", "90.55%", "90.60%", "90.65%"]),
        ((1.0, 1.0), ["90%", "92%", "94%", "96%", "98%", "100%"]),
        ((-0.04, 0.11), ["-5%", "0%", "5%", "10%", "15%"]),
    ],
)
def test_ticks_are_round_and_reach_over_the_values(values, ticks):
    axis = chart.axis("share", values, (0, 100), "share")
    assert [axis.written(tick) for tick in axis.ticks()] == ticks
    assert axis.low <= min(values) + 1e-12 and axis.high >= max(values) - 1e-12


def test_names_at_the_ends_of_lines_do_not_cover_each_other():
    moved = chart.apart([100.0, 101.0, 99.5, 20.0, 199.0, 199.5], 20, 200)
    ordered = sorted(moved)
    assert all(later - earlier >= chart.LINE_HEIGHT for earlier, later in pairwise(ordered))
    assert moved[3] == 20.0 and max(moved) <= 200
    assert moved[2] < moved[0] < moved[1] < moved[4] < moved[5]


def test_many_records_are_drawn_as_means_and_broken_ones_are_counted():
    points = [(float(step), step % 2.0) for step in range(1, 401)]
    assert thinned(points) == [(10 * k + 5.5, 0.5) for k in range(40)]
    assert thinned(points[:7]) == points[:7]
    uneven = [(float(step), float(step == 1407)) for step in range(1408)]  # no last point of the few that are left over
    assert len(thinned(uneven)) == 40 and thinned(uneven)[-1][1] <= 1 / 35
    row = {"split": "train", "loss": float("nan"), "seed": 5}
    page = p.Page(
        "t", "s", [], [p.TrainingCurves([*rows(1), {**row, "step": 7}, {**row, "step": 8}], "accuracy", "Accuracy")]
    )
    assert "Loss, training: 2 values that are no numbers are left out." in Tree(p.render(page)).text
    page = p.Page("t", "s", [], [p.TrainingCurves([{**row, "step": 7}], "accuracy", "Accuracy")])
    assert "Loss, training: 1 values that are no numbers are left out." in Tree(p.render(page)).text


def test_nothing_to_show_is_said_and_does_not_fail():
    nan = float("nan")
    empty = [
        p.SeedTable("Accuracy", []),
        p.TrainingCurves([], "accuracy", "Accuracy"), confusion(["a", "b"], [[0, 0], [0, 0]]),
        confusion(["a", "b", "c"], [[1, 0, 0], [0, 2, 0], [0, 0, 3]]), p.LabelScores([]), p.ReliabilityDiagram([], 0.0),
        p.LabelMistakes([], 5), p.ScatterPlot([1.0], [nan]), p.NumberMistakes([]), p.TagMistakes([], 5),
        p.AnswerMistakes([], 5),
        p.TokenLengths("test", [], 512), p.LearningRates([]),
    ]  # fmt: skip
    tree = Tree(p.render(p.Page("t", "s", [p.ScoreSummary("Loss", "dev", nan, nan, 3, unit="number")], empty)))
    assert tree.problems == []
    for words in ("No steps were recorded.", "There are no predictions.", "There are no texts of test.", "± undefined"):
        assert words in tree.text
    assert tree.text.count("None of 5 went wrong.") == 3 and "No label was taken for another." in tree.text
    assert "1 predictions that are no numbers are left out." in Tree(p.ScatterPlot([1.0, 2.0], [nan, 1.0]).body()).text


def test_every_text_is_in_one_bar():
    sizes = [3, 3, 17, 40, 41, 512, 513, 2000] * 25 + [90_000]
    width, counts = histogram(sizes)
    assert sum(counts) == len(sizes) and counts[-1] >= 26 and len(counts) <= 41
    for number, count in enumerate(counts[:-1]):
        assert count == sum(number * width <= size < (number + 1) * width for size in sizes)
    cut = Tree(p.render(p.Page("t", "s", [], [p.TokenLengths("dev", sizes, 128, cut=True)]))).text
    assert "76 (37.8%) are longer than 128 tokens and are cut there." in cut


def test_right_answers_are_framed_and_no_other():
    html = confusion(["a", "b"], [[83, 5], [7, 41]]).body()
    assert re.findall(r'<td class="(\w+)"[^>]*>(\d+)', html) == [
        ("right", "83"), ("wrong", "5"), ("wrong", "7"), ("right", "41")
    ]  # fmt: skip


def test_ten_thousand_labels_take_no_square_of_memory():
    names, places = [f"label {number}" for number in range(10_000)], range(10_000)
    tracemalloc.start()
    found = p.ConfusionMatrix.from_indices(names, [*places, 3], [*places, 4])
    assert found.scores[3] == p.LabelScore("label 3", 1.0, 0.5, 2 / 3, 2) and "label 4" in found.body()
    assert tracemalloc.get_traced_memory()[1] < 50e6
    tracemalloc.stop()


def test_a_large_matrix_becomes_its_commonest_confusions():
    names = [f"label {number}" for number in range(23)]
    counts = [[100 if g == q else (7 if (g, q) == (4, 19) else int(g == q + 1)) for q in range(23)] for g in range(23)]
    tree = Tree(p.render(p.Page("t", "s", [], [confusion(names, counts)])))
    assert len(tree.all("table")) == 2
    assert "The 10 commonest of 23 kinds of confusion." in tree.text
    assert order_in(spaced(tree), "label 4 label 19 7 6.5%", "label 1 label 0 1 1.0%")


TEXT = "Bank of New England said Ada and Bob met in Rome, not Oslo."


def at(words, label):
    return p.Span(TEXT.index(words), TEXT.index(words) + len(words), label)


@pytest.mark.parametrize(
    "gold, predicted, kind, said",
    [
        (("Rome", "LOC"), ("Rome", "LOC"), "right", "LOC"),
        (("Rome", "LOC"), None, "missed", "missed LOC"),
        (None, ("Oslo", "LOC"), "invented", "invented LOC"),
        (("Ada", "PER"), ("Ada", "ORG"), "wrong type", "wrong type: said ORG, is PER"),
        (("Bank of New England", "ORG"), ("New England", "ORG"), "wrong bounds", "wrong bounds ORG"),
        (("Bank of New England", "ORG"), ("New England", "LOC"), "wrong bounds", "wrong bounds: said LOC, is ORG"),
    ],
)
def test_a_mistaken_entity_is_named_by_what_is_wrong_with_it(gold, predicted, kind, said):
    golds, found = ([at(*one)] if one else [] for one in (gold, predicted))
    assert [region.kind for region in regions(golds, found)] == [kind]
    case = p.TagMistake(TEXT, [*golds, at("Bob", "PER")], found)  # one that is missed in any case
    tree = Tree(p.render(p.Page("t", "s", [], [p.TagMistakes([case], 5)])))
    assert said in spaced(tree)


def test_entities_that_overlap_are_one_mistake_and_those_that_touch_are_two():
    gold = [p.Span(0, 4, "A"), p.Span(4, 9, "B"), p.Span(20, 30, "C")]
    found = [p.Span(0, 4, "A"), p.Span(5, 12, "B"), p.Span(11, 21, "D")]
    assert [(region.start, region.end, region.kind) for region in regions(gold, found)] == [
        (0, 4, "right"),
        (4, 30, "wrong bounds"),
    ]
    with pytest.raises(ValueError, match=r"the span 3\.\.99 does not lie in a text of 59 characters"):
        p.TagMistake(TEXT, [p.Span(3, 99)], [])


def test_mistaken_answers_are_counted_by_kind_and_the_worst_come_first():
    normans, france = p.Span(4, 11), p.Span(53, 59)
    cases = [
        p.AnswerMistake("Partly?", NORMANS, [normans], p.Span(0, 11), 0.9),
        p.AnswerMistake("Elsewhere?", NORMANS, [normans], france, 0.0),
        p.AnswerMistake("None given?", NORMANS, [normans, france], None, 0.0),
        p.AnswerMistake("None there?", NORMANS, [], france, 0.0),
        p.AnswerMistake("Less?", NORMANS, [normans], p.Span(0, 35), 0.3),
    ]
    text = spaced(Tree(p.AnswerMistakes(cases, 50, most=4).body()))
    assert "2 partly right 1 elsewhere 1 no answer given 1 answered where there is none" in text
    assert order_in(text, "5 of 50", "Elsewhere?", "None given?", "None there?", "Less?") and "Partly?" not in text
    assert "said nothing, is Normans / France (F1 0.0%)" in text and "said France, is nothing" in text


def test_marks_cover_exactly_the_slices_and_nothing_is_lost_or_added():
    text = "".join(f"word{number} " for number in range(400)) + "صلاح \u0301\U0001f642 " + "x" * 700
    gold, found = [p.Span(1001, 1013), p.Span(2004, 2010)], [p.Span(1008, 1040), p.Span(3300, 3305)]
    html = highlight.passage(text, {"gold": gold, "predicted": found}, [*gold, *found])
    slices = re.findall(r'<mark class="(.*?)">(.*?)</mark>', html)
    assert slices == [
        ("gold", text[1001:1008]),
        ("gold predicted", text[1008:1013]),
        ("predicted", text[1013:1040]),
        ("gold", text[2004:2010]),
        ("predicted", text[3300:3305]),
    ]
    kept = re.split(r"<small.*?>(.*?)</small>", re.sub(r"</?(p|mark).*?>", "", html))
    place = 0
    for number, part in enumerate(kept):
        if number % 2:
            place += int(re.search(r"([\d,]+) characters? left out", part)[1].replace(",", ""))
        else:
            assert text[place : place + len(part)] == part
            place += len(part)
    assert place == len(text)
    assert sum(map(len, kept[::2])) < 2000


def test_a_short_text_is_shown_whole_and_a_cut_saves_more_than_it_costs():
    for length in (0, 1, 59, 300, 480, 539):
        assert highlight.surroundings("a" * length, [p.Span(0, min(length, 300))]) == [(0, length)][: length or 0]
    assert highlight.surroundings("a" * 540, [p.Span(0, 300)]) == [(0, 480)]
    words = "word " * 500
    for left, right in highlight.surroundings(words, [p.Span(1001, 1003), p.Span(1102, 1104), p.Span(2003, 2009)]):
        assert words[left - 1] == " " and words[right] == " "


def test_users_texts_run_in_their_own_direction(tree):
    texts = [a for name, a in tree.tags if name == "p" and a.get("class") == "text"]
    assert texts and all(a["dir"] == "auto" and a["lang"] == "" for a in texts)
    assert all(a["dir"] == "ltr" and a["lang"] == "en" for a in tree.all("small"))


@pytest.mark.parametrize("part", range(2), ids=["light", "dark"])
def test_colours_of_words_stand_out_from_the_ground(part):
    """Contrast of at least 4.5 (WCAG 2.2, 1.4.3), light and dark."""
    blocks = re.findall(r":root \{(.*?)\}", STYLE, re.DOTALL)
    colours = dict(re.findall(r"--(\w+): (#\w{6})", blocks[part]))
    for name in ("ink", "soft", "blue", "red", "note", *(f"series{number}" for number in range(chart.SERIES))):
        assert contrast(colours[name], colours["ground"]) >= 4.5, name
    for name in ("ink", "note"):
        assert contrast(colours[name], colours["raised"]) >= 4.5, name
    share = float(re.search(r"--mix: (\d+)%", blocks[part])[1]) / 100
    for name in ("blue", "red"):  # the fullest cell of a confusion matrix
        cell = [share * a + (1 - share) * b for a, b in zip(rgb(colours[name]), rgb(colours["raised"]), strict=True)]
        assert contrast(colours["ink"], cell) >= 4.5, name


def rgb(colour):
    return [int(colour[place : place + 2], 16) for place in (1, 3, 5)] if isinstance(colour, str) else colour


def contrast(one, other):
    def light(colour):
        parts = [c / 255 / 12.92 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in rgb(colour)]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    low, high = sorted((light(one), light(other)))
    return (high + 0.05) / (low + 0.05)


LOOK = """
<script>
function look() {
  const found = [...document.querySelectorAll("iframe")].map(frame => {
    const page = frame.contentDocument, width = frame.clientWidth;
    const inside = node => !node.closest(".scroll") && !node.closest("svg");
    return {
      width, page: page.documentElement.scrollWidth,
      over: [...page.body.querySelectorAll("*")].filter(inside)
        .filter(node => node.getBoundingClientRect().right > width + 0.5).map(node => node.outerHTML.slice(0, 90)),
      outside: [...page.querySelectorAll("svg text")].filter(text => {
        const box = text.getBoundingClientRect(), frame = text.ownerSVGElement.getBoundingClientRect();
        return box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1;
      }).map(text => text.textContent),
      scripts: page.scripts.length, title: page.title, words: page.body.innerText,
      marks: [...page.querySelectorAll("mark")].map(mark => [mark.className, mark.textContent]),
    };
  });
  document.body.textContent = JSON.stringify(found);
}
</script>
"""


@pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")
def test_a_browser_shows_what_a_reader_looks_for_on_a_phone_and_on_a_desk(tmp_path):
    """The page stands in frames of both widths, beside a script of ours that says how it looks."""
    wide = confusion([f"a label of some length {n}" for n in range(9)], [[n * 111 for n in range(9)]] * 9)
    long = p.LabelMistakes(
        [p.LabelMistake("x" * 5000, "y" * 90, "z" * 90, 0.9), p.LabelMistake("صلاح " * 300, "no", "yes", 0.8)], 99
    )
    shown = p.render(replace(PAGE, title="A title " * 9, parts=[*EVERY_PART, wide, long]))
    frames = "".join(f'<iframe width="{width}" srcdoc="{escape(shown)}"></iframe>' for width in (360, 1200))
    (tmp_path / "look.html").write_text(
        f'<meta charset="utf-8">{LOOK}<style>iframe {{ border: 0 }}</style><body onload="look()">{frames}', "utf-8"
    )
    flags = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    flags += " --disable-component-update --disable-sync --hide-scrollbars --dump-dom"
    command = [BROWSER, *flags.split(), f"--user-data-dir={tmp_path / 'profile'}", (tmp_path / "look.html").as_uri()]
    dom = subprocess.run(command, capture_output=True, text=True, timeout=50, check=True).stdout
    looks = json.loads(next(text for text in Tree(dom).texts if text.startswith("[{")))
    assert [seen["width"] for seen in looks] == [360, 1200]
    for seen in looks:
        assert seen["page"] <= seen["width"] and seen["over"] == [] and seen["outside"] == []
        assert seen["scripts"] == 0 and seen["title"].startswith("A title")
        words = " ".join(seen["words"].split())
        assert order_in(words, "91.2%", "12 texts are in train and test.", "Confusion matrix", "Worst mistakes")
        assert "<script>alert(1)</script>" in words and "4,520 characters left out" in words
        assert ["gold predicted", "Normans"] in seen["marks"] and ["predicted", "The "] in seen["marks"]
        assert ["gold", "Ada"] in seen["marks"] and "missed PER" in words


@pytest.mark.parametrize(("number", "credible"), [(0, False), (4, True), (5, False)])
def test_doubts_about_many_labels_are_doubts_about_the_model(number, credible):
    doubts = p.LabelIssues([p.LabelIssue(f"t.csv:{row}", "a text", "no", "yes") for row in range(number)], 41)
    assert doubts.are_credible is credible
