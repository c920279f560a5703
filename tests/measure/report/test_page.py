"""Report page: content, escaping of user text, no external resources, layout on narrow and wide screens."""

import csv
import json
import re
import shutil
import subprocess
import tracemalloc
from dataclasses import replace
from html import escape
from html.parser import HTMLParser
from itertools import combinations, pairwise

import pytest

from bothways.measure import report as p
from bothways.measure.report import chart, highlight
from bothways.measure.report.curves import histogram
from bothways.measure.report.markup import element, format_number, isolate_label
from bothways.measure.report.page import pair_halves
from bothways.measure.report.style import STYLE
from bothways.measure.report.text_mistakes import group_regions

VOID = {"meta", "wbr"}
HOSTILE = "<script>alert(1)</script> & \"quoted\" 'too' <img src=x onerror=alert(2)>"
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def confusion(labels, matrix):
    """matrix[gold][predicted]."""
    return p.ConfusionMatrix(labels, {(g, q): count for g, row in enumerate(matrix) for q, count in enumerate(row)})


class Tree(HTMLParser):
    """The page as parsed by html.parser. problems: elements that are not closed correctly."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open, self.tags, self.problems, self.words = [], [], [], []
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
            self.words.append((tag, attributes, data))

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]

    @property
    def texts(self):
        return [text for _, _, text in self.words]

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
SECTIONS = [
    p.SeedTable(
        "Accuracy",
        [p.SeedScores(3, {"test": 0.9165, "dev": 0.9243}, kept=True), p.SeedScores(4, {"test": 0.5}, failed=True)],
    ),
    p.TrainingCurves(rows(), "accuracy", "Accuracy"),
    confusion(["no", "yes", "a-label-that-is-quite-long-and-has-no-space"], [[83, 5, 0], [7, 41, 2], [0, 0, 0]]),
    p.LabelScores([p.LabelScore("no", 0.911, 0.943, 0.9267, 88), p.LabelScore(HOSTILE, 0.0, 0.0, 0.0, 0)]),
    p.ReliabilityDiagram([p.Bin(0.55, 0.5, 13), p.Bin(0.95, 0.89, 117), p.Bin(0.0, 0.0, 0)], 0.0567),
    p.Refusals([0.3 + row / 60 for row in range(40)], [row > 9 for row in range(40)]),
    p.LabelMistakes(
        [p.LabelMistake(HOSTILE, "no", "yes", 0.71), p.LabelMistake("surest", "yes", "no", 0.993, "its pair")], 137
    ),
    p.ScatterPlot([0.5, 2.5, 4.75], [1.0, 2.25, 4.0]),
    p.NumberMistakes([p.NumberMistake("near", 1.0, 1.25), p.NumberMistake("far", 4.5, 1.125, "its pair")]),
    p.TagMistakes([p.TagMistake("Ada of Turin", [p.Highlight(0, 3, "PER")], [p.Highlight(7, 12, "LOC")])], 11),
    p.AnswerMistakes([p.AnswerMistake("Who?", NORMANS, [p.Highlight(4, 11)], p.Highlight(0, 11), 2 / 3)], 9),
    p.FoldTable("Accuracy", [p.SeedScores(1, {"folds": 0.875}), p.SeedScores(2, {"folds": 0.75}, failed=True)]),
    p.LabelIssues(
        [p.LabelIssue("d/t.csv: row 5 (line 7)", "a text", "no", "yes", 0.031, 0.953, "its pair")], 41, "3 are left out"
    ),
    p.TokenLengths("training", [5, 9, 12, 64, 130], 64),
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
    SECTIONS,
    ["12 texts are in train and test."],
    [("Model", "mini"), ("Data", HOSTILE)],
    'bothways finetune classify --train "a & b.csv"',
)


@pytest.fixture(scope="module")
def tree():
    return Tree(p.render(PAGE))


def test_the_page_is_well_formed_and_self_contained(tree):
    assert tree.problems == []
    identities = [attributes["id"] for _, attributes in tree.tags if "id" in attributes]
    assert len(identities) == len(set(identities)) == len(SECTIONS) + 2
    assert {attributes["href"][1:] for attributes in tree.all("a")} == set(identities)
    for tag, attributes in tree.tags:
        assert tag not in {"script", "link", "img", "iframe", "object", "base", "form"}
        assert not {"src", "srcset", "xlink:href"} & set(attributes)
        assert not any(name.startswith("on") for name in attributes), tag
        assert tag == "a" or "href" not in attributes
    assert "url(" not in STYLE and "@import" not in STYLE
    policy = next(meta["content"] for meta in tree.all("meta") if "http-equiv" in meta)
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"


def test_headings_are_nested_and_tables_and_charts_are_accessible(tree):
    levels = [int(tag[1]) for tag, _ in tree.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(later - earlier <= 1 for earlier, later in pairwise(levels))
    assert len(tree.all("table")) == 8
    assert all(attributes.get("scope") in {"row", "col"} for attributes in tree.all("th"))
    names = [tag for tag, _ in tree.tags]
    charts = [index for index, name in enumerate(names) if name == "svg"]
    assert len(charts) == 3 + 1 + 1 + 1 + 1
    assert all(names[index + 1 : index + 3] == ["title", "desc"] for index in charts)
    assert all(tree.tags[index][1]["role"] == "img" for index in charts)


def test_the_page_shows_the_numbers_of_its_sections(tree):
    exact = [float(attributes["value"]) for attributes in tree.all("data")]
    for value in (0.91234567, 0.9205, 0.28731, 0.9165, 0.9243, 0.5, 0.911, 0.943, 0.9267):
        assert value in exact
    for words in (
        "91.2% ± 0.4, 3 seeds 95 %: 88.0% to 94.0%, 431 rows",  # scores
        "92.0% ± 0.3, 3 seeds selected on this",
        "91.2% ± 0.4 88.0% to 94.0%", "32.8% ± 29.1 46.9%, 36.0% to 57.6%",
        "1 of 2 failed", "3 kept 91.6% 92.4%", "4 failed 50.0% none",  # seeds
        "83 94.3%", "5 5.7%", "7 14.0%", "41 82.0%", "0 0.0%",  # confusion
        "yes no 7 14.0%",  # most frequent confusion
        "92.7% 85% to 96% 91.1% 94.3% 88",  # labels
        "error: 5.7%", "95.0% 89.0% 117",  # reliability
        "2 of 137 (1.5%)", "predicted no (99.3%), gold yes",  # mistakes
        "predicted 1.125, gold 4.500 (error -3.375)",  # regression
        "Fold folds 1 87.5% 2 failed 75.0%",  # folds
        "1 of 41 rows (3 are left out)", "t.csv: row 5 (line 7) : labelled no (3.1%), suggested yes (95.3%)",
        "1 missed 1 spurious 0 wrong type 0 wrong boundaries",  # tags
        "predicted The Normans, gold Normans (F1 66.7%)",  # answers
        "median 12 tokens, longest 130. 1 (20.0%) are longer than 64 tokens",
        "selected on this Please note 12 texts are in train and test.",
    ):  # fmt: skip
        assert words in spaced(tree), words
    assert order_in(spaced(tree), "(99.3%)", "(71.0%)")
    assert order_in(spaced(tree), "(error -3.375)", "(error +0.250)")


def spaced(tree):
    """The text with a space between any two elements."""
    return " ".join(" ".join(tree.texts).split()).replace("( ", "(").replace(" ,", ",")


def order_in(text, *words):
    positions = [text.index(word) for word in words]
    return positions == sorted(positions)


def test_user_text_is_escaped_everywhere():
    hostile = p.Page(
        HOSTILE, HOSTILE, [p.ScoreSummary(HOSTILE, HOSTILE, 0.5, 0.1, 2)], warnings=[HOSTILE],
        facts=[(HOSTILE, HOSTILE)],
        command=HOSTILE,
        sections=[
            p.SeedTable(HOSTILE, [p.SeedScores(0, {HOSTILE: 0.5})]),
            p.TrainingCurves(rows(1), "accuracy", HOSTILE, heldout=HOSTILE),
            confusion([HOSTILE, "b", "c"], [[1, 2, 3], [4, 5, 6], [7, 8, 9]]),
            p.LabelScores([p.LabelScore(HOSTILE, 0.1, 0.2, 0.3, 4)]), p.TokenLengths(HOSTILE, [1], 64),
            p.LabelMistakes([p.LabelMistake(HOSTILE, HOSTILE, HOSTILE, 0.5, HOSTILE)], 1),
            p.NumberMistakes([p.NumberMistake(HOSTILE, 0, 1)]),
            p.TagMistakes([p.TagMistake(HOSTILE, [p.Highlight(3, 20, HOSTILE)], [p.Highlight(7, 31, HOSTILE)])], 1),
            p.AnswerMistakes([p.AnswerMistake(HOSTILE, HOSTILE, [p.Highlight(2, 9)], p.Highlight(4, 12), 0.1)], 1),
            p.FoldTable(HOSTILE, [p.SeedScores(1, {HOSTILE: 0.5})]),
            p.LabelIssues([p.LabelIssue(HOSTILE, HOSTILE, HOSTILE, HOSTILE, None, 0.5, HOSTILE)], 1, HOSTILE, HOSTILE),
            p.LabelIssues([p.LabelIssue(HOSTILE, HOSTILE, HOSTILE, HOSTILE, span=p.Highlight(3, 20))], 1),
        ],
    )  # fmt: skip
    tree = Tree(p.render(hostile))
    assert tree.problems == [] and not tree.all("script") and not tree.all("img")
    assert tree.text.count(HOSTILE) > 20
    assert not any(name.startswith("on") for _, attributes in tree.tags for name in attributes)


def test_control_characters_and_surrogates_are_replaced(tmp_path):
    odd = "nul \x00 bell \x07 delete \x7f lone \ud83d half, c1 \x85, tab\t kept"
    p.write(replace(PAGE, title=odd), tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "nul ␀ bell ␇ delete ␡ lone \ufffd half, c1 \ufffd, tab\t kept" in text
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]", text)
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]


def test_string_operations_on_html_give_text_that_is_escaped():
    bold = element("b", "1 < 2")
    assert element("p.a.b", bold, "&") == '<p class="a b"><b>1 &lt; 2</b>&amp;</p>'
    assert element("p", bold + "") == f"<p>{escape(bold)}</p>"
    assert element("i", attributes={"title": '"<'}) == '<i title="&quot;&lt;"></i>'


def test_a_table_of_scores_says_once_what_holds_for_all_cells():
    scores = [
        p.ScoreSummary(
            metric, split, 0.9, 0.01, seeds, split == "dev", "share", (0.88, 0.93), 431 if metric == "a" else None
        )
        for metric, seeds, rows in (("a", 3, 431), ("b", 1, None), ("c", 1, None))
        for split in ("test", "dev")
    ]
    table = spaced(Tree(p.render(p.Page("t", "s", scores)))).partition("± sample")[2]
    assert table.count("431 rows") == 2 and table.count("selected on this") == 1 and table.count("95 %") == 1
    assert table.count("3 seeds") == 1 and table.count("saved model") == 1 and "one seed" not in table
    assert table.count("88.0% to 93.0%") == 6 and table.count("± 1.0") == 2


def test_the_page_links_files_next_to_it():
    page = p.Page("t", "s", [p.ScoreSummary("a", "test", 0.9, 0.0, 1)], files=[("a b.csv", "each row")])
    tree = Tree(p.render(page))
    assert {"href": "a%20b.csv"} in tree.all("a") and "a b.csv : each row" in spaced(tree) and not tree.problems


def test_predictions_open_in_a_spreadsheet(tmp_path):
    columns = {
        "where": ["t.csv: row 0 (line 2)", "t.csv: row 1 (line 3)"],
        "text": ['é, "x"\n2', "\ud800"],
        "gold": [["a", "b"], []],
        "p,q": [0.25, ""],
    }
    p.write_predictions(columns, tmp_path / "p.csv")
    written = (tmp_path / "p.csv").read_bytes()
    assert written.startswith(b'\xef\xbb\xbfwhere,text,gold,"p,q"\r\n') and b"\n\r" not in written
    with (tmp_path / "p.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = [*csv.reader(file)]
    assert rows[1:] == [
        ["t.csv: row 0 (line 2)", 'é, "x"\n2', '["a", "b"]', "0.25"],
        ["t.csv: row 1 (line 3)", "\ufffd", "[]", ""],
    ]


def test_one_seed_has_no_spread_and_nan_is_undefined():
    tree = Tree(p.render(p.Page("t", "s", [p.ScoreSummary("Accuracy", "dev", float("nan"), 0.0, 1)])))
    assert "undefined one seed" in spaced(tree)
    assert "±" not in spaced(tree) and "selected" not in spaced(tree)
    assert [format_number(value, "number") for value in (12345.6789, 0.0, 0.0000321)] == [
        "12,345.679",
        "0.000",
        "3.2e-05",
    ]


def test_a_line_passes_through_its_points_as_read_from_the_ticks():
    x = chart.build_axis("step", [0, 97], (40, 300))
    y = chart.build_axis("loss", [0.213, 0.871], (200, 20))
    points = [(3.0, 0.871), (41.0, 0.5), (97.0, 0.213)]
    line = chart.polyline([(x.at(step), y.at(value)) for step, value in points], "series0")
    tree = Tree(chart.plot("t", "d", x, y, line, size=(340, 240)))
    positions = [tuple(map(float, pair.split(","))) for pair in tree.all("polyline")[0]["points"].split()]
    assert read_values(tree, positions) == [pytest.approx(point, rel=0.01) for point in points]


def test_dots_are_at_their_values():
    pairs = [(0.62, 0.55), (0.81, 0.93), (0.97, 0.88)]
    bins = [p.Bin(0.0, 0.0, 0), *(p.Bin(*pair, count) for pair, count in zip(pairs, (3, 5, 90), strict=True))]
    for section in (p.ReliabilityDiagram(bins, 0.1), p.ScatterPlot(*zip(*pairs, strict=True))):
        tree = Tree(section.body())
        positions = [(float(dot["cx"]), float(dot["cy"])) for dot in tree.all("circle")]
        assert read_values(tree, positions) == [pytest.approx(pair, abs=0.003) for pair in pairs]
    assert "0%" not in tree.texts  # an empty bin is not drawn


def test_refusals_are_drawn_at_the_share_and_the_accuracy_of_the_texts_that_keep_their_label():
    confidences, is_correct = [0.99] * 10 + [0.75] * 20 + [0.45] * 10, [True] * 10 + [True] * 12 + [False] * 18
    section = p.Refusals(confidences, is_correct)
    assert section.by_score == {
        **dict.fromkeys((0.3, 0.4), (1.0, 22 / 40)),
        **dict.fromkeys((0.5, 0.6, 0.7), (0.75, 22 / 30)),
        **dict.fromkeys((0.8, 0.9, 0.95, 0.99), (0.25, 1.0)),
    }
    tree = Tree(section.body())
    positions = [(float(dot["cx"]), float(dot["cy"])) for dot in tree.all("circle")]
    assert read_values(tree, positions) == [pytest.approx(pair, abs=0.005) for pair in section.by_score.values()]
    assert not Tree(p.Refusals(confidences[:19], is_correct[:19]).body()).all("circle")


def read_values(tree, positions):
    """The values at positions of a chart, interpolated between its tick labels."""
    across, down = [], []
    for tag, attributes, word in tree.words:
        value = float(word.rstrip("%")) * (0.01 if "%" in word else 1) if re.fullmatch(r"[\d.]+%?", word) else None
        if tag == "text" and attributes.get("class") == "middle":
            across.append((value, float(attributes["x"])))
        elif tag == "text" and attributes.get("class") == "end":
            down.append((value, float(attributes["y"]) - 4))  # labels are 4 below their ticks
    assert across[0][1] < across[-1][1] and down[0][1] > down[-1][1]
    return [(between(across, left), between(down, top)) for left, top in positions]


def between(ticks, position):
    """The value at a position, from the first and last tick."""
    (low, start), (high, end) = ticks[0], ticks[-1]
    return low + (position - start) / (end - start) * (high - low)


@pytest.mark.parametrize(
    "values, ticks",
    [
        ((0.82, 0.917), ["82%", "84%", "86%", "88%", "90%", "92%"]),
        ((0.9051, 0.9064), ["90.50%", "90.55%", "90.60%", "90.65%"]),
        ((1.0, 1.0), ["90%", "92%", "94%", "96%", "98%", "100%"]),
        ((-0.04, 0.11), ["-5%", "0%", "5%", "10%", "15%"]),
    ],
)
def test_ticks_are_round_and_cover_the_values(values, ticks):
    axis = chart.build_axis("share", values, (0, 100), "share")
    assert [axis.format_tick(tick) for tick in axis.ticks()] == ticks
    assert axis.low <= min(values) + 1e-12 and axis.high >= max(values) - 1e-12


def test_a_legend_has_three_names_in_a_row():
    tree = Tree(chart.legend((10, 244), [(f"seed {seed}", element("i")) for seed in range(4)]))
    assert [group["transform"] for group in tree.all("g")] == [
        "translate(10,244)", "translate(118,244)", "translate(226,244)", "translate(10,262)",
    ]  # fmt: skip
    assert tree.texts == ["seed 0", "seed 1", "seed 2", "seed 3"]


def test_each_seed_has_a_style_and_a_row_of_the_legend_has_room():
    tree = Tree(p.TrainingCurves(rows(5), "accuracy", "Accuracy").body())
    styles = [line["class"] for line in tree.all("polyline")]  # in each of three charts, a line and its sample
    assert {style: styles.count(style) for style in styles} == {f"series{seed}": 3 * 2 for seed in range(5)}
    assert tree.texts.count("seed 4") == 3
    assert [(view["viewbox"], view["height"]) for view in tree.all("svg")] == [("0 0 340 272", "272")] * 3


def test_long_curves_are_smoothed_and_nan_is_counted():
    points = [{"step": step, "split": "train", "loss": step % 2} for step in range(1, 401)]
    for number, spread, note in ((400, 0.05, 1), (40, 1, 0)):
        tree = Tree(p.TrainingCurves(points[:number], "accuracy", "Accuracy").body())
        positions = [tuple(map(float, pair.split(","))) for pair in tree.all("polyline")[0]["points"].split()]
        values = [value for _, value in read_values(tree, positions)][5:-5]
        assert max(values) - min(values) == pytest.approx(spread, abs=0.05)
        assert tree.texts.count("The lines are smoothed.") == note
    row = {"split": "train", "loss": float("nan"), "seed": 5}
    page = p.Page(
        "t", "s", [], [p.TrainingCurves([*rows(1), {**row, "step": 7}, {**row, "step": 8}], "accuracy", "Accuracy")]
    )
    assert "Loss, training: 2 non-finite values" in Tree(p.render(page)).text
    page = p.Page("t", "s", [], [p.TrainingCurves([{**row, "step": 7}], "accuracy", "Accuracy")])
    assert "Loss, training: 1 non-finite values" in Tree(p.render(page)).text


def test_empty_sections_are_rendered():
    nan = float("nan")
    empty = [
        p.SeedTable("Accuracy", []),
        p.TrainingCurves([], "accuracy", "Accuracy"), confusion(["a", "b"], [[0, 0], [0, 0]]),
        confusion(["a", "b", "c"], [[1, 0, 0], [0, 2, 0], [0, 0, 3]]), p.LabelScores([]), p.ReliabilityDiagram([], 0.0),
        p.LabelMistakes([], 5), p.ScatterPlot([1.0], [nan]), p.NumberMistakes([]), p.TagMistakes([], 5),
        p.AnswerMistakes([], 5),
        p.TokenLengths("test", [], 512),
    ]  # fmt: skip
    tree = Tree(p.render(p.Page("t", "s", [p.ScoreSummary("Loss", "dev", nan, nan, 3, unit="number")], empty)))
    assert tree.problems == []
    for words in (
        "No steps were recorded.",
        "There are no predictions.",
        "The test split has no texts.",
        "± undefined",
    ):
        assert words in tree.text
    assert tree.text.count("No mistakes in 5.") == 3 and "No labels were confused." in tree.text
    assert "1 non-finite predictions" in Tree(p.ScatterPlot([1.0, 2.0], [nan, 1.0]).body()).text


def test_every_text_is_in_one_bar():
    sizes = [3, 3, 17, 40, 41, 512, 513, 2000] * 25 + [90_000]
    width, counts = histogram(sizes)
    assert sum(counts) == len(sizes) and counts[-1] >= 26 and len(counts) <= 41
    for index, count in enumerate(counts[:-1]):
        assert count == sum(index * width <= size < (index + 1) * width for size in sizes)
    text = Tree(p.render(p.Page("t", "s", [], [p.TokenLengths("dev", sizes, 128, truncated=True)]))).text
    assert "76 (37.8%) are longer than 128 tokens and are truncated." in text


def test_only_correct_cells_are_framed():
    html = confusion(["a", "b"], [[83, 5], [7, 41]]).body()
    assert re.findall(r'<td class="(\w+)"[^>]*>(\d+)', html) == [
        ("right", "83"), ("wrong", "5"), ("wrong", "7"), ("right", "41")
    ]  # fmt: skip


def test_memory_does_not_grow_with_the_square_of_the_labels():
    names = [f"label {index}" for index in range(10_000)]
    tracemalloc.start()
    matrix = p.ConfusionMatrix.from_names(names, [*names, names[3]], [*names, names[4]])
    assert matrix.scores[3] == p.LabelScore("label 3", 1.0, 0.5, 2 / 3, 2) and "label 4" in matrix.body()
    assert tracemalloc.get_traced_memory()[1] < 50e6
    tracemalloc.stop()


def test_a_large_matrix_is_replaced_by_the_most_frequent_confusions():
    names = [f"label {number}" for number in range(23)]
    counts = [[100 if g == q else (7 if (g, q) == (4, 19) else int(g == q + 1)) for q in range(23)] for g in range(23)]
    tree = Tree(p.render(p.Page("t", "s", [], [confusion(names, counts)])))
    assert len(tree.all("table")) == 1  # without scores there is no table of them
    assert "The 10 most frequent of 23 confusions." in tree.text
    assert order_in(spaced(tree), "label 4 label 19 7 6.5%", "label 1 label 0 1 1.0%")


def first_cells(section):
    """The first cell of each row of a section's table."""
    rows = re.findall(r"<tr><th [^>]*scope=\"row\">(.*?)</th>", section.body())
    return [re.sub("<.*?>", "", cell) for cell in rows]


