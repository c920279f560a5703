"""Redact a folder: each entity that `bothways extract` found becomes a placeholder, the same name always the same one.

The copies hold what the tagger has read, and nothing else: of PDF, Word and tables the text. Correct facts.jsonl first.

    bothways extract documents --tag my-tagger -o facts.jsonl
    python examples/redact_folder.py facts.jsonl documents redacted
"""

import json
import sys
from collections import Counter, defaultdict, deque
from pathlib import Path

from bothways.base.errors import InputError
from bothways.search.folder import find_documents
from bothways.search.readers import is_plain, read_parts


def read_facts(path):
    """The entities of each file, in the order of their places."""
    facts_by_path = defaultdict(list)
    with path.open(encoding="utf-8") as lines:
        for fact in map(json.loads, lines):
            if fact["kind"] == "entity":
                facts_by_path[Path(fact["path"]).resolve()].append(fact)

    for facts in facts_by_path.values():
        facts.sort(key=lambda fact: (fact["page"] or 0, fact["line"] or 0, fact["start"]))
    return facts_by_path


def placeholder(fact, names, counts):
    """[PER_1] for a name that is new, else what it has already, whatever its label is this time.

    The group of a fact joins "Ada Lovelace", "ADA LOVELACE" and, in the same file, "Lovelace".
    """
    group = fact["group"]
    label = fact["name"]
    if group not in names:
        counts[label] += 1
        names[group] = f"[{label}_{counts[label]}]"
    return names[group]


def is_in(fact, part):
    """Whether a fact is in this part of its file: a page, a row of a table, or all but the front matter."""
    start = fact["start"] - part.offset
    end = fact["end"] - part.offset
    if start < 0 or part.text[start:end] != fact["text"]:
        return False

    line = part.first_line
    if line is not None and not part.is_row:
        line += part.text.count("\n", 0, start)
    return (fact["page"], fact["line"]) == (part.page, line)


def redact_part(part, facts, names, counts):
    """The text of a part with placeholders. Takes the facts that it replaces from the queue."""
    pieces = []
    shown = 0  # characters of the part that are done
    while facts and is_in(facts[0], part):
        fact = facts.popleft()
        pieces.append(part.text[shown : fact["start"] - part.offset])
        pieces.append(placeholder(fact, names, counts))
        shown = fact["end"] - part.offset
    return "".join(pieces) + part.text[shown:]


def redact(facts_file, folder, out):
    """Write a copy of each file that can be read, and beside the facts the table of names: keep both to yourself.

    SystemExit, before anything is written, if a file has changed since its facts were found.
    """
    if facts_file.suffix != ".jsonl" or not facts_file.exists():
        sys.exit(f"{facts_file}: is no table of JSON lines; write one with `bothways extract FOLDER -o facts.jsonl`")
    if out.exists():
        sys.exit(f"{out}: already exists; name a new folder")
    facts_by_path = read_facts(facts_file)

    # The names of an earlier run keep their placeholders: {"ada lovelace": "[PER_1]"}.
    table = facts_file.with_suffix(".names.json")
    names = json.loads(table.read_text(encoding="utf-8")) if table.exists() else {}
    counts = Counter(known[1:].rpartition("_")[0] for known in names.values())

    copies = {}
    for document in find_documents([folder]):
        facts = deque(facts_by_path.pop(document.path.resolve(), []))
        try:
            texts = [redact_part(part, facts, names, counts) for part in read_parts(document.path)]
        except InputError as error:
            print(f"{error}; no copy")
            continue

        # A file that was moved into the folder later keeps its time of modification, but not that of its change.
        status = document.path.stat()
        is_newer = max(status.st_mtime, status.st_ctime) > facts_file.stat().st_mtime
        if facts or is_newer:
            sys.exit(f"{document.path}: not as it was when {facts_file} was written; run `bothways extract` again")
        copies[document.relative + ("" if is_plain(document.path) else ".txt")] = "\n\n".join(texts) + "\n"

    if facts_by_path:
        sys.exit(f"{next(iter(facts_by_path))}: not in {folder}; name the folder that facts were extracted from")

    for relative, text in copies.items():
        copy = out / relative
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(text, encoding="utf-8", newline="")
    table.write_text(json.dumps(names, ensure_ascii=False, indent=1), encoding="utf-8")
    print(f"{len(copies)} files in {out}; {len(names)} names in {table}")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: python examples/redact_folder.py FACTS.jsonl FOLDER OUT")
    try:
        redact(*map(Path, sys.argv[1:]))
    except InputError as error:
        sys.exit(f"{error}")
