"""Hidden states, scores, gradients and files of small random models compared with `transformers`, both ways."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import transformers

from bothways.base.log import messages_to
from bothways.model import kernels
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.changes import new_head
from bothways.model.checkpoint.contents import Checkpoint
from bothways.model.checkpoint.formats import hugging_face
from bothways.model.checkpoint.formats.hugging_face import hf_state_dict
from bothways.model.families import FAMILIES
from bothways.model.layout import Bucketed, Padded
from bothways.model.losses import classification_loss, masked_lm_loss, mse_loss
from bothways.model.model import Model, initialize
from bothways.model.states import attention_weights
from bothways.text.batch import Batch

pytestmark = pytest.mark.usefixtures("global_seed")  # compares what torch draws

V = 97
LENGTHS = [29, 13, 1, 13, 7, 2, 41]  # unsorted, equal ones apart, one token alone
ENCODERS = [
    "BertModel", "AlbertModel", "DistilBertModel", "ElectraModel", "ModernBertModel", "RobertaModel", "XLMRobertaModel",
    "LongformerModel", "BigBirdModel", "DebertaModel", "DebertaV2Model",
]  # fmt: skip
BY_LENGTH = ("BigBird",)  # theirs goes by the batch's longest text; its gradients stand in test_long.py
SCORES = {  # their class -> our head, their output
    "BertForPreTraining": {"masked_words": "prediction_logits", "next_sentence": "seq_relationship_logits"},
    "BertForNextSentencePrediction": {"next_sentence": "logits"},
    "AlbertForPreTraining": {"masked_words": "prediction_logits", "next_sentence": "sop_logits"},
    "BigBirdForPreTraining": {"masked_words": "prediction_logits", "next_sentence": "seq_relationship_logits"},
    "ElectraForPreTraining": {"replaced_tokens": ("logits",)},
}
for family in (
    "Bert", "Albert", "DistilBert", "Electra", "Roberta", "XLMRoberta", "ModernBert", "Longformer", "BigBird",
    "Deberta", "DebertaV2",
):  # fmt: skip
    SCORES |= {
        f"{family}ForMaskedLM": {"masked_words": "logits"},
        f"{family}ForSequenceClassification": {"classes": "logits"},
        f"{family}ForTokenClassification": {"tokens": "logits"},
        f"{family}ForQuestionAnswering": {"spans": ("start_logits", "end_logits")},
    }
del SCORES["LongformerForQuestionAnswering"]  # which needs a question's separators (test_long.py)
LABELS = {
    name: {"num_labels": 9 if "Token" in name else 5}
    for name in SCORES if name.endswith(("SequenceClassification", "TokenClassification"))
}  # fmt: skip
ALL = [*ENCODERS, *SCORES]


def texts(config, *, seed=1):
    """(ids, segments) of texts in the lengths above; pairs if the family has segments."""
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for length in LENGTHS:
        ids = torch.randint(5, V, (length,), generator=generator)
        segments = (torch.arange(length) > length // 3).long() if config.type_vocab_size > 1 else torch.zeros_like(ids)
        rows.append((ids, segments))
    return rows


def ragged(rows):
    ids, segments = (torch.cat(column).numpy() for column in zip(*rows, strict=True))
    return Batch.from_arrays(ids, segments, np.array([len(ids) for ids, _ in rows]))


def padded(rows, side="right"):
    """Their inputs: one rectangle and its mask."""
    size = max(LENGTHS)
    names = ["input_ids", "token_type_ids", "attention_mask"]
    inputs = {name: torch.zeros(len(rows), size, dtype=torch.long) for name in names}
    for row, (ids, segments) in enumerate(rows):
        real = slice(0, len(ids)) if side == "right" else slice(size - len(ids), size)
        for name, values in zip(names, (ids, segments, torch.ones_like(ids)), strict=True):
            inputs[name][row, real] = values
    return inputs


def takes_segments(model):
    return model.config.type_vocab_size > 1


def theirs_alone(peer, rows):
    """Their output for each text by itself: no padding and no other texts."""
    segments, outputs, more = getattr(peer.config, "type_vocab_size", 0) > 1, [], {}
    if "BigBirdForQuestionAnswering" in type(peer).__name__:  # which excludes answers within the question
        more["question_lengths"] = torch.zeros(1, 1, dtype=torch.long)
    for ids, kinds in rows:
        if peer.config.model_type == "big_bird":  # a short text would leave it as it is for all others
            getattr(peer, peer.base_model_prefix, peer).set_attention_type("block_sparse")
        with torch.no_grad():
            outputs.append(peer(input_ids=ids[None], **({"token_type_ids": kinds[None]} if segments else {}), **more))
    return outputs


def our_scores(model, head, hidden_TH, batch):
    if head == "masked_words":
        return model.word_scores(hidden_TH)
    if head in ("tokens", "spans", "replaced_tokens"):
        return model.token_scores(head, hidden_TH)
    return model.text_scores(head, hidden_TH[batch.lengths.cumsum(0) - batch.lengths])


def their_scores(output, names):
    if isinstance(names, tuple):
        return torch.stack([output[name][0] for name in names], dim=-1)
    return output[names][0] if output[names].dim() == 3 else output[names]


def their_parameters(peer):
    """Each parameter once, by the name of its owner."""
    parameters = peer.named_parameters(remove_duplicate=False)
    copies = hugging_face.DERIVED
    return {name: value for name, value in parameters if not name.endswith(copies) or name == "decoder.bias"}


def assert_close(ours, theirs, tolerance=1e-5):
    assert ours.shape == theirs.shape
    assert float((ours - theirs).abs().max()) < tolerance


# --- numbers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("architecture", ENCODERS)
def test_hidden_states_equal_theirs(architecture, make_peer, ours_of):
    peer = make_peer(architecture)
    model = ours_of(peer).model
    rows = texts(model.config)
    with torch.no_grad():
        ours = model(ragged(rows))
    assert_close(ours, torch.cat([output.last_hidden_state[0] for output in theirs_alone(peer, rows)]))


@pytest.mark.parametrize("architecture", [name for name in ENCODERS if name not in ("LongformerModel", "BigBirdModel")])
def test_attention_weights_equal_theirs(architecture, make_peer, ours_of):
    peer = make_peer(architecture, attn_implementation="eager")
    model = ours_of(peer).model
    for row in texts(model.config)[:2]:
        inputs = {"token_type_ids": row[1][None]} if model.config.type_vocab_size > 1 else {}
        with torch.no_grad():
            theirs = torch.cat(peer(row[0][None], **inputs, output_attentions=True).attentions)
            assert_close(attention_weights(model, ragged([row])), theirs)


@pytest.mark.parametrize("activation", ["gelu_new", "gelu_pytorch_tanh", "relu", "silu"])
def test_every_activation_equals_theirs(activation, make_peer, ours_of):
    peer = make_peer("BertModel", hidden_act=activation)
    model = ours_of(peer).model
    rows = texts(model.config)
    with torch.no_grad():
        ours = model(ragged(rows))
    assert_close(ours, torch.cat([output.last_hidden_state[0] for output in theirs_alone(peer, rows)]))


@pytest.mark.parametrize("local_attention", [2, 6, 128])
def test_windows_equal_theirs_computed_plainly(local_attention, make_peer, ours_of):
    options = {"local_attention": local_attention, "attn_implementation": "eager"}
    peer = make_peer("ModernBertModel", **options, attention_bias=True, mlp_bias=True, norm_bias=True)
    model = ours_of(peer).model
    rows = texts(model.config)
    with torch.no_grad():
        ours = model(ragged(rows))
    assert_close(ours, torch.cat([output.last_hidden_state[0] for output in theirs_alone(peer, rows)]))


def test_wavelengths_of_both_kinds_of_layers_are_read(make_peer, ours_of):
    rope = {"full_attention": 700.0, "sliding_attention": 30.0}
    parameters = {kind: {"rope_theta": theta, "rope_type": "default"} for kind, theta in rope.items()}
    peer = make_peer("ModernBertModel", rope_parameters=parameters)
    model = ours_of(peer).model
    assert (model.config.rotary_theta, model.config.rotary_theta_window) == (700.0, 30.0)
    rows = texts(model.config)
    with torch.no_grad():
        ours = model(ragged(rows))
    assert_close(ours, torch.cat([output.last_hidden_state[0] for output in theirs_alone(peer, rows)]))


def test_angles_equal_theirs_at_every_position(make_peer, ours_of):
    """To the bit: at position 8,000 another order of rounding moves cosines by a thousandth."""
    peer = make_peer("ModernBertModel")
    model = ours_of(peer).model
    place = torch.arange(8192)
    for layer, kind in zip(model.encoder.layers, peer.config.layer_types, strict=True):
        theirs = peer.rotary_emb(torch.zeros(1, 1), place[None], kind)
        ours = layer.attention.positions.prepare(SimpleNamespace(position_ids=place), None, torch.float32)
        for mine, peers in zip((ours.cos_T1D, ours.sin_T1D), theirs, strict=True):
            assert torch.equal(mine[:, 0], peers[0])


@pytest.mark.parametrize(
    ("kind", "peer_class"),
    [("deberta-v2", "DebertaV2Config"), ("modernbert", "ModernBertConfig"), ("bert", "BertConfig"),
     ("roberta", "RobertaConfig"), ("albert", "AlbertConfig"), ("electra", "ElectraConfig"),
     ("big_bird", "BigBirdConfig"), ("longformer", "LongformerConfig"), ("deberta", "DebertaConfig"),
     ("distilbert", "DistilBertConfig")],
)  # fmt: skip
def test_sizes_that_a_config_leaves_out_are_their_defaults(kind, peer_class):
    relative = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]} if "deberta" in kind else {}
    peer = getattr(transformers, peer_class)(**relative)
    family = FAMILIES[kind]
    config = peer.to_dict()
    left_out = {"num_attention_heads", "n_heads", "intermediate_size", "hidden_dim", "max_position_embeddings"}
    whole, _ = family.parse_config(config, "config.json")
    short, _ = family.parse_config({key: value for key, value in config.items() if key not in left_out}, "config.json")
    assert short == whole


@pytest.mark.parametrize("architecture", SCORES)
def test_scores_of_every_head_equal_theirs(architecture, make_peer, ours_of):
    peer = make_peer(architecture, **LABELS.get(architecture, {}))
    model = ours_of(peer).model
    assert set(model.num_outputs) == set(SCORES[architecture])
    rows = texts(model.config)
    batch = ragged(rows)
    outputs = theirs_alone(peer, rows)
    with torch.no_grad():
        hidden_TH = model(batch)
        for head, names in SCORES[architecture].items():
            ours = our_scores(model, head, hidden_TH, batch)
            assert_close(ours, torch.cat([their_scores(output, names) for output in outputs]))


def test_a_regression_score_equals_theirs(make_peer, ours_of):
    peer = make_peer("BertForSequenceClassification", num_labels=1)
    loaded = ours_of(peer)
    rows = texts(loaded.model.config)
    batch = ragged(rows)
    with torch.no_grad():
        ours = our_scores(loaded.model, "classes", loaded.model(batch), batch)
    assert_close(ours, torch.cat([output.logits for output in theirs_alone(peer, rows)]))
    assert ours.shape == (len(LENGTHS), 1)
    assert loaded.labels == ()


def test_the_pooler_equals_theirs(make_peer, ours_of):
    peer = make_peer("BertModel")
    model = ours_of(peer).model
    rows = texts(model.config)
    batch = ragged(rows)
    with torch.no_grad():
        ours = model.pooler(model(batch)[batch.lengths.cumsum(0) - batch.lengths])
    assert_close(ours, torch.cat([output.pooler_output for output in theirs_alone(peer, rows)]))


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("architecture", ENCODERS)
def test_padding_does_not_change_a_text(architecture, side, make_peer, ours_of):
    model = ours_of(make_peer(architecture)).model
    rows = texts(model.config)
    inputs = padded(rows, side)
    real_T = inputs["attention_mask"].bool().flatten()
    layout = Padded(inputs["attention_mask"])
    whole = torch.tensor([max(LENGTHS)] * len(rows))
    flat = (inputs["input_ids"].flatten(), inputs["token_type_ids"].flatten(), layout.position_ids, whole)
    batch = ragged(rows)
    with torch.no_grad():
        ours = model(batch)
        rectangle = Batch(*flat)
        hidden_TH = model(rectangle, model.encoder.build_context(rectangle, layout))
    assert_close(hidden_TH[real_T], ours)
    assert_close(hidden_TH[layout.first_tokens], ours[Bucketed(batch.lengths, ours.device).first_tokens])


# --- gradients ------------------------------------------------------------------------------------------------------


def gradient_distance(model, peer):
    """Relative L2 distance over all parameters, ours by their names; and the largest of one parameter alone."""
    family = FAMILIES[peer.config.model_type]
    ours = {}
    for name, parameter in model.named_parameters():
        if parameter.grad is None:
            continue
        names = family.hf_names(name, model.num_outputs)
        ours.update(zip(names, parameter.grad.chunk(len(names)), strict=True))
    theirs = {name: value.grad for name, value in their_parameters(peer).items() if value.grad is not None}
    if not set(ours) & set(theirs):
        theirs = {family.prefix + name: value for name, value in theirs.items()}
    assert set(ours) == set(theirs)
    norm = float(torch.cat([value.flatten() for value in theirs.values()]).norm())
    apart = {name: float((ours[name] - theirs[name]).norm()) for name in theirs}
    return float(torch.tensor([*apart.values()]).norm()) / norm, max(apart.values()) / norm


def test_gradients_of_pre_training_equal_theirs(make_peer, ours_of):
    peer = make_peer("BertForPreTraining").train()
    model = ours_of(peer).model.train()
    rows = texts(model.config)
    batch, inputs = ragged(rows), padded(rows)
    places = torch.tensor([0, 3, 11, 29, 42, 43, 70, 105])
    words, follows = torch.randint(5, V, (len(places),)), torch.randint(0, 2, (len(rows),))
    labels = torch.full(inputs["input_ids"].shape, -100)
    flat = torch.full((batch.num_tokens,), -100)
    flat[places] = words
    labels[inputs["attention_mask"].bool()] = flat
    peer(**inputs, labels=labels, next_sentence_label=follows).loss.backward()

    hidden_TH = model(batch)
    head = model.heads["masked_words"]
    table = model.encoder.embeddings.words.weight
    words_sum, num_words = masked_lm_loss(head(hidden_TH[places]), table, head.bias, words)
    pairs_sum, num_pairs = classification_loss(our_scores(model, "next_sentence", hidden_TH, batch), follows)
    (words_sum / num_words + pairs_sum / num_pairs).backward()
    total, largest = gradient_distance(model, peer)
    assert total < 1e-6 and largest < 1e-6


@pytest.mark.parametrize(
    "architecture", [name for name in SCORES if name.endswith("MaskedLM") and not name.startswith(BY_LENGTH)]
)
@pytest.mark.parametrize("newest_torch", [True, False])
def test_gradients_of_masked_words_equal_theirs(architecture, newest_torch, make_peer, ours_of, monkeypatch):
    if not newest_torch:
        monkeypatch.delattr(F, "linear_cross_entropy", raising=False)
    peer = make_peer(architecture).train()
    model = ours_of(peer).model.train()
    rows = texts(model.config)
    batch, inputs = ragged(rows), padded(rows)
    if not takes_segments(model):
        del inputs["token_type_ids"]
    places = torch.arange(0, batch.num_tokens, 7)
    flat = torch.full((batch.num_tokens,), -100)
    flat[places] = torch.randint(5, V, (len(places),))
    labels = torch.full(inputs["input_ids"].shape, -100)
    labels[inputs["attention_mask"].bool()] = flat
    peer(**inputs, labels=labels).loss.backward()
    head, table = model.heads["masked_words"], model.encoder.embeddings.words.weight
    total, count = masked_lm_loss(head(model(batch)[places]), table, head.bias, flat[places])
    (total / count).backward()
    assert gradient_distance(model, peer)[0] < 1e-6


@pytest.mark.parametrize(
    ("architecture", "num_labels"),
    [
        ("BertForNextSentencePrediction", 2),
        ("BertForSequenceClassification", 1),
        *(
            (name, LABELS.get(name, {}).get("num_labels", 2))
            for name in SCORES
            if name.endswith(("fication", "ering")) and not name.startswith(BY_LENGTH)
        ),
    ],
)
def test_gradients_of_fine_tuning_equal_theirs(architecture, num_labels, make_peer, ours_of):
    peer = make_peer(architecture, num_labels=num_labels).train()
    model = ours_of(peer).model.train()
    rows = texts(model.config)
    batch, inputs = ragged(rows), padded(rows)
    if not takes_segments(model):
        del inputs["token_type_ids"]
    (head,) = SCORES[architecture]
    scores = our_scores(model, head, model(batch), batch)
    generator = torch.Generator().manual_seed(3)
    if head == "spans":
        ends = torch.tensor([[int(torch.randint(0, n, (), generator=generator)) for _ in "se"] for n in LENGTHS])
        # Text by text, since theirs lets padding compete for the span.
        losses = []
        for (ids, segments), (start, end) in zip(rows, ends, strict=True):
            alone = {"input_ids": ids[None]} | ({"token_type_ids": segments[None]} if takes_segments(model) else {})
            losses.append(peer(**alone, start_positions=start[None], end_positions=end[None]).loss)
        torch.stack(losses).mean().backward()
        ours = [F.cross_entropy(part.T, end) for part, end in zip(scores.split(LENGTHS), ends, strict=True)]
        torch.stack(ours).mean().backward()
    elif num_labels == 1:
        targets = torch.randn(len(rows), generator=generator)
        peer(**inputs, labels=targets).loss.backward()
        total, count = mse_loss(scores[:, 0], targets)
        (total / count).backward()
    elif head == "tokens":
        targets = torch.randint(0, num_labels, (batch.num_tokens,), generator=generator)
        labels = torch.full(inputs["input_ids"].shape, -100)
        labels[inputs["attention_mask"].bool()] = targets
        peer(**inputs, labels=labels).loss.backward()
        total, count = classification_loss(scores, targets)
        (total / count).backward()
    else:
        targets = torch.randint(0, num_labels, (len(rows),), generator=generator)
        peer(**inputs, labels=targets).loss.backward()
        total, count = classification_loss(scores, targets)
        (total / count).backward()
    assert gradient_distance(model, peer)[0] < 1e-6


@pytest.mark.parametrize("architecture", [name for name in ENCODERS if not name.startswith(BY_LENGTH)])
def test_gradients_of_hidden_states_equal_theirs(architecture, make_peer, ours_of):
    with_pooler = ("BertModel", "AlbertModel", "RobertaModel", "XLMRobertaModel", "LongformerModel")
    options = {"add_pooling_layer": False} if architecture in with_pooler else {}
    peer = make_peer(architecture, options=options).train()
    model = ours_of(peer).model.train()
    rows = texts(model.config)
    batch, inputs = ragged(rows), padded(rows)
    if not takes_segments(model):
        del inputs["token_type_ids"]
    real = inputs["attention_mask"].bool()
    weights_TH = torch.randn(batch.num_tokens, model.config.hidden_size)
    (peer(**inputs).last_hidden_state[real] * weights_TH).sum().backward()
    (model(batch) * weights_TH).sum().backward()
    assert gradient_distance(model, peer)[0] < 1e-5


def test_gradients_with_kept_weights_equal_those_of_the_fused_kernel(make_model, monkeypatch):
    """The batched form that training takes on a processor, and torch's in its place."""
    model = make_model("bert").train()
    rows = texts(model.config)
    weights_TH = torch.randn(sum(LENGTHS), model.config.hidden_size)
    gradients = []
    for batched in (True, False):
        monkeypatch.setattr(kernels, "batched_is_faster", lambda q, longest, dropout, batched=batched: batched)
        model.zero_grad()
        (model(ragged(rows)) * weights_TH).sum().backward()
        gradients.append(torch.cat([value.grad.flatten() for value in model.encoder.parameters()]))
    assert 0 < (gradients[0] - gradients[1]).norm() / gradients[1].norm() < 1e-6


