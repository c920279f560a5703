"""Files of predictions are scored by the gold file's task; mismatches are one-line errors."""

import gzip
import json
import re

import pyarrow
import pyarrow.ipc
import pytest

from bothways.base.errors import InputError
from bothways.evaluation import evaluate as evaluation
from bothways.settings import Classify, Evaluate, Regress
from bothways.tasks.classify.training import check_metric
from tests.guides import code_in, table_of

WORDS = ["Ada", "Lovelace", "met", "Charles", "Babbage", "in", "London"]
GOLD = ["I-PER", "I-PER", "O", "I-PER", "I-PER", "O", "I-LOC"]  # IOB1
FOUND = ["B-PER", "I-PER", "O", "I-PER", "O", "O", "B-LOC"]


def score_file(predictions, gold, **options):
    return evaluation.score_file(Evaluate(model=gold, predictions=predictions, **options))


@pytest.fixture
def write(tmp_path):
    def write(name, content):
        path = tmp_path / name
        lines = content if isinstance(content, str) else "".join(f"{line}\n" for line in content)
        path.write_text(lines, encoding="utf-8")
        return path

    return write


@pytest.fixture
def labelled(write):
    return write("gold.csv", ["text,label", "a,yes", "b,no", "c,yes", "d,no", "e,yes"])


def columns(*values):
    """A CoNLL file of two sentences: the words before and after "in"."""
    rows = [" ".join(row) for row in zip(*values, strict=True)]
    return [*rows[:5], "", *rows[5:]]


def answers(*questions):
    """SQuAD's JSON: (id, answers that are in the passage)."""
    passage = "Ada met Charles in London."
    nodes = [
        {"id": id, "question": "?", "answers": [{"text": text, "answer_start": passage.index(text)} for text in texts]}
        for id, texts in questions
    ]
    return json.dumps({"version": "x", "data": [{"title": "", "paragraphs": [{"context": passage, "qas": nodes}]}]})


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (
            "p.jsonl",
            [json.dumps({"label": name, "score": 0.9, "scores": {}}) for name in ("yes", "no", "no", "yes", "yes")],
        ),
        ("p.csv", ["text,label,prediction", "a,yes,yes", "b,no,no", "c,yes,no", "d,no,yes", "e,yes,yes"]),
        ("p.tsv", ["index\tprediction", "0\tyes", "1\tno", "2\tno", "3\tyes", "4\tyes"]),
        ("p.txt", ["yes", "no", "no", "yes", "yes"]),
    ],
)
def test_classes_are_scored_from_each_shape_of_predictions(write, labelled, name, content):
    scores = score_file(write(name, content), labelled)
    assert scores["accuracy"] == pytest.approx(3 / 5)
    assert scores["f1"] == pytest.approx(2 * 2 / (2 * 2 + 1 + 1))  # of "yes"
    assert scores["majority"] == pytest.approx(3 / 5)
    assert scores["texts"] == 5
    low, high = scores["accuracy_interval"]
    assert low < 3 / 5 < high
    assert score_file(write(name, content), labelled, positive="no")["f1"] == pytest.approx(2 * 1 / (2 * 1 + 1 + 1))


KINDS = {
    "classes": ["a", "b"] * 20,
    "several labels": [["a"], ["a", "b"]] * 20,
    "numbers": [number / 4 for number in range(40)],
}


@pytest.mark.parametrize("kind", KINDS)
def test_scores_have_the_names_that_the_guide_lists(kind, write):
    _, default, others = next(row for row in table_of("classify", "task | default") if row[0] == kind)
    name = "labels" if kind == "several labels" else "label"
    gold = write("gold.jsonl", [json.dumps({"text": f"{n}", name: value}) for n, value in enumerate(KINDS[kind])])
    predicted = write("p.jsonl", [json.dumps({name: value}) for value in KINDS[kind]])
    scores = score_file(predicted, gold)
    listed = {*code_in(default), *code_in(others)} - {"--positive", "--metric"}
    named = {name for name in scores if f"{name}_interval" in scores}
    assert named == listed


