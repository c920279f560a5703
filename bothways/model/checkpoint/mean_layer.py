"""A linear head on the mean of the tokens, as one more encoder layer and the family's own head.

transformers' classes for BERT and RoBERTa read the first token, through tanh of a dense layer. One more layer computes
the mean m of all tokens: its queries and keys are zero, so attention is uniform; its feed-forward part is zero. Before
the layer norm every token has x = A m + a (the layer below is scaled down, so that its own state is negligible), and

- for a head on m itself, a is large: LN(A m + a) is a linear map of m up to |A m|^2 / 2 |a|^2, as |x| hardly changes;
- for a head on m / |m|, A is orthogonal: LN divides by the length of its input.

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
SLOPE = 2.0**-12  # of the pooler: the error of tanh(x) is x^3 / 3
LINEAR_SLOPE = 2.0**-5  # of the pooler of a head on m itself
DEVIATION = 0.5  # of a component of the mean of n over texts, typically
MAX_DEVIATION = 7.0  # of such a component in MiniLM
MAX_ERROR = 5e-4  # of a probability, at worst; models with a larger one keep the format of linear heads


@dataclass(frozen=True)
class MeanLayer:
    """x = A m + a before the layer norm, up to a factor, and the logits K LN(x) + b.

    slope: of the pooler.
    error: at worst, of a probability (for regression, relative).
    """

    map_HH: Tensor
    offset_H: Tensor
    head_CH: Tensor
    bias_C: Tensor
    slope: float
    error: float = 0.0


@dataclass(frozen=True)
class Mean:
    """Bounds that the last layer norm sets for the mean m of a text's hidden states gamma n + beta."""

    gamma_H: Tensor
    beta_H: Tensor

    @property
    def length(self) -> float:
        """The typical |m|."""
        constant = self.beta_H.square().sum()
        varying = (DEVIATION * self.gamma_H).square().sum()
        return float((constant + varying).sqrt())

    def constant_direction(self) -> Tensor:
        """The unit vector u for which <m, u> is the same for all texts: parallel to 1 / gamma."""
        # 1 / gamma, times the least gamma, so that none overflows.
        least = int(self.gamma_H.abs().argmin())
        if self.gamma_H[least] == 0:
            u_H = torch.zeros_like(self.gamma_H)
            u_H[least] = 1.0
        else:
            u_H = self.gamma_H[least] / self.gamma_H
        unit_H: Tensor = u_H / u_H.norm()
        return unit_H

    def deviation(self, w_H: Tensor) -> float:
        """The standard deviation of <m, w> over texts. A component with a small gamma is assumed to be large in n."""
        gamma_H = self.gamma_H.abs()
        share_H = gamma_H.median() / gamma_H.clamp_min(1e-30)
        deviation_H = (DEVIATION * share_H).clamp(DEVIATION, MAX_DEVIATION)
        return float((deviation_H * self.gamma_H * w_H).norm())


# --- the layer --------------------------------------------------------------------------------------------------------


def find_mean_layer(checkpoint: Checkpoint) -> MeanLayer | None:
    """The layer for a model's head on the mean; None if it has no such head, or if no layer computes its scores."""
    model = checkpoint.model
    pooler_act = model.config.pooler_act
    if {*model.num_outputs} != {"classes"} or pooler_act not in ("none", "unit"):
        return None

    head = model.heads["classes"]
    size = model.config.hidden_size
    is_supported = FAMILIES[checkpoint.model_type].supports_mean_layer
    if not is_supported or not isinstance(head, ClassificationHead) or size < 4:
        return None

    norm = last_norm(model)
    mean = Mean(gamma_H=_exact(norm["weight"]), beta_H=_exact(norm["bias"]))
    if not mean.length > 0:
        return None

    weight_CH = _exact(head.output.weight)
    bias_C = _exact(head.output.bias)
    if pooler_act == "none":
        return linear_layer(mean, weight_CH, bias_C)

    # Models differ in the direction that the mean can spare, so all are tried.
    scaled_CH = unit_scale(size) * weight_CH
    is_regression = not checkpoint.labels
    layers = [
        unit_layer(mean, scaled_CH, bias_C, w_H, is_regression=is_regression)
        for w_H in spare_directions(mean, weight_CH)
    ]
    best = min(layers, key=lambda layer: layer.error)
    return best if best.error <= MAX_ERROR else None


def _exact(parameter: Tensor) -> Tensor:
    return parameter.detach().double().cpu()


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

    # The constant a, of length sqrt(2), in two coordinates of their own.
    offset_H = torch.zeros(size).double()
    offset_H[0] = 1.0
    offset_H[1] = -1.0

    # A, so small that |x| hardly changes.
    scale = 1 / (OFFSET * mean.length)
    plus = slice(2, 2 * rank + 2, 2)
    minus = slice(3, 2 * rank + 2, 2)
    map_HH = torch.zeros(size, size).double()
    map_HH[plus] = scale * right_RH[:rank]
    map_HH[minus] = -scale * right_RH[:rank]

    # The head reads the difference of both coordinates, and takes back the factor of the layer norm.
    read_CR = left_CR[:, :rank] * scales_R[:rank] / (2 * scale * (size / 2) ** 0.5)
    head_CH = torch.zeros(num_classes, size).double()
    head_CH[:, plus] = read_CR
    head_CH[:, minus] = -read_CR

    return MeanLayer(
        map_HH=map_HH,
        offset_H=offset_H,
        head_CH=head_CH,
        bias_C=bias_C,
        slope=LINEAR_SLOPE,
    )


