"""Adapters: what is trained and stored, exactness against plain forms, several over one model, refusals."""

import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

import bothways
from bothways.base.errors import InputError, MissingFile
from bothways.base.log import messages_to
from bothways.cli.commands import merge as merge_verb
from bothways.model.adapters.install import LoraLinear, install, merge, own_state
from bothways.model.adapters.spec import KINDS, AdapterSpec
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.card_file import CARD
from bothways.model.checkpoint.contents import Checkpoint
from bothways.model.families import FAMILIES
from bothways.settings import Answer, Classify, Merge, Regress, Serve, Tag, TrainEmbed
from bothways.text.batch import Batch
from bothways.training.run import Run
from bothways.training.signals import Stopped
from tests.families import ABSOLUTE
from tests.soaked import in_soak

TEXTS = ["the cat sat on the mat", "a dog", "dogs ran and ran and sat on the mat , the cat", "b"]
SPECS = {"lora": AdapterSpec("lora", rank=3, alpha=5.0), "bitfit": AdapterSpec("bitfit")}


def disturb(model, seed=0):
    """Give every trainable parameter another value, as training does."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for value in model.parameters():
            if value.requires_grad:
                value.add_(0.1 * torch.randn(value.shape, generator=generator))


def batch_of(tokenizer, texts=TEXTS):
    return Batch.from_encodings(tokenizer.encode_many(texts))


@pytest.fixture
def adapted(make_model, tokenizer):
    """A small model with an adapter, and the same model without: adapted(kind) -> (model, plain)."""

    def make(kind, family="bert"):
        plain, model = (make_model(family, {"classes": 3}) for _ in range(2))
        install(model, SPECS[kind], FAMILIES[family])
        return model, plain

    return make


# --- what is trained and what it computes -----------------------------------------------------------------------------


@pytest.mark.parametrize("family", ABSOLUTE)
@pytest.mark.parametrize("kind", KINDS)
def test_a_new_adapter_changes_nothing_and_only_it_and_the_head_are_trained(kind, family, adapted, tokenizer):
    if kind == "bitfit" and family == "modernbert":
        with pytest.raises(InputError, match=r"adapter \(bitfit\) is not supported for modernbert: it has no biases"):
            adapted(kind, family)
        return
    model, plain = adapted(kind, family)
    batch = batch_of(tokenizer)
    assert torch.allclose(model(batch), plain(batch), atol=1e-5)
    trained = {name for name, value in model.named_parameters() if value.requires_grad}
    outside = {name for name, _ in model.named_parameters() if not name.startswith("encoder.")}
    assert trained == {*own_state(model)} and outside < trained
    disturb(model)
    assert not torch.allclose(model(batch), plain(batch), atol=1e-2)
    frozen = {name: value for name, value in model.named_parameters() if name not in trained}
    assert all(torch.equal(value, plain.get_parameter(name)) for name, value in frozen.items())
    model(batch).sum().backward()
    assert {name for name, value in model.named_parameters() if value.grad is not None} == trained - outside


@pytest.mark.parametrize("family", ABSOLUTE)
def test_merged_lora_equals_unmerged(family, adapted, tokenizer):
    model, plain = adapted("lora", family)
    disturb(model)
    batch = batch_of(tokenizer)
    before, weight = model(batch), plain.get_parameter("encoder.layers.0.attention.qkv.weight").clone()
    shared = model.get_parameter("encoder.layers.0.attention.qkv.weight")
    merge(model)
    assert torch.allclose(model(batch), before, atol=1e-6 * float(before.detach().abs().max()))
    assert torch.equal(shared, weight)  # others may use it
    assert not any(isinstance(part, LoraLinear) for part in model.modules())
    assert model.state_dict().keys() == plain.state_dict().keys()


def test_lora_is_that_of_the_formula(adapted, global_seed):
    model, plain = adapted("lora")
    disturb(model)
    layer, old = model.encoder.layers[0], plain.encoder.layers[0]
    maps = layer.attention.output, layer.feed_forward.inner, layer.feed_forward.output
    assert all(isinstance(one, LoraLinear) for one in maps)
    qkv, x_TH = layer.attention.qkv, torch.randn(7, 24)
    expected = old.attention.qkv(x_TH).clone()
    for part, (down, up) in enumerate(zip(qkv.lora_down.chunk(3), qkv.lora_up, strict=True)):
        expected[:, 24 * part : 24 * (part + 1)] += 5 / 3 * (x_TH @ down.T @ up.T)
    assert torch.allclose(qkv(x_TH), expected, atol=1e-6)


def test_a_map_that_a_family_stores_as_one_has_one_pair(adapted):
    model, _ = adapted("lora", "modernbert")
    assert len(model.encoder.layers[0].attention.qkv.lora_up) == 1


# --- runs -------------------------------------------------------------------------------------------------------------


WORDS = ["the", "sat", "on", "mat", "and", "ran"]


def texts_of(number):
    """Texts that all differ."""
    return [f"{WORDS[row % 6]} {('dog', 'cat')[row % 3 > 0]} {'on ' * (row // 6)}" for row in range(number)]


def class_rows(number=120):
    return [{"text": text, "label": "ab"["cat" in text]} for text in texts_of(number)]


@pytest.fixture(scope="module")
def start(checkpoint_of):
    return checkpoint_of()


@pytest.fixture(scope="module", params=KINDS)
def run(request, start, table, finetuned):
    options = {"epochs": 20.0, "learning_rate": 1e-2, "patience": None}
    return finetuned(Classify, model=start, train=table(class_rows()), adapter=request.param, **options)


def test_a_run_saves_only_the_adapter_and_the_head(run, start, tokenizer):
    assert run.result.mean > 0.8
    files = {file.name for file in run.result.model_directory.iterdir()}
    assert files - {"adapter.safetensors", "adapter_model.safetensors"} == {
        "README.md",
        "adapter_config.json",
        "bothways.json",
        "scope.safetensors",
    }
    size = sum(file.stat().st_size for file in run.result.model_directory.glob("adapter*.safetensors"))
    assert size < (start / "model.safetensors").stat().st_size / 2
    config = json.loads((run.result.model_directory / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == str(start)
    predictor = run.predictor
    assert predictor.labels == ("a", "b") and predictor.description.metadata["adapter"]["kind"] == run.settings.adapter
    same = bothways.load(start, adapter=run.result.directory, dtype="float32")
    assert same.classify(TEXTS) == predictor.classify(TEXTS)


def test_the_weights_of_the_model_stay_as_they_are(run, start):
    before = checkpoint.load(start).model.encoder.state_dict()
    attached = (
        bothways.load(start, adapter={"x": run.result.model_directory}, dtype="float32").adapter("x").module.encoder
    )
    state = attached.state_dict()
    trained = [name for name in state if name not in before] or [name for name in state if name.endswith("bias")]
    assert any(float((state[name] - before.get(name, 0)).abs().max()) > 1e-3 for name in trained if "down" not in name)
    for name, value in state.items():
        if name in before and not (run.settings.adapter == "bitfit" and name.endswith("bias")):
            assert torch.equal(value, before[name]), name


def test_a_saved_predictor_predicts_the_same(run, tmp_path):
    run.predictor.save(tmp_path / "saved")
    again = bothways.load(tmp_path / "saved", dtype="float32")
    expected = [one.score for one in run.predictor.classify(TEXTS)]
    assert [one.score for one in again.classify(TEXTS)] == pytest.approx(expected, abs=1e-6)


def test_merge_writes_a_plain_model(run, start, tmp_path):
    settings = Merge(adapter=run.result.directory, out=tmp_path / "merged")
    assert merge_verb(settings)["bytes"] > 0
    merged = bothways.load(settings.out, dtype="float32")
    assert "adapter" not in merged.description.metadata and (settings.out / "config.json").exists()
    card = (settings.out / CARD).read_text(encoding="utf-8")
    assert "an adapter" not in card and "transformers:" in card and str(start) not in card
    of_adapter = (run.result.directory / "model" / CARD).read_text(encoding="utf-8")
    scores = [text.split("## Scores")[1].split("## Limits")[0] for text in (card, of_adapter)]
    assert "this model" in scores[0] and scores[0] == scores[1]
    expected = run.predictor.classify(TEXTS)
    assert [one.score for one in merged.classify(TEXTS)] == pytest.approx([one.score for one in expected], abs=1e-6)


@pytest.mark.parametrize("kind", [KINDS[0], *in_soak(*KINDS[1:])])
def test_every_task_can_train_an_adapter(kind, start, table, finetuned):
    rows = [{"text": text, "label": float(len(text))} for text in texts_of(30)]
    words = [
        {"words": text.split(), "tags": ["O" if word != "cat" else "B-X" for word in text.split()]}
        for text in texts_of(30)
    ]
    questions = [
        {"id": f"{n}", "question": "the cat", "context": text, "answers": {"text": [text[:1]], "answer_start": [0]}}
        for n, text in enumerate(texts_of(30))
    ]
    pairs = [{"text": text, "pair": text[2:]} for text in texts_of(30)]
    for settings, own in ((Regress, rows), (Tag, words), (Answer, questions), (TrainEmbed, pairs)):
        columns = {"pair_column": "pair", "text_column": "text"} if settings is TrainEmbed else {}
        run = finetuned(settings, model=start, train=own, test=own, adapter=kind, **columns)
        assert run.predictor.task == run.result.task and (run.result.model_directory / "adapter_config.json").exists()


def test_a_stopped_run_goes_on_to_the_same_adapter(start, table, tmp_path, monkeypatch, finetuned):
    train = table(class_rows(60))
    options = {"model": start, "train": train, "dev": train, "adapter": "lora", "seeds": 2, "checkpoint_every": 2}
    undisturbed = finetuned(Classify, **options)
    log_metrics, rows = Run.log_metrics, []

    def log_then_stop(self, **row):
        log_metrics(self, **row)
        rows.append(row)
        if len(rows) == 7:
            raise Stopped("stopped")

    settings = replace(undisturbed.settings, out=tmp_path / "run")
    with monkeypatch.context() as patch, pytest.raises(Stopped):
        patch.setattr(Run, "log_metrics", log_then_stop)
        bothways.train(settings)
    result = bothways.train(replace(settings, resume=True))
    for file in undisturbed.result.model_directory.glob("*.safetensors"):
        assert (result.model_directory / file.name).read_bytes() == file.read_bytes(), file.name


# --- several over one model -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def two(start, table, finetuned):
    """Two adapters of different kinds and labels for one model."""
    options = {"model": start, "epochs": 2.0}
    first = finetuned(Classify, train=table(class_rows()), adapter="lora", **options)
    rows = [{**row, "label": row["label"].upper()} for row in class_rows()]
    second = finetuned(Classify, train=table(rows), adapter="bitfit", **options)
    return {"first": first, "second": second}


@pytest.mark.parametrize("order", [("first", "second"), ("second", "first")])
def test_several_adapters_share_the_weights_of_their_model(order, two, start):
    """Those of bitfit are biases in place of the base's, which another adapter reads."""
    model = bothways.load(start, adapter={name: two[name].result.model_directory for name in order}, dtype="float32")
    assert model.adapters == order and model.task == "fill"
    name = "encoder.layers.0.attention.qkv.weight"
    addresses = {one.module.get_parameter(name).data_ptr() for one in (model, *map(model.adapter, model.adapters))}
    assert len(addresses) == 1
    for adapter, run in two.items():
        scores = [one.score for one in model.adapter(adapter).classify(TEXTS)]
        assert scores == pytest.approx([one.score for one in run.predictor.classify(TEXTS)], abs=1e-6)
        assert model.adapter(adapter).labels == run.predictor.labels
    assert model.embed(TEXTS).shape == (4, 24)
    np.testing.assert_array_equal(model.embed(TEXTS), bothways.load(start, dtype="float32").embed(TEXTS))
    with pytest.raises(InputError, match=rf"no adapter is named 'third' \(adapters: {', '.join(order)}\)"):
        model.adapter("third")