@pytest.mark.parametrize("kind", KINDS)
def test_each_metric_that_the_guide_lists_can_select_the_weights(kind, tmp_path):
    title = f"[{kind}]("
    metrics = next(row[3] for row in table_of("finetuning", "to predict") if row[0].startswith(title))
    settings = Regress if kind == "numbers" else Classify
    several = {"multi_label": True} if kind == "several labels" else {}
    names = re.findall(r"\b(?:accuracy|f1\w*|matthews|spearman|pearson)\b", metrics)
    assert len(names) >= 2
    for name in names:
        made = settings(train="t.csv", model=tmp_path, out=tmp_path / "run", metric=name, **several)
        if settings is Classify:
            check_metric(made.metric, None, ["a", "b"], "t.csv", multi_label=made.multi_label)


@pytest.mark.parametrize("metric", ["f1", "matthews"])
def test_metrics_of_two_classes_are_refused_for_several_labels(metric):
    with pytest.raises(InputError, match=rf"metric \({metric}\) is for two classes; use f1_micro"):
        check_metric(metric, None, ["a", "b"], "t.csv", multi_label=True)


def test_gold_is_not_taken_for_a_prediction(write, labelled):
    gold_and_more = ["text,label,pred", "a,yes,yes", "b,no,no", "c,yes,no", "d,no,yes", "e,yes,yes"]
    with pytest.raises(InputError, match=r"p.csv: 'label'.* 'prediction'"):
        score_file(write("p.csv", gold_and_more), labelled)
    with pytest.raises(InputError, match=r"p.csv: 'Label'"):
        score_file(write("p.csv", [gold_and_more[0].title(), *gold_and_more[1:]]), labelled)
    named = write("p.csv", [gold_and_more[0].replace("pred", "Prediction"), *gold_and_more[1:]])
    assert score_file(named, labelled)["accuracy"] == pytest.approx(3 / 5)


def test_numbers_are_scored_where_predictions_are_scores_or_have_fractions(write):
    gold = write("gold.tsv", ["text\tlabel", "a\t1", "b\t2", "c\t4"])
    for predictions in (
        write("p.jsonl", ['{"score": 1}', '{"score": 3}', '{"score": 4}']),
        write("p.csv", ["prediction", "1", "3.0", "3.5"]),
    ):
        assert score_file(predictions, gold)["spearman"] == pytest.approx(1)
    assert score_file(predictions, gold)["mean_squared_error"] == pytest.approx((0 + 1 + 0.25) / 3)
    assert "accuracy" in score_file(
        write("whole.csv", ["prediction", "1", "3", "4"]), gold
    )  # whole numbers name classes


def test_several_labels_are_scored_for_lists_or_if_multi_label_is_set(write):
    gold = write("gold.jsonl", ['{"text": "a", "label": ["x", "y"]}', '{"text": "b", "label": []}'])
    scores = score_file(write("p.jsonl", ['{"label": ["y", "x"]}', '{"label": ["x"]}']), gold)
    assert (scores["accuracy"], scores["f1_micro"]) == pytest.approx((1 / 2, 2 * 2 / (2 + 3)))
    assert score_file(write("p2.jsonl", ['{"labels": ["x"]}', '{"labels": []}']), gold)["accuracy"] == 1 / 2
    table = write("gold.csv", ["text,label", "a,x|y", "b,"])
    assert score_file(write("p.txt", ["y|x", ""]), table, multi_label=True)["accuracy"] == 1
    assert score_file(write("p3.jsonl", ['{"labels": ["y", "x"]}', '{"labels": []}']), table)["accuracy"] == 1


def test_multi_label_output_of_predict_can_be_scored(write):
    """A row also has the best label, which may not be among those predicted."""
    gold = write("gold.jsonl", ['{"text": "a", "label": ["x", "y"]}', '{"text": "b", "label": []}'])
    rows = ['{"label": "x", "score": 0.9, "labels": ["x", "y"]}', '{"label": "x", "score": 0.1, "labels": []}']
    assert score_file(write("p.jsonl", rows), gold)["accuracy"] == 1


def test_labels_of_queries_with_documents_are_classes_if_the_label_column_is_set(write):
    gold = write("gold.csv", ["query,document,label", "a,b,yes", "c,d,no"])
    scores = score_file(write("p.txt", ["yes", "yes"]), gold, label_column="label")
    assert scores["accuracy"] == 0.5


def test_judgements_may_be_an_arrow_file(write, tmp_path):
    columns = {"query": ["a", "a"], "document": ["d", "e"], "score": [1, 0]}
    table = pyarrow.table(columns)
    with pyarrow.ipc.new_stream(str(tmp_path / "gold.arrow"), table.schema) as file:
        file.write_table(table)
    scores = score_file(write("p.csv", ["query,document,score", "a,d,2", "a,e,1"]), tmp_path / "gold.arrow")
    assert scores["mrr@10"] == 1