def spare_directions(mean: Mean, weight_CH: Tensor) -> Iterator[Tensor]:
    """Directions orthogonal to u in which the mean varies little, some of which the head does not read. The first is
    zero: none is needed where <m, u> is zero."""
    u_H = mean.constant_direction()
    size = len(mean.gamma_H)
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
    """For W m / |m| + b.

    mean: bounds for m.
    weight_CH: W.
    bias_C: b.
    w_H: the spare direction, or zero for none.
    is_regression: whether the error is of a score instead of a probability.
    """
    size = len(w_H)
    u_H = mean.constant_direction()
    along_u = float(mean.beta_H @ u_H)
    along_w = float(mean.beta_H @ w_H)
    deviation = mean.deviation(w_H)
    shortest = mean.length / 2

    rest_HH = torch.eye(size).double() - torch.outer(u_H, u_H) - torch.outer(w_H, w_H)
    constant_C = along_u * (weight_CH @ u_H) + along_w * (weight_CH @ w_H)  # of W m
    read_CH = weight_CH @ rest_HH

    # With a spare direction, an offset along it stands for the constant part of m.
    offset = 0.0
    if bool(w_H.any()):
        offset = (along_u**2 + along_w**2 + deviation**2) ** 0.5

    if offset:
        read_CH = read_CH + torch.outer(constant_C / offset, w_H)
        norm_error = deviation * (deviation + 2 * abs(along_w)) / (2 * shortest**2)
        score_error = deviation * float((weight_CH @ w_H).abs().max()) / shortest
    else:
        # Without one, the head's bias does, as if all m were of typical length.
        bias_C = bias_C + constant_C / mean.length
        norm_error = along_u**2 / (2 * shortest**2)
        score_error = float(constant_C.abs().max()) * (1 / shortest - 1 / mean.length)
    if is_regression:
        score_error /= max(float(weight_CH.norm()), 1e-300)

    reflection_HH = reflect(u_H)
    return MeanLayer(
        map_HH=reflection_HH @ rest_HH / mean.length,
        offset_H=reflection_HH @ w_H * (offset / mean.length),
        head_CH=read_CH @ reflection_HH / size**0.5,
        bias_C=bias_C,
        slope=SLOPE,
        error=0.25 * (norm_error + score_error),  # a probability changes by at most a quarter of its logit's change
    )


def reflect(u_H: Tensor) -> Tensor:
    """The reflection that exchanges the unit vector u with (1, ..., 1) / sqrt(H) (Householder 1958)."""
    size = len(u_H)
    difference_H = u_H - size**-0.5
    square = float(difference_H @ difference_H)
    identity_HH = torch.eye(size).double()
    if square < 1e-20:
        return identity_HH  # both are the same
    return identity_HH - 2 * torch.outer(difference_H, difference_H) / square


# --- the model with the layer -----------------------------------------------------------------------------------------


def with_mean_layer(checkpoint: Checkpoint, layer: MeanLayer) -> Checkpoint:
    """The same scores by the family's own head, with one more encoder layer."""
    old = checkpoint.model
    depth = old.config.num_hidden_layers
    size = old.config.hidden_size
    config = pooling_config(old.config, checkpoint.model_type, None)
    with no_init():
        model = Model(config.replace(num_hidden_layers=depth + 1), old.num_outputs)

    stored = {name: value for name, value in old.state_dict().items() if name.startswith("encoder.")}
    parameters = dict(model.named_parameters())
    below = f"encoder.layers.{depth - 1}."
    top = f"encoder.layers.{depth}."
    with torch.no_grad():
        for name, value in parameters.items():
            if name in stored:
                value.copy_(stored[name])
            else:
                value.zero_()

        # The layer's own input is negligible beside the mean that attention adds. Queries and keys stay zero.
        parameters[f"{below}feed_forward_norm.weight"].mul_(SHRINK)
        parameters[f"{below}feed_forward_norm.bias"].mul_(SHRINK)
        parameters[f"{top}attention.qkv.weight"][2 * size :] = layer.map_HH / SHRINK
        parameters[f"{top}attention.output.weight"].copy_(GAIN * torch.eye(size))
        parameters[f"{top}attention.output.bias"].copy_(GAIN * layer.offset_H)
        parameters[f"{top}attention_norm.weight"].fill_(1.0)
        parameters[f"{top}feed_forward_norm.weight"].fill_(1.0)

        parameters["pooler.dense.weight"].copy_(layer.slope * torch.eye(size))
        parameters["heads.classes.output.weight"].copy_(layer.head_CH / layer.slope)
        parameters["heads.classes.output.bias"].copy_(layer.bias_C)

    return replace(checkpoint, model=model)
