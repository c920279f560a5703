"""Options of the speed benchmark."""

from argparse import ArgumentParser, BooleanOptionalAction, RawDescriptionHelpFormatter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bothways.pretrained import DEFAULT
from bothways.settings.base import Dtype


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is measured; see `parse` for the meaning of each field. texts: the file of --with."""

    model: Path = Path(DEFAULT)
    out: Path | None = None
    texts: Path | None = None
    text_column: str | None = None
    encoding: str | None = None
    lengths: tuple[int, ...] = (16, 64, 128, 256, 512)
    window: int | None = None
    batches: tuple[int, ...] = (1, 8, 64)
    repeats: int = 5
    peers: bool = True
    dtype: Dtype = "auto"
    device: str = "auto"
    json: bool = False


def parse(arguments: Sequence[str] | None, description: str | None) -> Options:
    """The options of a command line. SystemExit after --help and for wrong usage."""
    parser = ArgumentParser(prog="python -m benchmarks.speed", description=description)
    parser.formatter_class = RawDescriptionHelpFormatter
    parser.set_defaults(**vars(Options()))
    add = parser.add_argument
    add("model", type=Path, nargs="?", help=f"checkpoint, run, or name of a model on the hub [{DEFAULT}]")
    add("-o", "--out", type=Path, help="chart to write (.png), if other systems are measured too")
    add("--with", type=Path, dest="texts", help="also measure these texts of yours, with their own lengths")
    add("--text-column", help="column of --with with the texts, or several separated by commas")
    add("--encoding", help="encoding of --with, if it is a text file without a byte-order mark [UTF-8]")
    add("--lengths", type=int, nargs="+", help="tokens per text [16 64 128 256 512]")
    add("--window", type=int, help="maximum tokens per window [as in fine-tuning, else 512]")
    add("--batches", type=int, nargs="+", help="texts per call [1 8 64]")
    add("--repeats", type=int, help="repetitions, of which the median is reported [5]")
    add("--peers", action=BooleanOptionalAction, help="also measure other libraries that are installed")
    add("--dtype", choices=("auto", "float32", "bfloat16"), help="number format [auto]")
    add("--device", help="cpu, cuda, cuda:1 or mps [auto: the GPU if there is one]")
    add("--json", action="store_true", help="print one JSON object instead of text")
    values = vars(parser.parse_args(arguments))
    return Options(**{**values, "lengths": tuple(values["lengths"]), "batches": tuple(values["batches"])})