@pytest.mark.parametrize("num_labels", [2, 5, 77])
def test_all_labels_are_in_the_page_and_the_lowest_f1_is_first(num_labels):
    f1 = [(37 * number % 100) / 100 for number in range(num_labels)]
    scores = [p.LabelScore(f"intent_{number}", value, value, value, 20) for number, value in enumerate(f1)]
    cells = first_cells(p.LabelScores(scores))
    assert cells == [f"intent_{number}" for number in sorted(range(num_labels), key=lambda number: f1[number])]


def test_equal_labels_begin_with_the_one_of_more_texts_and_those_without_texts_are_last():
    scores = [
        p.LabelScore("absent", 0.0, 0.0, 0.0, 0),
        p.LabelScore("few", 0.5, 0.5, 0.5, 3),
        p.LabelScore("many", 0.5, 0.5, 0.5, 41),
        p.LabelScore("never right", 0.0, 0.0, 0.0, 7),
    ]
    assert first_cells(p.LabelScores(scores)) == ["never right", "many", "few", "absent"]


@pytest.mark.parametrize(
    "names, is_wide",
    [(["no", "yes"], False), (["no", "a_name_that_needs_room"], True), ([f"l{number}" for number in range(5)], True)],
)
def test_a_table_of_many_or_long_labels_takes_the_whole_width(names, is_wide):
    section = p.LabelScores([p.LabelScore(name, 0.5, 0.5, 0.5, 3) for name in names])
    page = p.render(p.Page("t", "s", [], [section]))
    assert f'<section class="{"wide" if is_wide else "half"}" id="part0">' in page
    assert ('<table class="full">' in page) == is_wide
    assert "white-space: nowrap" in STYLE.partition(".numbers {")[2].partition("}")[0]