def test_files_of_glue_are_not_read_as_judgements_of_search(write):
    """Tabs in a .csv without a header (STS-B), whose texts have commas."""
    rows = [f"main-captions\tMSRvid\t2012test\t000{row}\t{row}.500\ta, cat, sat\ta, dog, ran" for row in range(3)]
    gold = write("sts-dev.csv", rows)
    assert score_file(write("p.txt", ["0.1", "0.2", "0.9"]), gold)["spearman"] == pytest.approx(1)


def test_ids_of_questions_may_be_numbers(write):
    gold = write("gold.json", [answers(("7", ["Ada"]))])
    assert score_file(write("p.jsonl", ['{"id": 7, "answer": "Ada"}']), gold)["exact_match"] == 100


def test_tags_are_scored_by_entities_whatever_their_schemes(write):
    gold = write("gold.conll", columns(WORDS, GOLD))
    scores = score_file(write("p.conll", columns(WORDS, FOUND)), gold)
    assert (scores["precision"], scores["recall"]) == pytest.approx((2 / 3, 2 / 3))
    assert scores["by_type"]["LOC"]["f1"] == 1
    assert (scores["scheme"], scores["sentences"]) == ("iob1", 2)
    assert (scores["illegal_gold"], scores["illegal_predicted"]) == (0, 1)  # I-PER after O, in IOB2
    both = write("both.conll", columns(WORDS, GOLD, FOUND))  # as conlleval takes them
    assert score_file(both, both) == score_file(both, gold) == scores


def test_tags_may_be_lists_in_a_table_and_plain_labels(write):
    rows = [json.dumps({"tokens": WORDS, "ner_tags": tags}) for tags in (GOLD, FOUND)]
    assert score_file(write("p.jsonl", rows[1:]), write("gold.jsonl", rows[:1]))["recall"] == pytest.approx(2 / 3)
    gold = write("gold", ["a DT", "cat NN", "ran VB"])
    assert score_file(write("p", ["a DT", "cat NN", "ran NN"]), gold)["accuracy"] == pytest.approx(2 / 3)
    table = write("gold.tsv", ["a\tDT", "cat\tNN"])  # a table by its name
    assert score_file(write("p.tsv", ["a\tDT", "cat\tNN"]), table, scheme="plain", tags_column="1")["f1"] == 1
    with pytest.raises(InputError, match=r"gold\.tsv: --tags-column \(1\)"):
        score_file(table, table, scheme="plain", tags_column="1")


def test_a_file_may_have_gold_and_predictions_in_two_columns(write, monkeypatch, tmp_path):
    both = write("both.csv", ["text,label,prediction", "a,yes,yes", "b,no,yes"])
    assert score_file(both, both)["accuracy"] == 0.5
    rows = [
        json.dumps({"text": text, "gold": gold, "label": label, "scores": {}})
        for text, gold, label in (("a", "yes", "yes"), ("b", "no", "yes"))
    ]
    written = write("predicted.jsonl", rows)  # as `predict --keep-columns all` does
    assert score_file(written, written, label_column="gold")["accuracy"] == 0.5
    tagged = write("both.conll", columns(WORDS, GOLD, FOUND))
    monkeypatch.chdir(tmp_path)
    assert score_file("both.conll", tagged) == score_file(tagged, tagged)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("gold.csv", ["text,label", "a,yes", "b,no"], "both would be its column 'label', as no other is"),
        ("numbers.tsv", ["text\tscore", "a\t1.5", "b\t2"], "both would be its column 'score'"),
        ("p.jsonl", [json.dumps({"text": "a", "label": "x", "scores": {"x": 1}})], "both would be its column 'label'"),
        ("tags.jsonl", [json.dumps({"words": WORDS, "tags": GOLD})], "a table has one column of tags"),
        ("tags.conll", columns(WORDS, GOLD), "it has 2 columns, and needs three: words, gold tags and predicted tags"),
        ("labels.txt", ["yes", "no"], "it has 1 column, and needs three"),
        ("gold.json", answers(("1", ["Charles"])), "a file of questions has gold answers only"),
        ("gold.qrels", ["q1 0 d1 1"], "relevance judgements are no ranking"),
    ],
)
@pytest.mark.parametrize("is_relative", [False, True])
def test_a_message_says_that_a_file_is_given_twice(write, monkeypatch, tmp_path, name, content, reason, is_relative):
    path = write(name, content)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as raised:
        score_file(name if is_relative else path, path)
    message = str(raised.value)
    assert f"{name}: is given as gold and as predictions, but {reason}" in message
    assert message.endswith("; give the predictions in a file of their own")


