"""Every verb takes the URL of a run, a model or an index where it takes a directory, and answers alike."""

import io
import json
import shlex
import sys
from dataclasses import fields
from pathlib import Path
from shutil import copytree

import numpy as np
import pytest

import bothways
from bothways.base.paths import as_path
from bothways.cli.main import main
from bothways.cli.verbs import VERBS
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.contents import Checkpoint, new_model
from bothways.model.config import EncoderConfig
from bothways.model.statements import StatementModel
from bothways.search.spaces import files_state
from bothways.serving.server import prepare
from bothways.settings import Classify, Pretrain, Serve
from bothways.settings.conversion import declared_types
from bothways.text.tokenizer.tokenizer import Tokenizer

pytestmark = pytest.mark.slow

# Settings that are paths, but those of data or of what is written.
DATA = {"corpus", "heldout", "train", "dev", "test", "unlabelled", "file", "folders", "texts", "vocabulary_from"}
DATA |= {"pairs", "predictions", "api_key_file", "out", "token_store", "queries"}
# What is measured or counted anew each time.
MEASURED = {"seconds", "speed", "texts_per_second", "fastest", "kept", "cost", "notes"}

SHORT = "--steps 2 --batch-tokens 512 --max-length 64 --dtype float32 --json"
# By verb and setting: commands in which {} is where the directories are, and {out} an output.
COMMANDS = {
    ("info", "path"): [
        "info {}/run --json",
        "info {}/run/model --json",
        "info {}/bert --json",
        "info {}/adapter --json",
        "info {}/static --json",
        "info {}/run {}/again --json",
    ],
    ("predict", "model"): ["predict {}/run texts.csv", "predict {}/run texts.csv -o {out}.csv --json"],
    ("embed", "model"): ["embed {}/run texts.csv -o {out}.npy --json"],
    ("fill", "model"): ['fill {}/bert "a [MASK] b" --json'],
    ("decide", "model"): ['decide {}/deciding "a good film" --options good,bad --json'],
    ("evaluate", "model"): ["evaluate {}/run rows.csv --json", "evaluate {}/bert corpus.txt --json"],
    ("evaluate", "rerank"): ["evaluate bothways-en beir --how words --rerank {}/run --json"],
    ("check", "model"): ["check rows.csv --model {}/run --json"],
    ("quantize", "model"): ["quantize {}/run --with texts.csv -o {out} --max-drop 1000 --json"],
    ("prune", "model"): ["prune {}/run --with rows.csv --size 0.9 --epochs 1 -o {out} --json"],
    ("shrink", "model"): ["shrink {}/run --with rows.csv --max-drop 99 --epochs 0.5 -o {out} --json"],
    ("merge", "adapter"): ["merge {}/adapter -o {out} --json"],
    ("merge", "base"): ["merge adapter --base {}/bert -o {out} --json"],
    ("push", "model"): ["push {}/run me/mine --dry-run --json"],
    ("pack", "model"): ["pack {}/run -o {out} --json"],
    ("unpack", "model"): ["unpack {}/run -o {out} --json", "unpack {}/static -o {out} --json"],
    ("export", "model"): ["export {}/run -o {out} --json"],
    ("pretrain", "from_checkpoint"): [f"pretrain corpus.txt --from {{}}/bert -o {{out}} {SHORT}"],
    ("pretrain", "tokenizer"): [
        f"pretrain corpus.txt --tokenizer {{}}/bert/model -o {{out}} --model tiny {SHORT}",
        f"pretrain corpus.txt --tokenizer {{}}/bert/model/tokenizer.json -o {{out}} --model tiny {SHORT}",
    ],
    ("distill", "teacher"): [f"distill {{}}/bert corpus.txt -o {{out}} --layers 1 {SHORT}"],
    ("distill", "student"): [f"distill bert corpus.txt --student {{}}/bert -o {{out}} {SHORT}"],
    ("distill", "tokenizer"): [f"distill bert corpus.txt --tokenizer {{}}/bert/model --layers 1 -o {{out}} {SHORT}"],
    ("finetune", "model"): ["finetune classify --train rows.csv --model {}/bert -o {out} --epochs 1 --json"],
    ("finetune", "teacher"): [
        "finetune classify --train rows.csv --model bert --teacher {}/run -o {out} --epochs 1 --json"
    ],
    ("finetune", "negatives_from"): [
        "finetune rerank --pairs pairs.csv --negatives-from {}/index --model bert -o {out} --epochs 1 --passages 3 "
        "--no-baselines --json"
    ],
    ("index", "model"): ["index texts.csv --model {}/run -o {out} --json"],
    ("index", "static"): ["index texts.csv --no-encoder --static {}/static -o {out} --json"],
    ("search", "path"): ["search good {}/index --json"],
    ("search", "model"): ["search good texts.csv --model {}/run --json"],
    ("search", "rerank"): ["search good texts.csv --rerank {}/run --json"],
    ("search", "answer"): ["search good texts.csv --answer {}/answers --json"],
    ("search", "static"): ["search good texts.csv --static {}/static --json"],
    ("extract", "tag"): ["extract texts.csv --tag {}/tagger -o {out}.csv --json"],
    ("extract", "classify"): ["extract texts.csv --classify {}/run -o {out}.csv --json"],
    ("extract", "decide"): ["extract texts.csv --decide {}/deciding --options good,bad -o {out}.csv --json"],
    ("extract", "answer"): ["extract texts.csv --answer {}/answers --question 'what is good' -o {out}.csv --json"],
    ("mcp", "store"): ["mcp {}/index"],
    ("mcp", "rerank"): ["mcp {}/index --rerank {}/run"],
    ("serve", "models"): [],  # below
    ("serve", "store"): [],
    ("serve", "rerank"): [],
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A directory of data, runs, models and an index."""
    home = tmp_path_factory.mktemp("made")
    words = ["good", "bad"]
    rows = [f"a {words[number % 2]} film {number}" for number in range(60)]
    corpus = [f"The {word} cat number {n} sat on the mat. It saw a {word} dog." for n in range(200) for word in "ab"]
    (home / "corpus.txt").write_text("\n\n".join(corpus))
    (home / "rows.csv").write_text("text,label\n" + "".join(f"{row},{row.split()[1]}\n" for row in rows))
    (home / "texts.csv").write_text("text\n" + "".join(f"{row}\n" for row in rows))
    (home / "pairs.csv").write_text("query,passage\n" + "".join(f"film {row[-2:]},{row}\n" for row in rows))
    tags = [{"words": row.split(), "tags": ["O", "B-X", "O", "O"]} for row in rows]
    (home / "tags.jsonl").write_text("\n".join(map(json.dumps, tags)))
    answers = [{"text": ["film"], "answer_start": [row.index("film")]} for row in rows]
    asked = [
        {"id": row, "question": "what", "context": row, "answers": answer}
        for row, answer in zip(rows, answers, strict=True)
    ]
    (home / "asked.jsonl").write_text("\n".join(map(json.dumps, asked)))
    (home / "beir" / "qrels").mkdir(parents=True)
    documents = [{"_id": str(number), "title": "", "text": row} for number, row in enumerate(rows)]
    (home / "beir" / "corpus.jsonl").write_text("\n".join(map(json.dumps, documents)))
    (home / "beir" / "queries.jsonl").write_text(json.dumps({"_id": "q", "text": "bad film 3"}))
    (home / "beir" / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\t3\t1\n")
    return home


@pytest.fixture(scope="module")
def places(made):
    """The same, with the runs."""
    tiny = dict(model="tiny", steps=3, batch_tokens=512, max_length=64, evaluate_every=1, checkpoint_every=1)
    tiny |= dict(vocab_size=200, heldout_examples=8, pairs="none", dtype="float32", seed=3)
    bothways.train(Pretrain(corpus=made / "corpus.txt", out=made / "bert", **tiny))
    options = dict(epochs=1, window=32, baselines=False, dtype="float32")
    for out, more in (("run", {}), ("again", {"seed": 1}), ("adapter", {"adapter": "lora"})):
        rows = {"train": made / "rows.csv", "dev": made / "rows.csv"}
        bothways.train(Classify(model=made / "bert", out=made / out, **rows, **options, **more))
    for task, out, file in (("tag", "tagger", "tags.jsonl"), ("answer", "answers", "asked.jsonl")):
        data = made / file
        bothways.finetune(data, task=task, model=made / "bert", out=made / out, dev=data, **options)
    save_deciding(made / "deciding", checkpoint.load(made / "bert" / "model").tokenizer)
    main(["unpack", "bothways-en-static", "-o", str(made / "static")])
    main(["index", str(made / "texts.csv"), "--no-encoder", "-o", str(made / "index")])
    return made


def save_deciding(directory, tokenizer):
    """A random model that decides."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    config = EncoderConfig(vocab_size=len(tokenizer), **sizes, max_position_embeddings=64)
    head = StatementModel(config, rank=2).to_head()
    checkpoint.save(Checkpoint(new_model(config, {}, seed=0), tokenizer, statements=head), directory)


@pytest.fixture
def here(places, bucket, tmp_path, monkeypatch):
    """A working directory that has the data, the runs and their copies in the bucket."""
    monkeypatch.chdir(tmp_path)
    copytree(places, tmp_path, dirs_exist_ok=True)
    for file in places.rglob("*"):
        if file.is_file() and file.parent.parent != places / "beir":
            (as_path(bucket) / file.relative_to(places).as_posix()).put(file)
    return tmp_path


def values(printed, places, out):
    """The JSON objects that a command has printed, without what is measured; names of places and outputs are alike."""

    def kept(value):
        if isinstance(value, dict):
            return {name: kept(one) for name, one in value.items() if name not in MEASURED}
        return [*map(kept, value)] if isinstance(value, list) else value

    printed = printed.replace(out, "OUT")
    for place in places:
        printed = printed.replace(f"{place}/", "")
    return [kept(json.loads(line)) for line in printed.splitlines()]


def written(out):
    """What a command wrote, in a form that is the same for the same results."""
    if (table := Path(f"{out}.csv")).exists():
        return table.read_text()
    if (vectors := Path(f"{out}.npy")).exists():
        return np.load(vectors).tolist()
    return sorted(file.relative_to(out).as_posix() for file in Path(out).rglob("*") if file.is_file())


def test_all_settings_that_name_a_directory_are_walked():
    named = set()
    for verb, entry in VERBS.items():
        types = declared_types(entry.settings_class)
        paths = {field.name for field in fields(entry.settings_class) if "Path" in str(types[field.name])}
        named |= {(verb.split()[0], name) for name in paths - DATA}
    assert named | {("serve", "models")} == COMMANDS.keys()


# One for each way in which a place is read: facts, a run, a checkpoint, an adapter, a tokenizer, static vectors, an
# index, and what a tool of an assistant asks. soak/test_cloud.py has all.
EACH_WAY = (
    "info {}/run --json",
    "info {}/run {}/again --json",
    "predict {}/run texts.csv",
    "embed {}/run texts.csv -o {out}.npy --json",
    'decide {}/deciding "a good film" --options good,bad --json',
    "merge {}/adapter -o {out} --json",
    f"pretrain corpus.txt --tokenizer {{}}/bert/model/tokenizer.json -o {{out}} --model tiny {SHORT}",
    "index texts.csv --no-encoder --static {}/static -o {out} --json",
    "search good {}/index --json",
    "mcp {}/index",
)


@pytest.mark.parametrize("command", EACH_WAY)
def test_the_answers_are_those_of_local_directories(command, here, bucket, capsys, monkeypatch):
    assert_answers_are_alike(command, here, bucket, capsys, monkeypatch)


def assert_answers_are_alike(command, here, bucket, capsys, monkeypatch):
    asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    asked["params"] = {"name": "search", "arguments": {"query": "good"}}
    answers, files = [], []
    for kind, place in (("local", here), ("remote", bucket)):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(asked).encode() + b"\n")))
        capsys.readouterr()
        main(shlex.split(command.format(place, place, out=f"{kind}-out")))
        answers.append(values(capsys.readouterr().out, (here, bucket), f"{kind}-out"))
        files.append(written(f"{kind}-out"))
    assert answers[0] == answers[1] and files[0] == files[1]


