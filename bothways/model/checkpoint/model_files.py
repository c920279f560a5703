"""Read the files of a model directory: config, description and named arrays. No torch."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bothways.base.errors import InputError, format_count
from bothways.base.terminal import escape_line
from bothways.model.checkpoint.description import CONFIG, MULTI_LABEL, WORDS, Description
from bothways.model.checkpoint.directory import Directory
from bothways.model.checkpoint.formats import FORMATS
from bothways.model.checkpoint.formats.format import Format, Naming, ReadPlan, StoredModel
from bothways.model.checkpoint.formats.hugging_face import (
    BIAS,
    BIAS_COPY,
    DERIVED,
    HUGGING_FACE,
    POOLER,
    TABLE,
    TABLE_COPIES,
)
from bothways.model.checkpoint.scope import SCOPE, Scope
from bothways.model.checkpoint.sentence_transformers import check_settings, lowers_texts, normalizes, read_pooling
from bothways.model.checkpoint.weights import WEIGHTS, Array, not_finite_error, shorten
from bothways.model.config import NO_POOLER, NUM_OUTPUTS, POOLED_HEADS, EncoderConfig
from bothways.model.families import DEFAULT_MODEL_TYPE, FAMILIES, FamilySpec
from bothways.model.statement_head import STATEMENTS, StatementHead
from bothways.text.tokenizer.formats import FILE_NAMES as TOKENIZER_FILES
from bothways.text.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from bothways.model.linear.tfidf import TfidfModel

MAX_LABELS = 1_000_000  # that num_labels of a config may ask for


def detect(directory: Directory) -> Format:
    """The format of a directory."""
    name = directory.format
    # A family has the layout of Hugging Face; other packages are not asked for a format of its name.
    if name in FAMILIES.entries or name not in FORMATS:
        return HUGGING_FACE
    return FORMATS[name]()


@dataclass(frozen=True)
class ModelFiles:
    """A model in a directory, without modules of torch.

    directory: the directory.
    family: the family of the encoder.
    config: the config in our form.
    hf_config: the content of config.json, as the family writes it.
    extra: the keys of `hf_config` that are unknown, with their values.
    names: the names of the classes.
    arrays: the weights, read on access.
    naming: how the arrays are named (formats/format.py).
    normalized: whether text vectors are scaled to length 1; None: as in modules.json.
    pooling, tokenizer: see StoredModel.
    """

    directory: Directory
    family: FamilySpec
    config: EncoderConfig
    hf_config: Mapping[str, Any]
    extra: Mapping[str, Any]
    names: tuple[str, ...]
    arrays: Mapping[str, Array]
    naming: Naming
    normalized: bool | None
    pooling: str | None
    tokenizer: Tokenizer | None

    @staticmethod
    def read(directory: Directory) -> "ModelFiles":
        """The model in a directory, which holds no adapter."""
        stored = detect(directory).open(directory)
        assert isinstance(stored, StoredModel), "an adapter, which belongs to a model"
        return ModelFiles.of(directory, stored)

    @staticmethod
    def of(directory: Directory, stored: StoredModel) -> "ModelFiles":
        """The model of files whose format is known.

        directory: the directory.
        stored: what the format (`detect`) opened in it.

        InputError for missing, malformed or unsupported files.
        """
        file = directory.path / CONFIG
        family = read_family(stored.hf_config, file)
        config, extra = family.parse_config(stored.hf_config, file)

        # Fields for which the family's config has no key.
        act = stored.pooler_act
        if act is not None:
            if act not in NO_POOLER:
                raise InputError(f"{file}: pooler_act {act!r:.60} is not supported; use one of {', '.join(NO_POOLER)}")
            config = config.replace(pooling="mean", pooler_act=act)
        config = config.replace(**stored.changes)

        if extra:
            directory.warn(f"{file}: unknown keys, kept but ignored: {escape_line(shorten(sorted(extra)))}")

        return ModelFiles(
            directory=directory,
            family=family,
            config=config,
            hf_config=stored.hf_config,
            extra=extra,
            names=_read_labels(stored.hf_config, file),
            arrays=stored.read(ReadPlan(directory, family, config)),
            naming=stored.naming,
            normalized=stored.normalized,
            pooling=stored.pooling,
            tokenizer=stored.tokenizer,
        )

    @cached_property
    def outputs(self) -> dict[str, int]:
        """The heads whose weights are in the files, with their number of outputs (0: the vocabulary)."""
        if self.naming == "hugging_face":
            sizes = {**NUM_OUTPUTS, "classes": len(self.names), "tokens": len(self.names)}
            heads = self.family.find_heads(self.arrays, str(self.hf_config.get("architectures")))
            return {name: sizes[name] for name in self.family.head_names if name in heads}

        # The arrays have our names (heads.HEAD.output.bias), and the bias of a head its number of outputs.
        heads = {name.split(".")[1] for name in self.arrays if name.startswith("heads.")}
        outputs: dict[str, int] = {}
        for head in sorted(heads):
            bias = f"heads.{head}.output.bias"
            if head in NUM_OUTPUTS:
                outputs[head] = NUM_OUTPUTS[head]
            else:
                outputs[head] = len(self.arrays[bias]) if bias in self.arrays else 0
        return outputs

    @property
    def has_pooler(self) -> bool:
        """Whether the weights of a pooler are in the files. InputError if a head needs one."""
        if self.naming == "int8":
            return any(name.startswith("pooler.") for name in self.arrays)

        prefix = self.family.prefix
        names = self.family.hf_names(POOLER, self.outputs)
        if any(name in self.arrays or name.removeprefix(prefix) in self.arrays for name in names):
            return True

        reads_pooler = not self.outputs.keys().isdisjoint(POOLED_HEADS)
        if reads_pooler and self.config.pooler_act not in NO_POOLER:
            raise InputError(f"{self.directory.path}: a head on text vectors, but its pooler is missing")
        return False

    def read_parameters(
        self,
        shapes: Mapping[str, Sequence[int]],
        write: Callable[[str, int, Array], bool],
        *,
        skip: Sequence[str] = (),
    ) -> None:
        """Check the arrays of all parameters, and hand each array to `write`.

        shapes: the shapes of the parameters, by our names.
        write: write(parameter, row, array) writes an array into the parameter from this row on (a parameter may be
        several arrays, stacked), and returns whether all its numbers are finite.
        skip: parameters that must be in the files, but are not written.

        InputError lists arrays that are missing, misshapen, not finite or untied.
        """
        missing: list[str] = []
        misshapen: list[str] = []
        broken: list[str] = []
        used: set[str] = set()

        for parameter, names in self._array_names(shapes).items():
            used.update(names)
            absent = [name for name in names if name not in self.arrays]
            if absent:
                missing += absent
                continue
            if parameter in skip:
                continue

            shape = shapes[parameter]
            num_rows = shape[0] // len(names)
            expected = [num_rows, *shape[1:]]
            for index, name in enumerate(names):
                value = self.arrays[name]
                if [*value.shape] != expected:
                    misshapen.append(f"{name} is {[*value.shape]}, config.json requires {expected}")
                elif value.dtype.kind != "f":
                    misshapen.append(f"{name} is {value.dtype}, not floating point")
                elif not write(parameter, index * num_rows, value):
                    broken.append(name)

        # The whole file is read before an error is raised, so that it lists all arrays with the same fault.
        file = self.directory.path / WEIGHTS
        if missing:
            raise InputError(f"{file}: missing parameters: {shorten(missing)}; download the checkpoint again")
        if misshapen:
            raise InputError(
                f"{file}: wrong shape or type: {shorten(misshapen)}; use the config.json that belongs to the weights"
            )
        if broken:
            raise not_finite_error(file, broken)

        self._check_unused(used)

    def _array_names(self, parameters: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """The names in the file of each of our parameters; several arrays are stacked."""
        prefix = self.family.prefix
        has_prefix = any(name.startswith(prefix) for name in self.arrays)  # a bare encoder has none

        result: dict[str, tuple[str, ...]] = {}
        for parameter in parameters:
            names = self.family.hf_names(parameter, self.outputs)
            if not has_prefix:
                names = tuple(name.removeprefix(prefix) for name in names)
            # Some files have only the copy of the vocabulary bias.
            if parameter == BIAS and names[0] not in self.arrays:
                names = (names[0].removesuffix("bias") + BIAS_COPY,)
            result[parameter] = names
        return result

    def _check_unused(self, used: Set[str]) -> None:
        """Warn of arrays that are no part of the model; InputError for untied copies of parameters.

        used: the names of the arrays that are parts of it.
        """
        unused = [name for name in self.arrays if name not in used]
        ignored = [name for name in unused if not name.endswith(DERIVED)]
        if ignored:
            file = self.directory.path / WEIGHTS
            self.directory.warn(f"{file}: ignored, since no part of the model uses them: {shorten(ignored)}")

        if "masked_words" in self.outputs:
            copies = [name for name in unused if name.endswith((*TABLE_COPIES, BIAS_COPY))]
            self._refuse_untied(copies, used)

    def _refuse_untied(self, copies: Sequence[str], used: Set[str]) -> None:
        """InputError if the output embeddings or the bias in a file differ from the parameters to which they are tied.

        copies: the names of unused arrays that should be copies of the token table or of the vocabulary bias.
        used: the names of the arrays that are parts of the model.
        """
        file = self.directory.path / WEIGHTS
        for name in copies:
            is_table = name.endswith(TABLE_COPIES)
            tied = self.family.hf_names(TABLE if is_table else BIAS, self.outputs)[0]
            if tied not in used:  # a bare encoder: its names lack the prefix
                tied = tied.removeprefix(self.family.prefix)
            if tied in self.arrays and not np.array_equal(self.arrays[name], self.arrays[tied]):
                tied_name = "token table" if is_table else "vocabulary bias"
                raise InputError(
                    f"{file}: {name} differs from the {tied_name}; untied output embeddings are not supported"
                )

        # Nothing in the file shows that the output embeddings of an untied config equal the token table.
        has_table_copy = any(name.endswith(TABLE_COPIES) for name in copies)
        if self.hf_config.get("tie_word_embeddings") is False and not has_table_copy:
            file = self.directory.path / CONFIG
            raise InputError(f"{file}: untied output embeddings (tie_word_embeddings) are not supported")

    @cached_property
    def description(self) -> Description:
        """Labels, pooling and metadata.

        InputError if they do not belong to the weights, or if sentence-transformers computes other vectors.
        """
        directory = self.directory
        commit = directory.commit
        if self.pooling is None:
            check_settings(directory, self.config.hidden_size, directory.warn)

        # A head with one output is a regression, unless texts may have any number of labels.
        multi_label = self.hf_config.get("problem_type") == MULTI_LABEL
        has_labels = multi_label or self.outputs.get("classes", 1) > 1 or "tokens" in self.outputs
        if has_labels:
            num_outputs = self.outputs.get("classes", self.outputs.get("tokens"))
            _check_labels(self.names, num_outputs, directory.path / CONFIG)

        return Description(
            model_type=self.family.model_type,
            labels=self.names if has_labels else (),
            multi_label=multi_label,
            pooling=self.pooling or read_pooling(directory),
            normalized=normalizes(directory) if self.normalized is None else self.normalized,
            metadata=directory.metadata if commit is None else {**directory.metadata, "hub": {"model": commit}},
            words=self.read_words(),
            scope=Scope.read(directory.path / SCOPE) if directory.has(SCOPE) else None,
            statements=self.read_statements(),
        )

    def read_words(self) -> "TfidfModel | None":
        """The TF-IDF model that is a part of the model; None for most models."""
        if WORDS not in self.directory.metadata or "classes" not in self.outputs:
            return None

        from bothways.model.checkpoint.formats.tfidf import read_words

        return read_words(self.directory, self.outputs["classes"])

    def read_statements(self) -> StatementHead | None:
        """The head of statements; None for most models. InputError if it is for an encoder of another size."""
        if not self.directory.has(STATEMENTS):
            return None
        return StatementHead.read(self.directory.path / STATEMENTS, self.config.hidden_size)

    def read_tokenizer(self) -> Tokenizer | None:
        """The tokenizer; None without its files. InputError if it does not belong to the model."""
        directory = self.directory
        if self.tokenizer is not None:
            return self.tokenizer
        if not any(map(directory.has, TOKENIZER_FILES)):
            return None

        tokenizer = Tokenizer.load(directory)
        if len(tokenizer) > self.config.vocab_size:
            raise InputError(
                f"{directory.path}: the tokenizer has {len(tokenizer)} entries, the model only "
                f"{self.config.vocab_size}; use the tokenizer that belongs to the model"
            )
        return tokenizer.lowercased() if lowers_texts(directory) else tokenizer


def read_family(hf_config: Mapping[str, Any], source: object) -> FamilySpec:
    """The family of a config.

    hf_config: the content of a config.json.
    source: the file, for the message.

    InputError if the model_type is unknown.
    """
    # Configs of 2018 and 2019 lack model_type; the number of segments shows that they are BERT's.
    default = DEFAULT_MODEL_TYPE if "type_vocab_size" in hf_config else None
    model_type = hf_config.get("model_type", default)
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        known = ", ".join(sorted(FAMILIES))
        raise InputError(f"{source}: model_type {model_type!r:.60} is not supported (supported: {known})")
    return FAMILIES[model_type]


def _read_labels(hf_config: Mapping[str, Any], source: Path) -> tuple[str, ...]:
    """The names of the classes, in the order of their numbers; LABEL_0 and so on if the config names none.

    InputError if they are not numbered from 0.
    """
    names = hf_config.get("id2label") or {}
    if not names:
        count = hf_config.get("num_labels", 2)
        if type(count) is not int or not 0 <= count <= MAX_LABELS:
            raise InputError(f"{source}: num_labels ({count!r:.60}) must be an integer from 0 to {MAX_LABELS:,}")
        return tuple(f"LABEL_{index}" for index in range(count))

    # Keys of JSON are strings: "0", "1", ...
    if isinstance(names, dict) and all(isinstance(name, str | int | float) for name in names.values()):
        labels = {key: str(name) for key, name in names.items()}
        if sorted(labels) == sorted(map(str, range(len(labels)))):
            return tuple(labels[str(index)] for index in range(len(labels)))

    example = '{"0": "neg", "1": "pos"}'
    raise InputError(f"{source}: id2label must name the classes 0, 1, 2 ..., for example {example}")


def _check_labels(labels: Sequence[str], num_outputs: int | None, file: Path) -> None:
    """InputError if the number of labels is not the number of outputs, or if two labels are equal. file: config.json"""
    # `outputs` is counted in arrays with our names (int8). Else it is taken from the labels, and shapes are compared.
    if num_outputs != len(labels):
        raise InputError(
            f"{file}: id2label has {format_count(len(labels), 'class', 'classes')}, the weights have {num_outputs}; "
            "correct id2label"
        )

    duplicates = [name for name, count in Counter(labels).items() if count > 1]
    if duplicates:
        raise InputError(f"{file}: id2label has {duplicates[0]!r} more than once; give each class a different name")
