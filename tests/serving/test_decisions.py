"""Decisions by each of the three routes: fields, answers of `decide_each`, refusals of what is not read.

The bodies of /v1/systemone, valid and invalid, are given to transformers' own model of the request too.
"""

import json

import numpy as np
import pytest

from bothways.tasks.decide.questions import Levels, OneOf, YesNo

TEXTS = ["the cat sat on the mat", "a dog ran", "cats"]
ANIMALS = {"cat": "the cat sat", "dog": ["a dog ran", "the dog sat"], "mat": "on a mat"}
SYSTEM_ONE, OPENAI = "/v1/systemone", "/v1/decisions"


@pytest.fixture
def client(serve, decider):
    return serve({"decider": decider})


def near(decision):
    """A decision as JSON, with its numbers to 1e-6."""
    content = decision.to_json()
    content["probabilities"] = pytest.approx(content["probabilities"], abs=1e-6)
    return {
        name: pytest.approx(value, abs=1e-6) if isinstance(value, float) else value for name, value in content.items()
    }


# --- our own route ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [["cat", "dog", "mat"], ANIMALS])
@pytest.mark.parametrize("more", [{}, {"question": "the", "none": False}])
def test_decisions_are_those_of_the_predictor(client, decider, options, more):
    expected = decider.decide(TEXTS, options, **more)
    several = client.post("/decide", {"inputs": TEXTS, "options": options, **more})
    assert several.status == 200, several.content
    assert several.json() == [near(decision) for decision in expected]
    single = client.post("/decide", {"inputs": TEXTS[0], "options": options, **more})
    assert single.json() == near(expected[0])
    assert client.post("/decide", {"inputs": TEXTS[:1], "options": options, **more}).json() == [near(expected[0])]


def test_a_model_decides_among_its_own_options(serve, decider):
    model = decider.asking(ANIMALS, question="the")
    client = serve({"animals": model})
    expected = [near(decision) for decision in decider.decide(TEXTS, ANIMALS, question="the")]
    assert client.post("/decide", {"inputs": TEXTS}).json() == expected
    labels = client.post("/predict", {"inputs": TEXTS[0]}).json()
    assert {one["label"]: one["score"] for one in labels} == pytest.approx(model.classify(TEXTS[0]).scores, abs=1e-6)
    other = decider.decide(TEXTS[0], ["cat", "dog"])
    assert client.post("/decide", {"inputs": TEXTS[0], "options": ["cat", "dog"]}).json() == near(other)


