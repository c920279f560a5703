"""Why a text got its label (benchmarks/explain.py)."""

import numpy as np

from benchmarks.figures.scores import Figures, markdown, share, with_bounds
from benchmarks.measurements import Measurement

PLANTED = "a planted word that decides supports the label most"
SENTIMENT = "a planted word of sentiment, which need not decide, supports it most"
DELETED = (
    "the three words that support the label most, left out together, change its probability more than three random ones"
)


def figures(measurement: Measurement) -> Figures:
    shares = {
        "right": share(measurement["predicted"] == measurement["gold"]),
        **{name: share(measurement[name]) for name in ("decides", "planted", "sentiment", "deleted", "by size")},
    }
    values: dict[str, float] = {}
    for name, stated in shares.items():
        values |= with_bounds(name, stated, 100)
        values[f"{name}.texts"] = float(stated.number)

    correlations = measurement["gradients"].astype(np.float64)
    values["gradients"] = float(correlations.mean())
    values["gradients.error"] = float(correlations.std() / np.sqrt(len(correlations)))
    values["gradients.low"], values["gradients.high"] = np.quantile(correlations, [0.25, 0.75]).tolist()
    values["gradients.texts"] = float(len(correlations))

    rows = [
        [text, str(shares[name].number), f"{shares[name].percent()} %"]
        for text, name in ((PLANTED, "planted"), (SENTIMENT, "sentiment"), (DELETED, "deleted"))
    ]
    return Figures(values, {"shares": markdown(["measured", "texts", "share (95 % interval)"], rows)})


def time(measurement: Measurement) -> Figures:
    ratios = measurement.about["figures"]["explain / embed"]
    low, middle, high = np.quantile(ratios, [0.25, 0.5, 0.75]).tolist()
    return Figures({"ratio": middle, "low": low, "high": high, "turns": float(len(ratios))}, {})
