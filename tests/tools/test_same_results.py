"""The comparison of two checkouts: what it reports of recorded results."""

from tools.same_results.compare import report

BEFORE = {
    "tag": {"tag": {"status": 0, "files": {"metrics.jsonl": [{"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.25}]}}},
    "server": {"POST /embed": {"status": 200, "body": [[0.6, -0.8], [1.0, float("nan")]]}},
}


def changed(loss=0.25, number=-0.8, **keys):
    return {
        "tag": {
            "tag": {"status": 0, "files": {"metrics.jsonl": [{"step": 1, "loss": 0.5}, {"step": 2, "loss": loss}]}}
        },
        "server": {"POST /embed": {"status": 200, "body": [[0.6, number], [1.0, float("nan")]], **keys}},
    }


def test_equal_results_are_the_same_in_every_section():
    assert report(BEFORE, changed()) == (["tag: same", "server: same"], True)


def test_a_difference_in_the_last_bit_is_reported_with_its_place_and_both_values():
    lines, same = report(BEFORE, changed(loss=0.25000000000000006, number=0.8, error="x"))
    assert not same
    assert lines == [
        "tag: 1 difference",
        "  /tag/files/metrics.jsonl[1]/loss: before 0.25, after 0.25000000000000006",
        "server: 2 differences",
        "  /POST /embed/body[0][1]: before -0.8, after 0.8",
        "  /POST /embed/error: only after: 'x'",
    ]


def test_the_tolerance_counts_for_answers_but_not_for_losses():
    assert report(BEFORE, changed(number=-0.81), tolerance=0.1)[1]
    lines, same = report(BEFORE, changed(loss=0.26, number=-0.81), tolerance=0.1)
    assert not same and lines[0] == "tag: 1 difference" and lines[-1] == "server: same"


def test_types_the_order_of_keys_and_the_sign_of_zero_count():
    def lines(before, after):
        return report({"use": before}, {"use": after})[0][1:]

    assert lines({"a": 1}, {"a": 1.0}) == ["  /a: before 1, after 1.0"]
    assert lines({"a": 1, "b": 2}, {"b": 2, "a": 1}) == ["  : order of keys: before ['a', 'b'], after ['b', 'a']"]
    assert lines([0.0], [-0.0]) == ["  [0]: before 0.0, after -0.0"]
    assert lines([1, 2], [1]) == ["  : before 2 items, after 1"]


def test_at_most_twenty_lines_of_a_section_are_printed():
    lines, _ = report({"use": [*range(50)]}, {"use": [*range(1, 51)]})
    assert len(lines) == 20 and lines[0] == "use: 50 differences"
