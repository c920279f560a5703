"""The packaged model in JavaScript, on a page of the documentation: the same tokens and numbers as in Python."""

import json
import random
import re
import shutil
import subprocess
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

import bothways
from bothways.inference.explanation import word_cuts
from tests.serving.browser import CHROMIUM, Browser

DOCS = Path(__file__).parent.parent / "docs"
PACKAGE = Path(bothways.__file__).parent
FILES = [PACKAGE / "pretrained/bothways-en" / name for name in ("config.json", "packed.safetensors", "vocab.txt")]
FILES += [PACKAGE / "text/tokenizer/unicode_tables.json"]
NODE = shutil.which("node")
CALLS = """
import { readFileSync } from "node:fs";
import { basename } from "node:path";
const { bert, files, calls } = JSON.parse(readFileSync(0, "utf8"));
const { load } = await import(bert);
const read = (name) => Uint8Array.from(readFileSync(files.find((file) => basename(file) === name))).buffer;
const model = await load(read);
const call = ([method, ...texts]) => {
  try {
    if (method in model.tokenizer) return model.tokenizer[method](...texts);
    if (method === "hidden") return [...model.hidden(model.tokenizer.encode(...texts))];
    const result = model[method](...texts);
    return ArrayBuffer.isView(result) ? [...result] : result;
  } catch (error) {
    return `${error.name}: ${error.message}`;
  }
};
console.log(JSON.stringify(calls.map(call)));
"""
TEXTS = [
    "Kittens unlearned NOTHING.",
    "don't, U.S.A.; ¿Qué? £5+6=~^`| under_score",
    "Café ΑΣΟΣ naïve ẞß İstanbul ﬁt 𝔘𝔫𝔦 ☃",
    "東京タワーに行きました。 한국어 फूल ไทย",
    "a\x00b\ufffdc\u200bd\u3000e\tf\ng\x85h\ud800i",
    "e\u0301\u0323 \u1100\u1161\u11a8 \u05d0\u05b7\u05bc",
    "👩\u200d👩\u200d👧 ok\ufe0f",
    "x" * 100 + " " + "x" * 101,
    "a [MASK] and a [mask] and[MASK]!",
    "",
]
MASKED = ["She locked the [MASK] and put the [MASK] in her pocket.", "The [MASK] was built in the 19th century."]
PAIRS = [
    ("A [MASK] cat.", "[MASK]"),
    ("She filled the kettle.", "When it boiled, she made tea."),
    ("A cat sat.", "Interest rates rose again."),
]


@pytest.fixture(scope="module")
def model():
    return bothways.load(backend="numpy")


def run(*calls):
    request = {"bert": (DOCS / "browser/bert.js").as_uri(), "files": [*map(str, FILES)], "calls": calls}
    command = [NODE, "--input-type=module", "--eval", CALLS]
    done = subprocess.run(command, input=json.dumps(request), stdout=subprocess.PIPE, check=True, text=True)
    return json.loads(done.stdout)


@pytest.mark.skipif(NODE is None, reason="Node.js is not installed")
def test_javascript_computes_what_python_does(model):
    points = [*range(0x20, 0x500), *range(0x900, 0x980), *range(0x2000, 0x2070), *range(0x4E00, 0x4E40)]
    draw = random.Random(0).choices
    texts = [*TEXTS, *("".join(map(chr, draw(points, k=20))) for _ in range(200))]
    calls = [
        *(["encodeMasked", text] for text in texts),
        *(["encode", text] for text in TEXTS),
        *(["encode", *pair] for pair in PAIRS),
        *(["hidden", text] for text in TEXTS[:3]),
        *(["fill", text] for text in MASKED),
        *(["embed", text] for text in TEXTS[:3]),
        *([method, *pair] for pair in PAIRS for method in ("similarity", "isNext")),
        *(["cuts", text] for text in [*texts, " a,\x1cb\xa0\u4e00 c²d", "x, y .", "½a"]),
        *(["explain", *pair] for pair in [*PAIRS, ("A [MASK] cat.", "")]),
        ["explain", "word " * 70, "one more " * 6],
        ["fill", "no mask"],
        ["embed", "word " * 600],
    ]
    answers = iter(run(*calls))
    for text in texts:
        assert next(answers)["ids"] == [*model.tokenizer.encode(text, allow_special=("[MASK]",)).ids], ascii(text)
    for text in TEXTS:
        assert next(answers)["ids"] == [*model.tokenizer.encode(text).ids], ascii(text)
    for pair in PAIRS:
        encoding = model.tokenizer.encode(*pair)
        assert next(answers) == {"ids": [*encoding.ids], "segments": [*encoding.segment_ids]}
    for text in TEXTS[:3]:
        hidden_SH = model.hidden_states(text)
        np.testing.assert_allclose(np.reshape(next(answers), hidden_SH.shape), hidden_SH, rtol=0, atol=1e-5)
    for masks in model.fill(MASKED, top=5):
        for ours, theirs in zip(masks, next(answers), strict=True):
            assert [guess.token for guess in ours] == [guess["token"] for guess in theirs]
            assert [guess.score for guess in ours] == pytest.approx([guess["score"] for guess in theirs], abs=1e-5)
    for text in TEXTS[:3]:
        np.testing.assert_allclose(next(answers), model.embed(text), rtol=0, atol=1e-6)
    for pair in PAIRS:
        first_H, second_H = model.embed([*pair])
        assert next(answers) == pytest.approx(float(first_H @ second_H), abs=1e-6)
        assert next(answers) == pytest.approx(float(model.is_next(*pair)), abs=1e-5)
    for text in [*texts, " a,\x1cb\xa0\u4e00 c²d", "x, y .", "½a"]:
        cuts = [(text[cut.start : cut.end], cut.start, cut.end, cut.apply(text)) for cut in word_cuts(text)]
        assert [(*cut.values(),) for cut in next(answers)] == cuts, ascii(text)
    for pair in [*PAIRS, ("A [MASK] cat.", "")]:
        explained, answer = model.explain(*pair).to_json(), next(answers)
        assert answer["score"] == pytest.approx(explained["score"], abs=1e-6)
        for ours, theirs in zip(model.explain(*pair).words, answer["words"], strict=True):
            assert theirs == {**ours.to_json(), "effect": pytest.approx(ours.effect, abs=1e-6)}
    assert next(answers) == "RangeError: 82 words, but the page explains 40; use shorter texts, or the package"
    assert next(answers) == "RangeError: no [MASK] in the text; write [MASK] where a word is to be guessed"
    assert next(answers) == "RangeError: 602 tokens, but the model reads 512; use a shorter text"


