"""Write the README for the page of a package index, which does not resolve relative links and pictures.

Run it in the clone that a release is built from: python tools/index_page.py README.md

They become links below `repository` of [tool.bothways] in pyproject.toml, at the tag of the version. While that setting
is empty, as it is until the project has an address, the file stays as it is.
"""

import re
import sys
import tomllib
from pathlib import Path

import bothways

LINK = re.compile(r"(?P<mark>!?)(?P<text>\[[^\]]*\])\((?!\w+:|#)(?P<target>[^)\s]+)\)")


def absolute_links(page: str, repository: str, version: str) -> str:
    """The page with absolute links. repository: its address, such as https://example.org/owner/name; "" for none."""
    if not repository:
        return page

    def replace(link: re.Match[str]) -> str:
        kind = "raw" if link["mark"] else "blob"
        return f"{link['mark']}{link['text']}({repository.rstrip('/')}/{kind}/v{version}/{link['target']})"

    return LINK.sub(replace, page)


if __name__ == "__main__":
    settings = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))
    file = Path(sys.argv[1])
    page = absolute_links(
        file.read_text(encoding="utf-8"), settings["tool"]["bothways"]["repository"], bothways.__version__
    )
    file.write_text(page, encoding="utf-8")
