"""Draw docs/pictures/attention.svg for docs/understand.md: the attention of bothways-en for one sentence.

Run it after changing the model, the sentence or the picture: python tools/draw_attention.py
"""

from pathlib import Path

import bothways

PICTURE = Path(__file__).parent.parent / "docs/pictures/attention.svg"
SENTENCE = "The bank of the river was wet."  # the sentence of docs/understand.md
# The large panel is the head of layer 0 with the highest weight from FROM to TO.
FROM = "bank"
TO = "river"


def main() -> None:
    found = bothways.load(dtype="float32", device="cpu").attention(SENTENCE)
    head = found.weights[0, :, found.tokens.index(FROM), found.tokens.index(TO)].argmax()
    found.plot(PICTURE, layer=0, head=int(head))


if __name__ == "__main__":
    main()
