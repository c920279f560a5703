"""Bodies of requests as typed structs; the description of the routes (openapi.py) is made from the same structs.

The docstring of a struct of a route is the summary of the route. Unknown fields are ignored, as in Text Embeddings
Inference, and null is like an absent field; System One refuses both. An empty input is status 400, any other mistake
422. The bodies of decisions are in decisions/.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from bothways.base.errors import InputError, shorten
from bothways.settings.base import How
from bothways.tasks.task import Item, Route, Schema

ERROR_TYPES = {
    400: "Empty",
    401: "Unauthorized",
    424: "Backend",
    429: "Overloaded",
    503: "Unhealthy",
}
MOST_HITS = 100
SCHEMAS = "#/components/schemas/"  # where OpenAPI has the schemas of structs, by their names
Place = tuple[str | int, ...]
Mistake = Literal["missing", "extra_forbidden", "value_error"]


class Refusal(InputError):
    """A request that is refused: status, message, type of the error, further headers.

    place: the keys and indices that lead to the mistake in the body.
    mistake: its kind, in the words of pydantic.
    """

    def __init__(
        self,
        status: int,
        message: str,
        error_type: str = "",
        headers: Mapping[str, str] | None = None,
        *,
        place: Place = (),
        mistake: Mistake = "value_error",
    ) -> None:
        super().__init__(message)
        self.status = status
        self.error_type = error_type or ERROR_TYPES.get(status, "Validation")
        self.headers = dict(headers or {})
        self.place = place
        self.mistake = mistake


def wrong(field: str, value: Any, expected: str, place: Place = ()) -> Refusal:
    if value is None:
        return Refusal(422, f"`{field}` is missing; it must be {expected}", place=place, mistake="missing")
    return Refusal(422, f"`{field}` ({shorten(repr(value), 40)}) must be {expected}", place=place)


# --- types of fields: a type that is a list has a description, which messages and the page of the routes show ---------

INPUTS = "a string, a list of ids, or a list of those"
PAIRS = "a list of two strings, or a list of such lists"
SEQUENCES = "a string, a list of one or two strings (a text or a pair), or a list of such lists"
TEXT_OR_PAIR = "a string, or a list of two strings"
IDS = "a list of ids, or a list of such lists"

# Some wrong values have messages of their own, and others are ignored where the field has no effect.
Name = Annotated[Any, Meta(extra_json_schema={"type": "string"})]
PromptName = Annotated[Name, Meta(description="Name of one of the model's prompts, put before each text.")]
Count = Annotated[int, Meta(ge=1)]
Share = Annotated[float, Meta(ge=0, le=1)]
Index = Annotated[int, Meta(ge=0, le=1 << 31)]
Strings = Annotated[list[str], Meta(min_length=1, description="a list of strings")]
OneOrMany = Annotated[str | Annotated[list[str], Meta(min_length=1)], Meta(description="a string or a list of strings")]
# A union has one kind of list at most: a list of ids and a list of texts are told apart by `split_inputs`.
TextsOrIds = Annotated[
    str | Annotated[list[str | int | Annotated[list[int], Meta(min_length=1)]], Meta(min_length=1)],
    Meta(description=INPUTS),
]
Pair = Annotated[list[str], Meta(min_length=2, max_length=2)]


# --- bodies -----------------------------------------------------------------------------------------------------------


class Body(Struct, kw_only=True):
    """A body of a route.

    is_read_first: whether its fields are read before the model is chosen. By default they are read after it: a client
    with the wrong model learns that first.
    """

    is_read_first: ClassVar[bool] = False

    @classmethod
    def prepare(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """The fields that are read, of those that are given."""
        return given


class ModelBody(Body, kw_only=True):
    """The fields of every route of models."""

    model: Annotated[Name, Meta(description="Name of the model; by default the first.")] = None


class ReadingBody(ModelBody, kw_only=True):
    """The fields of routes whose texts a model reads."""

    truncate: Annotated[bool, Meta(description="Cut long texts instead of reading them in windows.")] = False
    truncation_direction: Annotated[Name, Meta(description="With truncate: Right.")] = None


class PromptBody(ReadingBody, kw_only=True):
    """The fields of routes that put a prompt before each text."""

    prompt_name: PromptName = None


class VectorBody(PromptBody, kw_only=True):
    """The fields of routes that compute a vector per text."""

    dimensions: Count | None = None


class EmbedBody(VectorBody, kw_only=True):
    """A vector per text."""

    inputs: TextsOrIds
    normalize: bool = True


class EmbedAllBody(PromptBody, kw_only=True):
    """A vector per token of each text."""

    inputs: TextsOrIds


class EmbeddingsBody(VectorBody, kw_only=True):
    """OpenAI's embeddings."""

    input: TextsOrIds
    encoding_format: Literal["float", "base64"] = "float"


class RerankBody(ReadingBody, kw_only=True):
    """Texts by their relevance to a query, the best first."""

    query: str
    texts: Strings
    raw_scores: bool = False
    return_text: bool = False
    dimensions: Count | None = None


