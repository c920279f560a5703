"""A reader of documents: the lines of a .memo file, without its first line."""

from bothways.search.readers import DocumentPart


def read_memo(path, encoding):
    title, _, text = path.read_text(encoding=encoding or "utf-8").partition("\n")
    yield DocumentPart(text, first_line=2, metadata={"title": title})
