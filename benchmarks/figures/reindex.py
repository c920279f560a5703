"""Another embedding model for an index (benchmarks/reindex.py)."""

from benchmarks.figures.rankings import ndcg
from benchmarks.figures.scores import Figures, markdown, with_bounds
from benchmarks.measurements import Measurement


def figures(measurement: Measurement) -> Figures:
    """nDCG@10 by computed vectors, and by mapped ones; the seconds, and what the command prints, as they were."""
    values: dict[str, float] = {}
    computed = []
    for name, seconds in measurement.about["figures"]["seconds"].items():
        stated = ndcg(measurement, "set", name)
        values |= with_bounds(name, stated)
        computed.append([name, stated.fraction(), f"{seconds:.0f}"])

    mapped = []
    for one in measurement.about["figures"]["maps"]:
        pair = f"{one['old']}, {one['new']}"
        name = f"{pair}, {one['sample']}"
        stated, half = (ndcg(measurement, "set", f"{name}, {part}") for part in ("mapped", "half"))
        values |= with_bounds(name, stated)
        values[f"{name}.half"] = half.value
        mapped.append(
            [
                pair,
                f"{one['sample']:,}",
                stated.fraction(),
                f"{one['seconds']:.0f}",
                f"{100 * one['neighbours']:.0f} %, {one['ranking']:.3f}",
                f"{half.value:.3f}",
            ]
        )
    head = ["old model, new model", "sample", "nDCG@10", "seconds", "kept: neighbours, nDCG@10", "half computed"]
    return Figures(
        values,
        {"computed": markdown(["vectors", "nDCG@10", "seconds"], computed), "mapped": markdown(head, mapped)},
    )