def test_several_questions_are_answered_by_name(client, decider):
    asked = {
        "animal": {"type": "choice", "options": ANIMALS, "question": "the"},
        "sits": {"type": "yes_no", "question": "the cat sat"},
        "size": {"type": "levels", "levels": ["a cat", "a dog", "a mat"]},
    }
    questions = [OneOf.of(ANIMALS, "the"), YesNo("the cat sat"), Levels(("a cat", "a dog", "a mat"))]
    expected = [
        dict(zip(asked, map(near, decisions), strict=True)) for decisions in decider.decide_each(TEXTS, questions)
    ]
    assert client.post("/decide", {"inputs": TEXTS, "questions": asked}).json() == expected
    assert client.post("/decide", {"inputs": TEXTS[0], "questions": asked}).json() == expected[0]
    assert expected[0]["size"]["level"] is not None


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"options": ["a"]}, 422, "`inputs` is missing"),
        ({"inputs": "a"}, 422, "`options` is missing"),
        ({"inputs": "a", "options": "cat"}, 422, "`options` ('cat') must be a list of names"),
        ({"inputs": "a", "options": []}, 422, "0 options"),
        ({"inputs": "a", "options": ["cat", "cat"]}, 422, "given twice"),
        ({"inputs": "a", "options": ["cat", " "]}, 422, "not empty"),
        ({"inputs": "a", "options": {"cat": 7}}, 422, "`options"),
        ({"inputs": "a", "options": {"cat": []}}, 422, "has no description"),
        ({"inputs": "a", "options": ["cat"] * 256}, 422, "256 options"),
        ({"inputs": "", "options": ["cat"]}, 400, "empty"),
        ({"inputs": [], "options": ["cat"]}, 400, "empty"),
        ({"inputs": "a", "options": ["cat " * 400]}, 422, "tokens"),
        ({"inputs": "a", "questions": {}}, 422, "0 questions"),
        ({"inputs": "a", "questions": []}, 422, "`questions`"),
        ({"inputs": "a", "questions": {"x": 7}}, 422, "`questions.x` (7) must be a JSON object"),
        ({"inputs": "a", "questions": {"x": {}}}, 422, "`questions.x.type` is missing"),
        ({"inputs": "a", "questions": {"x": {"type": "noul"}}}, 422, "one of choice, yes_no, levels"),
        ({"inputs": "a", "questions": {"x": {"type": "choice"}}}, 422, "`questions.x.options` is missing"),
        ({"inputs": "a", "questions": {"x": {"type": "yes_no", "question": " "}}}, 422, "`question` is empty"),
        ({"inputs": "a", "questions": {"x": {"type": "levels", "levels": ["a", "a"]}}}, 422, "given twice"),
        ({"inputs": "a", "questions": {"x": {"type": "levels", "levels": []}}}, 400, "`questions.x.levels` is empty"),
        ({"inputs": "a", "options": ["a"], "questions": {"x": {"type": "yes_no", "question": "a"}}}, 422, "leave out"),
    ],
)
def test_a_wrong_body_is_refused_with_its_field(client, body, status, words):
    reply = client.post("/decide", body)
    message = reply.json()["error"]
    assert reply.status == status and words in message and "\n" not in message, message


# --- System One -------------------------------------------------------------------------------------------------------

NOUL = {"type": "noul", "instructions": "the cat sat"}
CHOICE = {"type": "choice", "instructions": "the", "criteria": {"cat": "a cat", "dog": None, "mat": {"on": ["a mat"]}}}
SCORE = {"type": "score", "criteria": ["cat", "dog", ["the", "mat"]]}
ASKED = {"noul": NOUL, "choice": CHOICE, "score": SCORE}
SENT = {"model": "decider", "state": TEXTS[0], "questions": ASKED}


def only(**question):
    return SENT | {"questions": {"x": question}}


BODIES = {
    "all types": SENT,
    "state object": SENT | {"state": {"message": "the cat", "more": [1, None]}},
    "state list": SENT | {"state": ["the cat", {"a": 1}]},
    "no assets": SENT | {"assets": {}},
    "64 questions": SENT | {"questions": {str(number): NOUL for number in range(64)}},
    "described noul": only(type="noul", instructions="the", criteria={"true": "a cat", "false": "a dog"}),
    "noul of criteria": only(type="noul", criteria={"true": "a cat"}),
    "noul not so": only(type="noul", criteria={"false": "a cat", "true": None}),
    "one option": only(type="choice", criteria={"cat": None}),
    "one level": only(type="score", criteria=["cat"]),
    "equal levels": only(type="score", criteria=["cat", "cat"]),
    "instructions object": only(type="choice", instructions={"a": "cat"}, criteria={"cat": None, "dog": None}),
    "no model": {name: SENT[name] for name in ("state", "questions")},
    "model number": SENT | {"model": 7},
    "model null": SENT | {"model": None},
    "no state": {name: SENT[name] for name in ("model", "questions")},
    "state number": SENT | {"state": 7},
    "state null": SENT | {"state": None},
    "no questions": SENT | {"questions": {}},
    "questions missing": {name: SENT[name] for name in ("model", "state")},
    "questions list": SENT | {"questions": [NOUL]},
    "questions null": SENT | {"questions": None},
    "65 questions": SENT | {"questions": {str(number): NOUL for number in range(65)}},
    "question text": SENT | {"questions": {"x": "the cat"}},
    "question null": SENT | {"questions": {"x": None}},
    "extra field": SENT | {"inputs": "a"},
    "extra field null": SENT | {"inputs": None},
    "5 assets": SENT | {"assets": {str(number): {} for number in range(5)}},
    "assets null": SENT | {"assets": None},
    "assets list": SENT | {"assets": []},
    "asset text": SENT | {"assets": {"img-1": "data"}},
    "no type": only(instructions="a"),
    "other type": only(type="predicate", instructions="a"),
    "extra of question": only(type="noul", instructions="a", more=1),
    "instructions number": only(type="noul", instructions=7),
    "other criteria": only(type="noul", instructions="a", criteria={"yes": "a"}),
    "choice without criteria": only(type="choice", instructions="a"),
    "choice of nothing": only(type="choice", criteria={}),
    "choice null": only(type="choice", criteria=None),
    "choice of a list": only(type="choice", criteria=["a", "b"]),
    "choice of numbers": only(type="choice", criteria={"a": 7}),
    "score of nothing": only(type="score", criteria=[]),
    "score of an object": only(type="score", criteria={"a": "b"}),
    "score of numbers": only(type="score", criteria=[1, 2]),
    "score of null": only(type="score", criteria=["a", None]),
}


