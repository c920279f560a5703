"""A narrower model (a student) from the weights of a wider one (its teacher): a shared subspace, and a least-squares
fit of every map.

All hidden states are projected onto their principal directions. Layer by layer, each linear map of the student is then
the least-squares fit of the teacher's values for the same tokens, from the student's own inputs, so that later maps
compensate the errors of earlier ones. Of attention heads and feed-forward neurons, those with the largest contributions
stay. For layers with the norm after the residual, such as BERT's (compare SliceGPT, Ashkboos 2024).

Letters: T tokens, H hidden size of the teacher, S of the student, I feed-forward size, X inputs, Y outputs of a map.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from bothways.base.errors import InputError, flag
from bothways.model.attention import Context
from bothways.model.checkpoint.contents import Checkpoint, check_plain
from bothways.model.config import EncoderConfig
from bothways.model.encoder import Embeddings
from bothways.model.layer import Layer
from bothways.model.model import Model
from bothways.model.parameters import same_random_numbers
from bothways.model.states import compute_states, plain_encoder
from bothways.text.batch import Batch

RIDGE = 1e-4  # of the mean square of the inputs


def check_can_project(config: EncoderConfig) -> None:
    """InputError for architectures other than BERT's."""
    narrow_table = config.embedding_size not in (None, config.hidden_size)
    learned = config.position_embedding == "learned" and config.relative_positions is None
    plain_layers = config.norm == "post" and config.feed_forward == "plain" and not config.num_layer_groups
    if narrow_table or not learned or not plain_layers:
        raise InputError(
            "only models with BERT's layers (norm after the residual, learned positions) can start a student of "
            f"another width; use the teacher's {flag('hidden_size')}, or name another start with {flag('student')}"
        )


def with_width(source: Checkpoint, hidden_size: int, intermediate_size: int, *, batches: Sequence[Batch]) -> Checkpoint:
    """A checkpoint of these sizes, with heads of the same size and the same tokenizer, without heads for tasks.

    batches: a sample of text, as in `project`. InputError for architectures other than BERT's."""
    check_plain(source.model)
    old = source.model.config
    heads = hidden_size // old.head_size
    sizes = {"hidden_size": hidden_size, "intermediate_size": intermediate_size, "num_attention_heads": heads}
    with same_random_numbers():
        model = Model(old.replace(**sizes)).eval()
    project(source.model.eval(), model, range(old.num_hidden_layers), torch.arange(old.vocab_size), batches)
    return replace(source, model=model, labels=(), multi_label=False, metadata={}, words=None, scope=None)


@torch.inference_mode()
def project(teacher: Model, student: Model, layers: Sequence[int], ids_V: Tensor, batches: Sequence[Batch]) -> Tensor:
    """Set the student's weights from `layers` of the teacher. Returns the basis of its hidden states, [H, S].

    ids_V: the teacher's id of each entry of the student's vocabulary. batches: a sample of text in the student's ids,
    at least several times as many tokens as the student's feed-forward size.
    """
    check_can_project(teacher.config)
    teacher_batches = [replace(batch, input_ids=ids_V[batch.input_ids]) for batch in batches]
    states = [compute_states(teacher, batch).layers for batch in teacher_batches]
    basis_HS = principal_directions([torch.cat(one) for one in zip(*states, strict=True)], student.config.hidden_size)
    source, target = plain_encoder(teacher), plain_encoder(student)
    fit = LayerFit(
        basis_HS,
        [source.build_context(batch) for batch in teacher_batches],
        [target.build_context(batch) for batch in batches],
    )
    project_tables(source.embeddings, target.embeddings, ids_V, basis_HS)
    sums = [_sum_of_embeddings(student, batch) for batch in batches]
    x = fit_norm(target.embeddings.norm, sums, [parts[0] @ basis_HS for parts in states])
    for layer, index in zip(target.layer_sequence, layers, strict=True):
        old = source.layer_sequence[index]
        assert isinstance(layer, Layer) and isinstance(old, Layer)
        x, middle = fit.attention(old, layer, [parts[index] for parts in states], x)
        x = fit.feed_forward(old, layer, middle, x, [parts[index + 1] for parts in states])
    return basis_HS.contiguous()


def project_tables(source: Embeddings, target: Embeddings, ids_V: Tensor, basis_HS: Tensor) -> None:
    """Set the tables of words, segments and positions."""
    for name in ("words", "segments", "positions"):
        old, new = getattr(source, name), getattr(target, name)
        if isinstance(old, nn.Embedding):
            new.weight.copy_((old.weight[ids_V] if name == "words" else old.weight[: len(new.weight)]) @ basis_HS)


