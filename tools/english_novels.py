"""Novels for the packaged English model: authors who died by 1955, texts published before 1931.

    python tools/english_novels.py NOVELS.parquet OUT.parquet

Reads the development data's 100 novels, writes those that are kept, and prints a table of them for the model card.
The file names authors by surname only; the table below says who is meant. Whoever is not in it is left out.
"""

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

LATEST_DEATH, LATEST_YEAR = 1955, 1930
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
    table = pq.read_table(source)
    kept = [keep(row) for row in table.to_pylist()]
    pq.write_table(table.filter(pa.array(kept)), target)
    return table.filter(pa.array(kept)).to_pylist()


def main() -> None:
    rows = select(Path(sys.argv[1]), Path(sys.argv[2]))
    print("| author | died | texts (year) |\n|---|---|---|")
    for short, (name, death) in AUTHORS.items():
        own = [f"{row['title']} ({row['year']})" for row in rows if row["author"] == short]
        if own:
            print(f"| {name} | {death} | {', '.join(own)} |")
    print(f"\n{len(rows)} texts, {sum(len(row['text'].split()) for row in rows):,} words")


if __name__ == "__main__":
    main()
