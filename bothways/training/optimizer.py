"""AdamW with decay on matrices only (or Muon for the layers' matrices), over float32 masters of half-precision
weights."""

import math
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from bothways.errors import InputError
from bothways.training.adamw import AdamW, norm_of
from bothways.training.distributed import ALONE, Processes, local, rows_of, whole
from bothways.training.muon import Muon, is_hidden_matrix


class Optimizer:
    """Steps a module's parameters. Weights in bf16 have float32 masters, which hold what single steps are too small
    to show; the masters of float32 weights are the weights.

    layer_decay: eta_l = eta * layer_decay ** (L - l) for layer l of L, embeddings as layer 0 and heads as layer L
    (Sun 2019). muon_rate: that of the layers' matrices, if Muon is to step them. shards: the processes that the
    parameters are shared out over.
    """

    def __init__(
        self, module: nn.Module, *, rate: float, weight_decay: float = 0.01, layer_decay: float = 1.0,
        eps: float = 1e-6, beta2: float = 0.999, muon_rate: float | None = None, shards: Processes = ALONE,
    ) -> None:  # fmt: skip
        self.parameters = {name: value for name, value in module.named_parameters() if value.requires_grad}
        self.masters = {name: local(value.detach()).float() for name, value in self.parameters.items()}
        self.shards = shards
        self.best: dict[str, Tensor] = {}
        depths = depths_of(list(self.masters))
        slower = {name: layer_decay ** (max(depths.values()) - depth) for name, depth in depths.items()}
        decays = {name: weight_decay if value.ndim > 1 else 0.0 for name, value in self.masters.items()}
        matrices = {name: value for name, value in self.masters.items() if muon_rate and is_hidden_matrix(name, value)}
        rest = {name: value for name, value in self.masters.items() if name not in matrices}
        self.rules: list[AdamW | Muon] = [AdamW(rest, {name: rate * slower[name] for name in rest}, decays, eps, beta2)]
        if muon_rate and matrices:
            self.rules.append(Muon(matrices, {name: muon_rate * slower[name] for name in matrices}, decays))

    @torch.no_grad()
    def step(self, share: float, clip: float = 1.0, scale: float = 1.0) -> float:
        """One step at `share` of the peak rate; gradients are divided by scale, clipped to a total norm, which is
        returned, and cleared. A norm that is not finite changes nothing."""
        weights = {name: local(parameter) for name, parameter in self.parameters.items()}
        gradients = {name: local(value.grad) for name, value in self.parameters.items() if value.grad is not None}
        for parameter in self.parameters.values():
            parameter.grad = None
        norm = math.hypot(*self.shards.gather(norm_of(gradients))) / scale
        if math.isfinite(norm):
            divisor = scale * max(1.0, norm / clip)
            for rule in self.rules:
                rule.step(weights, gradients, share, divisor)
        return norm

    def mark_best(self) -> None:
        """Remember the masters as they are now."""
        self.best = {name: master.clone() for name, master in self.masters.items()}

    def write_masters(self, module: nn.Module, *, best: bool = True) -> None:
        """Make a module of these parameters float32, with the masters as its weights: those marked best, if so wished
        and any are, else the last."""
        module.float()
        source = self.best if best and self.best else self.masters
        with torch.no_grad():
            for name, value in module.named_parameters():
                if name in source:
                    value.copy_(whole(source[name], self.parameters[name]))

    def state(self) -> dict[str, Tensor]:
        """All that later steps depend on, as "kind.name", on the processor. Processes that share parameters out put
        them together for the first one, and all must call this."""
        found = {}
        for key, value, parameter in self._state():
            tensor = whole(value, parameter).cpu()
            if self.shards.leads:
                found[key] = tensor
        return found

    @torch.no_grad()
    def load(self, state: Mapping[str, Tensor]) -> None:
        """Go on from a state, however many processes wrote it. InputError where it is another model's."""
        if any(key.startswith("best.") for key in state):
            self.mark_best()
        own = {key: (value, parameter) for key, value, parameter in self._state()}
        if other := sorted(own.keys() ^ state.keys()):
            raise InputError(f"the state of another model or optimizer: {', '.join(other[:3])} on one side only")
        for key, (value, parameter) in own.items():
            value.copy_(rows_of(state[key], parameter))
        for name, parameter in self.parameters.items():
            local(parameter).copy_(self.masters[name])

    def _state(self) -> Iterator[tuple[str, Tensor, Tensor]]:
        kinds = {"masters": self.masters, "best": self.best}
        for kind, values in [*kinds.items(), *(pair for rule in self.rules for pair in rule.state().items())]:
            for name, value in values.items():
                yield f"{kind}.{name}", value, self.parameters[name]


def depths_of(names: list[str]) -> dict[str, int]:
    """How deep each parameter sits: embeddings 0, layer l at l + 1, all behind them one more."""
    layers = {name: int(name.split("layers.")[1].split(".")[0]) + 1 for name in names if "layers." in name}
    last = max(layers.values(), default=0) + 1
    first = ("embeddings.", "shared.")
    return {name: layers.get(name, 0 if any(part in name for part in first) else last) for name in names}