@pytest.fixture
def site(tmp_path):
    """The form of the page without the rest of the site, on loopback."""
    for file in (*(DOCS / "browser").iterdir(), *FILES):
        (tmp_path / file.name).symlink_to(file)
    (form,) = re.findall(r'<div id="try-it">.*?</div>', (DOCS / "understand.md").read_text(), re.DOTALL)
    style, script = '<link rel="stylesheet" href="try.css">', '<script type="module" src="try.js"></script>'
    (tmp_path / "index.html").write_text(f'<!doctype html><html lang="en">{style}{script}<body>{form}</body></html>')

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=tmp_path)) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_the_form_fills_and_compares_in_a_browser(site, model, tmp_path):
    browser = Browser(tmp_path / "profile")
    try:
        browser.open(site)
        assert browser.wait("document.forms.length") == 2
        assert not [address for address in browser.requests() if "packed" in address]  # only when it is asked
        shown = (
            "[...document.forms[{}].querySelectorAll('tr')].map((row) => row.innerText.replace(/\\s+/g, ' ').trim())"
        )
        browser.run("document.forms[0].requestSubmit()")
        rows = browser.wait(shown.format(0))
        guesses = model.fill("The [MASK] was built in the 19th century.")[0]
        assert rows == [f"{guess.token} {guess.score:.2f}" for guess in guesses]

        browser.run("document.forms[1].requestSubmit()")
        pair = [browser.run(f"document.forms[1].querySelectorAll('input')[{index}].value") for index in (0, 1)]
        first_H, second_H = model.embed(pair)
        assert browser.wait(shown.format(1)) == [
            f"similarity (cosine) {first_H @ second_H:.2f}",
            f"the second follows (p) {model.is_next(*pair):.2f}",
        ]
        browser.run("document.forms[1].querySelectorAll('button')[1].click()")
        words = browser.wait("[...document.forms[1].querySelectorAll('mark')].map((word) => word.title)")
        explained = model.explain(*pair)
        assert words == [f"{word.effect:+.3f}".replace("-", "\N{MINUS SIGN}") for word in explained.words]
        texts = browser.run("[...document.forms[1].querySelectorAll('p.text')].map((text) => text.textContent)")
        assert texts == pair
        assert browser.run(shown.format(1)) == [f"{word.word} {word.effect:.2f}" for word in explained.by_size[:5]]

        browser.run("document.forms[0].querySelector('input').value = '<b>none'; document.forms[0].requestSubmit()")
        status = browser.wait("document.querySelector('[role=status]').textContent", lambda text: "[MASK]" in text)
        assert status == "no [MASK] in the text; write [MASK] where a word is to be guessed"
        assert browser.run(shown.format(0)) == [] and browser.complaints() == []
        assert all(address.startswith(site) for address in browser.requests())
    finally:
        browser.close()


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
@pytest.mark.parametrize("missing", ["worker.js", "bert.js"])
def test_the_form_prints_a_line_when_the_worker_cannot_be_loaded_and_tries_again(missing, site, tmp_path):
    browser, file = Browser(tmp_path / "profile"), tmp_path / missing
    try:
        file.unlink()
        browser.open(site)
        browser.wait("document.forms.length")
        status = "document.querySelectorAll('[role=status]')[{}].textContent"
        for form in (0, 1):
            browser.run(f"document.forms[{form}].requestSubmit()")
            line = browser.wait(status.format(form), lambda text: "reload" in text)
            assert line.startswith("the model cannot be started")
            assert not browser.run(f"document.forms[{form}].querySelector('button').disabled")
        file.symlink_to(DOCS / "browser" / missing)
        browser.run("document.forms[0].requestSubmit()")
        assert browser.wait("document.forms[0].querySelectorAll('tr').length") == 5
    finally:
        browser.close()