def test_a_server_loads_models_and_an_index_from_urls(here, bucket):
    """One by its own name, one by another."""
    settings = Serve(models=[f"{bucket}/run", f"mine={bucket}/bert"], store=f"{bucket}/index")
    serving = prepare(settings)
    try:
        assert [one.name for one in serving.models] == ["run", "mine"]
    finally:
        assert all(served.queue.close(timeout=10.0) for served in serving.models)
        serving.workers.close()


def test_of_checkpoints_only_what_they_say_is_fetched(here, bucket, proxy, capsys):
    main(["info", f"{bucket}/bert", "--json"])
    read = {path for method, path in proxy.requests if method == "GET" and "/checkpoints/" in path}
    assert read and all(path.endswith("/state.json") for path in read)
    (as_path(bucket) / "bert/checkpoints/step-00000003/state.json").unlink()
    for file in as_path(f"{bucket}/bert/checkpoints/step-00000003").files():
        file.unlink()
    capsys.readouterr()
    main(["info", f"{bucket}/bert", "--json"])
    assert json.loads(capsys.readouterr().out)["checkpoints"].split(" ")[0] == "step-00000002"


def test_a_model_that_is_replaced_in_object_storage_is_indexed_anew(here, bucket):
    before = files_state(f"{bucket}/run")
    assert files_state(f"{bucket}/run") == before
    (as_path(bucket) / "run/model/config.json").put(b"{}")
    assert files_state(f"{bucket}/run") != before


def test_a_tokenizer_is_loaded_with_the_files_beside_it(here, bucket, proxy):
    """And without the many others of its folder."""
    local, proxy.requests[:] = Tokenizer.load(here / "bert/model/tokenizer.json"), []
    loaded = Tokenizer.load(f"{bucket}/bert/model/tokenizer.json")
    assert loaded.encode("The cat sat.").ids == local.encode("The cat sat.").ids
    assert not [path for method, path in proxy.requests if method == "GET" and "safetensors" in path]