def test_labelled_files_that_are_evaluated_together_differ(write, labelled):
    other = write("other.csv", ["text,label", "x,yes"])
    assert len(Evaluate(model="bothways-en", file=(labelled, other)).file) == 2
    for again in (labelled, labelled.parent / "." / labelled.name):
        with pytest.raises(InputError, match=r"file \(.*gold\.csv\) is given twice, .*; give it once"):
            Evaluate(model="bothways-en", file=(labelled, other, again))


@pytest.mark.parametrize(
    ("gold", "predictions", "rows"),
    [
        (["text,label", "a,yes", "b,no"], "label\nyes\nno\n", "texts"),
        (columns(WORDS, GOLD), "\n".join(columns(WORDS, FOUND)), "sentences"),
        (["q1 0 d1 1", "q2 0 d2 1"], "q1 Q0 d1 1 9 me\nq2 Q0 d1 1 9 me\n", "queries"),
    ],
)
def test_the_warning_on_few_predictions_does_not_advise_to_fine_tune(write, caplog, gold, predictions, rows):
    suffix = {"texts": "csv", "sentences": "conll", "queries": "qrels"}[rows]
    ending = {"queries": "txt"}.get(rows, suffix)
    files = {"model": write(f"gold.{suffix}", gold), "predictions": write(f"p.{ending}", predictions)}
    evaluation.run(Evaluate(**files))
    assert f"2 {rows} are too few" in caplog.text and f"measure on more {rows}" in caplog.text
    assert "--folds" not in caplog.text


def test_answers_are_scored_as_squad_scores_them(write):
    gold = write("gold.json", answers(("1", ["Charles"]), ("2", ["London", "in London"]), ("3", [])))
    scores = score_file(write("p.json", '{"1": "the Charles!", "2": "old London", "x": ""}'), gold)
    assert (scores["exact_match"], scores["f1"], scores["missing"]) == pytest.approx(
        (100 / 3, 100 * (1 + 2 / 3) / 3, 1)
    )
    lines = write("p.jsonl", ['{"id": "1", "answer": "Charles"}', '{"id": "3", "answer": ""}'])
    assert score_file(lines, gold)["NoAns_f1"] == 100
    row = {"id": "7", "question": "?", "context": "a cat", "answers": {"text": ["cat"], "answer_start": [2]}}
    assert score_file(write("p7.json", '{"7": "cat"}'), write("gold.jsonl", [json.dumps(row)]))["f1"] == 100


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("p.txt", ["yes"] * 4, r"p\.txt: 4 predictions.*gold\.csv has 5 rows"),
        (
            "p.csv",
            ["guess", *["yes"] * 5],
            r"p\.csv: .* \(there are: guess\).* prediction",
        ),
        ("p.txt", ["1"] * 5, r"p\.txt: .*'no', 'yes'.*'1'"),
        (
            "p.jsonl",
            ['{"label": "yes"}', *['{"score": 0.5}'] * 4],
            r"p\.jsonl: row \d+ \(line 2\): 'label' is missing",
        ),
        ("p.jsonl", ['{"score": 0.5}'] * 5, r"gold\.csv: row \d+ \(line 2\): label 'yes' is not a number"),
        ("no.csv", None, r"no\.csv: no such file"),
    ],
)
def test_predictions_that_do_not_fit_a_table_are_refused(tmp_path, write, labelled, name, content, message):
    path = tmp_path / name if content is None else write(name, content)
    with pytest.raises(InputError, match=message) as error:
        score_file(path, labelled)
    assert "\n" not in str(error.value)


def test_search_results_are_scored_against_judgements(write):
    gold = write("gold.qrels", ["q1 0 a 1", "q1 0 b 0", "q2 0 c 2"])
    results = write("run.txt", ["q1 Q0 b 1 9 me", "q1 Q0 a 2 8 me", "q2 Q0 c 1 1 me"])
    scores = score_file(results, gold)
    assert scores["mrr@10"] == 0.75 and scores["recall@10"] == 1.0 and scores["queries"] == 2
    with pytest.raises(InputError, match="gold.qrels.* 'q1'"):
        score_file(write("other.txt", ["q7 Q0 b 1 9 me"]), gold)


