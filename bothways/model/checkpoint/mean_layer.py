"""A linear head on the mean of the tokens, as one more encoder layer and the family's own head.

transformers' classes for BERT and RoBERTa read the first token, through tanh of a dense layer. One more layer computes
the mean m of all tokens: its queries and keys are zero, so attention is uniform; its feed-forward part is zero. Before
the layer norm every token has x = A m + a (the layer below is scaled down, so that its own state is negligible), and

- for a head on m itself, a is large: LN(A m + a) is a linear map of m up to |A m|^2 / 2 |a|^2, as |x| hardly changes;
- for a head on m / |m|, A is orthogonal: LN divides by the length of what it gets.

A layer norm also removes the component along (1, ..., 1), so A has to leave one direction u of m out, and for the
constant a another one, w. The hidden states are gamma n + beta with n orthogonal to (1, ..., 1). Thus <m, u> is the
same for all texts if u is parallel to 1 / gamma, and <m, w> hardly varies if w is where gamma is least; both are then
part of a. MiniLM and models made from it have gammas of almost zero, and lose nothing. The pooler is so small a
multiple of the identity that tanh is linear.

Letters: H hidden, C classes, R rank of the head's weight.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bothways.model.checkpoint.changes.new_head import pooling_config
from bothways.model.checkpoint.contents import Checkpoint
from bothways.model.config import unit_scale
from bothways.model.families import FAMILIES
from bothways.model.heads import ClassificationHead
from bothways.model.model import Model
from bothways.model.parameters import no_init

SHRINK = 2.0**-11  # of the layer below; with GAIN, a state is 2^-25 of what attention adds
GAIN = 2.0**14  # of attention's output, within the range of float16
OFFSET = 64.0  # |a| / |A m| of a head on m itself, which bf16 still resolves since they have separate coordinates
SLOPE, LINEAR_SLOPE = 2.0**-12, 2.0**-5  # of the pooler (of a head on m itself): the error of tanh(x) is x^3 / 3
DEVIATION, MOST = 0.5, 7.0  # of a component of the mean of n over texts: typical, and the most in MiniLM
MAX_ERROR = 5e-4  # of a probability, at worst; models with a larger one keep the format of linear heads


@dataclass(frozen=True)
class MeanLayer:
    """x = A m + a before the layer norm, up to a factor, and the logits K LN(x) + b.

    slope: of the pooler. error: at worst, of a probability (for regression, relative).
    """

    map_HH: Tensor
    offset_H: Tensor
    head_CH: Tensor
    bias_C: Tensor
    slope: float
    error: float = 0.0


@dataclass(frozen=True)
class Mean:
    """Bounds that the last layer norm sets for the mean m of a text's hidden states gamma n + beta. length: typical
    |m|."""

    gamma_H: Tensor
    beta_H: Tensor

    @property
    def length(self) -> float:
        return float((self.beta_H.square().sum() + (DEVIATION * self.gamma_H).square().sum()).sqrt())

    def constant_direction(self) -> Tensor:
        """The unit vector u for which <m, u> is the same for all texts: parallel to 1 / gamma."""
        least = int(self.gamma_H.abs().argmin())
        u_H = torch.zeros_like(self.gamma_H)
        u_H[least] = 1.0
        if self.gamma_H[least] != 0:
            u_H = self.gamma_H[least] / self.gamma_H
        unit_H: Tensor = u_H / u_H.norm()
        return unit_H

    def deviation(self, w_H: Tensor) -> float:
        """The standard deviation of <m, w> over texts. A component with a small gamma is assumed to be large in n."""
        share_H = self.gamma_H.abs().median() / self.gamma_H.abs().clamp_min(1e-30)
        deviation: Tensor = (DEVIATION * share_H).clamp(DEVIATION, MOST) * self.gamma_H * w_H
        return float(deviation.norm())


def find_mean_layer(checkpoint: Checkpoint) -> MeanLayer | None:
    """The layer for a model's head on the mean; None if it has no such head, or if no layer computes its scores."""
    model, family = checkpoint.model, FAMILIES[checkpoint.model_type]
    if {*model.num_outputs} != {"classes"} or model.config.pooler_act not in ("none", "unit"):
        return None
    head, size = model.heads["classes"], model.config.hidden_size
    if not family.supports_mean_layer or not isinstance(head, ClassificationHead) or size < 4:
        return None
    state = {name: value.detach().double().cpu() for name, value in last_norm(model).items()}
    mean = Mean(state["weight"], state["bias"])
    weight_CH, bias_C = head.output.weight.detach().double().cpu(), head.output.bias.detach().double().cpu()
    if not mean.length > 0:
        return None
    if model.config.pooler_act == "none":
        return linear_layer(mean, weight_CH, bias_C)
    length = unit_scale(size)
    layers = [
        unit_layer(mean, length * weight_CH, bias_C, w_H, is_regression=not checkpoint.labels)
        for w_H in spare_directions(mean, weight_CH)
    ]
    best = min(layers, key=lambda layer: layer.error)
    return best if best.error <= MAX_ERROR else None


def last_norm(model: Model) -> dict[str, Tensor]:
    """Weight and bias of the layer norm that ends the encoder."""
    name = f"encoder.layers.{model.config.num_hidden_layers - 1}.feed_forward_norm"
    return {kind: model.get_parameter(f"{name}.{kind}") for kind in ("weight", "bias")}


