"""Objectives other than BERT's: each learns, resumes exactly, has the same losses in micro-batches, and has the losses
of a slow formula. On text made here; sizes odd and distinct: T=43, V=97, H=24."""

import shutil
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
import torch
import transformers

from bothways.base.errors import InputError
from bothways.base.log import messages_to
from bothways.inference.predictor import Predictor
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.contents import Checkpoint
from bothways.model.config import SIZES
from bothways.model.disentangled import table_rows
from bothways.model.vocabulary_scores import sample_words
from bothways.settings import Export, Pretrain
from bothways.shrink.export import export
from bothways.text.batch import Batch
from bothways.text.tokenizer.tokenizer import Tokenizer
from bothways.training.pretraining import pretrain
from bothways.training.pretraining.modules import BoundaryModel, EnhancedMaskDecoder, ReplacedTokenModel, runs
from bothways.training.pretraining.objectives import build_objective
from bothways.training.run import read_metrics
from tests.isolation import watch

pytestmark = pytest.mark.slow

PEOPLE = dict(zip("king queen farmer sailor doctor".split(), "castle palace field harbour clinic".split(), strict=True))
V = 97
CASES = {  # name: settings, the model's type, a loss that has to fall, the class of transformers
    "albert": ({"family": "albert"}, "albert", "masked_lm", "AlbertForPreTraining"),
    "distilbert": ({"family": "distilbert"}, "distilbert", "masked_lm", "DistilBertForMaskedLM"),
    "electra": ({"family": "electra"}, "electra", "replaced", "ElectraForPreTraining"),
    "generator": ({"family": "electra", "objective": "masked"}, "electra", "masked_lm", "ElectraForMaskedLM"),
    "roberta": ({"family": "roberta"}, "roberta", "masked_lm", "RobertaForMaskedLM"),
    "spanbert": (
        {"objective": "boundary", "masking": "spans", "pairs": "none"},
        "bert",
        "boundary",
        "BertForMaskedLM",
    ),
    "longformer": ({"family": "longformer"}, "longformer", "masked_lm", "LongformerForMaskedLM"),
    "bigbird": ({"family": "big_bird"}, "big_bird", "masked_lm", "BigBirdForMaskedLM"),
    "modernbert": ({"family": "modernbert"}, "modernbert", "masked_lm", "ModernBertForMaskedLM"),
    "deberta": ({"family": "deberta"}, "deberta", "masked_lm", "DebertaForMaskedLM"),
    "debertav3": ({"family": "deberta-v2"}, "deberta-v2", "replaced", None),
    "plain words": (
        {"family": "deberta-v2", "objective": "masked"},
        "deberta-v2",
        "masked_lm",
        "DebertaV2ForMaskedLM",
    ),
    "forward": ({"objective": "forward"}, "bothways-oneway", "next_word", None),
    "halves": ({"objective": "halves"}, "bothways-oneway", "previous_word", None),
}

LEARN_SLOWLY = ("electra", "spanbert")
# Trained in soak/: what each adds to the others is its family's layers, which tests/parity compares with transformers'.
IN_SOAK = ("generator", "longformer", "bigbird", "deberta", "plain words")


def corpus(seed, number):
    """Documents about one person each, whose place follows from who it is."""
    draw = np.random.default_rng(seed)
    texts = []
    for _ in range(number):
        who = draw.choice(list(PEOPLE))
        starts = draw.choice(["Every day", "At night", "In spring", "Long ago"], int(draw.integers(4, 9)))
        texts.append("\n".join(f"{start} the {who} of the {PEOPLE[who]} was very glad." for start in starts))
    return "\n\n".join(texts) + "\n"


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    folder = tmp_path_factory.mktemp("objectives")
    (folder / "train.txt").write_text(corpus(0, 60), encoding="utf-8")
    (folder / "new.txt").write_text(corpus(1, 12), encoding="utf-8")
    Tokenizer.learn([corpus(0, 60)], size=130).save(folder / "tokenizer")
    settings = Pretrain(
        corpus=(folder / "train.txt",),
        heldout=(folder / "new.txt",),
        tokenizer=folder / "tokenizer",
        out=folder / "run",
        model="tiny",
        steps=40,
        batch_tokens=512,
        max_length=48,
        dropout=0.0,
        learning_rate=3e-3,
        evaluate_every=40,
        checkpoint_every=0,
        seed=7,
        dtype="float32",
    )
    with mock.patch.dict(SIZES, tiny=SIZES["tiny"].replace(initializer_range=0.06)):  # learns in fewer steps
        yield settings