# --- files ----------------------------------------------------------------------------------------------------------


def unread(architecture):
    """Parameters that theirs has and makes no use of: a second pooler beside that of the classes."""
    unread_there = architecture == "BigBirdForSequenceClassification"
    return ("bert.pooler.weight", "bert.pooler.bias") if unread_there else ()


def load_theirs(architecture, directory, **options):
    """Their model from a directory, with nothing missing, left over or of another shape."""
    peer, report = getattr(transformers, architecture).from_pretrained(directory, output_loading_info=True, **options)
    report = {
        kind: names if isinstance(names, str) else {*names} - {*unread(architecture)} for kind, names in report.items()
    }
    wrong = {kind: names for kind, names in report.items() if names and not isinstance(names, str)}
    assert not wrong, wrong
    return peer.eval()


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ALL[::3])  # one or two of each family; the others: soak/
def test_what_we_save_transformers_loads(architecture, make_peer, ours_of, tmp_path):
    check_saved(architecture, make_peer, ours_of, tmp_path)


def check_saved(architecture, make_peer, ours_of, tmp_path):
    peer = make_peer(architecture, **LABELS.get(architecture, {}))
    checkpoint.save(ours_of(peer), tmp_path / "ours")
    back = load_theirs(architecture, tmp_path / "ours")
    before, after = peer.state_dict(), back.state_dict()
    assert set(before) == set(after)
    assert all(torch.equal(before[name], after[name]) for name in before if name not in unread(architecture))
    assert back.config.architectures == [architecture]
    mine, kept = back.config.to_dict(), peer.config.to_dict()
    same = {"transformers_version", "architectures", "dtype", "_name_or_path", "problem_type", "bos_token_id"}
    same |= {
        "qa_dropout",
        "pos_att_type",
        "max_relative_positions",
        "eos_token_id",
        "cls_token_id",
        "sep_token_id",
        "embedding_dropout",
        "global_attn_every_n_layers",
    }
    different = {key: (kept[key], mine.get(key)) for key in kept if kept[key] != mine.get(key) and key not in same}
    assert not different


