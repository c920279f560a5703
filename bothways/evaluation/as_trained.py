"""A table read as a model learned to read: by the columns it learned from, and without second texts if it had none."""

from dataclasses import replace

from bothways.data.columns import Table
from bothways.data.examples import read_table
from bothways.data.labels import respell_labels
from bothways.data.near_duplicates import label_key
from bothways.data.stream import resolve_columns
from bothways.inference.predictor import Predictor
from bothways.settings import TextColumns
from bothways.tables_in_memory import TableSource


def table_as_learned(model: Predictor, file: TableSource, columns: TextColumns, *, need_labels: bool) -> Table:
    """By the columns named, else those the model was fine-tuned on, else usual ones; labels in the model's spelling
    where it was fine-tuned with merge_labels. InputError where it holds pairs
    and the model was fine-tuned on single texts, or the reverse."""
    own = resolve_columns(file, columns, model.checkpoint.settings, ("text", "pair", "label"))
    table = read_table(
        file, text=own["text"], pair=own["pair"], label=own["label"], need_labels=need_labels, encoding=columns.encoding
    )
    if model.ignores_pairs(own["text"], columns.pair_column):
        table = replace(table, pairs=None)
    model.check_pairs(table.pairs is not None, file)
    if table.labels is not None and model.checkpoint.settings.get("merge_labels"):
        names = {label_key(name): name for name in model.labels}
        table = respell_labels(table, names, several=model.checkpoint.multi_label)
    return table
