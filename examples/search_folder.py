"""Search a folder by words and by meaning, with a filter; then the exact passage in its file.

The index is made by static vectors, which need no encoder; with `encoder="bothways-en"` it finds more.

    python examples/search_folder.py
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import bothways
from bothways.search.indexing import index

FILES = {
    "contracts/terms.md": "---\nyear: 2015\n---\n# Payment\n\nInvoices are due after 30 days.\n\n# Late fees\n\n"
    "Two per cent a month are charged on overdue amounts.",
    "mail.csv": "text,year\nPlease send the annual report again.,2009\nReminder: your payment is late.,2014\n",
    "minutes.txt": "The board met in Bergen. A kitten had got into the archive and was adopted.",
}

with TemporaryDirectory() as root:
    for name, text in FILES.items():
        file = Path(root, "documents", name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    done = index([Path(root, "documents")], Path(root, "index"), static_model="bothways-en-static", encoder=None)
    print(f"{done.passages} passages of {done.files} files")
    with bothways.Store(Path(root, "index")) as store:
        for query in ("how much is charged for an overdue invoice?", "a cat in the office"):
            (hit, *_) = store.search(query)
            print(f"{query}\n  {hit.path.name}:{hit.line}  {hit.heading}  {hit.text.splitlines()[-1]}")
        (hit, *_) = store.search("report", condition="year < 2010")
        print(f"before 2010\n  {hit.path.name}:{hit.line}  {hit.text}  {hit.metadata}")