@pytest.mark.parametrize(
    "name, html",
    [
        ("card_not_working", "card_<wbr>not_<wbr>working"),
        ("__init__", "__<wbr>init__"),
        ("B-PER", "B-<wbr>PER"),
        ("a/<b>", "a/<wbr>&lt;b&gt;"),
        ("plain words", "plain words"),
        ("", ""),
    ],
)
def test_a_label_may_be_broken_after_its_joints(name, html):
    assert isolate_label(name) == f'<bdi lang="">{html}</bdi>'


def test_a_section_without_a_matrix_has_another_heading():
    for num_labels, heading in ((3, "Confusion matrix"), (20, "Confusion matrix"), (21, "Most frequent confusions")):
        names = [f"label {number}" for number in range(num_labels)]
        assert p.ConfusionMatrix(names, {(0, 1): 2}).heading == heading


COMPARED = [
    p.ModelScore("fine-tuned", 0.9013, (0.885, 0.916)),
    p.ModelScore("constant", 0.013, (0.0077, 0.0201)),
    p.ModelScore("words", 0.8331, (0.815, 0.852)),
    p.ModelScore("frozen", 0.874, (0.857, 0.89)),
]


@pytest.mark.parametrize("factor, side", [(1, "← off the axis"), (-1, "off the axis →")])
def test_baselines_are_told_apart_beside_one_that_is_far_away(factor, side):
    """factor: -1 for a metric of which less is better."""
    models = [
        replace(one, value=factor * one.value, interval=sorted(factor * end for end in one.interval))
        for one in COMPARED
    ]
    tree = Tree(p.BaselineComparison("accuracy", models, "better").body())
    assert tree.texts.count(side) == 1 and "1.3%" in tree.text
    dots = [float(dot["cx"]) for dot in tree.all("circle")]
    assert len(dots) == 3
    assert min(abs(one - other) for one, other in combinations(dots, 2)) > 2 * 4.5  # their diameter
    for interval in (line for line in tree.all("line") if line["class"].startswith("interval")):
        assert 18 <= float(interval["x1"]) < float(interval["x2"]) <= 340 - 18


