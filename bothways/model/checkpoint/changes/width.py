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
    """A checkpoint of these sizes, with attention heads of the same size and the same tokenizer, without heads for
    tasks.

    source: the teacher, which stays as it is.
    hidden_size: of the student.
    intermediate_size: of the student.
    batches: a sample of text, as in `project`.

    InputError for architectures other than BERT's.
    """
    check_plain(source.model)
    old = source.model.config
    config = old.replace(
        hidden_size=hidden_size,
        intermediate_size=intermediate_size,
        num_attention_heads=hidden_size // old.head_size,
    )
    with same_random_numbers():
        model = Model(config).eval()

    project(
        source.model.eval(),
        model,
        layers=range(old.num_hidden_layers),
        ids_V=torch.arange(old.vocab_size),
        batches=batches,
    )
    return replace(
        source,
        model=model,
        labels=(),
        multi_label=False,
        metadata={},
        words=None,
        scope=None,
        statements=None,
    )


@torch.inference_mode()
def project(teacher: Model, student: Model, layers: Sequence[int], ids_V: Tensor, batches: Sequence[Batch]) -> Tensor:
    """Set the student's weights from the teacher's. Returns the basis of the student's hidden states, [H, S].

    teacher: stays as it is.
    student: is changed, in place.
    layers: of the teacher, one for each layer of the student.
    ids_V: the teacher's id of each entry of the student's vocabulary.
    batches: a sample of text in the student's ids, at least several times as many tokens as the student's feed-forward
    size.
    """
    check_can_project(teacher.config)
    teacher_batches = [replace(batch, input_ids=ids_V[batch.input_ids]) for batch in batches]
    states = [compute_states(teacher, batch).layers for batch in teacher_batches]
    states_by_layer = [torch.cat(parts) for parts in zip(*states, strict=True)]
    basis_HS = principal_directions(states_by_layer, student.config.hidden_size)

    source = plain_encoder(teacher)
    target = plain_encoder(student)
    project_tables(
        source.embeddings,
        target.embeddings,
        ids_V=ids_V,
        basis_HS=basis_HS,
    )
    sums = [_sum_of_embeddings(student, batch) for batch in batches]
    x = fit_norm(target.embeddings.norm, sums, [parts[0] @ basis_HS for parts in states])

    # Each map is fitted from the student's own states x, so that it compensates the errors of the maps before it.
    fit = LayerFit(
        basis_HS=basis_HS,
        teacher_contexts=[source.build_context(batch) for batch in teacher_batches],
        contexts=[target.build_context(batch) for batch in batches],
    )
    for layer, index in zip(target.layer_sequence, layers, strict=True):
        old = source.layer_sequence[index]
        assert isinstance(layer, Layer) and isinstance(old, Layer)
        inputs = [parts[index] for parts in states]
        outputs = [parts[index + 1] for parts in states]
        x, middle = fit.attention(old, layer, inputs, x)
        x = fit.feed_forward(old, layer, inputs=middle, x=x, outputs=outputs)

    return basis_HS.contiguous()


def project_tables(source: Embeddings, target: Embeddings, ids_V: Tensor, basis_HS: Tensor) -> None:
    """Set the tables of words, segments and positions."""
    for name in ("words", "segments", "positions"):
        old = getattr(source, name)
        new = getattr(target, name)
        if isinstance(old, nn.Embedding):
            rows = old.weight[ids_V] if name == "words" else old.weight[: len(new.weight)]
            new.weight.copy_(rows @ basis_HS)


@dataclass(frozen=True)
class LayerFit:
    """Fits a layer of the student to one of the teacher, from both their states for the same batches.

    basis_HS: of the student's hidden states.
    teacher_contexts: of the batches, as the teacher reads them.
    contexts: of the batches, as the student reads them.
    """

    basis_HS: Tensor
    teacher_contexts: Sequence[Context]
    contexts: Sequence[Context]

    def attention(
        self, old: Layer, layer: Layer, inputs: Sequence[Tensor], x: Sequence[Tensor]
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Fit the attention.

        old: the teacher's layer.
        layer: the student's layer.
        inputs: the teacher's states [T, H] below the layer.
        x: the student's states [T, S] below the layer.

        Returns the states of the student, and the states of the teacher, after the attention.
        """
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
        x_middle = fit_norm(layer.attention_norm, sums, [part @ self.basis_HS for part in middle])
        return x_middle, middle

    def feed_forward(
        self,
        old: Layer,
        layer: Layer,
        *,
        inputs: Sequence[Tensor],
        x: Sequence[Tensor],
        outputs: Sequence[Tensor],
    ) -> list[Tensor]:
        """Fit the feed-forward part.

        old: the teacher's layer.
        layer: the student's layer.
        inputs: the teacher's states after the attention.
        x: the student's states after the attention.
        outputs: the teacher's states after the layer.

        Returns the states of the student after the layer.
        """
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
    attended_TND = attended_TH.view(len(attended_TH), heads, -1)

    variances: list[Tensor] = []
    for head in range(heads):
        output_TH = attended_TND[:, head] @ weight_HND[:, head].T
        variances.append(output_TH.var(0).sum())
    kept_N = torch.stack(variances).topk(num_heads).indices.sort().values

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
    x_TX = torch.cat([*inputs]).double()
    y_TY = torch.cat([*targets]).double()
    mean_X = x_TX.mean(0)
    mean_Y = y_TY.mean(0)
    x_TX = x_TX - mean_X
    y_TY = y_TY - mean_Y

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
    x_TS = torch.cat([norm(part) for part in sums])
    y_TS = torch.cat([*targets])

    centred_TS = x_TS - x_TS.mean(0)
    scale_S = (centred_TS * y_TS).sum(0) / centred_TS.square().sum(0).clamp_min(1e-6)
    norm.weight.copy_(scale_S)
    if norm.bias is not None:
        norm.bias.copy_(y_TS.mean(0) - x_TS.mean(0) * scale_S)

    return [norm(part) for part in sums]


def _sum_of_embeddings(model: Model, batch: Batch) -> Tensor:
    """Token, segment and position embeddings before their norm, [T, S]."""
    embeddings = plain_encoder(model).embeddings
    words_TS: Tensor = embeddings.words(batch.input_ids)
    segments_TS: Tensor = embeddings.segments(batch.segment_ids)
    positions_TS: Tensor = embeddings.positions(batch.position_ids)
    return words_TS + segments_TS + positions_TS