@dataclass(frozen=True)
class LayerFit:
    """Fits a layer of the student to one of the teacher, from both their states for the same batches.

    contexts: of the batches, as the teacher and as the student read them."""

    basis_HS: Tensor
    teacher_contexts: Sequence[Context]
    contexts: Sequence[Context]

    def attention(
        self, old: Layer, layer: Layer, inputs: Sequence[Tensor], x: Sequence[Tensor]
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Fit the attention. inputs: the teacher's states [T, H] below the layer; x: the student's [T, S]. Returns
        those of student and teacher after it."""
        qkv = [old.attention.qkv(x_TH) for x_TH in inputs]
        attended = [
            old.attention.attend(x_TH, qkv_TX, context)
            for x_TH, qkv_TX, context in zip(inputs, qkv, self.teacher_contexts, strict=True)
        ]
        kept_S = strongest_heads(torch.cat(attended), old, layer.attention.num_heads)
        fit_linear(layer.attention.qkv, x, [part.view(len(part), 3, -1)[..., kept_S].flatten(1) for part in qkv])
        hidden = [
            layer.attention.attend(x_TS, layer.attention.qkv(x_TS), context)
            for x_TS, context in zip(x, self.contexts, strict=True)
        ]
        mixed = [old.attention.output(part) for part in attended]
        fit_linear(layer.attention.output, hidden, [part @ self.basis_HS for part in mixed])
        middle = [old.attention_norm(x_TH + part) for x_TH, part in zip(inputs, mixed, strict=True)]
        sums = [x_TS + layer.attention.output(part) for x_TS, part in zip(x, hidden, strict=True)]
        return fit_norm(layer.attention_norm, sums, [part @ self.basis_HS for part in middle]), middle

    def feed_forward(
        self, old: Layer, layer: Layer, inputs: Sequence[Tensor], x: Sequence[Tensor], outputs: Sequence[Tensor]
    ) -> list[Tensor]:
        """Fit the feed-forward part. inputs, x: as `attention` returns them; outputs: the teacher's states after it.
        Returns those of the student."""
        inner = [old.feed_forward.inner(x_TH) for x_TH in inputs]
        active_TI = torch.cat([old.feed_forward.activate(x_TH) for x_TH in inputs])
        kept_I = strongest_neurons(active_TI, old, layer.feed_forward.output.in_features)
        fit_linear(layer.feed_forward.inner, x, [part[:, kept_I] for part in inner])
        hidden = [layer.feed_forward.activate(x_TS) for x_TS in x]
        fit_linear(layer.feed_forward.output, hidden, [old.feed_forward(x_TH) @ self.basis_HS for x_TH in inputs])
        sums = [x_TS + layer.feed_forward.output(part) for x_TS, part in zip(x, hidden, strict=True)]
        return fit_norm(layer.feed_forward_norm, sums, [part @ self.basis_HS for part in outputs])


def principal_directions(states: Sequence[Tensor], size: int) -> Tensor:
    """The orthonormal directions with the largest second moments of states, [H, size]; all layers weigh the same."""
    moments_HH = torch.stack([x_TH.T @ x_TH / x_TH.square().sum() for x_TH in states]).double().sum(0)
    if size == len(moments_HH):
        return torch.eye(size)
    _, directions_HH = torch.linalg.eigh(moments_HH)
    main_HS: Tensor = directions_HH.flip(-1)[:, :size].float()
    return main_HS


def strongest_heads(attended_TH: Tensor, layer: Layer, num_heads: int) -> Tensor:
    """Dimensions of the heads whose part of the output varies most, [S], head by head."""
    heads = layer.attention.num_heads
    weight_HND: Tensor = layer.attention.output.weight.view(len(attended_TH[0]), heads, -1)
    variances_N = torch.stack(
        [
            (part_TD @ weight_HND[:, head].T).var(0).sum()
            for head, part_TD in enumerate(attended_TH.view(len(attended_TH), heads, -1).unbind(1))
        ]
    )
    kept_N = variances_N.topk(num_heads).indices.sort().values
    dimensions_ND = torch.arange(attended_TH.shape[1]).view(heads, -1)
    kept: Tensor = dimensions_ND[kept_N].flatten()
    return kept


def strongest_neurons(active_TI: Tensor, layer: Layer, count: int) -> Tensor:
    """The neurons whose part of the output varies most, in their order, [count]."""
    variances_I = active_TI.var(0) * layer.feed_forward.output.weight.square().sum(0)
    kept: Tensor = variances_I.topk(count).indices.sort().values
    return kept


def fit_linear(linear: nn.Linear, inputs: Sequence[Tensor], targets: Sequence[Tensor]) -> None:
    """Set weight and bias to the ridge regression of targets [T, Y] on inputs [T, X]."""
    x_TX, y_TY = torch.cat([*inputs]).double(), torch.cat([*targets]).double()
    mean_X, mean_Y = x_TX.mean(0), y_TY.mean(0)
    x_TX, y_TY = x_TX - mean_X, y_TY - mean_Y
    gram_XX = x_TX.T @ x_TX
    gram_XX.diagonal().add_(RIDGE * gram_XX.diagonal().mean())
    weight_XY = torch.linalg.solve(gram_XX, x_TX.T @ y_TY)
    linear.weight.copy_(weight_XY.T)
    if linear.bias is not None:
        linear.bias.copy_(mean_Y - mean_X @ weight_XY)


def fit_norm(norm: nn.Module, sums: Sequence[Tensor], targets: Sequence[Tensor]) -> list[Tensor]:
    """Set scale and shift of a LayerNorm to the regression of each target dimension. Returns its outputs."""
    assert isinstance(norm, nn.LayerNorm)
    norm.reset_parameters()
    x_TS, y_TS = torch.cat([*map(norm, sums)]), torch.cat([*targets])
    centred_TS = x_TS - x_TS.mean(0)
    scale_S = (centred_TS * y_TS).sum(0) / centred_TS.square().sum(0).clamp_min(1e-6)
    norm.weight.copy_(scale_S)
    if norm.bias is not None:
        norm.bias.copy_(y_TS.mean(0) - x_TS.mean(0) * scale_S)
    return [norm(part) for part in sums]


def _sum_of_embeddings(model: Model, batch: Batch) -> Tensor:
    """Token, segment and position embeddings before their norm, [T, S]."""
    parts = plain_encoder(model).embeddings
    x_TS: Tensor = (
        parts.words(batch.input_ids) + parts.segments(batch.segment_ids) + parts.positions(batch.position_ids)
    )
    return x_TS
