"""Fine-tuning embeddings on synthetic pairs: one text writes in letters what the other writes in digits."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers

import bothways
from bothways.base.errors import InputError
from bothways.measure import metrics
from bothways.model.checkpoint import checkpoint
from bothways.model.losses import forward_losses
from bothways.tasks import forward
from bothways.tasks.embed.examples import PairExamples, text_ids
from bothways.tasks.embed.files import read_pairs
from bothways.tasks.embed.forward import text_vectors
from bothways.tasks.embed.scoring import rank_pairs
from bothways.tasks.embed.training import Embedding, check_dims, score_range
from bothways.tasks.losses import ranking_loss
from bothways.tasks.windows import WindowPolicy
from bothways.text.data.near_duplicates import text_key
from bothways.text.data.pairs import NO_NEGATIVES, read_pair_file
from bothways.training.finetuning.finetune import run as run_task
from tests.training.finetuning.gallery import LETTERS
from tests.training.finetuning.gallery import pair_rows as rows_of


def scored_rows(seed, number):
    """Pairs with how much they have in common, from 0 to 3."""
    rng = np.random.default_rng(seed)
    rows = []
    for row in rows_of(seed, number):
        signs = [LETTERS.index(word) for word in row["text"].split()[1:]]
        shared = int(rng.integers(4))
        others = rng.choice([sign for sign in range(10) if sign not in signs], 3 - shared, replace=False)
        rows.append({"text": row["text"], "pair": " ".join(map(str, [*signs[:shared], *others])), "label": shared})
    return rows


@pytest.fixture
def run(gallery):
    return gallery.embed


@pytest.fixture(scope="module")
def pairs(gallery):
    return gallery.settings("embed")


@pytest.fixture
def start(pairs):
    """A random encoder with the heads and the pooler that pre-training leaves."""
    return pairs.model


@pytest.fixture
def result(run):
    return run.result


@pytest.fixture(scope="module")
def scored(pairs, table, tmp_path_factory):
    sizes = {"train": 240, "dev": 45, "test": 61}
    splits = {name: table(scored_rows(seed, count)) for seed, (name, count) in enumerate(sizes.items())}
    return replace(pairs, **splits, out=tmp_path_factory.mktemp("scored") / "run", matryoshka_dims=(5,))


def figures_of(result):
    return json.loads((result.directory / "bothways.json").read_text(encoding="utf-8"))["figures"]


def task_of(settings):
    return Embedding.build(settings, checkpoint.load(settings.model), read_pairs(settings))


def test_texts_learn_to_find_their_pairs(result):
    assert (result.task, result.metric, result.split, result.failed) == ("embed", "ndcg@10", "test", 0)
    assert result.mean > 0.8 and figures_of(result)["test"]["baseline"] < 0.3


def test_a_run_has_no_table_of_predictions_nor_of_label_errors(result):
    names = {file.name for file in result.directory.iterdir()}
    assert names == {"model", "report.html", "curves.svg", "metrics.jsonl", "bothways.json"}


def test_the_page_has_scores_alone(result):
    assert "queries" in figures_of(result)["test"]
    page = (result.directory / "report.html").read_text(encoding="utf-8")
    assert "ndcg@10" in page and "queries" not in page


def test_the_data_and_the_metric_before_training_are_logged(run, result):
    assert "train: 240 pairs of 471 different texts, tokens per pair: median 13" in run.messages[0]
    assert "\nbefore training: dev ndcg@10" in run.messages[0]
    assert f"test ndcg@10 {figures_of(result)['test']['baseline']:.4f}" in run.messages[0]


@pytest.mark.slow
def test_cosines_learn_to_be_scores_with_all_numbers_and_with_the_first_five(scored, tmp_path):
    result = run_task(replace(scored, epochs=12.0, out=tmp_path / "run"))
    figures = figures_of(result)["test"]
    bounds = {"spearman_interval", "pearson_interval"}
    assert {*figures} == {"loss", "spearman", "pearson", "spearman_5", "baseline", "best_step", "rows", *bounds}
    assert result.metric == "spearman" and result.mean > 0.6 > abs(figures["baseline"]) + 0.4
    assert figures["spearman"] == result.mean and figures["spearman_5"] > 0.5


def test_the_first_message_has_the_range_of_the_scores_and_the_pairs_that_splits_share(scored):
    described = task_of(scored).report.describe()
    assert "scores: 0 is cosine 0, 3 is cosine 1\n1 of 61 examples of test are also in train (" in described


@pytest.mark.slow
def test_a_run_that_learned_nothing_is_no_better_than_its_start(pairs, tmp_path):
    result = run_task(replace(pairs, learning_rate=1e-12, epochs=0.1, seeds=2, out=tmp_path / "run"))
    assert result.failed == 2 and result.mean == figures_of(result)["test"]["baseline"]


@pytest.mark.slow
def test_the_same_seed_gives_the_same_model_with_dropout_on(pairs, tmp_path, global_seed):
    short = replace(pairs, epochs=0.5, dropout=0.1)
    for name, seed in (("one", 3), ("same", 3), ("other", 4)):
        torch.manual_seed(len(name))
        run_task(replace(short, out=tmp_path / name, seed=seed))
    weights = [(tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("one", "same", "other")]
    assert weights[0] == weights[1] != weights[2]


def test_training_starts_from_the_bare_encoder_with_the_requested_dropout(pairs):
    task = task_of(replace(pairs, dropout=0.2))
    initial = task.initial_checkpoint(7)
    assert (initial.model.config.hidden_dropout_prob, initial.model.config.attention_probs_dropout_prob) == (0.2, 0.2)
    assert {name.split(".")[0] for name in initial.model.state_dict()} == {"encoder"}
    old = task.pretrained.model.state_dict()
    assert all(torch.equal(value, old[name]) for name, value in initial.model.state_dict().items())


@pytest.mark.slow
def test_few_numbers_of_a_vector_do_better_when_they_were_trained_for_it(pairs, result, tmp_path):
    trained = run_task(replace(pairs, matryoshka_dims=(2,), out=tmp_path / "run"))
    rows = rows_of(2, 61)
    ids_2N = task_of(pairs).data["test"].ids
    scores = {}
    for name, run in (("trained", trained), ("not", result)):
        model = bothways.load(run.model_directory, dtype="float32")
        vectors = np.stack([model.embed([row[part] for row in rows]) for part in ("text", "pair")])
        scores[name] = metrics.ranking_scores(*rank_pairs(vectors[..., :2], ids_2N))["ndcg@10"]
    assert scores["trained"] > scores["not"] + 0.1
    assert scores["trained"] == pytest.approx(figures_of(trained)["test"]["ndcg@10_2"], abs=1e-6)


# --- what is saved ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_sentence_transformers_loads_the_model_and_gives_the_same_vectors(pooling, pairs, result, tmp_path):
    from sentence_transformers import SentenceTransformer

    transformers.logging.disable_progress_bar()
    run = result
    if pooling == "max":
        run = run_task(replace(pairs, pooling="max", epochs=0.1, out=tmp_path / "run"))
    texts = [row["text"] for row in rows_of(5, 9)] + ["cat " * 30, ""]
    ours = bothways.load(run.model_directory, dtype="float32")
    assert ours.checkpoint.pooling == pooling
    theirs = SentenceTransformer(str(run.model_directory), device="cpu").encode(texts, show_progress_bar=False)
    assert np.abs(ours.embed(texts) - theirs).max() < 1e-5


def test_transformers_finds_the_encoder_complete_with_the_pooler_it_had(start, result):
    transformers.logging.disable_progress_bar()
    peer, report = transformers.BertModel.from_pretrained(result.model_directory, output_loading_info=True)
    assert not any(report.values())
    before = checkpoint.load(start).model
    assert torch.equal(peer.pooler.dense.weight, before.pooler.dense.weight)
    assert not torch.equal(peer.embeddings.word_embeddings.weight, before.encoder.embeddings.words.weight)


# --- vectors of texts of any length -----------------------------------------------------------------------------------

LONG = [["cat " * 90, "dog", "the b c d", ""], ["a 1 2", "on the mat " * 40, "sat", "ran " * 61]]


@pytest.fixture(scope="module")
def long_texts(make_predictor, pairs):
    read_by = make_predictor().checkpoint
    return PairExamples.encode(
        LONG,
        None,
        read_by.tokenizer,
        WindowPolicy(40, 10, pairs.long, max_length=read_by.model.config.max_position_embeddings),
    )


@pytest.mark.parametrize("at_once", [10_000, 70])
@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
def test_vectors_in_training_are_those_of_prediction(pooling, at_once, make_predictor, long_texts):
    predictor, rows = make_predictor(), [2, 0, 3, 1]
    assert sum(int((windows.num_windows > 1).sum()) for windows in long_texts.windows) == 3
    with torch.no_grad():
        trained = text_vectors(predictor.module, long_texts.batch(rows), pooling, at_once)
    for vectors, part in zip(trained, LONG, strict=True):
        expected = predictor.embed([part[row] for row in rows], pooling=pooling, normalize=False, window=40, overlap=10)
        assert vectors.dtype is torch.float32 and np.abs(vectors.numpy() - expected).max() < 1e-5


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
def test_long_texts_train_in_bounded_memory_with_the_same_gradient(pooling, make_model, long_texts):
    batch, gradients, saved = long_texts.batch(range(4)), [], []
    for at_once in (10_000, 70):
        model = make_model().train()
        kept = []
        with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.numel()) or x, lambda x: x):  # noqa: B023
            vectors = text_vectors(model, batch, pooling, at_once)
        ranking_loss(vectors, batch.labels, temperature=0.5)[0].backward()
        gradients.append(torch.cat([value.grad.flatten() for value in model.parameters()]))
        saved.append(sum(kept))
    assert (gradients[0] - gradients[1]).norm() < 1e-5 * gradients[0].norm()
    assert saved[1] < saved[0] / 10


def test_recomputed_activations_have_the_same_dropout(make_model, long_texts, monkeypatch, global_seed):
    batch, gradients = long_texts.batch(range(4)), []
    for keep_all in (False, True):
        if keep_all:
            monkeypatch.setattr(forward, "checkpoint", lambda encode, *arguments, use_reentrant: encode(*arguments))
        model = make_model(hidden_dropout_prob=0.2, attention_probs_dropout_prob=0.2).train()
        torch.manual_seed(5)
        text_vectors(model, batch, "mean", 70).square().sum().backward()
        gradients.append(torch.cat([value.grad.flatten() for value in model.parameters()]))
    assert torch.equal(*gradients)


@pytest.mark.parametrize("states", ["pairs", "texts"])
def test_recomputation_repeats_the_draws_of_the_device_that_computes(states, make_model, long_texts, monkeypatch):
    calls = []
    again = forward.checkpoint
    monkeypatch.setattr(
        forward,
        "checkpoint",
        lambda *arguments, **options: calls.append(arguments[1:]) or again(*arguments, **options),
    )
    batch, model = long_texts.batch(range(4)), make_model()
    text_vectors(model, batch, "mean", 70) if states == "pairs" else forward.window_vectors(model, batch, 70)
    assert len(calls) > 1 and all(any(isinstance(one, torch.Tensor) for one in arguments) for arguments in calls)


def test_pairs_alone_in_their_step_are_an_error_or_reported(pairs):
    with pytest.raises(InputError, match=r"batch_tokens \(8\) "):
        task_of(replace(pairs, batch_size=None, batch_tokens=8))
    task = task_of(replace(pairs, batch_size=None, batch_tokens=24))
    assert task.num_isolated and f"{task.num_isolated} pairs are alone" in task.report.describe()
    assert "alone" not in task_of(pairs).report.describe()


def test_pairs_compete_within_a_micro_batch_and_scores_by_themselves(pairs, scored):
    for settings, name in ((pairs, "pairs"), (scored, "scores")):
        task = task_of(settings)
        model = task.initial_checkpoint(0).model.eval()
        batches = [task.data["train"].batch(rows) for rows in (range(9), range(4), range(4, 9))]
        (whole, *parts) = [forward_losses(task.objective)(model, batch)[name] for batch in batches]
        assert [task.objective.counts(batch) for batch in batches] == [{name: 9}, {name: 4}, {name: 5}]
        assert [number for _, number in (whole, *parts)] == [9, 4, 5]
        difference = (whole[0] - sum(value for value, _ in parts)).item()
        assert difference > 1 if name == "pairs" else abs(difference) < 1e-4


# --- how well pairs are found -----------------------------------------------------------------------------------------


def test_reciprocal_ranks_are_those_of_a_slow_count():
    vectors_2NH = torch.randn((2, 37, 7), generator=torch.Generator().manual_seed(0))
    ids_2N = np.arange(74).reshape(2, 37)
    for row, same in ((5, 2), (36, 2), (8, 7)):  # texts 2, 5, 36 are one with three pairs
        ids_2N[0, row], vectors_2NH[0, row] = ids_2N[0, same], vectors_2NH[0, same]
    ids_2N[1, 11], vectors_2NH[1, 11] = ids_2N[0, 20], vectors_2NH[0, 20]  # text 20 is the pair of text 11
    ids_2N[1, 30], vectors_2NH[1, 30] = ids_2N[0, 30], vectors_2NH[0, 30]  # text 30 is its own pair
    total, texts = 0.0, sorted(set(ids_2N[0].tolist()))
    for text in texts:
        own = {pair for other, pair in ids_2N.T.tolist() if other == text}
        vector = vectors_2NH[0, ids_2N[0].tolist().index(text)]
        cosines = {
            pair: torch.cosine_similarity(vector, vectors_2NH[1, row], dim=0).item()
            for row, pair in enumerate(ids_2N[1].tolist())
            if pair != text or pair in own
        }
        ranked = sorted(cosines, key=cosines.__getitem__, reverse=True)[:10]
        total += next((1 / rank for rank, pair in enumerate(ranked, 1) if pair in own), 0.0)
    scores = metrics.ranking_scores(*rank_pairs(vectors_2NH.numpy(), ids_2N))
    assert scores["queries"] == len(texts) == 34
    assert scores["mrr@10"] == pytest.approx(total / 34, rel=1e-6)


def ndcg(vectors_RNH, texts):
    """nDCG@10 by a slow count: each query among all other texts, near duplicates being one. texts: [R][N]."""
    vector_by_key = {}
    for column, vectors_NH in zip(texts[1:], vectors_RNH[1:], strict=True):
        for text, vector_H in zip(column, vectors_NH, strict=True):
            vector_by_key.setdefault(text_key(text), vector_H)
    total, queries = 0.0, {}
    for text, vector_H in zip(texts[0], vectors_RNH[0], strict=True):
        queries.setdefault(text_key(text), vector_H)
    for query, vector_H in queries.items():
        own = {text_key(pair) for text, pair in zip(*texts[:2], strict=True) if text_key(text) == query}
        cosines = {
            passage: torch.cosine_similarity(vector_H, other_H, dim=0).item()
            for passage, other_H in vector_by_key.items()
            if passage != query or passage in own
        }
        ranked = sorted(cosines, key=cosines.__getitem__, reverse=True)[:10]
        gain = sum(1 / np.log2(2 + rank) for rank, passage in enumerate(ranked) if passage in own)
        total += gain / sum(1 / np.log2(2 + rank) for rank in range(min(10, len(own))))
    return total / len(queries)


SEARCHED = {
    "pairs": [[f"q {n}" for n in range(19)], [f"p {n}" for n in range(19)]],
    "negatives": [[f"q {n}" for n in range(19)], [f"p {n}" for n in range(19)], [f"n {n}" for n in range(19)]],
    "queries of several rows": [
        [f"Q {n // 3}!" if n % 3 else f"q  {n // 3}" for n in range(19)],
        [*"abcdefghijklmnopqrs"],
    ],
    "passages in other spellings": [[*"abcdefghij"], [*"klmnopqrst"], [f"{text.upper()}." for text in "srqponmlkz"]],
}


@pytest.mark.parametrize("name", SEARCHED)
def test_each_query_searches_all_other_texts_of_the_split(name):
    texts = SEARCHED[name]
    shape = len(texts), len(texts[0]), 7
    vectors_RNH = torch.randn(shape, generator=torch.Generator().manual_seed(3))
    scores = metrics.ranking_scores(*rank_pairs(vectors_RNH.numpy(), text_ids(texts)))
    assert scores["ndcg@10"] == pytest.approx(ndcg(vectors_RNH, texts), rel=1e-6)
    assert scores["queries"] == len({text_key(text) for text in texts[0]})


# "what" has two right passages, in rows of different steps; both are negatives somewhere, in other spellings.
STEPS = [["what", "who", "where", "What?"], ["a b", "c d", "on the mat", "e f"], ["ran", "E  f.", "sat", "C d"]]


@pytest.mark.parametrize(
    ("rows", "ignored"),
    [
        ([0, 2], {}),
        ([0, 1], {"what": {"E  f."}}),  # as row 3 says, which is in another step
        ([1, 3], {"who": {"C d"}, "What?": {"E  f."}}),
        ([0, 1, 3], {"what": {"e f", "E  f."}, "who": {"C d"}, "What?": {"a b", "E  f."}}),
    ],
)
def test_texts_that_match_a_query_in_any_row_do_not_push_it_away(rows, ignored, pairs, table):
    file = table([dict(zip(("query", "passage", "negative"), row, strict=True)) for row in zip(*STEPS, strict=True)])
    task = task_of(replace(pairs, train=file, dev=file, test=None, temperature=1.0))
    batch = task.data["train"].batch(rows)
    vectors_RNH = torch.randn((3, len(rows), 7), generator=torch.Generator().manual_seed(1))

    def pushes(vectors_RNH):
        """The gradient of the vector of each query, [N, H]."""
        vectors_RNH = vectors_RNH.clone().requires_grad_()
        task.objective.label_loss(vectors_RNH, batch)[0].backward()
        return vectors_RNH.grad[0]

    found = {}
    for role in (1, 2):
        for column, row in enumerate(rows):
            moved_RNH = vectors_RNH.clone()
            moved_RNH[role, column] += 1.0
            is_same_N = (pushes(moved_RNH) == pushes(vectors_RNH)).all(-1)
            for index in is_same_N.nonzero().flatten().tolist():
                found.setdefault(STEPS[0][rows[index]], set()).add(STEPS[role][row])
    assert found == ignored


def test_sizes_are_those_a_vector_has_and_end_with_all_of_it():
    assert check_dims((16, 8, 16), 24) == (8, 16, 24) and check_dims((), 24) == (24,)
    for wrong in (0, 25):
        with pytest.raises(InputError, match=rf"matryoshka_dims \({wrong}\) .*\(24\)"):
            check_dims((8, wrong), 24)


@pytest.mark.parametrize(
    ("scores", "expected"), [([1, 5, 3.5], (1, 5)), ([0.2, 1, 0.7], (0, 1)), ([-1, 0.5], (0, 1)), ([-1, 2], (-1, 2))]
)
def test_scores_that_can_be_cosines_stay_and_others_are_scaled_to_0_to_1(scores, expected):
    assert score_range(np.array(scores), "pairs.csv") == expected
    with pytest.raises(InputError, match=" 3;.*--objective pairs"):
        score_range(np.array([3.0, 3.0]), "pairs.csv")


# --- tables -----------------------------------------------------------------------------------------------------------


def test_negatives_are_read_and_compete(pairs, table):
    rows = [{**row, "negative": f"{index} sat"} for index, row in enumerate(rows_of(0, 40))]
    settings = replace(pairs, train=table(rows), dev=table(rows), test=None)
    task, without = task_of(settings), task_of(replace(pairs, train=settings.train))
    assert task.pairs["dev"].texts[2][7] == "7 sat" and "hard negatives" in task.report.describe()
    batch = task.data["train"].batch(range(6))
    assert batch.labels.shape == (3, 6)
    model = task.initial_checkpoint(0).model.eval()
    plain = replace(task.data["train"], windows=task.data["train"].windows[:2], ids=task.data["train"].ids[:2])
    losses = forward_losses(task.objective)(model, batch)
    assert losses["pairs"][0] > forward_losses(without.objective)(model, plain.batch(range(6)))["pairs"][0]


def test_negatives_go_by_their_name_in_any_case_and_of_several_one_is_to_be_named(pairs, tmp_path, table):
    rows = [{"Anchor": f"a {row}", "Positive": f"b {row}", "Negative": f"c {row}"} for row in range(9)]
    settings = replace(pairs, train=table(rows, "t.csv"), dev=None, test=None)
    assert len(read_pairs(settings)["train"].texts) == 3
    rows = [{**row, "negative_2": "d"} for row in rows]
    for row in rows:
        row["negative_1"] = row.pop("Negative")
    several = replace(settings, train=table(rows, "s.csv"))
    with pytest.raises(InputError, match=r"s\.csv: negative_2, negative_1 .*--negative-column"):
        read_pairs(several)
    assert read_pairs(replace(several, negative_column="negative_2"))["train"].texts[2] == ["d"] * 7
    read = read_pair_file(several.train, several, "auto", NO_NEGATIVES)
    assert len(read.texts) == 2 and read.scores is None  # as `evaluate` reads them
    scored = [{**row, "negative_score": 1} for row in rows_of(0, 9)]
    assert len(read_pairs(replace(settings, train=table(scored, "n.csv")))["train"].texts) == 2


def test_empty_texts_are_counted_and_reported(pairs, tmp_path, table):
    rows = [{"text": "a", "pair": ""}, *rows_of(0, 20), {"text": " ", "pair": "b"}]
    task = task_of(replace(pairs, train=table(rows, "t.csv")))
    assert "2 of 22 pairs of train have an empty text" in task.report.warnings


def test_scores_are_used_if_present_unless_the_objective_is_pairs(pairs, tmp_path, table):
    rows = [{"sentence1": "a b", "sentence2": str(index), "score": index % 4 / 2} for index in range(9)]
    file = table(rows, "train.csv")
    settings = replace(pairs, train=file, dev=file, test=None)
    assert read_pairs(settings)["dev"].scores.tolist() == [index % 4 / 2 for index in range(9)]
    assert read_pairs(replace(settings, objective="pairs"))["dev"].scores is None
    assert task_of(settings).data["train"].scores.max() == 1.0  # 0 to 1.5 in the file


def test_pairs_of_one_text_stay_together_when_the_table_is_divided(pairs, tmp_path, table):
    rows = [{"text": f"a {index // 3}", "pair": f"b {index}"} for index in range(120)]
    splits = read_pairs(replace(pairs, train=table(rows, "train.csv"), dev=None, test=None))
    assert {name: len(part.texts[1]) for name, part in splits.items()} == {"train": 96, "dev": 12, "test": 12}
    texts = [set(part.texts[0]) for part in splits.values()]
    assert sum(map(len, texts)) == len(set.union(*texts)) == 40


@pytest.mark.parametrize(
    ("row", "changes", "message"),
    [
        ({"text": "a"}, {}, r"train\.csv: row \d+ \(line 2\): .*--pair-column"),
        (
            {"text": "a", "pair": "b", "label": "same"},
            {},
            r"csv: row \d+ \(line 2\): .*'same' .*--objective pairs; 3 rows .*train\.csv: row \d+ \(line 2\), row",
        ),
        ({"text": "a", "pair": "b", "label": "inf"}, {}, r"train\.csv: row \d+ \(line 2\): .*'inf' .*finite"),
        ({"text": "a", "pair": "b"}, {}, r"train.csv: a single pair"),
        (
            {"text": "a", "pair": "b", "negative": ["c", "d"]},
            {},
            r"jsonl: row \d+ \(line 1\): 'negative' .*list.*negative-c",
        ),
        ({"text": "a", "pair": "b", "negative": float("nan")}, {}, r"jsonl: row \d+ \(line 1\): 'negative' is missing"),
        ({"text": "a", "pair": "b"}, {"objective": "scores"}, r"train.csv: no column 'label'.*--label-column"),
        ({"text": "a", "pair": "b"}, {"negative_column": "c"}, r"'c' \(.*text, pair\)"),
        ({"text": "a", "pair": "b"}, {"objective": "scores", "negative_column": "c"}, r"negative_column \(c\) is for"),
    ],
)
def test_tables_without_usable_pairs_are_refused(row, changes, message, pairs, table):
    file = table([row] * 3, "train.jsonl" if "negative" in row else "train.csv")
    with pytest.raises(InputError, match=message):
        read_pairs(replace(pairs, train=file, **changes))


# --- mined negatives --------------------------------------------------------------------------------------------------


@pytest.fixture
def mined(pairs, table, tmp_path):
    """Settings of a run whose negatives are found in a folder of notes."""
    rows = rows_of(11, 40)
    notes = table([{"text": row["pair"]} for row in rows], "notes.csv").parent
    options = {"dev": None, "test": None, "epochs": 1.0, "baselines": False, "out": tmp_path / "run"}
    return replace(pairs, train=table(rows), negatives_from=notes, **options)


def test_a_search_finds_a_negative_for_each_pair(mined):
    bothways.train(mined)
    rows = [json.loads(line) for line in (mined.out / "rows.jsonl").read_text(encoding="utf-8").splitlines()]
    keys = [(text_key(row["pair"]), text_key(row["negative"])) for row in rows]
    assert len(rows) > 30 and all(pair != negative for pair, negative in keys)
    settings = json.loads((mined.out / "bothways.json").read_text(encoding="utf-8"))["settings"]
    assert settings["train"].endswith("rows.jsonl") and settings["negatives_from"] == str(mined.negatives_from)


def test_a_finished_file_of_negatives_is_used_again(mined, monkeypatch):
    def stop(row):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bothways.train(mined, callbacks=[stop])
    monkeypatch.setattr("bothways.search.mining.open_embed_pairs", lambda *settings: pytest.fail("mined again"))
    assert bothways.train(replace(mined, resume=True)).directory == mined.out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"negative_column": "other"}, "negatives_from .* leave out --negative-column other"),
        ({"objective": "scores"}, "negatives_from .* leave out --objective scores"),
    ],
)
def test_the_message_on_negatives_from_two_places(mined, options, message):
    with pytest.raises(InputError, match=message):
        replace(mined, **options)
