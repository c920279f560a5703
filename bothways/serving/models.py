"""The models of a server: their names, their directories, and loading them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bothways.base.errors import InputError, flag
from bothways.base.io import SURROGATES
from bothways.pretrained import DEFAULT
from bothways.settings.deploy import Serve

if TYPE_CHECKING:
    from bothways.inference.predictor import Predictor


def model_names(arguments: Sequence[str]) -> dict[str, str]:
    """The sources of models, directories or names on the hub, by the names of the models.

    arguments: each is NAME=SOURCE, or SOURCE, whose last part is the name then. Without any, the default model.

    InputError if a source is missing, a name is not UTF-8, or two models have the same name.
    """
    sources: dict[str, str] = {}
    for argument in arguments or (DEFAULT,):
        name, equals, source = argument.partition("=")
        # A directory may have "=" in its own name, as in runs/lr=3.
        if not equals or "/" in name or not name:
            # The last part of "." is empty.
            name = Path(argument).name or Path(argument).resolve().name
            source = argument

        if not source:
            raise InputError(f"models ({argument}): a directory must follow the name")
        if SURROGATES.search(name):
            raise InputError(f"models ({argument}): the name is not UTF-8; name it otherwise: NAME={source}")
        if name in sources:
            raise InputError(f"models: two are named {name!r}; name one of them otherwise: NAME={source}")
        sources[name] = source
    return sources


def with_reranker(sources: Mapping[str, str], settings: Serve) -> tuple[dict[str, str], str]:
    """The sources and, if `rerank` is set, the source of its model; then the name of that model, "" if there is none.

    The model of `rerank` may be one of the sources already. InputError if another model has its name, or if no `store`
    is set that could be searched.
    """
    if settings.rerank is None:
        return {**sources}, ""
    if settings.store is None:
        raise InputError(f"rerank ({settings.rerank}) orders what a search has found; give {flag('store')} too")

    ((name, source),) = model_names([str(settings.rerank)]).items()
    if sources.get(name, source) != source:
        raise InputError(f"rerank: two models are named {name!r}; name one of them otherwise: NAME={source}")
    return {**sources, name: source}, name


def load_models(sources: Mapping[str, str], **options: Any) -> "dict[str, Predictor]":
    """The models by name. Adapters of the same model share its weights, with the model itself if it is among them.

    sources: directories or names on the hub, by the names of the models.
    options: of `bothways.inference.load.load`.
    """
    from bothways.inference.load import load
    from bothways.inference.predictor import Predictor
    from bothways.model.adapters.files import find_adapter
    from bothways.model.checkpoint import hub

    directories = {name: hub.locate(source) for name, source in sources.items()}

    adapters = {}
    for name, directory in directories.items():
        adapter = find_adapter(directory)
        if adapter:
            adapters[name] = adapter
    bases = {name: hub.locate(adapter.base) for name, adapter in adapters.items()}

    # A base that is used once is loaded with its adapter merged, which costs no time in each batch.
    uses = Counter(bases.get(name, directory) for name, directory in directories.items())
    shared = {base: load(base, **options) for base in {*bases.values()} if uses[base] > 1}

    loaded = {}
    for name, directory in directories.items():
        if name in adapters and bases[name] in shared:
            # Imported for adapters alone: it needs torch, which other models are served without.
            from bothways.inference.adapters import with_adapter

            encoder = shared[bases[name]].torch_encoder
            loaded[name] = Predictor(with_adapter(encoder, adapters[name].directory))
        else:
            loaded[name] = shared.get(directory) or load(directory, **options)
    return loaded