@pytest.mark.parametrize("values", [(0.9, 0.85, 0.5, 0.8), (0.9, 0.5), (0.9, 0.9, 0.85), (0.0, 0.0)])
def test_baselines_that_fit_on_one_axis_have_a_dot_each(values):
    models = [p.ModelScore(f"model {index}", value, None) for index, value in enumerate(values)]
    tree = Tree(p.BaselineComparison("accuracy", models, "worse").body())
    is_far = values == (0.9, 0.85, 0.5, 0.8)  # 0.5 is farther from the others than twice their distance
    assert len(tree.all("circle")) == len(values) - is_far


def test_no_half_of_the_page_stays_empty_if_a_section_fits_there():
    wide = [p.LabelMistakes([], number) for number in (1, 2)]
    halves = [p.TokenLengths(name, [1], 64) for name in "abc"]
    a, b, c = halves
    assert pair_halves([a, b, c]) == [a, b, c]
    assert pair_halves([a, wide[0], b, wide[1], c]) == [a, b, wide[0], wide[1], c]
    assert pair_halves([wide[0], a, wide[1]]) == [wide[0], a, wide[1]]


TEXT = "Bank of New England said Ada and Bob met in Rome, not Oslo."


def at(words, label):
    return p.Highlight(TEXT.index(words), TEXT.index(words) + len(words), label)


