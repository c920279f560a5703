"""The sides of benchmarks/serving.py besides `bothways serve`: two FastAPI servers, and Bothways without a server.

    python -m benchmarks.serving_peers single|batched MODEL DTYPE
    python -m benchmarks.serving_peers offline MODEL DTYPE SECONDS SAMPLES TEXTS.json ...

single: a plain endpoint, which FastAPI runs in its thread pool, with one `encode` of sentence-transformers per request.
batched: an asynchronous endpoint and a queue; one `encode` in a thread for what arrives within 5 ms, at most 32 texts.
offline: `embed` of whole lists again and again for so many seconds; prints texts per second, and the first vectors.
"""

import asyncio
import json
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel

LARGEST_BATCH = 32
LONGEST_WAIT = 0.005  # seconds


class Body(BaseModel):
    inputs: str


def sentence_transformer(model: str, dtype: str) -> Any:
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(model, device="cpu", model_kwargs={"dtype": dtype})


def single(model: Any) -> FastAPI:
    app = FastAPI()

    @app.post("/embed")
    def embed(body: Body) -> list[list[float]]:
        vectors: list[list[float]] = model.encode([body.inputs], show_progress_bar=False).tolist()
        return vectors

    return app


def batched(model: Any) -> FastAPI:
    queue: asyncio.Queue[tuple[str, asyncio.Future[list[float]]]] = asyncio.Queue()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        task = asyncio.create_task(work())
        yield
        task.cancel()

    app = FastAPI(lifespan=lifespan)

    @app.post("/embed")
    async def embed(body: Body) -> list[list[float]]:
        future: asyncio.Future[list[float]] = asyncio.get_running_loop().create_future()
        queue.put_nowait((body.inputs, future))
        return [await future]

    async def work() -> None:
        while True:
            batch = [await queue.get()]
            with suppress(TimeoutError):
                async with asyncio.timeout(LONGEST_WAIT):
                    while len(batch) < LARGEST_BATCH:
                        batch.append(await queue.get())
            texts = [text for text, _ in batch]
            vectors = await asyncio.to_thread(
                model.encode, texts, batch_size=LARGEST_BATCH, show_progress_bar=False
            )  # fmt: skip
            for (_, future), vector in zip(batch, vectors.tolist(), strict=True):
                if not future.done():
                    future.set_result(vector)

    return app


def serve(app: FastAPI) -> None:
    """Listen on any free port and say so on standard error."""
    import uvicorn

    @app.get("/health")
    def health() -> dict[str, str]:
        return {"status": "ok"}

    with socket.create_server(("127.0.0.1", 0)) as listening:
        print(f"serving at http://127.0.0.1:{listening.getsockname()[1]}", file=sys.stderr, flush=True)
        uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False)).run([listening])


def offline(directory: str, dtype: str, seconds: float, samples: int, files: list[str]) -> list[dict[str, Any]]:
    import bothways

    model, answers = bothways.load(directory, dtype=dtype), []
    for file in files:
        texts = json.loads(Path(file).read_text(encoding="utf-8"))
        vectors = model.embed(texts[:samples])
        model.embed(texts)  # warm-up
        begin, passes = time.perf_counter(), 0
        while not passes or time.perf_counter() - begin < seconds:
            model.embed(texts)
            passes += 1
        speed = passes * len(texts) / (time.perf_counter() - begin)
        answers.append({"per_second": speed, "samples": dict(enumerate(vectors.tolist()))})
    return answers


def main() -> None:
    kind, model, dtype, *rest = sys.argv[1:]
    if kind == "offline":
        seconds, samples, *files = rest
        print(json.dumps(offline(model, dtype, float(seconds), int(samples), files)))
    else:
        serve({"single": single, "batched": batched}[kind](sentence_transformer(model, dtype)))


if __name__ == "__main__":
    main()