def test_an_encoder_without_a_pooler_stays_without(make_peer, ours_of, tmp_path):
    peer = make_peer("BertModel", options={"add_pooling_layer": False})
    loaded = ours_of(peer)
    assert loaded.model.pooler is None
    checkpoint.save(loaded, tmp_path / "ours")
    back = load_theirs("BertModel", tmp_path / "ours", add_pooling_layer=False)
    assert all(torch.equal(value, back.state_dict()[name]) for name, value in peer.state_dict().items())


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ALL[1::3])  # one or two of each family; the others: soak/
def test_transformers_computes_the_same_from_a_model_of_ours(architecture, make_peer, ours_of, tmp_path):
    check_fresh(architecture, make_peer, ours_of, tmp_path)


def check_fresh(architecture, make_peer, ours_of, tmp_path):
    """Of a new model of the architecture, saved by us."""
    loaded = ours_of(make_peer(architecture, **LABELS.get(architecture, {})))
    old = loaded.model
    model = Model(old.config, old.num_outputs, pooler=old.pooler is not None)
    initialize(model, 0.2, torch.Generator().manual_seed(5))
    fresh = Checkpoint(model=model.eval(), model_type=loaded.model_type, labels=loaded.labels)
    checkpoint.save(fresh, tmp_path / "ours")
    peer = load_theirs(architecture, tmp_path / "ours")
    rows = texts(model.config)
    batch, outputs = ragged(rows), theirs_alone(peer, rows)
    with torch.no_grad():
        hidden_TH = model(batch)
        if architecture in ENCODERS:
            assert_close(hidden_TH, torch.cat([output.last_hidden_state[0] for output in outputs]))
        for head, names in SCORES.get(architecture, {}).items():
            ours = our_scores(model, head, hidden_TH, batch)
            assert_close(ours, torch.cat([their_scores(output, names) for output in outputs]))