@pytest.mark.parametrize(
    "gold, predicted, kind, note",
    [
        (("Rome", "LOC"), ("Rome", "LOC"), "right", "LOC"),
        (("Rome", "LOC"), None, "missed", "missed LOC"),
        (None, ("Oslo", "LOC"), "spurious", "spurious LOC"),
        (("Ada", "PER"), ("Ada", "ORG"), "wrong type", "wrong type: predicted ORG, gold PER"),
        (("Bank of New England", "ORG"), ("New England", "ORG"), "wrong boundaries", "wrong boundaries ORG"),
        (
            ("Bank of New England", "ORG"),
            ("New England", "LOC"),
            "wrong boundaries",
            "wrong boundaries: predicted LOC, gold ORG",
        ),
    ],
)
def test_the_kind_of_an_entity_mistake(gold, predicted, kind, note):
    gold_spans, predicted_spans = ([at(*entity)] if entity else [] for entity in (gold, predicted))
    assert [region.kind for region in group_regions(gold_spans, predicted_spans)] == [kind]
    case = p.TagMistake(TEXT, [*gold_spans, at("Bob", "PER")], predicted_spans)  # "Bob" is always missed
    tree = Tree(p.render(p.Page("t", "s", [], [p.TagMistakes([case], 5)])))
    assert note in spaced(tree)


