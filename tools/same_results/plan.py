"""What is run in each checkout: commands and requests, by section, and which sections need the models of others."""

from typing import Any

LIMIT = 900  # seconds of a section, a guard against hangs
TOLERANT = ("use", "python", "server")  # sections for which --tolerance counts
BASE = "--model bothways-en --keep-layers 0 1"
BRIEF = "--no-baselines --no-linear-start"
TRAINED = "--epochs 1 --evaluations-per-epoch 2 --batch-size 16"
PRETRAINED = "--steps 8 --evaluate-every 4 --batch-tokens 512 --max-length 64"
FLOAT32 = "--dtype float32"  # unless a command has another
WITHOUT_DTYPE = ("info", "merge", "pack")
RUNS: dict[str, dict[str, str]] = {  # by section, arguments of each training run, by its directory
    "pretrain": {
        "pretrain-float32": "pretrain corpus.txt --family bert --model tiny --vocab-size 600 --dtype float32",
        "pretrain-bf16": "pretrain corpus.txt --family modernbert --model tiny --vocab-size 600 --dtype bfloat16",
        "pretrain-replaced": "pretrain corpus.txt --family electra --model tiny --vocab-size 600 --masking words",
    },
    "distill": {
        "distill": "distill pretrain-float32 corpus.txt --layers 1 --hidden-size 64",
        "distill-static": "distill pretrain-float32 corpus.txt --static --dimensions 16 --for vectors",
    },
    "classify": {
        "classify": "finetune classify --train topics.csv --dev topics-dev.csv --seeds 2 {base} {brief}",
        "classify-split": (
            "finetune classify --train topics.csv {base} --dev topics-dev.csv --class-weights balanced "
            "--no-linear-start"
        ),
        "classify-folds": "finetune classify --train topics.csv --folds 2 {base} {brief}",
        "classify-few": "finetune classify --train few.csv {base} --no-baselines",
        "classify-bf16": ("finetune classify --train topics.csv --dev topics-dev.csv {base} --dtype bfloat16 {brief}"),
        "multi-label": "finetune classify --train multi.jsonl --dev multi.jsonl --multi-label {base} {brief}",
        "pairs": "finetune classify --train pairs.csv --dev pairs.csv {base} {brief}",
        "long": ("finetune classify --train long.csv --dev long.csv --window 32 {base} {brief}"),
    },
    "variants": {
        "lora": (
            "finetune classify --train topics.csv --dev topics-dev.csv --model pretrain-float32 --adapter lora "
            "--rank 4 {brief}"
        ),
        "int8": "finetune classify --train topics.csv --dev topics-dev.csv --quantize int8 {base} {brief}",
    },
    "tag": {
        "tag": "finetune tag --train tags.conll --dev tags-dev.conll {base}",
        "tag-bf16": "finetune tag --train tags.conll --dtype bfloat16 {base} {brief}",
    },
    "answer": {
        "answer": "finetune answer --train questions.jsonl --window 48 --overlap 12 {base} --no-baselines",
    },
    "regress": {
        "regress": "finetune regress --train numbers.csv --dev numbers.csv {base} {brief}",
    },
    "embed": {
        "embed": "finetune embed --train similar.csv {base}",
        "embed-scores": "finetune embed --train scored.csv {base} --no-baselines",
    },
}
COMPRESSED = {
    "int8-classify": "quantize classify --with topics.csv --max-drop 50",
    "pruned": "prune classify --with topics.csv --parts layers --size 0.9 --cuts 1 --epochs 1",
    "merged": "merge lora",
    "packed": "pack pretrain-float32",
}
USES = {  # commands with trained models; {out} is the place of a file
    "predict.jsonl": "predict classify topics-dev.csv -o {out} --top 2",
    "predict.csv": "predict classify topics-dev.csv -o {out} --keep-columns label",
    "predict-printed": 'predict classify --text "The oven is warm."',
    "predict-sets.jsonl": "predict classify-split topics-dev.csv -o {out} --coverage 0.8",
    "predict-bf16.jsonl": "predict classify-bf16 topics-dev.csv -o {out} --dtype bfloat16",
    "predict-multi.jsonl": "predict multi-label multi.jsonl -o {out}",
    "predict-pairs.jsonl": "predict pairs pairs.csv -o {out}",
    "predict-long.jsonl": "predict long long.csv -o {out}",
    "predict-lora.jsonl": "predict lora topics-dev.csv -o {out}",
    "predict-int8.jsonl": "predict int8 topics-dev.csv -o {out}",
    "predict-tags.jsonl": "predict tag plain.txt -o {out}",
    "predict-answers.jsonl": "predict answer questions.jsonl -o {out} --top 2",
    "predict-numbers.csv": "predict regress numbers.csv -o {out}",
    "label-next.csv": "predict classify topics.csv --label-next 5 -o {out}",
    "embed.npy": "embed embed plain.txt -o {out}",
    "embed-max.jsonl": "embed bothways-en plain.txt -o {out} --pooling max",
    "embed-static.npy": "embed distill-static plain.txt -o {out}",
    "evaluate-classify": "evaluate classify topics-dev.csv --json",
    "evaluate-printed": "evaluate classify topics-dev.csv",
    "evaluate-multi": "evaluate multi-label multi.jsonl --json",
    "evaluate-pairs": "evaluate pairs pairs.csv --json",
    "evaluate-tag": "evaluate tag tags-dev.conll --json",
    "evaluate-answer": "evaluate answer questions.jsonl --json",
    "evaluate-regress": "evaluate regress numbers.csv --json",
    "evaluate-embed": "evaluate embed scored.csv --json",
    "evaluate-words": "evaluate pretrain-float32 corpus-dev.txt --json",
    "extract.jsonl": "extract documents --tag tag --classify classify -o {out}",
    "extract-answers.csv": 'extract documents --answer answer --question "Where does Ada live?" -o {out}',
    "fill": 'fill "The [MASK] was built in [MASK]." --top 3',
    "fill-json": 'fill pretrain-float32 "She went to [MASK]." --json',
    "info": "info classify",
    "info-json": "info classify --json",
    "info-packaged": "info --json",
    "info-tag": "info tag --json",
    "wrong-task": "predict embed plain.txt",
    "wrong-file": "predict classify missing.csv",
    "wrong-option": "evaluate classify topics-dev.csv --label-colum label",
}
SERVED = {name: name for name in ("classify", "multi-label", "pairs", "regress", "tag", "answer", "embed")}
SERVED |= {"fill": "bothways-en"}
LONG = "Ada walked along the river to the old market and bought bread. " * 60
REQUESTS: list[tuple[str, Any]] = [  # path and body: None is a GET, bytes are sent as they are
    *((path, None) for path in ("/health", "/ping", "/info", "/v1/models", "/v1/models/tag", "/v1/models/none")),
    *((f"/models/{name}/info", None) for name in SERVED),
    *((path, None) for path in ("/openapi.json", "/docs", "/", "/page.js", "/none", "/predict")),
    ("/predict", {"inputs": "The oven is warm."}),
    ("/predict", {"inputs": [["The oven is warm."], ["They sang in the choir."]]}),
    ("/predict", {"inputs": LONG}),
    ("/predict", {"inputs": LONG, "truncate": True}),
    ("/", {"inputs": "The oven is warm.", "raw_scores": True}),
    ("/models/multi-label/predict", {"inputs": [["The oven is warm."], ["They sang."]], "raw_scores": True}),
    ("/models/pairs/predict", {"inputs": ["A goal.", "The match."]}),
    ("/models/pairs/predict", {"inputs": [["A goal.", "The match."], ["A song.", "The soup."]]}),
    ("/models/pairs/rerank", {"query": "A goal.", "texts": ["The match.", "The soup."], "return_text": True}),
    ("/models/regress/predict", {"inputs": [["good good good"], ["bad"]]}),
    ("/models/tag/tag", {"inputs": "Ada Stone lives in Rome."}),
    ("/models/tag/tag", {"inputs": ["Ada lives in Rome.", "Bob Reed saw Oslo."]}),
    ("/models/tag/tag", {"inputs": LONG}),
    ("/models/answer/answer", {"question": "Where does Ada live?", "context": "Ada lives in Rome."}),
    ("/models/answer/answer", {"inputs": [{"question": "Where?", "context": "Bob is in Oslo."}] * 2, "top": 3}),
    ("/models/answer/answer", {"question": "Where does Ada live?", "context": LONG}),
    ("/models/embed/embed", {"inputs": "A warm oven."}),
    ("/models/embed/embed", {"inputs": ["A warm oven.", [101, 2023, 102]], "normalize": False}),
    ("/models/embed/embed", {"inputs": ["A warm oven."], "dimensions": 8}),
    ("/models/embed/embed_all", {"inputs": ["A warm oven."]}),
    ("/models/embed/similarity", {"inputs": {"source_sentence": "A song.", "sentences": ["A choir.", "Soup."]}}),
    ("/models/embed/rerank", {"query": "A song.", "texts": ["Soup.", "A choir."]}),
    ("/models/embed/tokenize", {"inputs": ["A warm oven."], "add_special_tokens": False}),
    ("/models/embed/decode", {"ids": [[101, 2023, 102]], "skip_special_tokens": True}),
    ("/models/embed/attention", {"inputs": "A warm oven.", "layer": 1, "head": 2}),
    ("/v1/embeddings", {"input": ["A song.", "Soup."], "model": "embed"}),
    ("/v1/embeddings", {"input": "A song.", "model": "embed", "encoding_format": "base64", "dimensions": 4}),
    ("/embeddings", {"input": "A song.", "model": "fill"}),
    ("/models/fill/fill", {"inputs": "The [MASK] was built."}),
    ("/fill", {"inputs": ["A [MASK] and a [MASK].", "The [MASK]."], "top": 2, "model": "fill"}),
    ("/models/fill/next", {"inputs": ["She filled the kettle.", "Then she made tea."]}),
    ("/models/fill/next", {"inputs": [["She sang.", "They clapped."], ["She sang.", "Rates rose."]]}),
    # What is refused.
    ("/predict", {"inputs": []}),
    ("/predict", {"inputs": ""}),
    ("/predict", {}),
    ("/predict", {"inputs": 3}),
    ("/predict", {"inputs": [["a"], ["a", "b"]]}),
    ("/predict", {"inputs": "a", "raw_scores": "yes"}),
    ("/predict", b"{"),
    ("/predict", b"[]"),
    ("/predict", {"inputs": "a", "model": "none"}),
    ("/models/none/predict", {"inputs": "a"}),
    ("/models/embed/predict", {"inputs": "a"}),
    ("/models/embed/embed", {"inputs": "a", "dimensions": 100000}),
    ("/models/embed/embed", {"inputs": "a", "truncate": True, "truncation_direction": "left"}),
    ("/models/embed/embed", {"inputs": ["a"] * 1025}),
    ("/models/embed/similarity", {"inputs": {"source_sentence": "a"}}),
    ("/models/embed/decode", {"ids": "a"}),
    ("/models/embed/attention", {"inputs": LONG}),
    ("/models/fill/fill", {"inputs": "No mask."}),
    ("/models/fill/fill", {"inputs": "The [MASK].", "top": 0}),
    ("/models/fill/next", {"inputs": ["one"]}),
    ("/models/tag/tag", {"inputs": {"a": 1}}),
    ("/models/answer/answer", {"question": "Where?"}),
    ("/v1/embeddings", {"input": [], "model": "embed"}),
    ("/v1/embeddings", {"input": "a", "model": "none"}),
    ("/v1/embeddings", {"input": "a", "encoding_format": "binary", "model": "embed"}),
]

# The sections in order, each with the sections whose models it uses.
NEEDED: dict[str, tuple[str, ...]] = dict.fromkeys(RUNS, ())
NEEDED |= {
    "distill": ("pretrain",),
    "variants": ("pretrain",),
    "resume": (),
    "compress": ("pretrain", "classify", "variants"),
    "use": tuple(RUNS),
}
NEEDED |= dict.fromkeys(("python", "server"), ("classify", "tag", "answer", "regress", "embed"))