@pytest.fixture(scope="module")
def trained(settings):
    made = {}

    def get(case):
        if case not in made:
            longer = {"steps": 60, "evaluate_every": 60} if case in LEARN_SLOWLY else {}
            own = {"out": settings.out.with_name(case), **longer, **CASES[case][0]}
            made[case] = pretrain.run(replace(settings, **own))
            watch(settings.out.parent)
        return made[case]

    return get


@pytest.mark.parametrize("case", [case for case in CASES if case not in IN_SOAK])
def test_every_objective_learns_and_leaves_a_model_of_its_family_which_transformers_loads(case, trained, global_seed):
    assert_learns_and_is_loaded(case, trained)


def assert_learns_and_is_loaded(case, trained):
    result = trained(case)
    _, model_type, loss, architecture = CASES[case]
    with messages_to(pytest.fail):
        loaded = checkpoint.load(result.model_directory)
    assert loaded.model_type == model_type
    curve = [row[loss] for row in read_metrics(result.directory) if row["split"] == "train"]
    assert np.mean(curve[-5:]) < 0.75 * np.mean(curve[:5])
    assert result.figures["perplexity"] < 0.6 * result.figures["unigram_perplexity"]
    if case in ("electra", "debertav3"):
        assert result.figures["replaced_accuracy"] > result.figures["chance"]
    if case == "albert":
        assert 0 < result.figures["sentence_order_accuracy"] < 1
    vectors = Predictor(loaded, dtype="float32", device="cpu").embed(["the king", "the queen of the palace"])
    assert vectors.shape == (2, 128) and bool(np.isfinite(vectors).all())
    if architecture:
        transformers.logging.disable_progress_bar()
        _, loading_info = getattr(transformers, architecture).from_pretrained(
            result.model_directory, output_loading_info=True
        )
        unread = {"bert.pooler.weight", "bert.pooler.bias"} if case == "bigbird" else set()  # made, but not for words
        assert not {kind: names for kind, names in loading_info.items() if {*names} - unread}


@pytest.mark.parametrize("case", ["roberta", "distilbert", "albert"])
def test_transformers_reads_pairs_with_the_files_each_leaves(case, trained, global_seed):
    """A family without a second segment gets none."""
    texts = "the king of the castle", "the queen"
    inputs = transformers.AutoTokenizer.from_pretrained(trained(case).model_directory)(*texts, return_tensors="pt")
    peer = transformers.AutoModel.from_pretrained(trained(case).model_directory).eval()
    with torch.no_grad():
        theirs = peer(**inputs).last_hidden_state[0]
    ours = Predictor(checkpoint.load(trained(case).model_directory), dtype="float32", device="cpu")
    encoding = ours.tokenizer.encode(*texts)
    assert inputs["input_ids"][0].tolist() == encoding.ids
    with torch.no_grad():
        assert float((ours.module(Batch.from_encodings([encoding])) - theirs).abs().max()) < 1e-5


@pytest.mark.parametrize("case", ["forward", "halves"])
def test_other_libraries_do_not_load_one_way_models(case, trained):
    with pytest.raises(ValueError, match="bothways-oneway"):
        transformers.AutoModel.from_pretrained(trained(case).model_directory)


@pytest.mark.parametrize("case", ["forward", "halves"])
def test_one_way_models_cannot_be_exported(case, trained, tmp_path):
    pytest.importorskip("onnx", reason="the extra onnx is not installed")
    with pytest.raises(InputError, match="one-directional"):
        export.run(Export(model=trained(case).model_directory, out=tmp_path / "onnx"))
    assert not (tmp_path / "onnx").exists()


RESUMED = ["electra", "spanbert", "halves", "deberta", "debertav3"]  # soak/test_objectives.py has all of them
CUT = ["electra", "spanbert", "forward", "halves", "deberta", "debertav3"]


@pytest.mark.parametrize("case", ["debertav3"])
def test_a_resumed_run_has_the_losses_of_an_uninterrupted_run(case, settings, tmp_path):
    assert_resumes_to_the_same_losses(case, settings, tmp_path)