def test_words_of_a_mistake_are_shown_with_their_effects():
    words = [p.WordSupport("<b>fine", 0.305), p.WordSupport("dull", -12.5)]
    labels = p.LabelMistakes([p.LabelMistake("a <b>fine film", "no", "yes", 0.9)], 9)
    numbers = p.NumberMistakes([p.NumberMistake("a dull film", 4.0, 1.0)])
    for section, text, shown in (
        (labels, "a <b>fine film", "words: <b>fine +30.5, dull -1250.0"),
        (numbers, "a dull film", "words: <b>fine +0.305, dull -12.5"),
    ):
        plain = section.body()
        assert "ords: " not in plain
        assert section.with_words({("another text", None): words}).body() == plain
        explained = spaced(Tree(section.with_words({(text, None): words}).body()))
        assert shown in explained and "Words: what " in explained


def test_overlapping_entities_are_one_mistake_and_adjacent_ones_are_two():
    gold = [p.Highlight(0, 4, "A"), p.Highlight(4, 9, "B"), p.Highlight(20, 30, "C")]
    predicted = [p.Highlight(0, 4, "A"), p.Highlight(5, 12, "B"), p.Highlight(11, 21, "D")]
    assert [(region.start, region.end, region.kind) for region in group_regions(gold, predicted)] == [
        (0, 4, "right"),
        (4, 30, "wrong boundaries"),
    ]
    with pytest.raises(ValueError, match=r"3\.\.99"):
        p.TagMistake(TEXT, [p.Highlight(3, 99)], [])


