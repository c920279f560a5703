"""Take the pictures of the server's page for docs/guide/server.md, in Chromium, with real models.

bothways finetune tag --train train.jsonl -o my-tagger
python tools/draw_page.py my-tagger
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.serving.browser import Browser  # noqa: E402

PICTURES = ROOT / "docs/pictures"
SENTENCE = "In 1843 Ada Lovelace translated an article by Luigi Menabrea, which Charles Babbage had asked for in Turin."


def choose(browser: Browser, model: str) -> None:
    script = f"e.value = {model!r}; e.dispatchEvent(new Event('change')); 0"
    browser.run(f"{{ const e = document.querySelector('#model'); {script} }}")
    browser.wait(f"document.querySelector('#model').value === {model!r} && !document.querySelector('.busy')")


def ask(browser: Browser, part: str, fields: dict[str, str] | None = None) -> None:
    """Fill the form of a part, or take its first example, and wait for the answer."""
    browser.wait(f"Boolean(document.querySelector('#tab-{part}')?.offsetParent)")
    browser.run(f"document.querySelector('#tab-{part}').click()")
    if fields is None:
        browser.run(f"document.querySelector('#{part} .example').click()")
    else:
        for name, value in fields.items():
            browser.run(f"document.querySelector('#{part} [name={name}]').value = {value!r}; 0")
        browser.run(f"document.querySelector('#{part} form').requestSubmit()")
    browser.wait(f"document.querySelector('#{part} .result').innerText && !document.querySelector('#{part} .busy')")


def main() -> None:
    command = [sys.executable, "-m", "bothways", "serve", "bothways-en", f"tagger={sys.argv[1]}"]
    options = ["--port", "0", "--json", "--no-access-log"]
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        try:
            url = json.loads(server.stdout.readline())["url"]
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
                browser = Browser(Path(profile))
                browser.look(width=360, height=640)
                browser.open(f"{url}/")
                ask(browser, "fill")
                browser.picture(PICTURES / "page-fill-phone.png")
                browser.look(width=900, height=600, dark=True)
                browser.open(f"{url}/")
                ask(browser, "attention")
                browser.picture(PICTURES / "page-attention-dark.png")
                browser.look(width=900, height=600)
                browser.open(f"{url}/")
                browser.wait("Boolean(document.querySelector('#model')?.offsetParent)")
                choose(browser, "tagger")
                ask(browser, "tag", {"text": SENTENCE})
                browser.picture(PICTURES / "page-tag.png")
                browser.close()
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
