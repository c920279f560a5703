"""The fingerprint of a vector space: a hash of encoder, tokenizer and pooling. Vectors of equal ones compare."""

from hashlib import blake2b

from bothways.base.errors import InputError
from bothways.inference.backends.static import StaticBackend
from bothways.inference.predictor import Predictor

# Shows how a tokenizer normalizes and splits: case, accents, punctuation, Chinese, numbers, unknown characters.
PROBE = "The Ünïted STATES didn't pay 1,234.50 € for straße, 東京 and наука\u0301 e\u0301\u200d! \U0001f98a [MASK]"


def vector_space(model: Predictor) -> str | None:
    """32 hexadecimal digits; None if the model has no vectors. Weights count as rounded to bfloat16, so that the
    fingerprint does not depend on the number format in which a model computes."""
    if isinstance(model.backend, StaticBackend):
        return model.backend.vectors.fingerprint
    try:
        encoder = model.encoder
        tokenizer = model.tokenizer
        digest = blake2b(digest_size=16)
        for name, shape, pieces in encoder.encoder_parameters():
            digest.update(f"{name} {[*shape]}\n".encode())
            for numbers in pieces:
                digest.update(numbers.data)
    except InputError:
        return None

    facts = [tokenizer.tokens, tokenizer.encode(PROBE).ids, model.description.pooling or "mean"]
    digest.update(repr(facts).encode(errors="surrogatepass"))
    return digest.hexdigest()