def test_the_server_shares_the_weights_of_adapters(two, start):
    from bothways.serving.server import prepare

    models = tuple(f"{name}={run.result.model_directory}" for name, run in two.items())
    serving = prepare(Serve(models=(*models, f"base={start}"), dtype="float32"))
    try:
        served = {one.name: one for one in serving.models}
        name = "encoder.embeddings.words.weight"
        assert len({one.model.module.get_parameter(name).data_ptr() for one in served.values()}) == 1
        assert "predict" in served["first"].routes and "fill" in served["base"].routes
        assert served["second"].model.labels == ("A", "B")
    finally:
        for one in serving.models:
            one.queue.close()
        serving.workers.close()


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "family", "message"),
    [
        ("lora", "deberta-v2", "adapter (lora) is not supported for deberta-v2"),
        ("bitfit", "modernbert", "adapter (bitfit) is not supported for modernbert: it has no biases"),
    ],
)
def test_a_model_that_cannot_have_an_adapter_is_refused_by_name(kind, family, message, checkpoint_of, table, tmp_path):
    settings = Classify(model=checkpoint_of(family), train=table(class_rows()), adapter=kind, out=tmp_path / "run")
    with pytest.raises(InputError, match=re.escape(message)):
        bothways.train(settings)
    assert not settings.out.exists()


