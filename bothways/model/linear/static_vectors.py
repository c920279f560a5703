"""Static vectors: one vector for each entry of a vocabulary; a text is their mean, scaled to length 1. No torch.

Files are in the form of model2vec, which sentence-transformers reads too: model.safetensors with `embeddings`,
tokenizer.json, config.json, modules.json. The table of the package has 4 bits a number and a scale for each row.

Letters: V entries, H size of a vector, N texts, T tokens.
"""

import json
from collections.abc import Iterable, Sequence
from functools import cached_property
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from bothways.base.errors import InputError, MissingFile, format_count
from bothways.base.io import atomic_directory, read_json, read_json_value, write_json
from bothways.base.log import logger
from bothways.text.tokenizer.library import library_errors, load_library, prepare
from bothways.text.tokenizer.regexes import check_patterns
from bothways.text.tokenizer.tokenizer import Tokenizer

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
MODULES = "modules.json"
PACKED = "static.safetensors"  # codes, which no other library reads
MODEL_TYPE = "model2vec"
TABLES = ("embeddings", "embedding.weight")  # names of the table: of model2vec, of sentence-transformers
CODES = "embeddings.codes"
SCALES = "embeddings.scales"
BATCH = 1024  # texts whose vectors are gathered together
PROBE = "The Ünïted STATES didn't pay 1,234.50 € for straße, 東京! \U0001f98a"  # shows how a tokenizer splits


class VectorTable:
    """A matrix [V, H] of which rows are read. Rows of 4 bits are unpacked when they are."""

    def __init__(self, rows: np.ndarray, scales_V: np.ndarray | None = None) -> None:
        """rows: numbers [V, H], or with scales, codes of 4 bits, two in a byte: uint8 [V, H / 2]."""
        self.rows = rows
        self.scales_V = scales_V
        numbers_per_entry = 1 if scales_V is None else 2
        self.shape = (len(rows), rows.shape[1] * numbers_per_entry)

    def __getitem__(self, ids: np.ndarray) -> np.ndarray:
        """float32 [T, H]"""
        rows = self.rows[ids]
        if self.scales_V is None:
            return rows.astype(np.float32, copy=False)

        values = NIBBLES[rows].reshape(len(rows), -1)  # a pair of numbers for each byte
        values *= self.scales_V[ids, None]
        return values

    @cached_property
    def whole(self) -> np.ndarray:
        """All rows, float32 [V, H]."""
        return self[np.arange(len(self.rows))]


NIBBLES = np.stack([np.arange(256) & 15, np.arange(256) >> 4], 1).astype(np.float32) - 8  # both numbers of a byte