def transformers_answers(body):
    """The status and, of status 200, the questions as transformers reads them."""
    from pydantic import ValidationError
    from transformers.cli.serving.systemone import SystemOneRequest
    from transformers.decision import DecisionConfig, parse_questions

    try:
        request = SystemOneRequest.model_validate(body, strict=True)
        return 200, parse_questions(request.questions, DecisionConfig())
    except (ValidationError, ValueError):
        return 422, []


@pytest.mark.parametrize("case", BODIES)
def test_a_body_is_read_as_by_transformers(client, case):
    body = BODIES[case]
    status, questions = transformers_answers(body)
    reply = client.post(SYSTEM_ONE, body)
    answer = reply.json()
    assert reply.status == status, answer
    if status == 422:
        assert [*answer] == ["detail"]
        for problem in answer["detail"]:
            assert {*problem} == {"loc", "msg", "type"} and problem["loc"][0] == "body" and problem["msg"]
        return

    assert [*answer] == ["model", "answers", "usage"] and answer["model"] == "decider"
    assert {*answer["usage"]} == {"input_tokens", "output_tokens"} and answer["usage"]["output_tokens"] == 0
    assert [*answer["answers"]] == [question.name for question in questions]
    for question in questions:
        ours = answer["answers"][question.name]
        shares = [*ours.get("probabilities", {"true": ours.get("noul")}).values()]
        if question.type == "noul":
            shares = [ours["noul"], 1 - ours["noul"]]
        assert sum(shares) == pytest.approx(1)
        # Its own formulas, on our probabilities.
        theirs = question.answer(shares)
        assert [*ours] == [*theirs]
        assert {
            name: pytest.approx(value) if isinstance(value, float) else value for name, value in theirs.items()
        } == ours


def test_the_answers_of_system_one_are_those_of_the_predictor(client, decider):
    answers = client.post(SYSTEM_ONE, SENT).json()["answers"]
    questions = [
        YesNo("the cat sat"),
        OneOf.of({"cat": "a cat", "dog": "dog", "mat": '{"on":["a mat"]}'}, "the", none=False),
        OneOf.of({"0": "cat", "1": "dog", "2": '["the","mat"]'}, none=False),
    ]
    ((noul, choice, score),) = decider.decide_each(TEXTS[:1], questions)
    assert answers["noul"]["noul"] == pytest.approx(noul.probabilities["yes"], abs=1e-6)
    assert answers["choice"]["probabilities"] == pytest.approx(choice.probabilities, abs=1e-6)
    assert answers["choice"]["choice"] == choice.label
    assert answers["score"]["probabilities"] == pytest.approx(score.probabilities, abs=1e-6)
    assert answers["score"]["legend"] == {"0": "cat", "1": "dog", "2": ["the", "mat"]}


def ask(client, **questions):
    return client.post(SYSTEM_ONE, SENT | {"questions": questions}).json()["answers"]


