"""A checkpoint that is saved repeatedly, where each part identifies its version.

As a program: `replacing.py DIRECTORY PAUSE` saves every so many seconds until its standard input has something, and
prints how many times it did.
"""

import select
import sys
from itertools import count

from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.contents import Checkpoint
from bothways.model.config import EncoderConfig
from bothways.model.model import Model
from bothways.text.tokenizer.tokenizer import SPECIAL_TOKENS, Tokenizer

VOCAB = 23


def save_version(number, directory):
    """Weights, labels, vocabulary, pooling and metadata all contain the number."""
    config = EncoderConfig(
        vocab_size=VOCAB, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=12,
        max_position_embeddings=16,
    )  # fmt: skip
    model = Model(config, {"classes": 2})
    for value in model.state_dict().values():
        value.fill_(number)
    tokens = [*SPECIAL_TOKENS, *(f"w{number}x{place}" for place in range(VOCAB - len(SPECIAL_TOKENS)))]
    tokenizer = Tokenizer({token: place for place, token in enumerate(tokens)})
    labels, pooling = (f"a{number}", f"b{number}"), ("mean", "max")[number % 2]
    checkpoint.save(
        Checkpoint(model, tokenizer, labels=labels, pooling=pooling, metadata={"number": number}), directory
    )


def versions_of(loaded):
    """Which versions the parts of a loaded checkpoint are of; more than one if it is a mixture."""
    versions = {int(value.min()) for value in loaded.model.state_dict().values()}
    versions |= {int(value.max()) for value in loaded.model.state_dict().values()}
    versions |= {loaded.metadata["number"], *(int(label[1:]) for label in loaded.labels)}
    versions |= {int(loaded.tokenizer.tokens[-1].partition("x")[0][1:])}
    return versions | ({-1} if loaded.pooling != ("mean", "max")[loaded.metadata["number"] % 2] else set())


if __name__ == "__main__":
    for number in count(1):
        save_version(number, sys.argv[1])
        if select.select([sys.stdin], [], [], float(sys.argv[2]))[0]:
            break
    print(number)
