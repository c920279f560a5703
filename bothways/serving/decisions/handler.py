"""The handler of the routes that decide: each text is read once for all questions about it."""

from typing import Any

from bothways.serving import calls
from bothways.serving.decisions.asked import Asking
from bothways.serving.request import ModelRequest
from bothways.tasks.decide.questions import answers_of, statements_of


async def decide(request: ModelRequest) -> Any:
    """The answer to each question about each text.

    The queue computes the scores of statements, since requests with equal questions can share a batch. Decisions
    follow from the scores here.
    """
    body: Asking = request.body
    texts = body.read_texts()
    asked = body.asked(request.served.model.encoder.asked)
    questions = tuple(one.question for one in asked)

    scores_NK = await request.run(
        calls.question_scores,
        [(text, None) for text in texts],
        # A statement of several questions is read once.
        with_each=[*dict.fromkeys(statements_of(questions))],
        questions=questions,
    )

    answers = []
    for scores_K in scores_NK:
        decisions = answers_of(questions, scores_K)
        answers.append([one.answer(decision) for one, decision in zip(asked, decisions, strict=True)])
    return body.reply(answers, request.served.name, request.metrics.tokens)