def test_wrong_answers_are_counted_by_kind_and_sorted_by_f1():
    normans, france = p.Highlight(4, 11), p.Highlight(53, 59)
    cases = [
        p.AnswerMistake("Partly?", NORMANS, [normans], p.Highlight(0, 11), 0.9),
        p.AnswerMistake("Elsewhere?", NORMANS, [normans], france, 0.0),
        p.AnswerMistake("None given?", NORMANS, [normans, france], None, 0.0),
        p.AnswerMistake("None there?", NORMANS, [], france, 0.0),
        p.AnswerMistake("Less?", NORMANS, [normans], p.Highlight(0, 35), 0.3),
    ]
    text = spaced(Tree(p.AnswerMistakes(cases, 50, max_shown=4).body()))
    assert "2 partly right 1 elsewhere 1 no answer given 1 answered but has no answer" in text
    assert order_in(text, "5 of 50", "Elsewhere?", "None given?", "None there?", "Less?") and "Partly?" not in text
    assert "predicted no answer, gold Normans / France (F1 0.0%)" in text
    assert "predicted France, gold no answer" in text


def test_highlights_match_the_spans_and_keep_the_text():
    text = "".join(f"word{number} " for number in range(400)) + "صلاح \u0301\U0001f642 " + "x" * 700
    gold, predicted = (
        [p.Highlight(1001, 1013), p.Highlight(2004, 2010)],
        [p.Highlight(1008, 1040), p.Highlight(3300, 3305)],
    )
    html = highlight.render_passage(text, {"gold": gold, "predicted": predicted}, [*gold, *predicted])
    slices = re.findall(r'<mark class="(.*?)">(.*?)</mark>', html)
    assert slices == [
        ("gold", text[1001:1008]),
        ("gold predicted", text[1008:1013]),
        ("predicted", text[1013:1040]),
        ("gold", text[2004:2010]),
        ("predicted", text[3300:3305]),
    ]
    parts = re.split(r"<small.*?>(.*?)</small>", re.sub(r"</?(p|mark).*?>", "", html))
    position = 0
    for index, part in enumerate(parts):
        if index % 2:
            position += int(re.search(r"([\d,]+) characters? left out", part)[1].replace(",", ""))
        else:
            assert text[position : position + len(part)] == part
            position += len(part)
    assert position == len(text)
    assert sum(map(len, parts[::2])) < 2000