class ComparedSentences(Struct):
    """A sentence and those that it is compared with."""

    source_sentence: str
    sentences: Strings


class SimilarityBody(VectorBody, kw_only=True):
    """Cosines of a sentence and others."""

    inputs: ComparedSentences
    parameters: dict[str, Any] | None = None

    @classmethod
    def prepare(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Options may stand in `parameters` here."""
        parameters = given.get("parameters")
        if not isinstance(parameters, dict):
            return given
        return {**given, **parameters, "inputs": given.get("inputs"), "parameters": None}


class TokenizeBody(ModelBody, kw_only=True):
    """Tokens of each text."""

    inputs: OneOrMany
    add_special_tokens: bool = True
    prompt_name: PromptName = None


class DecodeBody(ModelBody, kw_only=True):
    """Texts of ids."""

    ids: Annotated[list[int | list[int]], Meta(min_length=1, description=IDS)]
    skip_special_tokens: bool = True

    def lists(self) -> list[list[int]]:
        kinds = {*map(type, self.ids)}
        if len(kinds) > 1:
            raise wrong("ids", self.ids, IDS)
        lists: Any = [self.ids] if kinds == {int} else self.ids
        return lists


class AttentionBody(ReadingBody, kw_only=True):
    """Attention weights of a layer and head for a text of at most 64 tokens."""

    inputs: str
    layer: Index | None = None
    head: Index | None = None


class SearchBody(Body, kw_only=True):
    """Passages of the index, the best first."""

    query: str
    top: Annotated[int, Meta(ge=1, le=MOST_HITS)] = 10
    how: How = "hybrid"
    glob: str | None = None
    filter: str | None = None
    min_score: Share | None = None


def split_inputs(value: Any, field: str = "inputs") -> list[str | list[int]]:
    """Texts and lists of ids, of a value of the type TextsOrIds."""
    kinds = {str} if isinstance(value, str) else {*map(type, value)}
    if kinds > {int}:
        raise wrong(field, value, INPUTS)
    inputs: list[str | list[int]] = [value] if isinstance(value, str) or kinds == {int} else value
    return inputs


# --- bodies of the routes of tasks ------------------------------------------------------------------------------------


class ItemsBody(ReadingBody, kw_only=True):
    """The fields of every route of a task."""

    def items(self) -> tuple[list[Item], bool]:
        """Texts or pairs, and whether it is a single one that is not in a list."""
        raise NotImplementedError


class TextsBody(ItemsBody, kw_only=True):
    """Single texts."""

    inputs: OneOrMany

    def items(self) -> tuple[list[Item], bool]:
        is_single = isinstance(self.inputs, str)
        texts = [self.inputs] if isinstance(self.inputs, str) else self.inputs
        return [(text, None) for text in texts], is_single


class PairsBody(ItemsBody, kw_only=True):
    """Pairs of texts."""

    inputs: Annotated[list[str | Pair], Meta(min_length=1, description=PAIRS)]

    def items(self) -> tuple[list[Item], bool]:
        kinds = {*map(type, self.inputs)}
        is_single = kinds == {str}
        pairs: Any = [self.inputs] if is_single else self.inputs
        if len(kinds) > 1 or len(pairs[0]) != 2:
            raise wrong("inputs", self.inputs, PAIRS)
        return [(first, second) for first, second in pairs], is_single


class SequencesBody(ItemsBody, kw_only=True):
    """Texts or pairs: a string is a text, a list of two strings is a pair, as in Text Embeddings Inference."""

    inputs: Annotated[str | Annotated[list[str | list[str]], Meta(min_length=1)], Meta(description=SEQUENCES)]
    parameters: Any = None

    def items(self) -> tuple[list[Item], bool]:
        value = self.inputs
        if isinstance(value, str):
            return [(value, None)], True

        is_single = {*map(type, value)} == {str}
        rows: Any = [value] if is_single else value
        sizes = {len(row) if isinstance(row, list) else 0 for row in rows}
        if not sizes <= {1, 2}:
            raise wrong("inputs", value, SEQUENCES)
        if len(sizes) > 1:
            raise Refusal(422, "`inputs` mixes texts and pairs; send them in two requests")
        return [(row[0], row[1] if len(row) == 2 else None) for row in rows], is_single


class ExplainBody(ReadingBody, kw_only=True):
    """The effect of each word of a text (or pair) on what the model predicts, the largest first."""

    inputs: Annotated[str | Pair, Meta(description=TEXT_OR_PAIR)]
    label: str | None = None


class QuestionAndContext(Struct):
    """A question, and the text that has its answer."""

    question: str
    context: str


class QuestionsBody(ItemsBody, kw_only=True):
    """A question with its context, in `inputs` or in the body itself, or a list of them."""

    question: str | None = None
    context: str | None = None
    inputs: Annotated[
        QuestionAndContext | Annotated[list[QuestionAndContext], Meta(min_length=1)] | None,
        Meta(description="a JSON object with question and context, or a list of them"),
    ] = None

    @classmethod
    def prepare(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """With `inputs`, the fields of the body itself are not read."""
        if given.get("inputs") is None:
            return given
        return {**given, "question": None, "context": None}

    def items(self) -> tuple[list[Item], bool]:
        if isinstance(self.inputs, list):
            return [(row.question, row.context) for row in self.inputs], False
        row = self.inputs or self
        if row.question is None or row.context is None:
            raise wrong("question" if row.question is None else "context", None, "a string")
        return [(row.question, row.context)], True


ITEMS_BODIES: Mapping[str, type[ItemsBody]] = {  # by `reads` of a route
    "texts": TextsBody,
    "pairs": PairsBody,
    "sequences": SequencesBody,
    "questions": QuestionsBody,
}


def route_body(route: Route) -> type[ItemsBody]:
    """The body of a task's route."""
    fields: list[tuple[str, Any, Any]] = []
    for name, (default, least, most) in route.options.items():
        number: Any = Annotated[int, Meta(ge=least, le=most)]
        fields.append((name, number | None if default is None else number, default))
    fields += [(name, Share | None, None) for name in route.shares]
    fields += [(name, bool, False) for name in route.flags]

    body: Any = msgspec.defstruct(
        "".join(filter(str.isalnum, route.path.title())) + "Body",
        fields,
        bases=(ITEMS_BODIES[route.reads],),
        namespace={"__doc__": route.summary},
        kw_only=True,
    )
    return body


# --- reading ----------------------------------------------------------------------------------------------------------

AnyBody = TypeVar("AnyBody", bound=Body)
AnyStruct = TypeVar("AnyStruct", bound=Struct)


def as_body(kind: type[AnyBody], given: Mapping[str, Any]) -> AnyBody:
    """The body of a route from its JSON. Refusal if a field is wrong."""
    return as_struct(kind, kind.prepare(given))


def as_struct(kind: type[AnyStruct], given: Mapping[str, Any], within: Place = ()) -> AnyStruct:
    """A struct from its JSON, which is at the place `within` of a body. Refusal if a field is wrong."""
    fields = {name: value for name, value in given.items() if value is not None}
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:
        raise _refusal(kind, fields, str(error), within) from None


def _refusal(kind: type[Struct], fields: Mapping[str, Any], message: str, within: Place) -> Refusal:
    """One line for a message of msgspec, such as "Expected `str`, got `int` - at `$.inputs[0].question`"."""
    reason, _, path = message.partition(" - at `$")
    # msgspec does not name the key of an object with any keys: `$.options[...]`.
    path = path.partition("[...]")[0]
    named = re.findall("(?:required|unknown) field `(.+)`", reason)
    steps = re.findall(r"\w+", path) + named

    value: Any = fields
    place: Place = within
    for step in steps:
        key = int(step) if isinstance(value, list) else step
        value = value[key] if isinstance(value, list) else value.get(key)
        place = (*place, key)
    shown = ".".join(filter(None, [place_name(within), path.strip(".`"), *named]))

    if "unknown field" in reason:
        return Refusal(422, f"`{shorten(shown, 60)}` is no field here", place=place, mistake="extra_forbidden")
    field = next(step for step in reversed(steps) if not step.isdigit())
    expected = form(_properties(kind)[field])
    if field != steps[-1]:
        wrong_value = shorten(repr(value), 40)
        return Refusal(422, f"`{shown}` ({wrong_value}) is wrong; `{field}` must be {expected}", place=place)
    if reason.endswith("of length >= 1"):
        return Refusal(400, f"`{shown}` is empty; give at least one", place=place)
    return wrong(shown, value, expected, place)


def place_name(place: Place) -> str:
    """A place for messages: `questions.tone.criteria`."""
    return ".".join(shorten(str(key), 30) for key in place)


def schemas(kinds: Iterable[type[Struct]]) -> tuple[tuple[Schema, ...], dict[str, Schema]]:
    """A reference to each struct, and the schemas of these and of the structs in them by name."""
    return msgspec.json.schema_components(kinds, ref_template=SCHEMAS + "{name}")


def _properties(kind: type[Struct]) -> dict[str, Schema]:
    """The schema of each field of a struct and of the structs in it."""
    structs = schemas([kind])[1].values()
    return {name: schema for struct in structs for name, schema in struct["properties"].items()}


FORMS = {
    "string": "a string",
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
}


def form(schema: Schema) -> str:
    """The values that a schema of a field allows, in words."""
    if schema.get("type") in FORMS:
        least = f" from {schema['minimum']}" if "minimum" in schema else ""
        most = f" to {schema['maximum']}" if "maximum" in schema else ""
        return FORMS[schema["type"]] + least + most
    if "enum" in schema:
        return f"one of {', '.join(schema['enum'])}"
    if "description" in schema:
        return str(schema["description"])
    options = [option for option in schema.get("anyOf", ()) if option != {"type": "null"}]
    return " or ".join(map(form, options)) or "a JSON object"
