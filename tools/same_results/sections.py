"""A section of the runs, in a process of a checkout."""

import json
import os
import runpy
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from tools.same_results.plan import (
    BASE,
    BRIEF,
    COMPRESSED,
    FLOAT32,
    LONG,
    PRETRAINED,
    REQUESTS,
    RUNS,
    SERVED,
    TRAINED,
    USES,
    WITHOUT_DTYPE,
)
from tools.same_results.values import contents, files, plain, scrub, scrub_text


def command(line: str) -> dict[str, Any]:
    """Run `python -m bothways` in this process. Its exit status, its output, and its errors if it fails."""
    words = shlex.split(line.replace("{base}", BASE).replace("{brief}", BRIEF))
    words += [] if "--dtype" in words or words[0] in WITHOUT_DTYPE else FLOAT32.split()
    argv = sys.argv
    output = StringIO()
    errors = StringIO()
    status = 0

    sys.argv = ["bothways", *words]
    try:
        with redirect_stdout(output), redirect_stderr(errors):
            runpy.run_module("bothways", run_name="__main__", alter_sys=False)
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    finally:
        sys.argv = argv
    printed = output.getvalue()
    try:
        result: Any = scrub(json.loads(printed))
    except ValueError:
        result = [scrub_text(line) for line in printed.splitlines()]
    return {"status": status, "printed": result} | (
        {"errors": [scrub_text(line) for line in errors.getvalue().splitlines()]} if status else {}
    )


def run_training(section: str) -> dict[str, Any]:
    lasting = {"pretrain": f"{PRETRAINED} --checkpoint-every 4", "distill": PRETRAINED, "finetune": TRAINED}
    return run_all(
        {
            name: f"{line} {'' if '--static' in line else lasting[line.split()[0]]} --json"
            for name, line in RUNS[section].items()
        }
    )


def run_compress() -> dict[str, Any]:
    return run_all(COMPRESSED)


def run_all(lines: Mapping[str, str]) -> dict[str, Any]:
    """Result of each command and the files in its directory."""
    results = {}
    for name, line in lines.items():
        began = time.monotonic()
        results[name] = {**command(f"{line} -o {name}"), "files": files(Path(name))}
        print(f"{name}: {time.monotonic() - began:.1f} s", flush=True)
    return results


def run_resume() -> dict[str, Any]:
    """A run that an exception of a callback ends after a checkpoint, and that is resumed."""
    import bothways
    from bothways.settings import Classify, Pretrain

    class Stop(Exception):
        pass

    def stop(row: Mapping[str, Any]) -> None:
        if row["step"] == 6:
            raise Stop

    common: dict[str, Any] = {"dtype": "float32", "checkpoint_every": 4}
    pretrain = Pretrain(
        corpus=["corpus.txt"], out="resumed-pretrain", family="bert", model="tiny", vocab_size=600, steps=8,
        evaluate_every=4, batch_tokens=512, max_length=64, **common,
    )  # fmt: skip
    classify = Classify(
        train="topics.csv", out="resumed-classify", keep_layers=[0, 1], epochs=2, batch_size=16, baselines=False,
        evaluations_per_epoch=1, linear_start=False, **common,
    )  # fmt: skip
    results = {}
    for settings in (pretrain, classify):
        from dataclasses import replace

        stopped = False
        try:
            bothways.train(settings, callbacks=stop)
        except Stop:
            stopped = True
        bothways.train(replace(settings, resume=True))
        results[str(settings.out)] = {"stopped": stopped, "files": files(Path(settings.out))}
    return results


def run_use() -> dict[str, Any]:
    results = {}
    for name, line in USES.items():
        out = Path("uses") / name
        out.parent.mkdir(exist_ok=True)
        result = command(line.replace("{out}", str(out)))
        results[name] = result | ({"file": contents(out)} if out.exists() else {})
    return results


