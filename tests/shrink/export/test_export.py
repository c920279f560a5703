"""ONNX export: scores equal transformers' and ours for every head, kind of graph and padding. All families: soak/."""

import json
import re
import shutil
from contextlib import redirect_stdout
from dataclasses import replace
from importlib.util import find_spec
from io import StringIO
from itertools import chain

import numpy as np
import pytest
import torch

from bothways import load
from bothways.base.errors import InputError
from bothways.evaluation import before_after
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.contents import Checkpoint
from bothways.model.config import EncoderConfig, RandomBlocksConfig
from bothways.model.layout import Padded
from bothways.settings import Export, TextColumns
from bothways.shrink.export import export, int8, parity
from bothways.shrink.export import graph as onnx_graph
from bothways.shrink.export.graph import Vectors
from bothways.shrink.export.int8 import file_predictor
from tests.soaked import in_soak

absent = [name for name in export.PACKAGES if find_spec(name) is None]
needs_packages = pytest.mark.skipif(bool(absent), reason=f"not installed: {', '.join(absent)} (the extra onnx)")
pytestmark = [pytest.mark.slow, needs_packages]

SEGMENTS, PLAIN = ["input_ids", "attention_mask", "token_type_ids"], ["input_ids", "attention_mask"]
PRETRAINING, ENDS = ["prediction_logits", "seq_relationship_logits"], ["start_logits", "end_logits"]
HIDDEN, LOGITS = ["last_hidden_state", "sentence_embedding"], ["logits"]
# family, heads, transformers' class; names of inputs and outputs. Each graph differs; other families are in soak/.
CASES = {
    "pretraining": ("bert", {"masked_words": 0, "next_sentence": 2}, "BertForPreTraining", SEGMENTS, PRETRAINING),
    "classes": ("roberta", {"classes": 5}, "RobertaForSequenceClassification", PLAIN, LOGITS),
    "number": ("deberta-v2", {"classes": 1}, "DebertaV2ForSequenceClassification", PLAIN, LOGITS),
    "tokens": ("distilbert", {"tokens": 5}, "DistilBertForTokenClassification", PLAIN, LOGITS),
    "spans": ("longformer", {"spans": 2}, "LongformerForQuestionAnswering", PLAIN, ENDS),
    "vectors": ("bert", {}, "BertModel", SEGMENTS, HIDDEN),
    "modernbert": ("modernbert", {}, "ModernBertModel", PLAIN, HIDDEN),
    "replaced": ("electra", {"replaced_tokens": 1}, "ElectraForPreTraining", SEGMENTS, LOGITS),
    "words and vectors": ("bert", {"masked_words": 0}, "BertForMaskedLM", SEGMENTS, [*LOGITS, *HIDDEN]),
}
SIZES = {  # of families for which one layer would not do
    "modernbert": {"num_hidden_layers": 2, "full_attention_every": 2},  # one with a window, one without
}
IN_SOAK = ("classes", "number", "spans", "replaced")
POOLING = {"vectors": "mean", "modernbert": "max", "words and vectors": "cls"}
FILES = {"model.onnx", "config.json", "bothways.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt"}
TAGS = ("O", "B-a", "I-a", "B-b", "I-b")
TEXTS = ["the cat sat on the mat", "a dog", "", "cats ran and sat, and the dogs ran on"]
LENGTHS, LONGEST = (7, 11, 1), 11


def save_source(directory, family, heads, make_model, tokenizer, **options):
    """A small model of a case, as a checkpoint."""
    model = make_model(family, heads, **SIZES.get(family, {"num_hidden_layers": 1}))
    labels = TAGS if 5 in heads.values() else ()
    checkpoint.save(Checkpoint(model, tokenizer, model_type=family, labels=labels, **options), directory)


@pytest.fixture(scope="module")
def programs():
    """What torch's exporter, which takes seconds, returned for a case."""
    return {}


@pytest.fixture(scope="module")
def exported(tmp_path_factory, make_model, tokenizer, programs):
    """The source and the export of a case, made once, and the lines printed; not to be changed.

    That of modernbert is made by the command line with int8; its lines are JSON.
    """
    made, trace = {}, torch.onnx.export

    def make(case, place):
        family, heads, *_ = CASES[case]
        source, out, lines = place / "model", place / "onnx", []
        options = {"multi_label": case == "classes", "pooling": POOLING.get(case)}
        save_source(source, family, heads, make_model, tokenizer, **options)
        if case == "modernbert":
            return source, out, export_with_int8(source, out, written_texts(place)).splitlines()
        export.run(Export(model=source, out=out), lines.append)
        return source, out, lines

    def get(case):
        def traced(*arguments, **options):
            programs[case] = trace(*arguments, **options)
            return programs[case]

        if case not in made:
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(torch.onnx, "export", traced)
                made[case] = make(case, tmp_path_factory.mktemp(case))
        return made[case]

    return get


