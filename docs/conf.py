"""Sphinx configuration: `make docs` builds the site from these pages, the docstrings and the settings."""

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from option_tables import all_tables, class_table
from plain_docstrings import to_rst

import bothways

project = "Bothways"
author = "the authors of Bothways"
copyright = f"2026, {author}"
release = bothways.__version__
html_title = f"Bothways {release}"

extensions = ["myst_parser", "sphinx.ext.autodoc"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
html_theme = "furo"
html_favicon = "browser/favicon.svg"
html_css_files = ["site.css"]
smartquotes = False  # "mean" is a value

# The packaged model in the browser (browser/bert.js).
package = Path(bothways.__file__).parent
model_files = [package / "pretrained/bothways-en" / name for name in ("config.json", "packed.safetensors", "vocab.txt")]
html_static_path = ["browser", *map(str, [*model_files, package / "text/tokenizer/unicode_tables.json"])]

myst_heading_anchors = 3  # links such as finetuning.md#long-texts, with GitHub's names
myst_enable_extensions = ["colon_fence"]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
highlight_language = "none"  # a block without a language is not Python
python_display_short_literal_types = True


TABLES = {"reference/command-line": all_tables, "reference/settings": class_table}


def insert_tables(app, docname, source):
    """Replace the mark in a page by a table that is generated from the settings."""
    if docname in TABLES:
        source[0] = source[0].replace("<!-- table -->", TABLES[docname]())


def add_form(app, page, template, context, doctree):
    """The form of browser/try.js, on the page that has a place for it."""
    if 'id="try-it"' in context.get("body", ""):
        app.add_js_file("try.js", type="module")
        app.add_css_file("try.css")


def mark_options(app, page, template, context, doctree):
    """Names of options get a class of their own, by which browser/site.css keeps a browser from breaking them."""
    if "body" in context:
        context["body"] = re.sub(r'<span class="pre">(?=-)', '<span class="pre option">', context["body"])


def escape_docstring(app, kind, name, subject, options, lines):
    """Docstrings are plain text, not reStructuredText."""
    lines[:] = to_rst(lines)


def setup(app):
    app.connect("source-read", insert_tables)
    app.connect("html-page-context", add_form)
    app.connect("html-page-context", mark_options)
    app.connect("autodoc-process-docstring", escape_docstring)
    return {"parallel_read_safe": True}