class StaticVectors:
    """Vectors of texts by a table with a row for each entry of the tokenizer. Threads may share it."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        table: VectorTable,
        *,
        unknown: Iterable[int] = (),
        normalize: bool = True,
        facts: dict[str, Any] | None = None,
    ) -> None:
        """tokenizer: splits texts into ids.
        table: a row for each id.
        unknown: ids that count for nothing, such as [UNK].
        normalize: scale vectors to length 1.
        facts: how the table was made, for config.json.

        InputError if the table does not fit the tokenizer.
        """
        if table.shape[0] != len(tokenizer):
            raise InputError(f"a table of {table.shape[0]:,} rows does not belong to {len(tokenizer):,} tokens")
        if not 0 < table.shape[1] < 1 << 16:
            raise InputError(f"vectors of size {table.shape[1]} are no vectors; make them again")

        self.tokenizer = tokenizer
        self.table = table
        self.normalize = normalize
        self.facts = facts or {}
        self.unknown = np.array(sorted(unknown), np.int64)
        self.texts = 0  # so far; once they are many, the table is unpacked

    def checked(self, file: Path) -> "StaticVectors":
        """These vectors of a file. InputError names the first token whose vector has NaN or infinite values."""
        table = self.table
        rows = table.rows if table.scales_V is None else table.scales_V[:, None]
        with np.errstate(all="ignore"):
            broken = np.flatnonzero(~np.isfinite(rows.sum(1, dtype=np.float64)))
        if not len(broken):
            return self

        raise InputError(
            f"{file}: NaN or infinite values in {format_count(len(broken), 'vector')}, such as that of "
            f"{self.tokenizer.tokens[broken[0]]!r:.80}; copy the file again, or make it again"
        )

    @property
    def dimension(self) -> int:
        """Numbers of a vector."""
        return self.table.shape[1]

    @property
    def space(self) -> str | None:
        """The fingerprint of the encoder to whose vectors the rows are fitted; None if they have their own space."""
        value = self.facts.get("space")
        return value if isinstance(value, str) else None

    @cached_property
    def fingerprint(self) -> str:
        """32 hexadecimal digits: equal if the vectors of all texts are."""
        digest = blake2b(digest_size=16)
        digest.update(np.ascontiguousarray(self.table.rows).data)
        if self.table.scales_V is not None:
            digest.update(np.ascontiguousarray(self.table.scales_V).data)
        facts = [self.tokenizer.ids(PROBE), self.normalize, self.unknown.tolist(), self.table.shape]
        digest.update(repr(facts).encode())
        return digest.hexdigest()

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """A vector for each text, float32 [N, H]: the mean of its rows, scaled to length 1 unless the table turns that
        off; zeros for a text without known tokens."""
        vectors_NH = np.zeros((len(texts), self.dimension), np.float32)
        self.texts += len(texts)
        for first in range(0, len(texts), BATCH):
            self._sum(texts[first : first + BATCH], vectors_NH[first : first + BATCH])
        return vectors_NH

    def _sum(self, texts: Sequence[str], vectors_nH: np.ndarray) -> None:
        """Write the vectors of some texts into zeros."""
        rows = [*map(self.tokenizer.ids, texts)]
        sizes_n = np.fromiter(map(len, rows), np.int64, len(rows))
        ids_T = np.fromiter(chain.from_iterable(rows), np.int64, int(sizes_n.sum()))
        text_T = np.repeat(np.arange(len(rows)), sizes_n)
        if len(self.unknown):
            is_known_T = ~np.isin(ids_T, self.unknown)
            ids_T = ids_T[is_known_T]
            text_T = text_T[is_known_T]
        if not len(ids_T):
            return

        counts_n = np.bincount(text_T, minlength=len(rows))
        starts = np.concatenate([[0], np.cumsum(counts_n)])
        if self.texts > 4 * BATCH:
            # Many texts: from the table with all rows unpacked.
            table_VH = self.table.whole
            ends = starts.tolist()
            for vector_H, first, last in zip(vectors_nH, ends[:-1], ends[1:], strict=True):
                np.add.reduce(table_VH.take(ids_T[first:last], 0), axis=0, out=vector_H)
        else:
            present = np.flatnonzero(counts_n)
            vectors_nH[present] = np.add.reduceat(self.table[ids_T], starts[present], axis=0)

        # Scaled to length 1, the sum of the rows is their mean.
        scale_n = np.linalg.norm(vectors_nH, axis=1) if self.normalize else counts_n.astype(np.float32)
        vectors_nH /= np.maximum(scale_n, 1e-30)[:, None]


# --- files ------------------------------------------------------------------------------------------------------------


def is_static(directory: Path) -> bool:
    """Whether a directory holds static vectors."""
    config = directory / CONFIG
    if config.is_file() and read_json(config).get("model_type") == MODEL_TYPE:
        return True

    modules = directory / MODULES
    return modules.is_file() and "StaticEmbedding" in modules.read_text("utf-8")


def read_static(path: Path) -> StaticVectors:
    """The static vectors in a directory. InputError if they are damaged."""
    if not path.is_dir():
        raise MissingFile(f"{path}: no such directory of static vectors; check the path")

    # sentence-transformers writes a folder for each module.
    folder = path
    module_folder = path / "0_StaticEmbedding"
    if (module_folder / WEIGHTS).is_file():
        folder = module_folder
    file = folder / (PACKED if (folder / PACKED).is_file() else WEIGHTS)
    if not file.is_file():
        raise MissingFile(f"{file}: missing; name a directory of static vectors, as `distill --static` writes it")

    config = read_json(path / CONFIG) if (path / CONFIG).is_file() else {}
    tensors = _read_tensors(file)
    tokenizer = _read_tokenizer(folder)
    table = _table(file, tensors)
    normalize = bool(config.get("normalize", _has_normalize(path)))
    limit = config.get("max_length")
    if type(limit) is int:
        logger.info(
            f"{path}: model2vec cuts texts off after {limit} tokens (max_length), but longer ones are read whole"
        )

    facts = {name: value for name, value in config.items() if name not in ("model_type", "normalize")}
    vectors = StaticVectors(
        tokenizer,
        table,
        unknown=unknown_ids(tokenizer),
        normalize=normalize,
        facts=facts,
    )
    return vectors.checked(file)


def _read_tensors(file: Path) -> dict[str, np.ndarray]:
    """The tensors of a file by name. InputError if it is damaged."""
    try:
        with safe_open(file, "numpy") as stored:
            return {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise InputError(f"{file}: damaged ({error}); copy it again") from None


def _table(file: Path, tensors: dict[str, np.ndarray]) -> VectorTable:
    if CODES in tensors:
        return VectorTable(tensors[CODES], tensors[SCALES].astype(np.float32))

    name = next((name for name in TABLES if name in tensors), None)
    if name is None or tensors[name].ndim != 2:
        raise InputError(f"{file}: has no table of static vectors; expected {' or '.join(TABLES)}")
    rows = tensors[name]

    if "mapping" in tensors:  # entries that share rows
        mapping = tensors["mapping"]
        is_list = mapping.ndim == 1 and mapping.dtype.kind in "iu"
        if not is_list or not ((mapping >= 0) & (mapping < len(rows))).all():
            raise InputError(f"{file}: mapping names rows that the table of {len(rows):,} lacks; copy it again")
        rows = rows[mapping]

    if "weights" in tensors:
        weights = tensors["weights"]
        if weights.shape != (len(rows),):
            raise InputError(f"{file}: {weights.shape} weights for {len(rows):,} entries; copy it again")
        rows = rows.astype(np.float32) * weights.astype(np.float32)[:, None]
    return VectorTable(rows)


def _has_normalize(path: Path) -> bool:
    """Whether modules.json scales vectors to length 1. InputError for other modules, or vectors that are cut."""
    config = path / "config_sentence_transformers.json"
    size = read_json(config).get("truncate_dim") if config.is_file() else None
    if size is not None:
        raise InputError(f"{config}: truncate_dim ({size!r:.60}) is not supported; remove it for whole vectors")

    file = path / MODULES
    modules = read_json_value(file) if file.is_file() else []
    try:
        kinds = [str(module["type"]).rpartition(".")[2] for module in modules]
    except (KeyError, TypeError):
        raise InputError(f"{file}: not a list of modules with types; download the file again") from None
    if kinds[:1] not in ([], ["StaticEmbedding"]) or {*kinds[1:]} - {"Normalize"}:
        raise InputError(f"{file}: modules {', '.join(kinds):.80} are not supported; only StaticEmbedding, Normalize")
    return "Normalize" in kinds


def _read_tokenizer(folder: Path) -> Any:
    """The tokenizer of a table; by the tokenizers library if it is none of an encoder, such as one without [CLS]."""
    library_file = folder / LibraryTokenizer.FILE
    try:
        return Tokenizer.load(folder)
    except InputError:
        if not library_file.is_file():
            raise
        return LibraryTokenizer(library_file)


class LibraryTokenizer:
    """Any tokenizer.json, as the tokenizers library reads it; has what static vectors use of a Tokenizer."""

    FILE = "tokenizer.json"

    def __init__(self, file: Path) -> None:
        content = read_json(file)
        try:
            check_patterns(content.get("normalizer"), content.get("pre_tokenizer"))
            with library_errors():
                self.library = load_library({**content, "truncation": None, "padding": None})
        except InputError as error:
            raise InputError(f"{file}: {error}") from None

        vocab = self.library.get_vocab()
        self.tokens = sorted(vocab, key=lambda token: vocab[token])
        if sorted(vocab.values()) != [*range(len(vocab))]:
            raise InputError(f"{file}: ids must be 0 to {len(vocab) - 1}, each once; copy it again")

    def __len__(self) -> int:
        return len(self.tokens)

    def ids(self, text: str) -> list[int]:
        """The ids of a text, without special tokens."""
        with library_errors():
            encoding = self.library.encode(prepare(text), add_special_tokens=False)
        return [*encoding.ids]

    def save(self, path: Path) -> None:
        """Write tokenizer.json into a directory."""
        path.mkdir(parents=True, exist_ok=True)
        self.library.save(str(path / self.FILE))


def unknown_ids(tokenizer: Tokenizer) -> list[int]:
    """The id of unknown tokens, which count for nothing, as in model2vec."""
    return [index for index, token in enumerate(tokenizer.tokens) if token in ("[UNK]", "<unk>")][:1]


def write_static(vectors: StaticVectors, directory: Path, *, card: str = "", packed: bool = False) -> None:
    """Write static vectors with the files that model2vec and sentence-transformers read.

    vectors: the rows of unknown tokens become zeros, since sentence-transformers counts them.
    directory: where to; replaced.
    card: the model card; "": none.
    packed: as codes of 4 bits instead of float32, which other libraries do not read.
    """
    rows_VH = vectors.table[np.arange(len(vectors.tokenizer))]
    rows_VH[vectors.unknown] = 0
    file = WEIGHTS
    tensors = {TABLES[0]: rows_VH}
    if packed:
        table = vectors.table if vectors.table.scales_V is not None else packed_table(rows_VH)
        assert table.scales_V is not None
        file = PACKED
        tensors = {CODES: table.rows, SCALES: table.scales_V.astype(np.float16)}

    modules = [
        {
            "idx": 0,
            "name": "0",
            "path": ".",
            "type": "sentence_transformers.models.StaticEmbedding",
        }
    ]
    if vectors.normalize:
        modules.append(
            {
                "idx": 1,
                "name": "1",
                "path": "1_Normalize",
                "type": "sentence_transformers.models.Normalize",
            }
        )
    config = {
        **vectors.facts,
        "model_type": MODEL_TYPE,
        "normalize": vectors.normalize,
        "hidden_dim": vectors.dimension,
    }

    with atomic_directory(directory) as target:
        vectors.tokenizer.save(target)
        (target / file).write_bytes(save({name: np.ascontiguousarray(value) for name, value in tensors.items()}))
        write_json(target / CONFIG, config)
        (target / MODULES).write_text(json.dumps(modules, indent=2) + "\n", encoding="utf-8")
        if vectors.normalize:
            (target / "1_Normalize").mkdir()
            (target / "1_Normalize" / CONFIG).write_text("{}\n", encoding="utf-8")
        if card:
            (target / "README.md").write_text(card, encoding="utf-8")


def packed_table(rows_VH: np.ndarray) -> VectorTable:
    """The table in 4 bits a number, with the scale of each row that loses least."""
    best_V = np.full(len(rows_VH), np.inf)
    codes = np.zeros(rows_VH.shape, np.uint8)
    scales_V = np.ones(len(rows_VH), np.float32)
    largest_V = np.abs(rows_VH).max(1) / 7.5

    for shrink in np.linspace(0.4, 1.05, 14):
        candidate_V = np.maximum((largest_V * shrink).astype(np.float16).astype(np.float32), 1e-7)
        values = np.clip(np.rint(rows_VH / candidate_V[:, None]), -8, 7)
        error_V = ((values * candidate_V[:, None] - rows_VH) ** 2).sum(1)

        better = error_V < best_V
        best_V[better] = error_V[better]
        scales_V[better] = candidate_V[better]
        codes[better] = (values[better] + 8).astype(np.uint8)

    pairs = codes[:, ::2] | codes[:, 1::2] << 4
    return VectorTable(pairs, scales_V)