@pytest.mark.slow
@pytest.mark.parametrize("head", ["classes", "tokens", "spans", "masked_words"])
@pytest.mark.parametrize(
    ("encoder", "pooler"),
    [
        ("BertModel", True),
        ("BertModel", False),
        ("AlbertModel", True),
        ("RobertaModel", False),
        ("DistilBertModel", None),
        ("ElectraModel", None),
        ("ModernBertModel", None),
        ("DebertaModel", None),
        ("DebertaV2Model", None),
    ],
)
def test_a_new_head_is_loaded_with_nothing_left_over_and_named_in_a_message(
    head, encoder, pooler, make_peer, ours_of, tmp_path
):
    loaded = ours_of(make_peer(encoder, options={} if pooler is None else {"add_pooling_layer": pooler}))
    labels = tuple("abcde") if head in ("classes", "tokens") else ()
    messages = []
    with messages_to(messages.append):
        new = new_head.with_head(loaded, head, labels, seed=7, num_outputs=None if labels else 2)
    checkpoint.save(new, tmp_path / "ours")
    family = encoder.removesuffix("Model")
    architecture = next(n for n, heads in SCORES.items() if set(heads) == {head} and n.startswith(f"{family}For"))
    load_theirs(architecture, tmp_path / "ours")
    assert len(messages) == 1 and head in messages[0]
    pooled = ("classes", "tokens", "spans") if encoder == "ModernBertModel" else ("classes",)
    assert ("pooler" in messages[0]) == (head in pooled and not pooler)