def test_an_unknown_positive_class_is_refused(write, labelled):
    with pytest.raises(InputError, match=r"positive \('1'\) .*'no', 'yes'"):
        score_file(write("p.txt", ["yes"] * 5), labelled, positive="1")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (columns(WORDS, FOUND)[:5], r"p\.conll: 1 sentence.*gold\.conll has 2"),
        (
            columns(["Eva", *WORDS[1:]], FOUND),
            r"p\.conll: row 0 \(line 1\): 'Eva Lovelace met Charles Babbage' \(5 words\).* 'Ada .*gold\.conll: row 0",
        ),
        (columns(WORDS, ["X-PER", *FOUND[1:]]), r"p\.conll: row 0 \(line 1\): tag 'X-PER'"),
    ],
)
def test_predicted_tags_that_do_not_fit_are_refused(write, lines, message):
    gold = write("gold.conll", columns(WORDS, GOLD))
    with pytest.raises(InputError, match=message):
        score_file(write("p.conll", lines), gold)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("p.json", '{"9": "x"}', r"p\.json: .*gold\.json.* '1'"),
        ("p.json", '{"1": 5}', r"p\.json: '1': .*'1' and 5"),
        ("p.json", "[]", r"p\.json: .*\blist\b.* object"),
        ("p.json", "{", r"p\.json: not JSON"),
        ("p.jsonl", ['{"id": "1", "answer": "x"}'] * 2, r"p\.jsonl: row 1 \(line 2\), id 1: '1'"),
        ("p.jsonl", ['{"id": "1"}'], r"p\.jsonl: row 0 \(line 1\), id 1: .*'1' and None"),
    ],
)
def test_answers_that_do_not_fit_are_refused(write, name, content, message):
    gold = write("gold.json", answers(("1", ["Ada"])))
    with pytest.raises(InputError, match=message):
        score_file(write(name, content), gold)


def test_gold_answers_with_wrong_offsets_are_skipped_on_request(write):
    broken = json.loads("".join(answers(("1", ["Charles"]), ("2", ["London"]))))
    broken["data"][0]["paragraphs"][0]["qas"][1]["answers"][0]["answer_start"] = 0
    gold, predictions = write("gold.json", json.dumps(broken)), write("p.json", '{"1": "Charles", "2": "x"}')
    with pytest.raises(InputError, match="--on-error skip"):
        score_file(predictions, gold)
    scores = score_file(predictions, gold, on_error="skip")
    assert scores["skipped"] == 1 and scores["f1"] == 100
    with pytest.raises(InputError, match="on_error skip .*gold answers"):
        score_file(write("p", ["yes"]), write("g.csv", ["text,label", "a,yes"]), on_error="skip")


def test_predictions_that_are_cut_off_are_named(write, tmp_path):
    gold = write("gold.json", answers(("1", ["Charles"])))
    (tmp_path / "p.json.gz").write_bytes(gzip.compress(b'{"1": "' + b"Charles" * 99 + b'"}')[:-9])
    with pytest.raises(InputError, match=r"p\.json\.gz: "):
        score_file(tmp_path / "p.json.gz", gold)


@pytest.mark.parametrize(
    ("label", "other"),
    [("yes", "no"), ("1.5", "2.25"), ('["yes", "a"]', '["no"]')],
    ids=["classes", "numbers", "label sets"],
)
def test_near_duplicates_and_groups_of_the_gold_file_are_units(write, label, other):
    labels = [label, other, label, other, other, label]
    texts = ["One", "two", "one!", "three", "four", "FOUR"]
    rows = [json.dumps({"text": text, "label": json.loads(name) if "[" in name else name, "author": index // 3})
            for index, (text, name) in enumerate(zip(texts, labels, strict=True))]  # fmt: skip
    gold, predictions = write("gold.jsonl", rows), write("p.jsonl", [json.dumps({"label": name}) for name in labels])
    if "[" in label:
        predictions = write("p.jsonl", [json.dumps({"labels": json.loads(name)}) for name in labels])
    assert score_file(predictions, gold).intervals.num_units == 4
    assert score_file(predictions, gold, group_column="author").intervals.num_units == 2