def test_other_questions_and_the_order_of_options_change_no_number(client):
    together = ask(client, **ASKED)
    for name, question in ASKED.items():
        assert ask(client, x=question)["x"] == together[name]
    turned = CHOICE | {"criteria": dict(reversed(CHOICE["criteria"].items()))}
    assert ask(client, more=NOUL, x=turned)["x"] == together["choice"]


@pytest.mark.parametrize(("yes", "no"), [("yes", "no"), ("true", "false"), ("Yes", "No")])
def test_yes_and_no_have_the_score_of_the_question_whatever_its_type(client, yes, no):
    instructions = NOUL["instructions"]
    answers = ask(
        client,
        noul=NOUL,
        choice={"type": "choice", "instructions": instructions, "criteria": {no: None, yes: None}},
        score={"type": "score", "instructions": instructions, "criteria": [no, yes]},
    )
    share = answers["noul"]["noul"]
    assert answers["choice"]["probabilities"] == {no: pytest.approx(1 - share), yes: share}
    assert answers["score"]["probabilities"] == {"0": pytest.approx(1 - share), "1": share}
    assert answers["score"]["score"] == share


def test_yes_and_no_are_what_is_read_of_an_option_its_description_or_else_its_name(client):
    instructions = NOUL["instructions"]
    choice = {"type": "choice", "instructions": instructions}
    answers = ask(
        client,
        noul=NOUL,
        described={"type": "noul", "instructions": instructions, "criteria": {"true": "Yes", "false": "No"}},
        same=choice | {"criteria": {"no": "No", "yes": "Yes"}},
        turned=choice | {"criteria": {"no": "Yes", "yes": "No"}},
        neutral=choice | {"criteria": {"a": "true", "b": "false"}},
    )
    share = answers["noul"]["noul"]
    assert answers["described"]["noul"] == share
    assert answers["same"]["probabilities"]["yes"] == share
    assert answers["turned"]["probabilities"]["no"] == share
    assert answers["neutral"]["probabilities"]["a"] == share


def test_a_repeated_option_takes_its_part_from_its_twin_alone(client):
    criteria = {"cat": "a cat", "dog": "a dog"}
    choice = {"type": "choice", "instructions": "the", "criteria": criteria}
    once, twice = ask(client, once=choice, twice=choice | {"criteria": {**criteria, "hound": "a dog"}}).values()
    assert twice["probabilities"]["cat"] == pytest.approx(once["probabilities"]["cat"], abs=1e-12)
    assert twice["probabilities"]["dog"] == twice["probabilities"]["hound"]


def test_a_noul_of_two_descriptions_is_the_choice_between_them(client):
    criteria = {"true": "a cat", "false": "a dog"}
    noul = {"type": "noul", "instructions": "the", "criteria": criteria}
    choice = {"type": "choice", "instructions": "the", "criteria": criteria}
    answers = ask(client, noul=noul, choice=choice)
    assert answers["noul"]["noul"] == answers["choice"]["probabilities"]["true"]


def test_images_and_questions_without_content_and_other_models_are_refused(client):
    images = client.post(SYSTEM_ONE, SENT | {"assets": {"img-1": {"data_base64": "AA"}}})
    assert images.status == 400 and "images" in images.json()["detail"]
    nothing = client.post(SYSTEM_ONE, SENT | {"questions": {"x": {"type": "noul"}}})
    assert nothing.status == 422 and nothing.json()["detail"][0]["loc"] == ["body", "questions", "x"]
    other = client.post(SYSTEM_ONE, SENT | {"model": "other"})
    assert other.status == 404 and "the models are decider" in other.json()["error"]
    named = client.post(f"/models/decider{SYSTEM_ONE}", {"state": "a", "questions": {"x": NOUL}})
    assert named.status == 200 and named.json()["model"] == "decider"


# --- OpenAI -----------------------------------------------------------------------------------------------------------