@pytest.mark.parametrize("head", ["SequenceClassification", "TokenClassification", "QuestionAnswering"])
def test_modern_bert_s_new_heads_begin_with_the_masked_words_map_as_theirs_do_and_no_message_says_otherwise(
    head, make_peer, ours_of, tmp_path
):
    peer = make_peer("ModernBertForMaskedLM")
    torch.nn.init.normal_(peer.head.norm.weight)
    loaded, messages = ours_of(peer), []
    name = next(iter(SCORES[f"ModernBertFor{head}"]))
    num_outputs = {"num_outputs": 2} if name == "spans" else {}
    with messages_to(messages.append):
        new = new_head.with_head(loaded, name, () if num_outputs else ("a", "b"), seed=7, **num_outputs)
    peer.save_pretrained(tmp_path / "theirs")
    theirs = getattr(transformers, f"ModernBertFor{head}").from_pretrained(tmp_path / "theirs")
    assert torch.equal(new.model.pooler.dense.weight, theirs.head.dense.weight)
    assert torch.equal(new.model.pooler.norm.weight, theirs.head.norm.weight)
    assert "pooler" not in messages[0]


@pytest.mark.slow
def test_their_names_cover_every_parameter(make_peer, ours_of):
    for architecture in ALL:
        peer = make_peer(architecture)
        loaded = ours_of(peer)
        family = FAMILIES[loaded.model_type]
        prefix = "" if architecture.endswith("Model") else family.prefix
        ours = hf_state_dict(loaded.model, family, prefix)
        theirs = their_parameters(peer)
        assert set(ours) == set(theirs) - {*unread(architecture)}
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)