def test_dropping_layers_is_refused(start, table, tmp_path):
    with pytest.raises(InputError, match="keep_layers has no meaning with adapter"):
        Classify(model=start, train=table(class_rows()), adapter="lora", out=tmp_path / "run", keep_layers=(0,))


def test_an_adapter_of_other_weights_is_refused(two, checkpoint_of):
    other = checkpoint_of(seed=5)
    with pytest.raises(InputError, match="belongs to other weights"):
        bothways.load(other, adapter=two["first"].result.model_directory)


def test_a_missing_model_is_named_with_the_way_out(two, tmp_path):
    moved = tmp_path / "moved"
    shutil.copytree(two["first"].result.model_directory, moved)
    config = json.loads((moved / "adapter_config.json").read_text())
    for base, kind in (("/no/such/model", MissingFile), ("", InputError)):
        (moved / "adapter_config.json").write_text(json.dumps({**config, "base_model_name_or_path": base}))
        with pytest.raises(kind, match=r"bothways merge ADAPTER --base MODEL"):
            bothways.load(moved)


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / "adapter_model.safetensors").unlink(),
        lambda folder: (folder / "adapter_model.safetensors").write_bytes(b"x" * 100),
        lambda folder: edit(folder / "bothways.json", lambda data: data["adapter"].update(rank="many")),
        lambda folder: edit(folder / "bothways.json", lambda data: data["adapter"].update(rank=4)),
        lambda folder: edit(folder / "bothways.json", lambda data: data["adapter"].update(rank=5000)),
        lambda folder: edit(folder / "bothways.json", lambda data: data["adapter"].update(heads={"classes": 9**6})),
        lambda folder: edit(folder / "bothways.json", lambda data: data["adapter"].update(kind="ia3")),
        lambda folder: edit(folder / "bothways.json", lambda data: data["adapter"].update(heads={"classes": "two"})),
        lambda folder: edit(folder / "bothways.json", lambda data: data["adapter"].update(heads={"nose": 2})),
        lambda folder: edit(folder / "adapter_config.json", lambda data: data.update(peft_type="IA3")),
        lambda folder: edit(folder / "adapter_config.json", lambda data: data.update(use_dora=True)),
    ],
)
def test_broken_files_are_refused_in_one_line(change, two, tmp_path):
    folder = tmp_path / "broken"
    shutil.copytree(two["first"].result.model_directory, folder)
    change(folder)
    with pytest.raises(InputError) as caught:
        bothways.load(folder)
    assert str(folder) in str(caught.value) and "\n" not in str(caught.value)


def edit(file, change):
    data = json.loads(file.read_text(encoding="utf-8"))
    change(data)
    file.write_text(json.dumps(data), encoding="utf-8")


def test_a_model_has_one_adapter_at_most(adapted):
    model, _ = adapted("bitfit")
    with pytest.raises(InputError, match="has an adapter already"):
        install(model, SPECS["lora"], FAMILIES["bert"])


def test_a_lora_adapter_can_be_fine_tuned_further_as_plain_weights(two, table, finetuned):
    run = finetuned(Classify, model=two["first"].result.model_directory, train=table(class_rows()), adapter="lora")
    with messages_to(lambda line: None):
        assert bothways.load(run.result.model_directory, dtype="float32").labels == ("a", "b")


def test_adapters_are_saved_from_memory(adapted, tokenizer, tmp_path, start):
    model, _ = adapted("lora")
    made = Checkpoint(model, tokenizer, labels=("a", "b", "c"))
    checkpoint.save(made, tmp_path / "adapter")
    assert {file.name for file in (tmp_path / "adapter").iterdir()} >= {"adapter_config.json", "bothways.json"}
