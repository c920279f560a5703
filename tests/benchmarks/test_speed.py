"""Benchmarks: the work that is timed, rates computed from times, and peers with the same outputs."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

import bothways
from benchmarks.speed import measure, peer_files, peers, picture
from benchmarks.speed.__main__ import main
from benchmarks.speed.options import Options, parse
from benchmarks.speed.peers import PEERS, Peer, PeerConfig, best_batch_size, pad_rows
from benchmarks.speed.result import Timing, as_json, as_table
from benchmarks.speed.workload import MASK, QUESTION, Workload, task_method, workloads
from bothways.base.errors import InputError
from bothways.inference.predictor import Predictor
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.changes.pack import save_packed
from bothways.model.checkpoint.contents import Checkpoint
from bothways.model.int8 import dequantize, replace_linears
from bothways.model.int8_training import candidates, observe

pytestmark = pytest.mark.usefixtures("global_seed")  # compares what torch draws

HEADS = {  # of a model: its heads and labels, then the method that is timed
    "embed": ({}, ()),
    "classify": ({"classes": 3}, ("x", "y", "z")),
    "regress": ({"classes": 1}, ()),
    "tag": ({"tokens": 5}, ("O", "B-X", "I-X", "B-Y", "I-Y")),
    "answer": ({"spans": 2}, ()),
    "fill": ({"masked_words": 0}, ()),
}
TEXTS = ["the cat sat", "dogs ran and ran on the mat", "a dog", "mat . cat"]
WORK = Workload("7 tokens", 7, 3, (("a cat", "a dog", "a mat"),), (21,))


@pytest.fixture
def directory_of(make_model, tokenizer, tmp_path):
    """A checkpoint of a small random model for a method of Predictor."""

    def write(method, **options):
        heads, labels = HEADS[method]
        model = make_model("bert", heads, pooler="classes" in heads, **options)
        pooling = "mean" if method == "embed" else None
        checkpoint.save(Checkpoint(model, tokenizer, labels=labels, pooling=pooling), tmp_path / method)
        return tmp_path / method

    return write


def options_of(directory, **options):
    defaults = {"lengths": (23, 37), "batches": (1, 3), "repeats": 3, "peers": False, "dtype": "float32"}
    return Options(model=directory, **{**defaults, **options})


@pytest.fixture(autouse=True)
def measure_briefly(monkeypatch):
    monkeypatch.setattr(measure, "SECONDS", 0.001)


def slow_percentile(values, percent):
    """Between the two values around the place of so many percent, in proportion."""
    ordered, place = sorted(values), (len(values) - 1) * percent / 100
    low, high = ordered[math.floor(place)], ordered[math.ceil(place)]
    return low + (high - low) * (place - math.floor(place))


def test_percentiles_are_those_of_a_slow_formula():
    calls = tuple(np.random.default_rng(0).exponential(0.01, 37).tolist())
    one = Timing("ours", WORK, (1.0,), (7.0,), calls)
    for percent in (50, 95, 99):
        assert one.milliseconds(percent) == pytest.approx(1000 * slow_percentile(calls, percent))


def test_rates_are_medians_over_measurements_and_percentiles_go_over_all_calls():
    measured = [[(21, 0.1), (21, 0.2)], [(21, 0.5)], [(21, 0.05), (21, 0.05), (21, 0.2)]]
    one = measure.timing("ours", WORK, measured)
    assert one.text_rates == pytest.approx((6 / 0.3, 3 / 0.5, 9 / 0.3))
    assert (one.texts_per_second, one.tokens_per_second) == pytest.approx((20, 140))
    assert one.milliseconds(50) == pytest.approx(150) and one.milliseconds(100) == pytest.approx(500)


def test_faster_by_is_the_median_of_the_turns_own_ratios():
    """When the machine is busy, both are slower."""
    ours = Timing("ours", WORK, (100.0, 10.0, 100.0), (1.0,) * 3, (0.1,))
    theirs = Timing("theirs", WORK, (50.0, 5.0, 25.0), (1.0,) * 3, (0.1,))
    assert theirs.slower_than(ours) == 2
    assert ours.slower_than(ours) == 1


@pytest.mark.parametrize("method", HEADS)
def test_every_model_is_timed_with_the_method_of_its_task(method, directory_of, monkeypatch):
    monkeypatch.setattr(measure, "PEERS", {})
    measured = measure.run(options_of(directory_of(method), lengths=(23,), batches=(2,), repeats=1, peers=True))
    assert measured.facts["method"] == method
    assert measured.timings[0].texts_per_second > 0
    if method not in ("embed", "classify", "regress"):
        assert list(measured.left_out) == ["peers"] and method in measured.left_out["peers"]


@pytest.mark.parametrize("method", HEADS)
def test_texts_have_exactly_the_tokens_of_the_table(method, directory_of):
    directory = directory_of(method)
    model = bothways.load(directory)
    works = workloads(options_of(directory), model, task_method(model))
    assert [(work.length, work.texts_per_call) for work in works] == [(23, 1), (23, 3), (37, 1), (37, 3)]
    for work in works:
        assert len(set(work.calls)) > 9, "no side reads the same texts repeatedly"
        for texts, tokens in zip(work.calls, work.tokens, strict=True):
            assert len(texts) == work.texts_per_call and tokens == work.length * len(texts)
            for text in texts:
                pair = (QUESTION, text) if method == "answer" else (text,)
                assert len(model.tokenizer.encode(*pair, allow_special=(MASK,))) == work.length
                assert text.count(MASK) == (method == "fill")


def test_the_figures_of_a_table_add_up(directory_of):
    report = as_json(measure.run(options_of(directory_of("embed"))))
    cells = [(row["length"], row["texts_per_call"]) for row in report["timings"]]
    assert cells == [(23, 1), (23, 3), (37, 1), (37, 3)]
    for row in report["timings"]:
        assert row["tokens_per_second"] == pytest.approx(row["length"] * row["texts_per_second"])
        assert 0 < row["p50_ms"] <= row["p95_ms"] <= row["p99_ms"]
        assert row["calls"] >= 3
        assert row["speed_up"] == 1


def test_user_texts_are_truncated_and_measured_in_calls_of_each_size_and_all_at_once(directory_of, tmp_path):
    directory, file = directory_of("embed"), tmp_path / "texts.txt"
    texts = ["the cat sat", "a dog " * 100, "cat", "the mat and the dog", "ran", "", "dogs sat on a mat"]
    file.write_text("\n".join(texts), encoding="utf-8")
    model = bothways.load(directory)
    works = workloads(options_of(directory, texts=file, batches=(1, 2)), model, task_method(model))
    own = [work for work in works if work.length is None]
    assert [(work.texts_per_call, len(work.calls)) for work in own] == [(1, 6), (2, 3), (6, 1)]
    read = [text for texts in own[2].calls for text in texts]
    assert sorted(text for text in read if len(text) < 50) == sorted(text for text in texts if 0 < len(text) < 50)
    assert max(len(model.tokenizer.encode(text)) for text in read) == 64, "the model's maximum"
    assert own[2].tokens == (sum(len(model.tokenizer.encode(text)) for text in read),)
    assert sum(own[0].tokens) == sum(own[1].tokens) == own[2].tokens[0]


def test_user_texts_get_masks_for_fill(directory_of, tmp_path):
    directory, file = directory_of("fill"), tmp_path / "texts.txt"
    file.write_text("the cat sat\nran\n", encoding="utf-8")
    model = bothways.load(directory)
    own = workloads(options_of(directory, texts=file), model, task_method(model))[-1]
    assert sorted(own.calls[0]) == ["[MASK]", "the [MASK] sat"]


@pytest.mark.slow
def test_peers_that_are_missing_or_fail_are_named_and_the_others_measured(directory_of, monkeypatch):
    def fail(place):
        raise ValueError("no such\nkernel")

    def stumble(texts, batch):
        raise RuntimeError("no memory")

    def start(place):
        return lambda texts, batch: np.zeros((len(texts), 24), np.float32)

    def tire(place):
        return lambda texts, batch: start(place)(texts, batch) if len(texts) == 1 else stumble(texts, batch)

    made = {
        "absent": Peer(("no_such_module",), ("vectors",), "", start),
        "broken": Peer((), ("vectors",), "", fail),
        "broken at work": Peer((), ("vectors",), "", lambda place: stumble),
        "broken by many": Peer((), ("vectors",), "", tire),
        "other work": Peer((), ("classes",), "", start),
        "other device": Peer((), ("vectors",), "", start, ("cuda",)),
        "there": Peer((), ("vectors",), "as it comes", start),
    }
    monkeypatch.setattr(measure, "PEERS", made)
    measured = measure.run(options_of(directory_of("embed"), lengths=(23,), peers=True))
    assert measured.left_out == {
        "absent": "not installed: no_such_module",
        "broken": "ValueError: no such kernel",
        "broken at work": "RuntimeError: no memory",
        "broken by many": "RuntimeError: no memory",
    }
    assert [one.side for one in measured.timings] == ["bothways float32", "there"] * 2
    assert [*measured.setups] == ["bothways float32", "there"]
    table = "\n".join(as_table(measured))
    assert "left out: absent (not installed: no_such_module)" in table and "there: as it comes" in table


def test_lengths_and_batch_sizes_are_measured_once_in_ascending_order(directory_of):
    measured = measure.run(options_of(directory_of("embed"), lengths=(23, 9, 23), batches=(2, 1, 2)))
    assert [(one.work.texts_per_call, one.work.length) for one in measured.timings] == [
        (1, 9),
        (2, 9),
        (1, 23),
        (2, 23),
    ]


def test_lengths_beyond_the_window_are_named_and_a_window_may_be_longer(directory_of):
    model = directory_of("embed", max_position_embeddings=700)
    for window, lengths in ((None, {23}), (600, {23, 590})):
        measured = measure.run(options_of(model, lengths=(23, 590), batches=(1,), window=window))
        assert {one.work.length for one in measured.timings} == lengths
        assert ("590 tokens" in measured.left_out) == (window is None)


def test_a_single_system_is_not_drawn_which_a_line_says(directory_of, tmp_path, capsys):
    file = tmp_path / "speed.png"
    main([str(directory_of("embed")), "--lengths", "23", "--batches", "1", "--no-peers", "-o", str(file)])
    lines = capsys.readouterr().out.splitlines()
    assert not file.exists() and "no chart" in lines[-1]
    assert lines[1] == "" and lines[2].startswith("texts ")


@pytest.mark.slow
def test_the_picture_has_the_size_that_is_stated(directory_of, tmp_path, monkeypatch):
    from PIL import Image

    peer = Peer((), ("vectors",), "", lambda config: lambda texts, batch: np.zeros((len(texts), 24), np.float32))
    monkeypatch.setattr(measure, "PEERS", {"a peer": peer})
    file = tmp_path / "texts.txt"
    file.write_text("the cat sat\nran\na dog\n", encoding="utf-8")
    for texts, rows in ((None, 2), (file, 3)):
        measure.run(options_of(directory_of("embed"), out=tmp_path / "speed.png", texts=texts, repeats=1, peers=True))
        inches = picture.LEFT + 2 * picture.COLUMN + picture.RIGHT
        height = picture.TOP + rows * picture.ROW + picture.BOTTOM
        with Image.open(tmp_path / "speed.png") as drawn:
            assert drawn.format == "PNG"
            assert drawn.size == pytest.approx((inches * picture.DPI, height * picture.DPI), abs=1)


def test_names_next_to_the_curves_do_not_overlap():
    from matplotlib.figure import Figure

    axis = Figure().subplots()
    axis.set_ylim(0, 100)
    ends = {"a": 50.0, "b": 50.5, "c": 51.0, "d": 99.0, "e": 100.0}
    picture._names(axis, ends, 1, dict.fromkeys(ends, "black"), room=0.1)
    places = [text.get_position()[1] for text in axis.texts]
    assert len(places) == 5 and min(np.diff(places)) >= 0.1 - 1e-9 and max(places) <= 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lengths": (2,)}, "lengths (2) must be at least 3"),
        ({"lengths": (65, 512)}, "lengths (65) must be at most 64"),
        ({"batches": (4, 0)}, "batches (4 0) must be"),
        ({"repeats": 0}, "repeats (0) must be"),
        ({"out": Path("speed.jpg")}, "speed.jpg: .* .png"),
        ({"out": Path("nowhere/speed.png")}, "nowhere: no such directory"),
    ],
)
def test_invalid_settings_are_errors_before_any_measurement(options, message, directory_of):
    with pytest.raises(InputError, match="^" + message.replace("(", r"\(").replace(")", r"\)")):
        measure.run(options_of(directory_of("embed"), **options))


def test_blank_texts_are_refused_by_file(directory_of, tmp_path):
    (tmp_path / "blank.txt").write_text(" \n\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"blank.txt: "):
        measure.run(options_of(directory_of("embed"), texts=tmp_path / "blank.txt"))


def test_the_command_prints_one_json_object(directory_of, capsys):
    flags = ["--lengths", "23", "--batches", "2", "--repeats", "2", "--no-peers", "--json", "--dtype", "float32"]
    main([str(directory_of("embed")), *flags])
    report = json.loads(capsys.readouterr().out)
    assert [row["side"] for row in report["timings"]] == ["bothways float32"]


@pytest.mark.parametrize(
    ("flags", "message"), [(["no-such-model"], "no-such-model: "), (["--device", "cuda:99"], "'cuda:99'")]
)
def test_the_command_explains_in_one_line_what_failed(flags, message):
    with pytest.raises(SystemExit) as stopped:
        main(flags)
    assert message in stopped.value.code and "\n" not in stopped.value.code


def test_the_command_measures_the_packaged_model_by_default():
    assert parse([], None) == Options() and Options().model == Path("bothways-en")
    assert parse(["m", "--with", "t.csv", "--lengths", "9", "16"], None) == Options(
        model=Path("m"), texts=Path("t.csv"), lengths=(9, 16)
    )


# --- models that only Bothways reads ---------------------------------------------------------------------------------


@pytest.fixture
def int8_of():
    """The int8 model of a checkpoint directory, in memory."""

    def convert(directory):
        loaded = checkpoint.load(directory)
        predictor = Predictor(loaded, dtype="float32", device="cpu")
        layers = candidates(loaded.model, observe(loaded.model, lambda: predictor.hidden_states(TEXTS)))
        int8 = replace_linears(loaded.model, {name: layer.linear for name, layer in layers.items()})
        return replace(loaded, model=int8)

    return convert


@pytest.fixture
def watched_peers(monkeypatch):
    """One peer, which reads the directory with transformers; its configs are listed."""
    configs = []

    def start(config):
        transformers.AutoModel.from_pretrained(config.directory)
        configs.append(config)
        return lambda texts, batch: np.zeros((len(texts), 24), np.float32)

    peers_by_work = {work: Peer((), (work,), "plain", start) for work in ("vectors", "classes")}
    monkeypatch.setattr(measure, "PEERS", peers_by_work)
    return configs


@pytest.mark.parametrize("method", ["embed", "classify", "tag"])
def test_int8_models_are_compared_with_their_encoder_in_float(method, directory_of, int8_of, watched_peers, tmp_path):
    checkpoint.save(int8_of(directory_of(method)), tmp_path / "int8")
    measured = measure.run(options_of(tmp_path / "int8", lengths=(23,), batches=(1,), repeats=1, peers=True))
    assert [config.work for config in watched_peers] == ["vectors"] and not measured.left_out
    assert [one.side for one in measured.timings] == ["bothways float32", "vectors"]
    assert measure.ENCODER_ALONE in "\n".join(as_table(measured)) and "encoder" in as_json(measured)["sides"]["vectors"]


@pytest.mark.parametrize(("pooling", "method"), [("none", "classify"), ("unit", "classify"), ("pair", "embed")])
def test_linear_heads_are_compared_with_their_encoder(pooling, method, make_model, tokenizer, watched_peers, tmp_path):
    model = make_model("bert", {"classes": 3}, pooling="mean", pooler_act=pooling)
    checkpoint.save(Checkpoint(model, tokenizer, labels=("x", "y", "z")), tmp_path / "linear")
    measured = measure.run(options_of(tmp_path / "linear", lengths=(23,), batches=(1,), repeats=1, peers=True))
    assert measured.facts["method"] == method and "encoder" in measured.setups["vectors"]
    assert [config.work for config in watched_peers] == ["vectors"]


def test_packed_models_are_unpacked_for_other_libraries(directory_of, watched_peers, tmp_path):
    save_packed(checkpoint.load(directory_of("embed")), tmp_path / "packed")
    files = sorted(file.name for file in (tmp_path / "packed").iterdir())
    measured = measure.run(options_of(tmp_path / "packed", lengths=(23,), batches=(1,), repeats=1, peers=True))
    assert [config.work for config in watched_peers] == ["vectors"] and not measured.left_out
    assert measure.ENCODER_ALONE not in "\n".join(as_table(measured))
    assert watched_peers[0].directory != tmp_path / "packed"
    assert sorted(file.name for file in (tmp_path / "packed").iterdir()) == files


def test_a_dequantized_model_is_near_the_int8_model(directory_of, int8_of):
    directory = directory_of("embed")
    int8 = int8_of(directory)
    plain = Predictor(replace(int8, model=dequantize(int8.model)), dtype="float32", device="cpu")
    exact = bothways.load(directory, dtype="float32").embed(TEXTS)
    near = Predictor(int8, dtype="float32", device="cpu").embed(TEXTS)
    errors = [np.linalg.norm(vectors - exact, axis=1).mean() for vectors in (near, plain.embed(TEXTS))]
    assert 0 < errors[1] < errors[0] < 0.1


@pytest.mark.parametrize("method", ["classify", "answer"])
def test_texts_come_from_the_column_of_fine_tuning_or_of_the_option(method, directory_of, tmp_path):
    directory, file = directory_of(method), tmp_path / "texts.csv"
    file.write_text("review,note\nthe cat sat,a dog\nthe mat,a cat\n", encoding="utf-8")
    role = "pair" if method == "answer" else "text"
    metadata = {"verb": "finetune", "settings": {f"{role}_column": "review"}}
    (directory / "bothways.json").write_text(json.dumps(metadata), encoding="utf-8")
    model = bothways.load(directory)
    for column, expected in ((None, {"the cat sat", "the mat"}), ("note", {"a dog", "a cat"})):
        settings = options_of(directory, texts=file, text_column=column)
        calls = workloads(settings, model, task_method(model))[-1].calls
        assert {*calls[0]} == expected


# --- peers -----------------------------------------------------------------------------------------------------------


def test_the_batch_size_is_the_one_that_took_least_time(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(peers.time, "perf_counter", lambda: now[0])

    def side(texts, size):
        now[0] += {4: 3.0, 8: 1.0, 16: 2.0}[size]

    assert best_batch_size(side, ["a"] * 20, (4, 8, 16)) == 8


def test_padded_rows_have_an_attention_mask():
    ids_NS, mask_NS = pad_rows([[5, 6, 7], [8]])
    assert ids_NS.tolist() == [[5, 6, 7], [8, 0, 0]]
    assert mask_NS.tolist() == [[1, 1, 1], [1, 0, 0]]


@pytest.mark.parametrize("pooling", ["mean", "max", "cls"])
def test_converted_models_pool_as_the_checkpoint_without_padding(pooling, directory_of):
    directory, texts = directory_of("embed"), ["the cat sat", "dogs ran and ran on the mat"]
    model = bothways.load(directory, dtype="float32")
    ids, mask = map(torch.from_numpy, pad_rows([model.tokenizer.encode(text).ids for text in texts]))
    with torch.inference_mode():
        vectors = peer_files._wrap_model(directory, "vectors", pooling, attention="eager")(ids, mask).numpy()
    assert np.abs(vectors - model.embed(texts, pooling=pooling)).max() < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("name", PEERS)
def test_peers_give_our_results_for_each_text_in_order(name, directory_of, tmp_path):
    """Both do the same work. int8 of a random model is far off, but the nearest text is its own."""
    peer = PEERS[name]
    if peer.missing:
        pytest.skip(f"not installed: {', '.join(peer.missing)}")
    method = {"vectors": "embed", "classes": "classify"}[peer.works[0]]
    directory = directory_of(method)
    texts = ["the cat sat", "a", "dogs ran and ran on the mat . a cat", "mat", "the dog sat on a mat and the cat ran"]
    model = bothways.load(directory, dtype="float32")
    side = peer.start(PeerConfig(directory, tmp_path, peer.works[0], longest=64))
    if method == "embed":
        ours, tolerance = model.embed(texts), {"float32": 1e-5, "bf16": 3e-2, "int8": 0.3}[name.split()[-1]]
    else:
        ours = np.array([[*one.scores.values()] for one in model.classify(texts)])
        tolerance = {"float32": 1e-5, "bf16": 5e-2}[name.split()[-1]]
    for batch in (1, 2, 5):
        outputs = side(texts, batch)
        if method == "classify":
            outputs = np.exp(outputs) / np.exp(outputs).sum(1, keepdims=True)
        assert outputs.dtype == np.float32 and np.abs(outputs - ours).max() < tolerance
