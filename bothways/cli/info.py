"""Facts about a checkpoint or run: what it is, how it was made, and from which data."""

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from bothways.base.errors import InputError, MissingFile, format_count
from bothways.base.io import read_json
from bothways.base.paths import RemotePath
from bothways.base.results import Facts, format_value
from bothways.cli.verbs import VERBS
from bothways.inference.load import open_backend
from bothways.model.checkpoint import hub
from bothways.model.checkpoint.description import METADATA_FILE, read_metadata
from bothways.training.run_lock import FOLDER, METRICS, STATE, read_metrics, run_status

RUN_FACTS = ("reason", "resumed", "data", "steps", "heldout", "result", "figures", "parts")  # copied from bothways.json


class InfoFacts(Facts):
    """Facts about a checkpoint or run, printed as a table."""

    def lines(self) -> Iterator[str]:
        for name, value in self.items():
            if name == "settings":
                value = without_defaults(self["run"], value)
            lines = [format_value(value)]
            if isinstance(value, dict):
                lines = [f"{key} {format_value(inner)}" for key, inner in value.items()]

            heading = name
            for line in lines:
                yield f"{heading:12} {line}"
                heading = ""


def without_defaults(verb: str, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of a run, as stored in JSON, that are not the defaults of its verb."""
    # Training needs torch, which the description of a model does not.
    from bothways.training.run import plain_value

    known = fields(VERBS[verb].settings_class) if verb in VERBS else ()
    defaults = {field.name: plain_value(field.default) for field in known}
    return {name: value for name, value in settings.items() if value != defaults.get(name, value is None)}


def describe(path: Path) -> InfoFacts:
    """Facts by name about a run, a checkpoint, a model of the hub, or a directory of runs (a demo)."""
    path = path.download(_is_read) if isinstance(path, RemotePath) else path
    model = hub.locate(path)
    path = path if path.exists() else model
    if not path.exists():
        raise MissingFile(f"{path}: no such directory; name a checkpoint or a run")
    facts = InfoFacts(path=str(path))
    metadata = read_metadata(path / METADATA_FILE)
    if "status" in metadata:
        facts |= describe_run(path, metadata)
    if "status" not in metadata or (path / "model").exists():
        facts |= describe_checkpoint(path, model)
    return facts


def _is_read(name: str) -> bool:
    """Whether a file of a run in object storage is read: of checkpoints only what they say about themselves."""
    return not name.startswith(f"{FOLDER}/") or name.endswith(f"/{STATE}")


def describe_run(path: Path, metadata: dict[str, Any]) -> dict[str, Any]:
    facts = {
        "run": metadata["verb"],
        "status": run_status(metadata),
        "started": metadata.get("started"),
        "versions": metadata.get("versions"),
        "hardware": metadata.get("hardware"),
    }
    facts |= {key: metadata[key] for key in RUN_FACTS if key in metadata}

    if rows := read_metrics(path):
        last_rows = {row.get("seed"): row for row in rows}  # each seed counts from 0
        totals = {key: sum(row[key] for row in last_rows.values()) for key in ("step", "tokens", "seconds")}
        seeds = f", {len(last_rows)} seeds" if len(last_rows) > 1 else ""
        facts["trained"] = describe_progress(totals, metadata) + seeds
    if checkpoints := sorted((path / FOLDER).glob("step-*")):
        facts["checkpoints"] = ", ".join(folder.name for folder in checkpoints) + describe_best(checkpoints[-1])

    run_settings = (metadata.get("settings") or {}).items()
    facts["settings"] = {key: value for key, value in run_settings if value not in (None, [], "")}
    facts["files"] = sorted(entry.name for entry in path.iterdir() if not entry.name.startswith("."))

    return facts


def describe_progress(totals: dict[str, Any], metadata: dict[str, Any]) -> str:
    """Steps, tokens and time of a run, and its speed."""
    text = f"{format_count(totals['step'], 'step')}, {totals['tokens']:,} tokens, {totals['seconds']:.0f} s"
    if totals["seconds"] and metadata.get("peak_flops") and metadata.get("flops_per_token"):
        speed = totals["tokens"] / totals["seconds"]
        utilization = speed * metadata["flops_per_token"] / metadata["peak_flops"]
        text += f", {speed:,.0f} tokens/s, {utilization:.0%} of peak FLOP/s"
    return text


def describe_best(newest: Path) -> str:
    try:
        best = read_json(newest / STATE).get("best_checkpoint")
    except InputError as error:  # --resume uses the previous one
        return f" (the newest is broken: {error})"
    return f" (best: {best['path']}, held-out loss {best['loss']:.4f})" if best else ""


def describe_checkpoint(path: Path, model: Path) -> dict[str, Any]:
    """Facts about the model of a run, or in a directory."""
    backend = open_backend(model, device="cpu")
    loaded = backend.description
    facts = {**backend.facts(), "backend": backend.computed_by}
    if loaded.labels:
        facts["labels"] = ", ".join(loaded.labels)
    if loaded.pooling:
        facts["pooling"] = loaded.pooling
    if sources := loaded.metadata.get("hub"):
        facts["hub"] = ", ".join(f"{use}: {source}" for use, source in sources.items())
    if "verb" in loaded.metadata and not (path / METRICS).exists():
        facts["made with"] = f"bothways {loaded.metadata['verb']}"
    return facts