def assert_resumes_to_the_same_losses(case, settings, tmp_path):
    whole = replace(settings, steps=9, dropout=0.1, checkpoint_every=4, **CASES[case][0])
    pretrain.run(replace(whole, out=tmp_path / "whole"))
    shutil.copytree(tmp_path / "whole", tmp_path / "cut")
    shutil.rmtree(tmp_path / "cut" / "model")
    shutil.rmtree(tmp_path / "cut" / "checkpoints" / "step-00000009")
    resumed = []
    pretrain.run(replace(whole, out=tmp_path / "cut", resume=True), callbacks=[resumed.append])
    assert resumed[0]["step"] == 9
    losses = [[row["loss"] for row in read_metrics(tmp_path / name)] for name in ("whole", "cut")]
    assert losses[0] == losses[1]
    weights = [(tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("whole", "cut")]
    assert weights[0] == weights[1]


@pytest.mark.parametrize("case", ["electra"])
def test_micro_batches_change_no_loss(case, settings, tmp_path):
    assert_micro_batches_change_no_loss(case, settings, tmp_path)


def assert_micro_batches_change_no_loss(case, settings, tmp_path):
    for parts in (1, 3):
        short = replace(settings, steps=4, out=tmp_path / str(parts), gradient_accumulation=parts, **CASES[case][0])
        pretrain.run(short)
    one, three = ([row["loss"] for row in read_metrics(tmp_path / str(parts))] for parts in (1, 3))
    assert one == pytest.approx(three, rel=1e-5)


# --- slow formulas --------------------------------------------------------------------------------------------------


def batch_of(places, lengths=(23, 7, 13), seed=0):
    """Texts whose first and last tokens are special, with masked places and their original tokens."""
    generator = torch.Generator().manual_seed(seed)
    lengths = np.array(lengths)
    ids = torch.randint(5, V, (int(lengths.sum()),), generator=generator)
    for end in lengths.cumsum():
        ids[end - 1] = 3
    ids[lengths.cumsum() - lengths] = 2
    masked = torch.tensor(places)
    labels = ids[masked].clone()
    ids[masked] = 4
    draws = torch.rand(len(masked), generator=generator, dtype=torch.float64)
    plain = Batch.from_arrays(ids.numpy(), np.zeros(len(ids), np.int64), lengths)
    return replace(
        plain, masked_positions=masked, masked_labels=labels, masked_draws=draws, labels=torch.zeros(3).long()
    )


def test_runs_of_masked_places_end_where_a_place_is_not_masked():
    first, last = runs(torch.tensor([1, 2, 3, 5, 8, 9]))
    assert first.tolist() == [1, 1, 1, 5, 8, 8] and last.tolist() == [3, 3, 3, 5, 9, 9]
    assert [part.tolist() for part in runs(torch.zeros(0).long())] == [[], []]


def test_boundary_predictions_depend_on_the_tokens_around_the_span(make_model, global_seed):
    model = make_model("bert", {"masked_words": 0})
    module = BoundaryModel(model, seed=3).eval()
    batch = batch_of([1, 2, 3, 5, 21, 24, 25, 26, 27, 28, 31])
    objective = build_objective("boundary")
    losses = objective.losses(module, batch, objective.forward(module, batch))
    head, hidden_TH = module.head, model(batch)
    table, bias = model.encoder.embeddings.words.weight, model.heads["masked_words"].bias
    total, masked = 0.0, set(batch.masked_positions.tolist())
    for place, word in zip(batch.masked_positions.tolist(), batch.masked_labels.tolist(), strict=True):
        before = after = place
        while before in masked:
            before -= 1
        while after in masked:
            after += 1
        x = torch.cat([hidden_TH[before], hidden_TH[after], head.positions.weight[place - before - 1]])
        for linear, norm in ((head.first, head.first_norm), (head.second, head.second_norm)):
            x = norm(torch.nn.functional.gelu(linear(x)))
        total -= (table @ x + bias).log_softmax(0)[word].item()
    loss, number = losses["boundary"]
    assert number == 11 and loss.item() == pytest.approx(total, rel=1e-5)
    assert objective.counts(batch)["boundary"] == 11


def test_words_are_sampled_by_inverting_the_cumulative_distribution():
    generator = torch.Generator().manual_seed(0)
    x, table, bias = (torch.randn(*shape, generator=generator) for shape in ((11, 5), (17, 5), (17,)))
    draws = torch.rand(11, generator=generator)
    draws[0], draws[1] = 0.0, 1 - 1e-9
    for row, word in enumerate(sample_words(x, table, bias, draws).tolist()):
        shares = (table @ x[row] + bias).double().softmax(0)
        assert float(shares[:word].sum()) <= float(draws[row]) + 1e-6 <= float(shares[: word + 1].sum()) + 2e-6
    many = sample_words(x[:1].expand(4000, 5), table, bias, (torch.arange(4000) + 0.5) / 4000)
    shares = (table @ x[0] + bias).softmax(0)
    assert float((torch.bincount(many, minlength=17) / 4000 - shares).abs().max()) < 1e-3


def test_replaced_tokens_are_those_the_generator_drew_wrong(make_model, global_seed):
    model = make_model("electra", {"replaced_tokens": 1})
    module = ReplacedTokenModel(model, seed=3).eval()
    assert module.generator.encoder.embeddings.words is model.encoder.embeddings.words
    assert module.generator.config.hidden_size == 8 and module.generator.config.intermediate_size == 10
    batch = batch_of([1, 2, 5, 21, 24, 31])
    objective = build_objective("replaced")
    outputs = objective.forward(module, batch)
    losses, answers = objective.losses(module, batch, outputs), objective.predictions(module, batch, outputs)
    x_ME, words = module.generate(batch)
    table = model.encoder.embeddings.words.weight
    original, filled = batch.input_ids.clone(), batch.input_ids.clone()
    guessed = 0.0
    rows = zip(batch.masked_positions.tolist(), batch.masked_labels.tolist(), x_ME, batch.masked_draws, strict=True)
    for place, word, x, draw in rows:
        shares = (table @ x + words.bias).softmax(0)
        guessed -= shares[word].log().item()
        original[place], filled[place] = word, int((shares.cumsum(0) <= draw).sum())
    scores = model.token_scores("replaced_tokens", model(replace(batch, input_ids=filled)))[:, 0]
    replaced = (original != filled).float()
    cross_entropy = -(replaced * scores.sigmoid().log() + (1 - replaced) * (1 - scores.sigmoid()).log()).sum()
    assert losses["masked_lm"][0].item() == pytest.approx(guessed, rel=1e-5)
    assert losses["replaced"][0].item() == pytest.approx(50 * cross_entropy.item(), rel=1e-4)
    assert losses["replaced"][1] == 43 and losses["masked_lm"][1] == 6
    assert torch.equal(answers["replaced"][1], replaced.long())
    (losses["replaced"][0] / 43).backward()
    assert all(part.grad is None or not part.grad.any() for part in module.generator.encoder.layers.parameters())


@pytest.mark.parametrize("family", ["deberta", "deberta-v2"])
def test_the_enhanced_decoder_has_queries_with_absolute_positions(family, make_model, global_seed):
    """The last layer twice with queries of their own (He 2021, section 3.2), word by word and head by head."""
    model = make_model(family, {"masked_words": 0})
    module = EnhancedMaskDecoder(model, seed=3).eval()
    batch = batch_of([1, 2, 5, 21, 24, 31])
    objective = build_objective("enhanced")
    losses = objective.losses(module, batch, objective.forward(module, batch))
    layers, relative = model.encoder.layers, model.config.relative_positions
    (before_T,) = [model.encoder.embeddings(batch)]
    context = model.encoder.build_context(batch)
    for layer in layers[:-1]:
        before_T = layer(before_T, context)
    last, table = layers[-1], model.encoder.shared["distances"]()
    attention, rows = last.attention, table_rows(relative, 43, torch.device("cpu"))
    q_of, k_of, v_of = (lambda x, i=i: attention.split_heads(attention.qkv(x))[i] for i in range(3))
    keys, queries = attention.project_distances(table)
    head, words = model.heads["masked_words"], model.encoder.embeddings.words.weight
    total = 0.0
    for start, length in ((0, 23), (23, 7), (30, 13)):
        h = before_T[start : start + length]
        asking = h + module.absolute_positions.weight[:length]
        for _ in range(2):
            q, k, v = q_of(asking), k_of(h), v_of(h)
            mixed = torch.zeros(length, 3, 8)
            for n in range(3):
                for i in range(length):
                    scores = []
                    for j in range(length):
                        row = int(rows[i - j + 42])
                        pair = q[i, n] @ k[j, n] + q[i, n] @ keys[n, row] + k[j, n] @ queries[n, row]
                        scores.append(pair / (3 * 8) ** 0.5)
                    mixed[i, n] = torch.stack(scores).softmax(0) @ v[:, n]
            asking = last.attention_norm(asking + attention.output(mixed.flatten(1)))
            asking = last.feed_forward_norm(asking + last.feed_forward(asking))
        for place, word in zip(batch.masked_positions.tolist(), batch.masked_labels.tolist(), strict=True):
            if start <= place < start + length:
                total -= head.scores(asking[place - start][None], words)[0].log_softmax(0)[word].item()
    loss, number = losses["masked_lm"]
    assert number == 6 and loss.item() == pytest.approx(total, rel=1e-5)


def test_a_table_on_top_gets_gradients_of_its_own_and_sends_none_below(make_model, global_seed):
    """Gradient-disentangled embedding sharing (He 2021b, section 3.3): E_D = sg(E_G) + E_Delta."""
    model = make_model("deberta-v2", {"replaced_tokens": 1})
    before = model.encoder.embeddings.words.weight.detach().clone()
    module = ReplacedTokenModel(model, seed=3, apart=True).eval()
    below, on_top = module.generator.encoder.embeddings.words, model.encoder.embeddings.words
    assert torch.equal(below.weight, before) and not on_top.weight.any()
    assert {name for name, _ in module.named_parameters() if name.endswith("words.weight")} == {
        "model.encoder.embeddings.words.weight", "generator.encoder.embeddings.words.weight",
    }  # fmt: skip
    batch = batch_of([1, 2, 5, 21, 24, 31])
    objective = build_objective("replaced")
    losses = objective.losses(module, batch, objective.forward(module, batch))
    losses["replaced"][0].backward(retain_graph=True)
    assert below.weight.grad is None and float(on_top.weight.grad.norm()) > 0
    expected = torch.zeros_like(before)
    plain = make_model("deberta-v2", {"replaced_tokens": 1})  # a table that is one thing
    filled, replaced_T = module.fill(batch, module.generate(batch)[0])
    scores = plain.token_scores("replaced_tokens", plain(filled))[:, 0]
    loss = torch.nn.functional.binary_cross_entropy_with_logits(scores, replaced_T.float(), reduction="sum")
    (50 * loss).backward()
    expected = plain.encoder.embeddings.words.weight.grad
    assert torch.allclose(on_top.weight.grad, expected, rtol=1e-4, atol=1e-5)
    losses["masked_lm"][0].backward()
    assert float(below.weight.grad.norm()) > 0 and torch.allclose(on_top.weight.grad, expected, rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        on_top.weight.add_(0.5)
        hidden_TH = model(batch)
    module.finish()
    assert torch.equal(model.encoder.embeddings.words.weight, before + 0.5)
    with torch.no_grad():
        assert torch.allclose(model(batch), hidden_TH, atol=1e-6)


@pytest.mark.parametrize("name", ["forward", "halves"])
def test_one_way_words_are_guessed_from_one_side_alone(name, make_model):
    axes = {"num_attention_heads": 4, "embedding_size": 12} if name == "halves" else {}
    model = make_model("bert", {"masked_words": 0}, direction=name, **axes)
    places = [place for place in range(43) if place not in (0, 22, 23, 29, 30, 42)]
    batch = batch_of(places)
    batch = replace(batch, input_ids=batch.input_ids.index_put((batch.masked_positions,), batch.masked_labels))
    objective = build_objective(name)
    losses = objective.losses(model, batch, objective.forward(model, batch))
    head, totals = model.heads["masked_words"], {"next_word": 0.0, "previous_word": 0.0}
    for start, length in ((0, 23), (23, 7), (30, 13)):
        ids = batch.input_ids[start : start + length]
        for place in range(1, length - 1):
            for loss, seen, at in (("next_word", ids[:place], -1), ("previous_word", ids[place + 1 :], 0)):
                if loss not in losses:
                    continue
                alone = Batch.from_arrays(seen.numpy(), np.zeros(len(seen), np.int64), np.array([len(seen)]))
                if loss == "previous_word":  # as far into the text as it stands
                    alone = replace(alone, position_ids=alone.position_ids + place + 1)
                x = model(alone)[at]
                if name == "halves":
                    x = torch.cat([x[:12], x[:12] * 0] if loss == "next_word" else [x[12:] * 0, x[12:]])
                scores = head.scores(x[None], model.encoder.embeddings.words.weight)[0]
                totals[loss] -= scores.log_softmax(0)[ids[place]].item()
    for loss, (value, number) in losses.items():
        assert number == 37 and value.item() == pytest.approx(totals[loss], rel=1e-5)
    assert set(losses) == ({"next_word", "previous_word"} if name == "halves" else {"next_word"})


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"objective": "boundary"}, r"objective \(boundary\).*--pairs none"),
        ({"objective": "boundary", "pairs": "none"}, "add --masking spans"),
        ({"objective": "replaced", "family": "bert"}, r"objective \(replaced\).*: bert .*--family"),
        ({"family": "roberta", "pairs": "next"}, ": roberta .*--pairs none"),
        ({"family": "electra", "objective": "masked", "pairs": "order"}, "use --pairs none"),
        ({"objective": "forward", "family": "albert"}, "new bert.*--family"),
        ({"objective": "halves", "masking": "words"}, "--masking"),
        ({"objective": "forward", "mask_rate": 0.3}, "--mask-rate"),
        ({"objective": "forward", "pairs": "next"}, "use --pairs none"),
        ({"family": "electra", "shard": True}, "leave out --shard"),
        ({"objective": "enhanced", "family": "roberta"}, "--family deberta"),
        ({"family": "roberta", "max_length": 1024}, "1024.* 512 .*roberta"),
    ],
)
def test_incompatible_settings_are_an_error_before_anything_is_written(changes, line, settings, tmp_path):
    options = {"pairs": "none", **changes} if changes.get("objective") in ("replaced", "halves") else changes
    if changes == {"objective": "boundary"}:
        options = {"objective": "boundary", "pairs": "next", "masking": "spans"}
    with pytest.raises(InputError, match=line):
        pretrain.run(replace(settings, out=tmp_path / "run", **options))
    assert not (tmp_path / "run").exists()


