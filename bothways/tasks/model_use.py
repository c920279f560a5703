"""How a model of a task is used: in Python, by other libraries, over HTTP. Its card says so."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class ModelUse:
    """Examples for a model of a task. Code has the name MODEL where the path or the name of the model belongs.

    kind: the model in words, as in "a text classifier".
    tag: the name that the Hugging Face hub has for the task.
    call: an expression in Python; `model` is a loaded one.
    route: of the server.
    body: of a request to the route, in JSON.
    libraries: code of other libraries, by the name of the library.
    scored: name of the library whose `encode` returns the scores of a head that transformers cannot express; "": none.
    """

    kind: str
    tag: str
    call: str
    route: str
    body: str
    libraries: Mapping[str, str] = field(default_factory=dict)
    scored: str = ""


# Python that reads a model with transformers, and with sentence-transformers.
PIPELINE = """\
from transformers import pipeline

predict = pipeline("{task}", "MODEL"{options})
print(predict({text}))"""
ENCODE = """\
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("MODEL")
print(model.encode({texts}))"""