PREDICATE = {"type": "predicate", "name": "sits", "instructions": "the cat sat"}
PICK = {
    "type": "choice",
    "instructions": "the",
    "choices": [{"value": "cat", "description": "a cat"}, {"value": "dog"}],
}
RATE = {"type": "score", "name": "size", "instructions": "a", "levels": [{"label": "cat"}, {"label": "mat"}]}
CREATED = {"model": "decider", "input": TEXTS[0], "questions": [PREDICATE, PICK, RATE]}


@pytest.fixture
def openai_client(client):
    """OpenAI's own client, which speaks to the application in this process."""
    import httpx2
    from openai import OpenAI

    def answer(request):
        reply = client.post(request.url.path, request.content)
        return httpx2.Response(reply.status, headers=reply.headers, content=reply.content)

    with OpenAI(
        base_url="http://localhost/v1",
        api_key="none",
        max_retries=0,
        http_client=httpx2.Client(transport=httpx2.MockTransport(answer)),
    ) as opened:
        yield opened


def test_the_client_of_openai_reads_the_answers_of_the_predictor(openai_client, decider):
    created = openai_client.decisions.create(**CREATED)
    questions = [
        YesNo("the cat sat"),
        OneOf.of({"cat": "a cat", "dog": "dog"}, "the", none=False),
        Levels(("cat", "mat"), "a"),
    ]
    ((sits, animal, size),) = decider.decide_each(TEXTS[:1], questions)
    predicate, choice, score = created.answers
    assert [one.name for one in created.answers] == ["sits", None, "size"] and created.model == "decider"
    assert predicate.probability == pytest.approx(sits.probabilities["yes"], abs=1e-6)
    assert choice.choice == animal.label
    assert {one.value: one.probability for one in choice.probabilities} == pytest.approx(animal.probabilities, abs=1e-6)
    assert score.score == pytest.approx(size.level, abs=1e-6)
    assert [(one.value, one.label) for one in score.probabilities] == [(0, "cat"), (1, "mat")]
    assert created.usage.total_tokens == created.usage.input_tokens > 0
    # The client checks no types on its own.
    type(created).model_validate(created.model_dump(), strict=True)


def test_messages_and_parts_are_read_as_their_text(client):
    parts = [{"type": "input_text", "text": "the cat"}, {"type": "input_json", "data": {"a": 1}}]
    messages = [{"role": "developer", "content": "a mat"}, {"role": "user", "type": "message", "content": parts}]
    asked = [PREDICATE | {"instructions": [{"type": "input_text", "text": "the cat sat"}]}]
    whole = client.post(OPENAI, CREATED | {"input": 'a mat\n\nthe cat\n{"a":1}', "questions": [PREDICATE]}).json()
    assert client.post(OPENAI, CREATED | {"input": messages, "questions": asked}).json() == whole


def test_descriptions_may_be_null_and_other_fields_of_openai_are_not_read(client):
    choices = [{"value": "cat", "description": "a cat"}, {"value": "dog", "description": None}]
    more = {"prompt_cache_key": "k", "safety_identifier": "s", "questions": [PICK | {"choices": choices}]}
    plain = client.post(OPENAI, CREATED | {"questions": [PICK]})
    assert plain.status == 200 and client.post(OPENAI, CREATED | more).json() == plain.json()


def test_values_are_typed_and_booleans_have_the_score_of_the_question(client):
    values = [{"value": True}, {"value": False}]
    boolean = {"type": "choice", "instructions": PREDICATE["instructions"], "choices": values}
    mixed = boolean | {"choices": [*values, {"value": "true"}]}
    answers = client.post(OPENAI, CREATED | {"questions": [PREDICATE, boolean, mixed]}).json()["answers"]
    assert answers[1]["probabilities"][0] == {"value": True, "probability": answers[0]["probability"]}
    assert [one["value"] for one in answers[2]["probabilities"]] == [True, False, "true"]


IMAGE = {"type": "input_image", "image_url": "https://example.org/cat.png"}