def test_continued_pre_training_uses_the_familys_objective(trained, settings, tmp_path):
    for case, loss in (("electra", "replaced"), ("albert", "sentence_order_accuracy"), ("forward", "next_word")):
        short = replace(
            settings,
            steps=2,
            tokenizer=None,
            from_checkpoint=trained(case).model_directory,
            model=Pretrain.model,
            out=tmp_path / case,
        )
        figures = pretrain.run(short).figures
        assert loss in figures
    for objective in ("masked", "halves"):  # attention in both directions would see the answer
        with pytest.raises(InputError, match="direction forward.*--objective"):
            pretrain.run(replace(short, objective=objective, out=tmp_path / "other"))
    with pytest.raises(InputError, match="--from .* own"):
        replace(short, family="albert")


def test_a_classifier_whose_pooler_belongs_to_its_head_continues_without_it(make_model, tokenizer, settings, tmp_path):
    held = Checkpoint(
        make_model("distilbert", {"classes": 3}), tokenizer, model_type="distilbert", labels=("a", "b", "c")
    )
    checkpoint.save(held, tmp_path / "start")
    short = replace(
        settings,
        steps=1,
        tokenizer=None,
        from_checkpoint=tmp_path / "start",
        model=Pretrain.model,
        out=tmp_path / "run",
    )
    assert checkpoint.load(pretrain.run(short).model_directory).model.pooler is None


@pytest.mark.parametrize("case", ["forward", "halves"])
def test_one_way_models_do_not_fill_masks_or_pool_cls(case, trained):
    model = Predictor(checkpoint.load(trained(case).model_directory), dtype="float32", device="cpu")
    with pytest.raises(InputError, match="cannot fill masks"):
        model.fill("the [MASK]")
    with pytest.raises(InputError, match="pooling .cls."):
        model.embed(["the king"], pooling="cls")