def export_with_int8(source, out, texts):
    """The standard output of the command."""
    from bothways.cli.main import main

    arguments = ["export", source, "-o", out, "--int8", "--with", texts, "--max-drop", "60", "--json"]
    with redirect_stdout(StringIO()) as printed:
        main([*map(str, arguments)])
    return printed.getvalue()


def written_texts(directory):
    (directory / "texts.txt").write_text("\n".join(text for text in TEXTS if text))
    return directory / "texts.txt"


def rectangle(side):
    """Three texts of 7, 11 and 1 tokens, padded, with a fourth row that is all padding."""
    generator = np.random.default_rng(5)
    ids_NS, real_NS = generator.integers(5, 97, (4, LONGEST)), np.zeros((4, LONGEST), bool)
    texts = [np.random.default_rng(length).integers(5, 97, length) for length in LENGTHS]
    for row, text in enumerate(texts):
        places = slice(LONGEST - len(text), None) if side == "left" else slice(len(text))
        ids_NS[row, places], real_NS[row, places] = text, True
    segments_NS = (ids_NS % 2) * real_NS
    return {"input_ids": ids_NS, "attention_mask": real_NS.astype(np.int64), "token_type_ids": segments_NS}, real_NS


@pytest.mark.parametrize("case", [*(case for case in CASES if case not in IN_SOAK), *in_soak(*IN_SOAK)])
def test_scores_are_those_of_transformers_by_their_names(case, exported, global_seed):
    check_scores(*exported(case)[:2], CASES[case])


def check_scores(source, out, case):
    """The file's outputs equal those of transformers' model, padded on either side."""
    import transformers

    _, _, architecture, names, _ = case
    run = parity.session(out / "model.onnx")
    right, real_NS = rectangle("right")
    with torch.no_grad():
        peer = getattr(transformers, architecture).from_pretrained(source).eval()
        inputs = {name: torch.from_numpy(right[name][:3]) for name in names}
        if architecture == "LongformerForQuestionAnswering":  # without a separator a text is all question
            inputs["global_attention_mask"] = inputs["attention_mask"]
        theirs = peer(**inputs, output_hidden_states=True)
    ours, left = run(right), run(rectangle("left")[0])
    names = [name for name in ours if name != "sentence_embedding"]
    assert len(names) + ("sentence_embedding" in case[4]) == len(ours)
    for name in names:
        scores = theirs.hidden_states[-1] if name == "last_hidden_state" else theirs[name]
        expected, actual, other = scores.numpy(), ours[name], left[name]
        if actual.shape[1:2] == (LONGEST,):
            expected, actual, other = expected[real_NS[:3]], actual[real_NS], other[rectangle("left")[1]]
        else:
            actual, other = actual[:3], other[:3]
        assert actual.shape == expected.shape
        assert np.abs(actual - expected).max() < 2e-5
        assert np.abs(other - expected).max() < 2e-5
    assert all(np.isfinite(values).all() for values in ours.values())  # the row that is all padding, too


@pytest.mark.parametrize("case", [*(case for case in CASES if case not in IN_SOAK), *in_soak(*IN_SOAK)])
def test_inputs_and_outputs_have_transformers_names(case, exported):
    check_names(exported(case)[1], CASES[case])


def check_names(out, case):
    import onnx

    graph = onnx.load(out / "model.onnx").graph
    assert ([one.name for one in graph.input], [one.name for one in graph.output]) == case[3:]
    for one in graph.input:
        assert [size.dim_param for size in one.type.tensor_type.shape.dim] == ["batch", "length"]


