"""What a checkpoint or run is, how it was made, and from which data: rows of (what, value)."""

from pathlib import Path
from typing import Any

from bothways.checkpoint import checkpoint
from bothways.checkpoint.checkpoint import METADATA_FILE
from bothways.checkpoint.metadata import read_metadata
from bothways.errors import InputError, MissingFile
from bothways.model.int8 import is_int8
from bothways.tokenizer.files import read_json
from bothways.training.run import METRICS, read_metrics, run_status
from bothways.training.run_checkpoints import FOLDER, STATE


def describe(path: Path) -> dict[str, Any]:
    """Facts by name, for a run, a checkpoint, or a directory of runs (a demo)."""
    if not path.exists():
        raise MissingFile(f"{path}: no such directory; name a checkpoint or a run")
    facts: dict[str, Any] = {"path": str(path)}
    made = read_metadata(path / METADATA_FILE)
    facts |= of_run(path, made) if "status" in made else {}
    if "status" not in made or (path / "model").exists():
        facts |= of_checkpoint(path)
    return facts


def of_run(path: Path, made: dict[str, Any]) -> dict[str, Any]:
    facts = {
        "run": made["verb"],
        "status": run_status(made),
        "started": made.get("started"),
        "made by": made.get("versions"),
        "made on": made.get("hardware"),
    }
    told = ("reason", "resumed", "data", "steps", "heldout", "result", "figures", "parts")
    facts |= {key: made[key] for key in told if key in made}
    if rows := read_metrics(path):
        last = {row.get("seed"): row for row in rows}  # each seed counts from 0
        whole = {key: sum(row[key] for row in last.values()) for key in ("step", "tokens", "seconds")}
        facts["trained"] = trained(whole, made) + (f", over {len(last)} seeds" if len(last) > 1 else "")
    if places := sorted((path / FOLDER).glob("step-*")):
        facts["checkpoints"] = ", ".join(place.name for place in places) + best_of(places[-1])
    given = made.get("settings") or {}
    facts["settings"] = {key: value for key, value in given.items() if value not in (None, [], "")}
    facts["files"] = sorted(entry.name for entry in path.iterdir() if not entry.name.startswith("."))
    return facts


def trained(last: dict[str, Any], made: dict[str, Any]) -> str:
    """How far a run came, and how fast."""
    told = f"{last['step']:,} steps, {last['tokens']:,} tokens, {last['seconds']:.0f} s"
    if last["seconds"] and made.get("matrix_peak") and made.get("work_of_token"):
        speed = last["tokens"] / last["seconds"]
        share = speed * made["work_of_token"] / made["matrix_peak"]
        told += f", {speed:,.0f} tokens/s, {share:.0%} of the matrix peak"
    return told


def best_of(newest: Path) -> str:
    try:
        best = read_json(newest / STATE).get("best_checkpoint")
    except InputError as error:  # --resume takes the one before
        return f" (the newest is broken: {error})"
    return f" (best: {best['path']}, held-out loss {best['loss']:.4f})" if best else ""


def of_checkpoint(path: Path) -> dict[str, Any]:
    loaded = checkpoint.load(path)
    config, model = loaded.model.config, loaded.model
    size = f"{config.num_hidden_layers} layers x {config.hidden_size}, {config.num_attention_heads} heads"
    facts: dict[str, Any] = {
        "model": f"{loaded.model_type}, {size}, reads {config.max_position_embeddings} tokens",
        "parameters": sum(value.numel() for value in model.state_dict().values()),
        "vocabulary": config.vocab_size,
        "heads": ", ".join(model.num_outputs) or "none",
    }
    if is_int8(model):
        facts["numbers"] = "int8 where the work grows with the tokens"
    if loaded.labels:
        facts["labels"] = ", ".join(loaded.labels)
    if loaded.pooling:
        facts["pooling"] = loaded.pooling
    if "verb" in loaded.metadata and not (path / METRICS).exists():
        facts["made by"] = f"bothways {loaded.metadata['verb']}"
    return facts
