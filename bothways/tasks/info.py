"""What a checkpoint or run is, how it was made, and from which data: rows of (what, value)."""

from pathlib import Path
from typing import Any

from bothways import checkpoint
from bothways.checkpoint import MADE
from bothways.errors import MissingFile
from bothways.tokenizer.files import read_json
from bothways.train.state import METRICS, read_metrics


def run(path: Path) -> dict[str, Any]:
    """Facts by name, for a run, a checkpoint, or a directory of runs (a demo)."""
    if not path.exists():
        raise MissingFile(f"{path}: no such directory; name a checkpoint or a run")
    facts: dict[str, Any] = {"path": str(path)}
    made = read_json(path / MADE) if (path / MADE).exists() else {}
    facts |= of_run(path, made) if "status" in made else {}
    if "status" not in made or (path / "model").exists():
        facts |= of_checkpoint(path)
    return facts


def of_run(path: Path, made: dict[str, Any]) -> dict[str, Any]:
    facts = {
        "run": made["verb"],
        "status": made["status"],
        "started": made.get("started"),
        "made by": made.get("versions"),
    }
    facts |= {key: made[key] for key in ("data", "steps", "heldout", "result", "figures", "parts") if key in made}
    rows = read_metrics(path)
    if rows:
        last = rows[-1]
        facts["trained"] = f"{last['step']:,} steps, {last['tokens']:,} tokens, {last['seconds']:.0f} s"
    given = made.get("settings", {})
    facts["settings"] = {key: value for key, value in given.items() if value not in (None, [], "")}
    facts["files"] = sorted(entry.name for entry in path.iterdir() if not entry.name.startswith("."))
    return facts


def of_checkpoint(path: Path) -> dict[str, Any]:
    loaded = checkpoint.load(path)
    config, model = loaded.model.config, loaded.model
    size = f"{config.num_hidden_layers} layers x {config.hidden_size}, {config.num_attention_heads} heads"
    facts: dict[str, Any] = {
        "model": f"{loaded.model_type}, {size}, reads {config.max_position_embeddings} tokens",
        "parameters": sum(value.numel() for value in model.parameters()),
        "vocabulary": config.vocab_size,
        "heads": ", ".join(model.num_outputs) or "none",
    }
    if loaded.labels:
        facts["labels"] = ", ".join(loaded.labels)
    if loaded.pooling:
        facts["pooling"] = loaded.pooling
    if "verb" in loaded.made and not (path / METRICS).exists():
        facts["made by"] = f"bothways {loaded.made['verb']}"
    return facts