@pytest.mark.parametrize(
    ("heads", "names"),
    [
        ({"masked_words": 0, "next_sentence": 2}, PRETRAINING), ({"masked_words": 0}, LOGITS),
        ({"next_sentence": 2}, LOGITS), ({"classes": 5}, LOGITS), ({"classes": 1}, LOGITS), ({"tokens": 5}, LOGITS),
        ({"replaced_tokens": 1}, LOGITS), ({"spans": 2}, ENDS), ({}, HIDDEN[:1]),
    ],
)  # fmt: skip
def test_outputs_of_every_head_have_transformers_names(heads, names, make_model):
    model = make_model("electra" if "replaced_tokens" in heads else "bert", heads, num_hidden_layers=1)
    hidden_TH = torch.zeros(7, 24)
    assert [output.name for output in onnx_graph.outputs(model, hidden_TH, hidden_TH[:3])] == names


@pytest.mark.parametrize("case", POOLING)
def test_a_tokenizer_of_transformers_and_the_file_give_the_vectors_of_embed(case, exported):
    from transformers import AutoTokenizer

    source, out, _ = exported(case)
    expected = load(source, dtype="float32", device="cpu").embed(TEXTS)
    for side in ("left", "right"):
        theirs = AutoTokenizer.from_pretrained(out, padding_side=side)
        inputs = theirs(TEXTS, padding=True, return_tensors="np", return_token_type_ids=True)
        assert np.abs(parity.session(out / "model.onnx")(inputs)["sentence_embedding"] - expected).max() < 1e-5