def run_python() -> dict[str, Any]:
    """The values that methods of loaded models return."""
    import bothways

    loaded: dict[str, Any] = {name: bothways.load(name, dtype="float32") for name in (*SERVED, "long", "classify-split")
                              if name != "fill"}  # fmt: skip
    loaded["fill"] = bothways.load(dtype="float32")
    texts = [line for line in Path("plain.txt").read_text(encoding="utf-8").splitlines() if line]
    contexts = ["Ada lives in Rome. Bob lives in Oslo.", LONG]
    asked = ["Where does Bob live?", "Where did Ada walk?"]
    words = [text.split() for text in texts[:5]]
    calls: dict[str, Callable[[], Any]] = {
        "classify one": lambda: loaded["classify"].classify(texts[0]),
        "classify many": lambda: loaded["classify"].classify(texts, top=2),
        "classify window": lambda: loaded["classify"].classify(texts, window=16, overlap=4),
        "classify truncate": lambda: loaded["long"].classify(texts, long="truncate"),
        "classify error": lambda: loaded["long"].classify(texts, long="error"),
        "classify long": lambda: loaded["long"].classify(texts),
        "classify sets": lambda: loaded["classify-split"].classify(texts, coverage=0.8),
        "classify multi-label": lambda: loaded["multi-label"].classify(texts),
        "classify pairs": lambda: loaded["pairs"].classify(texts[:4], texts[4:8]),
        "classify wrong": lambda: loaded["tag"].classify(texts),
        "classify wrong option": lambda: loaded["classify"].classify(texts, windows=3),
        "label_next": lambda: loaded["classify"].label_next(texts, 3),
        "regress": lambda: loaded["regress"].regress(["good good", "bad"]),
        "tag": lambda: loaded["tag"].tag(texts),
        "tag one": lambda: loaded["tag"].tag(texts[1]),
        "tag_words": lambda: loaded["tag"].tag_words(words),
        "answer": lambda: loaded["answer"].answer(asked, contexts, top=3),
        "answer one": lambda: loaded["answer"].answer(asked[0], contexts[0], max_answer_tokens=2),
        "answer empty": lambda: loaded["answer"].answer(asked, ["", contexts[0]]),
        "embed": lambda: loaded["embed"].embed(texts),
        "embed cls": lambda: loaded["embed"].embed(texts[:3], pooling="cls", normalize=False),
        "hidden_states": lambda: loaded["embed"].hidden_states(texts[:2]),
        "fill": lambda: loaded["fill"].fill(["The [MASK] sat.", "[MASK] and [MASK]."], top=3),
        "is_next": lambda: loaded["fill"].is_next(texts[:3], texts[3:6]),
        "stream": lambda: [*loaded["classify"].stream(loaded["classify"].classify, texts, rows=3)],
        "load missing": lambda: bothways.load("missing-model"),
    }
    results: dict[str, Any] = {}
    for name, call in calls.items():
        try:
            results[name] = plain(call())
        except Exception as error:  # its message is a result
            results[name] = f"{type(error).__name__}: {scrub_text(str(error))}"
    for name, model in loaded.items():
        results[f"model {name}"] = plain([model.task, model.labels, repr(model)])
    return results


def run_server() -> dict[str, Any]:
    """Answers to all requests, sent one after the other, and the exit status after SIGTERM."""
    arguments = [
        "serve",
        *(f"{name}={place}" for name, place in SERVED.items()),
        "--port",
        "0",
        "--json",
        *FLOAT32.split(),
        "--no-access-log",
    ]
    with open("server.log", "w", encoding="utf-8") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "bothways", *arguments],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        try:
            assert server.stdout
            if not (line := server.stdout.readline()):
                raise SystemExit(f"the server has not started: {Path('server.log').read_text(encoding='utf-8')}")
            url = json.loads(line)["url"]
            while request(url, "/health", None)["status"] != 200:
                time.sleep(0.05)
            results: dict[str, Any] = {"ready": scrub(json.loads(line))}
            for path, body in REQUESTS:
                shown = body.decode() if isinstance(body, bytes) else json.dumps(body)
                results[f"GET {path}" if body is None else f"POST {path} {shown[:100]}"] = request(url, path, body)
            server.send_signal(signal.SIGTERM)
            results["exit status"] = server.wait(60)
        finally:
            if server.poll() is None:
                server.kill()
                server.wait()
    return results


def request(url: str, path: str, body: Any) -> dict[str, Any]:
    data = body if isinstance(body, bytes | None) else json.dumps(body).encode()

    try:
        answer = urlopen(Request(url + path, data, {"Content-Type": "application/json"}), timeout=120)
    except HTTPError as error:
        answer = error

    with answer:
        text = answer.read().decode()
        headers = {
            name: answer.headers[name] for name in ("Content-Type", "X-Vector-Space", "X-Truncated-Texts", "Allow")
        }
        status = answer.status

    try:
        value: Any = scrub(json.loads(text))
    except ValueError:
        value = [scrub_text(line) for line in text.splitlines()]
    return {"status": status, "headers": headers, "body": value}


OTHERS = {"resume": run_resume, "compress": run_compress, "use": run_use, "python": run_python, "server": run_server}


def run_section(section: str) -> None:
    """Write SECTION.json into the current directory."""
    import bothways

    checkout = Path(os.environ["SAME_RESULTS_CHECKOUT"]).resolve()
    if checkout not in Path(str(bothways.__file__)).resolve().parents:
        raise SystemExit(f"bothways comes from {bothways.__file__}, not from {checkout}")
    written = {*RUNS.get(section, ())} | {*(COMPRESSED if section == "compress" else ())}
    for name in written | ({"uses"} if section == "use" else set()):
        shutil.rmtree(name, ignore_errors=True)  # of a run that was stopped
    results = run_training(section) if section in RUNS else OTHERS[section]()
    Path(f"{section}.json").write_text(json.dumps(results, indent=1), encoding="utf-8")
