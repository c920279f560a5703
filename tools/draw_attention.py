"""Draw docs/pictures/attention.png for docs/understand.md: the attention of bothways-en for one sentence.

Run it after changing the model or the sentence: python tools/draw_attention.py

Letters: L layers, N heads, T tokens, D head size.
"""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import torch
from matplotlib import pyplot
from torch import Tensor

import bothways
from bothways.text.batch import Batch

PICTURE = Path(__file__).parent.parent / "docs/pictures/attention.png"
SENTENCE = "The bank of the river was wet."  # the sentence of docs/understand.md
FROM, TO = "bank", "river"  # the large panel is the head of the first layer with the highest weight from FROM to TO


@torch.no_grad()
def attention_weights(model: bothways.Predictor, encoding: bothways.Encoding) -> Tensor:
    """The weights of each layer and head, [L, N, T, T]: a row per token that reads, a column per token that is read."""
    encoder, batch = model.module.encoder, Batch.from_encodings([encoding])
    context, x_TH = encoder.build_context(batch), encoder.embeddings(batch)
    weights = []
    for layer in encoder.layer_sequence:
        q_TND, k_TND, _ = layer.attention.qkv(x_TH).unflatten(-1, (3, layer.attention.num_heads, -1)).unbind(1)
        scores_NTT = torch.einsum("tnd,snd->nts", q_TND, k_TND) / q_TND.shape[-1] ** 0.5
        weights.append(scores_NTT.softmax(-1))
        x_TH = layer(x_TH, context)
    return torch.stack(weights)


def draw(weights_LNTT: Tensor, tokens: list[str], head: int, path: Path) -> None:
    """One head of the first layer, large, and all heads of all layers."""
    num_layers, num_heads = weights_LNTT.shape[:2]
    figure = pyplot.figure(figsize=(10, 3.6), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=(1, 2))
    axis = left.subplots()
    axis.imshow(weights_LNTT[0, head], cmap="Blues", vmin=0, vmax=1)
    axis.set_xticks(range(len(tokens)), tokens, rotation=90)
    axis.set_yticks(range(len(tokens)), tokens)
    axis.tick_params(length=0)
    axis.set_title(f"Layer 1, head {head + 1}", fontsize=10)
    grid = right.subplots(num_layers, num_heads)
    for (layer, column), small in zip(
        ((i, j) for i in range(num_layers) for j in range(num_heads)), grid.flat, strict=True
    ):
        small.imshow(weights_LNTT[layer, column], cmap="Blues", vmin=0, vmax=1)
        small.set_xticks([])
        small.set_yticks([])
        is_left = (layer, column) == (0, head)
        small.spines[:].set(color="#d9480f" if is_left else "#b8c4d0", linewidth=2 if is_left else 0.5)
        if layer == 0:
            small.set_title(str(column + 1), fontsize=8)
        if column == 0:
            small.set_ylabel(str(layer + 1), fontsize=8, rotation=0, ha="right", va="center")
    right.suptitle("All heads (columns) of all layers (rows)", fontsize=10)
    figure.savefig(path, dpi=100, metadata={"Software": None})


def main() -> None:
    model = bothways.load(dtype="float32", device="cpu")
    encoding = model.tokenizer.encode(SENTENCE)
    weights_LNTT = attention_weights(model, encoding)
    head = int(weights_LNTT[0, :, encoding.tokens.index(FROM), encoding.tokens.index(TO)].argmax())
    draw(weights_LNTT, encoding.tokens, head, PICTURE)


if __name__ == "__main__":
    main()
