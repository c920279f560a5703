"""Start a server and use it with OpenAI's client, as any program written for OpenAI's embeddings does.

Needs the extra `serve` and `pip install openai`. Each question finds the text that answers it, in other words.

    python examples/serve_openai.py
"""

import json
import subprocess
import sys

import numpy as np
from openai import OpenAI

PASSAGES = ["The ferry departs at noon.", "Cats sleep most of the day.", "Interest rates rose again last month."]
QUESTIONS = ["When does the boat leave?", "What do kittens do all the time?", "Did borrowing money become expensive?"]

# Port 0 is any free one. --json: a line on standard output when the server is ready.
command = [sys.executable, "-m", "bothways", "serve", "--port", "0", "--json", "--no-access-log"]
with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
    try:
        assert server.stdout  # a pipe
        url = json.loads(server.stdout.readline())["url"]
        with OpenAI(base_url=f"{url}/v1", api_key="none") as client:
            answer = client.embeddings.create(model="bothways-en", input=PASSAGES + QUESTIONS)
    finally:
        server.terminate()  # SIGTERM: it answers what it has accepted, and ends

vectors = np.array([row.embedding for row in answer.data])
cosines = vectors[len(PASSAGES) :] @ vectors[: len(PASSAGES)].T
for question, row in zip(QUESTIONS, cosines, strict=True):
    print(f"{question}\n  {row.max():.2f}  {PASSAGES[row.argmax()]}")
print(f"{answer.usage.total_tokens} tokens; the server ended with status {server.returncode}")
