"""Tables and the picture of benchmarks/serving.py. Times are in milliseconds unless named otherwise."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

Results = dict[str, Any]
ABSENT = "-"


def markdown(results: Results) -> str:
    machine = results["machine"]
    head = f"{machine['processor']}, {machine['threads']} threads, torch {machine['torch']}\n"
    return "\n".join([head, *(PARTS[part](results) for part in PARTS if part in results)])


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def spread(row: Results, key: str, digits: int = 0) -> str:
    """Median (lowest to highest)."""
    if key not in row:
        return ABSENT
    middle, lowest, highest = (f"{row[key][name]:,.{digits}f}" for name in ("median", "lowest", "highest"))
    return f"{middle} ({lowest} to {highest})"


def number(value: float | None, digits: int = 1) -> str:
    return ABSENT if value is None else f"{value:,.{digits}f}"


def share(value: float) -> str:
    return f"{100 * value:.1f} %"


def closed(results: Results) -> str:
    parts = []
    for name, by_side in results["closed"].items():
        texts = results["sets"][name]
        header = ["side", "texts/s", "p50, ms", "p99, ms", "of offline", "ours is faster", "largest difference"]
        rows = [
            [
                side, spread(row, "per_second"), spread(row, "p50", 1), spread(row, "p99", 1),
                spread(row, "of_offline", 2), spread(row, "ours_is_faster", 2),
                f"{row['difference']:.1e}" if "difference" in row else ABSENT,
            ]
            for side, row in by_side.items()
        ]  # fmt: skip
        parts.append(
            f"Closed loop, {name}: {texts['number']:,} texts of {texts['tokens']:.1f} tokens\n\n{table(header, rows)}"
        )
    return "\n".join(parts)


def many(results: Results) -> str:
    header = ["texts", "without a server, texts/s", "bothways serve, texts/s", "of offline"]
    rows = [
        [name, spread(row, "offline"), spread(row, "ours"), spread(row, "of_offline", 2)]
        for name, row in results["many"].items()
    ]
    return f"Many texts a request, few clients\n\n{table(header, rows)}"


def load(results: Results) -> str:
    measured = results["load"]
    header = ["of capacity", "offered/s", "answered/s", "status 429", "not sent", "p50, ms", "p99, ms", "p99 late, ms"]
    rows = [
        [
            f"{point['share']:.0%}", number(point["offered"]), number(point["per_second"]), share(refused(point)),
            str(point["unsent"]), number(point["p50"]), number(point["p99"]), number(point["p99_late"]),
        ]
        for point in measured["points"]
    ]  # fmt: skip
    capacity = f"{measured['capacity']:,.1f} texts/s with 32 clients"
    return f"Open loop, {measured['side']}; capacity: {capacity}\n\n{table(header, rows)}"


def refused(answer: Results) -> float:
    """The share of requests with status 429."""
    return float(answer["statuses"].get("429", 0) / max(1, sum(answer["statuses"].values())))


def overload(results: Results) -> str:
    measured = results["overload"]
    after = measured["after"]
    statuses = ", ".join(f"{status}: {count:,}" for status, count in measured["statuses"].items())
    rows = [
        ["offered/s", number(measured["offered"])],
        ["sent/s", number(measured["sent"] / measured["seconds"])],
        ["answered/s", number(measured["per_second"])],
        ["capacity, texts/s", number(measured["capacity"])],
        ["statuses", statuses],
        ["not sent, since all connections waited", f"{measured['unsent']:,}"],
        ["p50 of the accepted, ms", number(measured["p50"])],
        ["p99 of the accepted, ms", number(measured["p99"])],
        ["p99 of the accepted since they were sent, ms", number(measured["p99_since_sent"])],
        ["p99 of how late requests were sent, ms", number(measured["p99_late"])],
        ["twice the time of a full queue of tokens, ms", number(2 * measured["full_queue"])],
        ["twice the time of as many requests as may be in flight, ms", number(2 * measured["most_requests"])],
        ["a single request answered after, s", number(after["answered"], 3)],
        [f"a single request answered within {measured['normal']:.1f} ms after, s", number(after["normal"], 3)],
    ]
    return f"Overload of {measured['seconds']:.0f} s, {measured['side']}\n\n{table(['', 'value'], rows)}"


def memory(results: Results) -> str:
    measured = results["memory"]
    names = {"ready": "when ready", "before": "after a warm-up", "after": f"after {measured['requests']:,} requests"}
    rows = [[f"{name}, MB", number(measured[key])] for key, name in names.items()]
    return f"Memory, {measured['side']}\n\n{table(['', 'value'], [*rows, ['growth', share(measured['growth'])]])}"


def start(results: Results) -> str:
    measured = results["start"]
    rows = [["seconds to ready", spread(measured, "seconds", 2)], ["memory, MB", spread(measured, "resident")]]
    return f"Start with the packaged model\n\n{table(['', 'value'], rows)}"


PARTS = {"closed": closed, "many": many, "load": load, "overload": overload, "memory": memory, "start": start}


def draw(measured: Results, file: Path) -> None:
    """Latency of the accepted requests, and what is answered and refused, by the offered load."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    points, capacity = measured["points"], measured["capacity"]
    offered = [point["offered"] for point in points]
    figure, (latency, answered) = plt.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
    for key in ("p50", "p99"):
        latency.plot(offered, [point[key] for point in points], "-o", label=key, markersize=4)
    latency.set(yscale="log", ylabel="latency of accepted requests, ms")
    answered.plot(offered, [point["per_second"] for point in points], "-o", label="answered", markersize=4)
    refusals = [point["statuses"].get("429", 0) / point["seconds"] for point in points]
    answered.plot(offered, refusals, "-o", label="refused (429)", markersize=4)
    answered.plot(offered, offered, ":", color="tab:gray", label="offered")
    answered.set(ylabel="requests per second", ylim=(0, None))
    for panel in (latency, answered):
        panel.axvline(capacity, color="tab:gray", linestyle="--", linewidth=1, label="32 clients in a closed loop")
        panel.set(xlabel="offered requests per second", xlim=(0, None))
        panel.grid(alpha=0.3)
        panel.legend(fontsize=8)
    figure.savefig(file, dpi=120)
    plt.close(figure)