def test_the_files_in_the_places_of_transformers_js_give_the_vectors_of_embed(exported, tmp_path):
    """It reads tokenizer.json, and pools last_hidden_state itself, or reads sentence_embedding."""
    from tokenizers import Tokenizer

    source, out, _ = exported("words and vectors")
    shutil.copytree(out, tmp_path / "site")
    (tmp_path / "site" / "onnx").mkdir()
    (tmp_path / "site" / "model.onnx").rename(tmp_path / "site" / "onnx" / "model.onnx")
    assert json.loads((tmp_path / "site" / "config.json").read_text())["model_type"] == "bert"
    tokenizer = Tokenizer.from_file(str(tmp_path / "site" / "tokenizer.json"))
    expected = load(source, dtype="float32", device="cpu").embed(TEXTS)
    run = parity.session(tmp_path / "site" / "onnx" / "model.onnx")
    for text, vector in zip(TEXTS, expected, strict=True):
        ids = np.array([tokenizer.encode(text).ids])
        results = run({"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)})
        first = results["last_hidden_state"][0, 0]
        assert np.abs(first / np.linalg.norm(first) - vector).max() < 1e-5
        assert np.abs(results["sentence_embedding"][0] - vector).max() < 1e-5


@pytest.mark.parametrize("case", ["words and vectors", "vectors", *in_soak("spans")])
def test_printed_lines_name_each_output_with_its_difference(case, exported):
    *_, lines = exported(case)
    named = [line.split()[1] for line in lines if "largest difference of" in line]
    assert named == [f"{name}:" for name in CASES[case][4]]


def test_a_model_with_a_head_has_vectors_if_its_checkpoint_has_a_pooling(exported):
    held = checkpoint.load(exported("words and vectors")[0])
    assert export.vector_pooling(held) == Vectors("cls", normalize=True)
    assert export.vector_pooling(replace(held, pooling=None)) is None
    assert json.loads((exported("words and vectors")[1] / "bothways.json").read_text())["onnx"]["pooling"] == "cls"


def test_vectors_have_length_one_only_if_the_checkpoint_normalizes(exported, tmp_path):
    held = checkpoint.load(exported("vectors")[0])
    assert export.vector_pooling(held) == Vectors("mean", normalize=True)
    assert export.vector_pooling(replace(held, pooling=None)) == Vectors("mean", normalize=True)
    checkpoint.save(replace(held, pooling="max", normalized=False), tmp_path / "max")
    assert export.vector_pooling(checkpoint.load(tmp_path / "max")) == Vectors("max", normalize=False)

    batch = parity.texts(held, 9, 3, mixed=True)
    lengths = {flag: np.linalg.norm(parity.reference(held, Vectors("max", flag), batch)[1].values, axis=1)
               for flag in (True, False)}  # fmt: skip
    assert np.abs(lengths[True] - 1).max() < 1e-6 < abs(lengths[False] - 1).min()


@pytest.mark.parametrize("case", ["tokens", "vectors", "pretraining", *in_soak("classes", "number", "spans")])
def test_a_predictor_over_the_file_agrees_with_one_over_the_model(case, exported):
    source, out, _ = exported(case)
    exact = load(source, dtype="float32", device="cpu")
    filed = file_predictor(out / "model.onnx", exact.checkpoint)
    if case == "classes":
        actual, expected = ([list(one.scores.values()) for one in model.classify(TEXTS)] for model in (filed, exact))
    elif case == "number":
        actual, expected = (model.regress(TEXTS) for model in (filed, exact))
    elif case == "tokens":
        actual, expected = ([one.score for text in model.tag(TEXTS) for one in text] for model in (filed, exact))
    elif case == "spans":
        actual, expected = ([one.score for one in model.answer("who sat", TEXTS[3], top=3)] for model in (filed, exact))
    elif case == "vectors":
        actual, expected = (model.embed(TEXTS) for model in (filed, exact))
    else:
        actual, expected = ([one.score for one in model.fill("the [MASK] sat")[0]] for model in (filed, exact))
    assert len(expected) and np.abs(np.array(actual) - np.array(expected)).max() < 1e-5


# --- the gate ---------------------------------------------------------------------------------------------------------


def test_the_report_is_printed_and_stored(exported):
    _, out, lines = exported("pretraining")
    kept = json.loads((out / "bothways.json").read_text())["onnx"]
    cells = kept["parity"]["cells"]
    assert {cell["side"] for cell in cells} == {"none", "left", "right"}
    assert {cell["batch"] for cell in cells} == {1, 3, 16, 64}
    assert {cell["length"] for cell in cells} == {1, 2, 3, 7, 16, 33, 64}  # the model reads 64
    assert kept["opset"] == 20 and kept["inputs"][2] == "token_type_ids" and "pooling" not in kept
    greatest = kept["parity"]["greatest"]
    assert greatest.keys() == {"prediction_logits", "seq_relationship_logits"}
    assert max(greatest.values()) == max(max(cell["differences"].values()) for cell in cells) <= 1e-4
    assert lines[0].endswith("(tolerance 0.0001)") and lines[1].split() == ["tokens", "no", "padding", "left", "right"]
    assert [int(line.split()[0]) for line in lines[2:9]] == [1, 2, 3, 7, 16, 33, 64]
    assert re.fullmatch(r"0\.\d MB in .*model\.onnx", lines[-1])


def test_a_graph_that_counts_positions_from_the_left_edge_is_refused_and_leaves_nothing(
    exported, tmp_path, monkeypatch
):
    """As graphs do that take right padding for granted."""
    source, *_ = exported("tokens")
    places = property(lambda self: torch.arange(self.real.shape[1]).expand(self.real.shape).flatten())
    monkeypatch.setattr(Padded, "position_ids", places)
    message = r"logits .* \S+ .*0\.0001.* length \d+, batch \d+, .*left"
    with pytest.raises(InputError, match=message):
        export.run(Export(model=source, out=tmp_path / "out"), print)
    assert not list(tmp_path.iterdir())


def test_nan_exceeds_every_tolerance():
    ours = [onnx_graph.Output("a", True, torch.tensor([1.0, 2.0, 3.0]))]
    real_NS = np.array([[True, False], [True, True]])
    actual = np.array([[1.0, 90.0], [2.5, np.nan]], np.float32)
    assert parity.greatest_differences({"a": actual}, ours, real_NS) == {"a": float("inf")}
    actual[1, 1] = 3.25
    assert parity.greatest_differences({"a": actual}, ours, real_NS) == {"a": 0.5}
    cells = [parity.Cell(7, 3, "left", {"a": 0.5, "b": 0.1}), parity.Cell(5, 1, "none", {"a": 0.2, "b": 0.3})]
    report = parity.Report(tuple(cells), 0.5)
    report.check("m")
    assert report.by_output == {"a": 0.5, "b": 0.3}
    with pytest.raises(InputError, match="m: a .* 0.5 .* length 7, batch 3, .*left"):
        replace(report, tolerance=0.4).check("m")


def test_a_text_stands_at_the_named_side_and_any_word_in_the_padding(exported):
    held = checkpoint.load(exported("vectors")[0])
    batch = parity.texts(held, 9, 5, mixed=True)
    assert int(batch.lengths[0]) == 9 and len({*batch.lengths.tolist()}) > 2
    for side, edge in (("left", -1), ("right", 0)):
        inputs, real_NS = parity.padded(batch, 9, side, 97)
        assert inputs["input_ids"][real_NS].tolist() == batch.input_ids.tolist()
        assert real_NS[:, edge].all() and (real_NS.sum(1) == batch.lengths.numpy()).all()
        assert len({*inputs["input_ids"][~real_NS].tolist()}) > 5
    assert {*parity.texts(held, 9, 5, mixed=False).lengths.tolist()} == {9}


# --- the file ---------------------------------------------------------------------------------------------------------


def test_the_file_holds_nothing_of_the_machine_that_wrote_it(exported):
    written = (exported("tokens")[1] / "model.onnx").read_bytes()
    assert b"stack_trace" not in written and b"site-packages" not in written and b".py" not in written


def test_weights_beyond_two_gigabytes_go_into_a_second_file(exported, programs, tmp_path, monkeypatch):
    source, out, _ = exported("tokens")
    monkeypatch.setattr(onnx_graph, "MOST_BYTES", 0)
    monkeypatch.setattr(torch.onnx, "export", lambda *arguments, **options: programs["tokens"])
    (tmp_path / "made").mkdir()
    onnx_graph.write(checkpoint.load(source).model, Vectors("mean", True), tmp_path / "made" / "model.onnx")
    (tmp_path / "made").rename(tmp_path / "moved")
    assert (tmp_path / "moved" / "model.onnx.data").stat().st_size > 1e4
    inputs, _ = rectangle("left")
    moved, whole = (parity.session(place / "model.onnx")(inputs) for place in (tmp_path / "moved", out))
    assert np.abs(moved["logits"] - whole["logits"]).max() < 1e-6
    with pytest.raises(InputError, match="model.onnx: .* 2 GB"):
        write_int8(source, tmp_path / "moved", tmp_path)


# --- int8 -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def texts(tmp_path):
    return written_texts(tmp_path)


def write_int8(source, out, texts, **options):
    max_drop = options.get("max_drop")
    return int8.write(checkpoint.load(source), out / "model.onnx", texts, TextColumns(), max_drop)


def test_int8_is_written_if_the_drop_is_small(exported):
    _, out, lines = exported("modernbert")
    summary = json.loads("\n".join(lines))
    before, after = (one["figures"]["mean cosine"] for one in summary["int8"]["measured"])
    assert before == 100 > after > 40
    kept = json.loads((out / "bothways.json").read_text())["onnx"]["int8"]
    assert kept["measured"] == summary["int8"]["measured"] and kept["measured"][kept["kept"]]["unchanged"] == []
    inputs, _ = rectangle("right")
    exact, small = (parity.session(out / name)(inputs)["sentence_embedding"][:3]
                    for name in ("model.onnx", "model-int8.onnx"))  # fmt: skip
    assert 0 < np.abs(exact - small).max() < 0.9


def test_int8_that_loses_more_is_refused_and_the_float32_file_stays(exported, texts, tmp_path):
    source, out, _ = exported("vectors")
    shutil.copytree(out, tmp_path / "out")
    with pytest.raises(InputError, match=r"int8 loses \d\.\d+ points of mean cosine .*; 0 are allowed.*not written"):
        write_int8(source, tmp_path / "out", texts, max_drop=0)
    for file in out.iterdir():
        assert (tmp_path / "out" / file.name).read_bytes() == file.read_bytes()
    assert {file.name for file in out.iterdir()} == {file.name for file in (tmp_path / "out").iterdir()} == FILES


def test_int8_without_a_metric_is_an_error_before_any_work(make_model, tokenizer, texts, tmp_path):
    for family, heads, pooling in (("electra", {"replaced_tokens": 1}, None), ("bert", {"masked_words": 0}, "mean")):
        source, out = tmp_path / family, tmp_path / "out"
        checkpoint.save(Checkpoint(make_model(family, heads), tokenizer, model_type=family, pooling=pooling), source)
        with pytest.raises(InputError, match=f"{family}: .* leave out --int8"):
            export.run(Export(model=source, out=out, int8=True, texts=texts), print)
        assert not out.exists()


@pytest.mark.parametrize("case", ["pretraining", "tokens", *in_soak("classes")])
def test_int8_is_measured_by_the_predictions_of_the_head(case, exported, texts, tmp_path):
    source, out, _ = exported(case)
    shutil.copytree(out, tmp_path / "out")
    choice = write_int8(source, tmp_path / "out", texts, max_drop=100)
    figure = {"pretraining": "same guesses", "classes": "same label", "tokens": "same entities"}[case]
    assert (choice.metric, choice.measured[0].score, choice.rows) == (figure, 100, 3) and 0 <= choice.best.score <= 100
    inputs, _ = rectangle("right")
    exact, small = (parity.session(tmp_path / "out" / name)(inputs) for name in ("model.onnx", "model-int8.onnx"))
    for name in exact:
        assert 0 < np.abs(exact[name][:3] - small[name][:3]).max() < np.abs(exact[name]).max()


@pytest.mark.soak
def test_parts_that_are_spared_stay_float32(exported, tmp_path):
    import onnx

    matrices = []
    for kept in int8.ATTEMPTS:
        int8.quantize(exported("replaced")[1] / "model.onnx", tmp_path / "small.onnx", kept)
        graph = onnx.load(tmp_path / "small.onnx").graph
        matrices += [
            [one for one in graph.initializer if one.data_type == onnx.TensorProto.FLOAT and len(one.dims) == 2]
        ]
        # widened embeddings, queries with keys and values, output, two of the feed-forward network, two of the head
        assert sum(node.op_type == "MatMulInteger" for node in graph.node) == 7 - len(kept)
    assert [[one.name.rpartition("layers.")[2] for one in group] for group in matrices] == [
        [],
        ["0.feed_forward.output.weight"],
    ]


def test_a_guess_that_changes_is_counted(make_predictor, texts):
    one, other = (make_predictor("bert", {"masked_words": 0}, seed=seed) for seed in (0, 1))
    data = before_after.read_evaluation_rows(one, texts, TextColumns())
    before, after = (data.evaluator.predict(model, data.rows) for model in (one, other))
    assert [*map(len, before)] == [1, 1, 2]  # of texts with 6, 2 and 9 words
    guesses = [[best.token for best, *_ in model.fill("[MASK] dog", top=1)] for model in (one, other)]
    assert [before[1], after[1]] == guesses
    same = sum(map(str.__eq__, chain.from_iterable(before), chain.from_iterable(after)))
    assert same < 4 and data.evaluator.score(data.rows, after, before).percentages == {"same guesses": 25 * same}
    drop = before_after.measure_drop(data.evaluator, data.rows, after, before)
    assert drop.points == 100 - 25 * same  # every guess counts, not one per text
    alone = make_predictor("bert", {"next_sentence": 2})
    with pytest.raises(InputError, match="next sentence head alone"):
        before_after.read_evaluation_rows(alone, texts, TextColumns())


# --- bad input --------------------------------------------------------------------------------------------------------


def test_an_int8_model_is_refused_by_name(exported, tmp_path, monkeypatch):
    monkeypatch.setattr(export, "is_int8", lambda model: True)
    with pytest.raises(InputError, match="an int8 model"):
        export.run(Export(model=exported("vectors")[0], out=tmp_path / "out"), print)
    assert not list(tmp_path.iterdir())


def test_impossible_exports_are_a_one_line_error_before_any_work(tmp_path, texts, monkeypatch):
    def check_refusal(match, **options):
        with pytest.raises(InputError, match=match):
            export.run(Export(**{"model": tmp_path / "model", "out": tmp_path / "out", **options}), print)

    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text('{"model_type": "t5"}')
    check_refusal("model_type 't5'")
    check_refusal("both --int8 and --with", int8=True)
    check_refusal("both --int8 and --with", texts=texts)
    check_refusal(r"none\.txt: no such file", int8=True, texts=tmp_path / "none.txt")
    check_refusal("contains other files", out=tmp_path / "model")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "model.onnx").touch()
    check_refusal("exported model", out=tmp_path / "full")
    check_refusal(str(texts), out=texts)
    check_refusal("no such directory", model=tmp_path / "nowhere")
    monkeypatch.setattr(export, "find_spec", lambda name: None if name != "onnxscript" else name)
    check_refusal(r'onnx, onnxruntime; .*pip install "bothways\[onnx\]"')


@pytest.mark.parametrize(
    "axes", [{"sparse_attention": RandomBlocksConfig(size=3, num_random=2)}, {"attention_window": 400}]
)
def test_a_file_is_compared_beyond_what_each_token_sees(axes):
    config = EncoderConfig(max_position_embeddings=4096, **axes)
    seen_whole = config.sparse_attention.max_full_length if config.sparse_attention else 2 * config.attention_window + 1
    assert {*parity.LENGTHS} < {*parity.lengths_for(config)}
    assert any(seen_whole < length <= seen_whole + 2 for length in parity.lengths_for(config))
