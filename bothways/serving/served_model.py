"""A served model: its name, its routes, its queue, and the conversion of requests into texts."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import Any

from bothways.base.errors import InputError
from bothways.base.log import muted
from bothways.inference.fingerprint import vector_space
from bothways.inference.predictor import Predictor
from bothways.serving import calls
from bothways.serving.bodies import Refusal
from bothways.serving.calls import Call
from bothways.serving.inference_queue import InferenceQueue, QueuedRequest
from bothways.serving.limits import Limits
from bothways.serving.workers import Workers
from bothways.tasks import TASKS, TaskEntry
from bothways.tasks.task import Item
from bothways.tasks.windows import is_truncated

CHARACTERS_PER_TOKEN = 4  # of models without vectors, whose tokens are not counted
SPECIAL_TOKENS = 2  # [CLS] and [SEP]; the second [SEP] of a pair is not counted
EXPLAINED = {"classes", "tokens", "spans"}  # heads whose predictions can be explained; of vectors, the similarity
DECIDE = "decide"  # the route of models with a head of statements, which any other head may stand beside
VECTOR_ROUTES = (
    "embed",
    "embed_all",
    "similarity",
    "tokenize",
    "decode",
    "attention",
)


class ServedModel:
    """A model with its queue.

    name: in the path of its routes, and in messages.
    model: computes the texts.
    limits: of the server.
    workers: compute the batches; by default this process does.
    prompts: by name, for requests that name one.
    on_batch: called after each batch with its texts, tokens and seconds.

    Its `fingerprint` is the fingerprint of the space of its vectors, or None if it has no vectors.
    """

    def __init__(
        self,
        name: str,
        model: Predictor,
        limits: Limits,
        *,
        workers: Workers | None = None,
        prompts: Mapping[str, str] | None = None,
        on_batch: Callable[[int, int, float], object] = lambda texts, tokens, seconds: None,
    ) -> None:
        self.name = name
        self.model = model
        self.limits = limits
        self.prompts = prompts or {}

        self.workers = workers or Workers.local({name: model})
        self.fingerprint = vector_space(model)
        self.queue = InferenceQueue(
            self._compute,
            batch_tokens=limits.batch_tokens,
            queue_tokens=limits.queue_tokens,
            workers=self.workers.count,
            on_batch=on_batch,
        )

    def _compute(self, call: Call, items: list[Item]) -> Sequence[Any]:
        return self.workers.compute(self.name, call, items)

    # --- abilities ----------------------------------------------------------------------------------------------------

    @cached_property
    def routes(self) -> list[str]:
        """The names of the routes that the model answers."""
        names = [*VECTOR_ROUTES] if self.fingerprint else []
        # A set, as several tasks share a route.
        routes = {entry.load().route.strip("/") for entry in self._entries()}
        if self.model.description.statements is not None:
            routes.add(DECIDE)
        names += routes
        if not self.cannot_rank:
            names.append("rerank")
        if self.fingerprint or EXPLAINED & {*self.model.backend.heads}:
            names.append("explain")

        # A one-directional model has not seen the words behind a mask.
        if self.fingerprint and self.model.encoder.config.direction != "both" and "fill" in names:
            names.remove("fill")
        return sorted(names)

    def _entries(self) -> list[TaskEntry]:
        """The tasks that the model can do: its own, and the tasks of its other heads."""
        primary = TASKS[self.model.task]
        other_heads = [head for head in self.model.backend.heads if head != primary.head]
        entries = [entry for entry in TASKS.values() if entry.head in other_heads]
        if self.model.task == DECIDE:
            entries.append(TASKS["classify"])  # options that were learned are classes, too
        # A task without a head (embed) has no route of its own: a model with vectors answers VECTOR_ROUTES anyway.
        return [primary, *entries] if primary.head else entries

    @property
    def cannot_rank(self) -> str:
        """Why the model does not rank texts, for a sentence that begins with its name; "" if it does.

        A model with classes ranks by its classes of pairs, a model without classes by its vectors.
        """
        num_classes = self.model.backend.heads.get("classes")
        if num_classes is None:
            return "" if self.fingerprint else "has no vectors"

        # None: a published model that does not say what it reads; it may rank.
        if self.model.reads_pairs is False:
            return "has classes of single texts, not of pairs,"
        return f"has {num_classes} labels for a pair, not a relevance," if num_classes > 2 else ""

    @property
    def is_ranker(self) -> bool:
        """Whether its classes are made for ranking: fine-tuned on pairs, or a published model with a single output."""
        num_classes = self.model.backend.heads.get("classes")
        if self.cannot_rank or num_classes is None:
            return False
        return self.model.reads_pairs is True or num_classes == 1

    def need(self, route: str, models: Collection["ServedModel"] = ()) -> None:
        """Refusal if the model does not answer a route.

        route: without its slash.
        models: the models of the server; the message names the ones that answer the route.
        """
        if route in self.routes:
            return

        lacks, remedy = self._lacks(route, models)
        able = [other.name for other in models if route in other.routes]
        if able:
            remedy = "post to " + " or ".join(f"/models/{name}/{route}" for name in able)
        raise Refusal(424, f"model {self.name!r} {lacks} for /{route} (it can: {', '.join(self.routes)}); {remedy}")

    def _lacks(self, route: str, models: "Collection[ServedModel]") -> tuple[str, str]:
        """Why the model does not answer a route, and a way to a model that does. models: of the server."""
        if route == "rerank":
            return self.cannot_rank, "name a model of vectors, or one of pairs with one or two labels"

        if route == DECIDE:
            remedy = "name a model that has it, such as bothways-en"
            return "has no head of statements", remedy

        # Our tasks, then tasks of other packages, which TASKS finds by name but does not list.
        for name in dict.fromkeys((*TASKS, *(other.model.task for other in models))):
            entry = TASKS[name]
            if entry.head and entry.load().route == f"/{route}":
                remedy = entry.remedy or f"fine-tune one with `bothways finetune {name}`"
                return f"has no head `{entry.head}`", remedy
        return "has no vectors", "name a model that has vectors"

    @property
    def info(self) -> dict[str, Any]:
        """Facts for /info by name, with the names of Text Embeddings Inference for the facts that it has too."""
        model = self.model
        facts: dict[str, Any] = {
            "model_id": self.name,
            "model_dtype": model.dtype,
            "backend": model.backend.computed_by,
            "model_type": self._model_type(),
            "task": model.task,
            "heads": [*model.backend.heads],
            "labels": [*model.labels],
            "reads_pairs": model.reads_pairs,
            "routes": self.routes,
            "fingerprint": self.fingerprint,
            "max_input_length": self.limits.max_text_tokens,
        }

        if self.fingerprint:
            config = model.encoder.config
            facts |= {
                "pooling": model.description.pooling or "mean",
                "dimensions": config.hidden_size,
                "window": model.window_policy.read_size,
                "overlap": model.window_policy.overlap,
                "num_layers": config.num_hidden_layers,
                "num_heads": config.num_attention_heads,
            }
        return facts

    def _model_type(self) -> dict[str, Any]:
        """One entry, named after what the model does, as in Text Embeddings Inference."""
        model = self.model
        if "classes" not in model.backend.heads:
            return {"embedding": {"pooling": model.description.pooling or "mean"}}

        names = model.labels or ("score",)
        labels = {
            "id2label": {str(index): label for index, label in enumerate(names)},
            "label2id": {label: index for index, label in enumerate(names)},
        }
        return {"reranker": labels} if self.is_ranker else {"classifier": labels}

    # --- requests -----------------------------------------------------------------------------------------------------

    def submit(self, call: Call, items: Sequence[Item], tokens: Sequence[int]) -> QueuedRequest:
        """Put texts into the queue. QueueFull if there is no room.

        call: the computation.
        items: the texts.
        tokens: their numbers of tokens.
        """
        return self.queue.submit(call, items, tokens)

    def check_number(self, items: Sequence[Any]) -> None:
        """Refusal if there are too many texts."""
        most = self.limits.max_texts
        if len(items) > most:
            raise Refusal(413, f"{len(items):,} texts are more than the {most:,} of a request; send fewer")

    def check_ids(self, lists: Sequence[Sequence[int]]) -> None:
        """Refusal if lists of ids are too many or too long, before they are decoded."""
        self.check_number(lists)

        most = self.limits.max_text_tokens
        longest = max(map(len, lists), default=0)
        if longest > most:
            raise Refusal(413, f"a list has {longest:,} ids, more than the {most:,} that are allowed; shorten it")

        total = sum(map(len, lists))
        if total > self.limits.queue_tokens:
            raise Refusal(413, f"the request has {total:,} ids, more than the {self.limits.queue_tokens:,} allowed")

    def count_tokens(self, items: Sequence[Item], with_each: Sequence[str] = ()) -> list[int]:
        """Tokens of each text (or pair) and of what is read with it, special tokens included.

        items: the texts.
        with_each: what is read with each of them.

        Refusal if a text is empty or too long, or the texts or their tokens are too many.
        """
        limits = self.limits
        self.check_number(items)
        num_with_each = sum(self._length(text) + SPECIAL_TOKENS for text in with_each)

        counts = []
        for number, item in enumerate(items):
            if not any(item):
                raise Refusal(400, f"text {number} (counted from 0) is empty; leave it out")
            count = sum(self._length(text) for text in item if text) + SPECIAL_TOKENS
            if count > limits.max_text_tokens:
                most = f"the {limits.max_text_tokens:,} that are allowed; shorten it"
                raise Refusal(413, f"text {number} (counted from 0) has {count:,} tokens, more than {most}")
            counts.append(count + num_with_each)

        if sum(counts) > limits.queue_tokens:
            most = f"the {limits.queue_tokens:,} that may wait; send fewer"
            raise Refusal(413, f"the request has {sum(counts):,} tokens, more than {most}")
        return counts

    def _length(self, text: str) -> int:
        """Tokens of a text, without special tokens."""
        if self.fingerprint is None:
            return len(text) // CHARACTERS_PER_TOKEN
        return len(self.model.tokenizer.ids(text))

    def count_truncated(self, items: Sequence[Item], tokens: Sequence[int], call: Call) -> int:
        """How many texts the call truncates.

        items: the texts.
        tokens: their numbers of tokens.
        call: the computation.
        """
        if self.fingerprint is None:
            return 0

        # Attention refuses long texts instead of truncating them.
        policy = self.model.window_policy.changed(long=call.long)
        if policy.long != "truncate" or call.compute is calls.attention:
            return 0

        # Tokenizing again takes time, so it is done only for texts that may be too long: a pair may have two special
        # tokens more than are counted.
        long_items = [item for item, size in zip(items, tokens, strict=True) if size + 2 > policy.read_size]
        if not long_items:
            return 0

        # `split` would log a warning; the client gets a header instead.
        with muted():
            encodings = [self.model.tokenizer.encode(*item) for item in long_items]
            try:
                return sum(map(is_truncated, policy.split(encodings)))
            except InputError as error:
                raise Refusal(422, str(error)) from None