@pytest.mark.parametrize(
    ("change", "status", "words"),
    [
        ({"input": [{"role": "user", "content": [IMAGE]}]}, 400, "`input.0.content.0` is of the type 'input_image'"),
        ({"input": [{"type": "function_call", "name": "f", "arguments": "", "call_id": "1"}]}, 400, "function_call"),
        ({"input": [{"type": "custom_tool_call_output", "output": "a", "call_id": "1"}]}, 400, "custom_tool_call"),
        ({"questions": [PREDICATE | {"instructions": [IMAGE]}]}, 400, "`questions.0.instructions.0` is of the type"),
        ({"questions": [{"type": "ranking", "instructions": "a"}]}, 400, "one of predicate, choice, score"),
        ({"questions": []}, 422, "0 questions"),
        ({"questions": [PREDICATE] * 401}, 422, "401 questions"),
        ({"questions": [PREDICATE | {"instructions": ""}]}, 422, "`instructions` are empty"),
        ({"questions": [PICK | {"choices": [{"value": "a"}]}]}, 422, "give 2 to 255"),
        ({"questions": [PICK | {"choices": [{"value": "a"}] * 2}]}, 422, "given twice"),
        ({"questions": [PICK | {"choices": [{"value": 7}, {"value": "a"}]}]}, 422, "`questions.0.choices[0].value`"),
        ({"questions": [RATE | {"levels": []}]}, 422, "0 levels"),
        ({"input": 7}, 422, "`input` (7) must be a string or a list of messages"),
        ({"model": None}, 422, "`model` is missing"),
        ({"model": "gpt-6-luna"}, 404, "the models are decider"),
    ],
)
def test_what_is_not_read_is_refused_in_the_form_of_openai(client, change, status, words):
    reply = client.post(OPENAI, CREATED | change)
    answer = reply.json()
    assert reply.status == answer["code"] == status and words in answer["message"], answer
    assert [*answer] == ["message", "code", "type"]


# --- all routes -------------------------------------------------------------------------------------------------------

ALL = {"/decide": {"inputs": TEXTS, "options": ANIMALS}, SYSTEM_ONE: SENT, OPENAI: CREATED}


@pytest.mark.parametrize("path", ALL)
def test_a_model_without_the_head_is_refused_with_the_way_out(serve, predictors, decider, path):
    body = ALL[path] | {"model": "encoder"}
    alone = serve({"encoder": predictors["encoder"]}).post(path, body)
    assert alone.status == 424
    message = json.dumps(alone.json())
    assert "has no head of statements" in message and "bothways-en" in message
    beside = serve({"encoder": predictors["encoder"], "decider": decider}).post(path, body)
    assert beside.status == 424 and "post to /models/decider/decide" in json.dumps(beside.json())


def test_info_lists_the_route_of_a_model_that_has_the_head(serve, predictors, decider):
    client = serve({"decider": decider, "encoder": predictors["encoder"]})
    ours, other = (client.get(f"/models/{name}/info").json()["routes"] for name in ("decider", "encoder"))
    assert {*ours} - {*other} == {"decide"} and {*other} <= {*ours}
    assert {"embed", "fill", "next"} <= {*ours}


def test_statements_count_as_tokens_that_are_read(serve, decider):
    client = serve({"decider": decider}, queue_tokens=50)
    assert client.post("/decide", {"inputs": "a", "options": ["cat", "dog"]}).status == 200
    many = client.post("/decide", {"inputs": "a", "options": [f"cat {'a ' * number}" for number in range(9)]})
    assert many.status == 413


def test_requests_in_one_batch_get_the_answers_of_one_alone(client, decider):
    import asyncio

    bodies = [json.dumps({"inputs": text, "options": ANIMALS}).encode() for text in TEXTS * 4]

    async def send_all():
        return await asyncio.gather(*(client.send("POST", "/decide", body) for body in bodies))

    replies = asyncio.run(send_all())
    expected = [near(decision) for decision in decider.decide(TEXTS, ANIMALS)] * 4
    assert [reply.json() for reply in replies] == expected
    scores = np.array([[*reply.json()["probabilities"].values()] for reply in replies])
    assert len(np.unique(scores, axis=0)) > 1