def linear_layer(mean: Mean, weight_CH: Tensor, bias_C: Tensor) -> MeanLayer | None:
    """For W m + b. The rows of W are spanned by R directions, each in two coordinates with opposite signs, so that
    (1, ..., 1) has no part of them; a is in the first two."""
    num_classes, size = weight_CH.shape
    left_CR, scales_R, right_RH = torch.linalg.svd(weight_CH, full_matrices=False)
    rank = int((scales_R > 1e-12 * scales_R.max().clamp_min(1e-300)).sum())
    if 2 * rank + 2 > size:
        return None
    scale = 1 / (OFFSET * mean.length)
    map_HH, offset_H = torch.zeros(size, size).double(), torch.zeros(size).double()
    offset_H[0], offset_H[1] = 1.0, -1.0
    plus, minus = slice(2, 2 * rank + 2, 2), slice(3, 2 * rank + 2, 2)
    map_HH[plus], map_HH[minus] = scale * right_RH[:rank], -scale * right_RH[:rank]
    read_CR = left_CR[:, :rank] * scales_R[:rank] / (2 * scale * (size / 2) ** 0.5)
    head_CH = torch.zeros(num_classes, size).double()
    head_CH[:, plus], head_CH[:, minus] = read_CR, -read_CR
    return MeanLayer(map_HH, offset_H, head_CH, bias_C, LINEAR_SLOPE)


def spare_directions(mean: Mean, weight_CH: Tensor) -> Iterator[Tensor]:
    """Directions orthogonal to u in which the mean varies little, some of which the head does not read. The first is
    zero: none is needed where <m, u> is zero."""
    u_H, size = mean.constant_direction(), len(mean.gamma_H)
    yield torch.zeros(size).double()
    for index in mean.gamma_H.abs().argsort()[:3]:
        for fixed_H in (u_H[None], torch.cat([u_H[None], weight_CH])):
            basis = torch.linalg.qr(fixed_H.T).Q
            w_H = torch.zeros(size).double()
            w_H[index] = 1.0
            w_H = w_H - basis @ (basis.T @ w_H)
            if w_H.norm() > 0.1:
                yield w_H / w_H.norm()


def unit_layer(mean: Mean, weight_CH: Tensor, bias_C: Tensor, w_H: Tensor, *, is_regression: bool) -> MeanLayer:
    """For W m / |m| + b, with the spare direction w, or none if it is zero."""
    size, u_H, shortest = len(w_H), mean.constant_direction(), mean.length / 2
    along_u, along_w, deviation = float(mean.beta_H @ u_H), float(mean.beta_H @ w_H), mean.deviation(w_H)
    reflection_HH = reflect(u_H)
    offset = (along_u**2 + along_w**2 + deviation**2) ** 0.5 if bool(w_H.any()) else 0.0
    rest_HH = torch.eye(size).double() - torch.outer(u_H, u_H) - torch.outer(w_H, w_H)
    constant_C = along_u * (weight_CH @ u_H) + along_w * (weight_CH @ w_H)  # of W m
    read_CH = weight_CH @ rest_HH
    if offset:
        read_CH = read_CH + torch.outer(constant_C / offset, w_H)
        norm_error = deviation * (deviation + 2 * abs(along_w)) / (2 * shortest**2)
        score_error = deviation * float((weight_CH @ w_H).abs().max()) / shortest
    else:
        bias_C = bias_C + constant_C / mean.length
        norm_error = along_u**2 / (2 * shortest**2)
        score_error = float(constant_C.abs().max()) * (1 / shortest - 1 / mean.length)
    if is_regression:
        score_error /= max(float(weight_CH.norm()), 1e-300)
    return MeanLayer(
        reflection_HH @ rest_HH / mean.length,
        reflection_HH @ w_H * (offset / mean.length),
        read_CH @ reflection_HH / size**0.5,
        bias_C,
        SLOPE,
        0.25 * (norm_error + score_error),
    )


def reflect(u_H: Tensor) -> Tensor:
    """The reflection that exchanges the unit vector u with (1, ..., 1) / sqrt(H) (Householder 1958)."""
    size = len(u_H)
    difference_H = u_H - size**-0.5
    square = float(difference_H @ difference_H)
    identity_HH = torch.eye(size).double()
    return identity_HH if square < 1e-20 else identity_HH - 2 * torch.outer(difference_H, difference_H) / square


def with_mean_layer(checkpoint: Checkpoint, layer: MeanLayer) -> Checkpoint:
    """The same scores by the family's own head, with one more encoder layer."""
    old = checkpoint.model
    config, depth = pooling_config(old.config, checkpoint.model_type, None), old.config.num_hidden_layers
    with no_init():
        model = Model(config.replace(num_hidden_layers=depth + 1), old.num_outputs)
    parameters = dict(model.named_parameters())
    top, size = f"encoder.layers.{depth}.", config.hidden_size
    stored = {name: value for name, value in old.state_dict().items() if name.startswith("encoder.")}
    with torch.no_grad():
        for name, value in parameters.items():
            value.copy_(stored[name]) if name in stored else value.zero_()
        for kind in ("weight", "bias"):
            parameters[f"encoder.layers.{depth - 1}.feed_forward_norm.{kind}"].mul_(SHRINK)
        parameters[f"{top}attention.qkv.weight"][2 * size :] = layer.map_HH / SHRINK
        parameters[f"{top}attention.output.weight"].copy_(GAIN * torch.eye(size))
        parameters[f"{top}attention.output.bias"].copy_(GAIN * layer.offset_H)
        for norm in ("attention_norm", "feed_forward_norm"):
            parameters[f"{top}{norm}.weight"].fill_(1.0)
        parameters["pooler.dense.weight"].copy_(layer.slope * torch.eye(size))
        parameters["heads.classes.output.weight"].copy_(layer.head_CH / layer.slope)
        parameters["heads.classes.output.bias"].copy_(layer.bias_C)
    return replace(checkpoint, model=model)
