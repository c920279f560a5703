"""The routes that decide among options named in the request: our own, transformers' System One, OpenAI's decisions.

asked.py        what the three have in common: questions with the JSON of their answers
handler.py      the handler of the three routes
own.py          POST /decide
system_one.py   POST /v1/systemone
openai_beta.py  POST /v1/decisions
"""