def test_short_texts_are_whole_and_long_ones_are_cut_between_words():
    for length in (0, 1, 59, 300, 480, 539):
        assert (
            highlight.visible_ranges("a" * length, [p.Highlight(0, min(length, 300))]) == [(0, length)][: length or 0]
        )
    assert highlight.visible_ranges("a" * 540, [p.Highlight(0, 300)]) == [(0, 480)]
    words = "word " * 500
    for left, right in highlight.visible_ranges(
        words, [p.Highlight(1001, 1003), p.Highlight(1102, 1104), p.Highlight(2003, 2009)]
    ):
        assert words[left - 1] == " " and words[right] == " "


def test_user_text_has_its_own_direction_and_language(tree):
    texts = [a for name, a in tree.tags if name == "p" and a.get("class") == "text"]
    assert texts and all(a["dir"] == "auto" and a["lang"] == "" for a in texts)
    assert all(a["dir"] == "ltr" and a["lang"] == "en" for a in tree.all("small"))


@pytest.mark.parametrize("mode", range(2), ids=["light", "dark"])
def test_text_colours_have_enough_contrast(mode):
    """At least 4.5 (WCAG 2.2, 1.4.3), in light and dark mode."""
    blocks = re.findall(r":root \{(.*?)\}", STYLE, re.DOTALL)
    colours = dict(re.findall(r"--(\w+): (#\w{6})", blocks[mode]))
    for name in (
        "ink",
        "soft",
        "blue",
        "red",
        "note",
        *(f"series{number}" for number in range(chart.NUM_SERIES_STYLES)),
    ):
        assert contrast(colours[name], colours["ground"]) >= 4.5, name
    for name in ("ink", "note"):
        assert contrast(colours[name], colours["raised"]) >= 4.5, name
    share = float(re.search(r"--mix: (\d+)%", blocks[mode])[1]) / 100
    for name in ("blue", "red"):  # the fullest cell of a confusion matrix
        cell = [share * a + (1 - share) * b for a, b in zip(rgb(colours[name]), rgb(colours["raised"]), strict=True)]
        assert contrast(colours["ink"], cell) >= 4.5, name


def rgb(colour):
    return [int(colour[start : start + 2], 16) for start in (1, 3, 5)] if isinstance(colour, str) else colour


def contrast(first, second):
    def luminance(colour):
        parts = [c / 255 / 12.92 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in rgb(colour)]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


LOOK = """
<script>
function look() {
  const frames = [...document.querySelectorAll("iframe")].map(frame => {
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
  document.body.textContent = JSON.stringify(frames);
}
</script>
"""


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")
def test_layout_in_a_browser_on_narrow_and_wide_screens(tmp_path):
    """A script inspects the page in frames of both widths."""
    wide = confusion([f"a label of some length {n}" for n in range(9)], [[n * 111 for n in range(9)]] * 9)
    long = p.LabelMistakes(
        [p.LabelMistake("x" * 5000, "y" * 90, "z" * 90, 0.9), p.LabelMistake("صلاح " * 300, "no", "yes", 0.8)], 99
    )
    shown = p.render(replace(PAGE, title="A title " * 9, sections=[*SECTIONS, wide, long]))
    frames = "".join(f'<iframe width="{width}" srcdoc="{escape(shown)}"></iframe>' for width in (360, 1200))
    (tmp_path / "look.html").write_text(
        f'<meta charset="utf-8">{LOOK}<style>iframe {{ border: 0 }}</style><body onload="look()">{frames}', "utf-8"
    )
    flags = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    flags += " --disable-component-update --disable-sync --hide-scrollbars --dump-dom"
    command = [BROWSER, *flags.split(), f"--user-data-dir={tmp_path / 'profile'}", (tmp_path / "look.html").as_uri()]
    dom = subprocess.run(command, capture_output=True, text=True, check=True).stdout
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


@pytest.mark.parametrize(("num_issues", "credible"), [(0, False), (4, True), (5, False)])
def test_label_issues_are_credible_only_if_they_are_few(num_issues, credible):
    issues = p.LabelIssues([p.LabelIssue(f"t.csv:{row}", "a text", "no", "yes") for row in range(num_issues)], 41)
    assert issues.are_credible is credible


def test_suspicious_rows_are_ordered_by_probability_of_the_label_or_of_the_answer_or_by_the_error():
    issues = [p.LabelIssue("", "", "a", "b", 0.25, 0.5), p.LabelIssue("", "", "a", "b", None, 0.75)]
    assert [one.order for one in [*issues, p.LabelIssue("", "", "1.5", "4")]] == [0.25, -0.75, -2.5]
