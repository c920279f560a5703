"""benchmarks/light.py: sizes of installed packages, ratios within rounds, and vectors of its sides."""

import numpy as np

from benchmarks import light
from benchmarks.inference_side import Side

TEXTS = ["the cat sat", "a"]


def test_sizes_count_what_pip_has_installed_but_pip_itself(tmp_path):
    site = tmp_path / "lib" / "site-packages"
    for name, files in {"one": ["one/a.py", "one/b.pyc", "../../bin/one"], "pip": ["pip/a.py"]}.items():
        for file in files:
            (site / file).parent.mkdir(parents=True, exist_ok=True)
            (site / file).write_bytes(b"x" * 10)
        information = site / f"{name}-1.dist-info"
        information.mkdir()
        (information / "METADATA").write_text(f"Name: {name}\n")
        (information / "RECORD").write_text("".join(f"{file},,\n" for file in [*files, "one/missing.py"]))
    (site / "one" / "later.pyc").write_bytes(b"x")
    assert light.sizes(site) == {"one": 20}


def test_ratios_are_of_the_same_round():
    values = {"slow": [2.0, 30.0, 9.0], "fast": [1.0, 10.0, 3.0]}
    assert light.compared(values, "fast") == {"slow": "3.00", "fast": "1.00"}
    assert light.spread(values["slow"], 1) == "9.0 (2.0 to 30.0)"


def test_our_sides_give_the_same_vectors(monkeypatch, minilm_directory):
    monkeypatch.setattr(light, "minilm", lambda: minilm_directory)
    sides = {name: light.run_of(Side(name, "", "", 16, 1, "cpu")) for name in light.OURS}
    vectors = {name: run(TEXTS, 1) for name, run in sides.items()}
    assert np.abs(vectors["bothways numpy"] - vectors["bothways torch float32"]).max() < 1e-5
    assert all(one.shape == (2, 384) for one in vectors.values())


def test_the_sample_has_texts_of_many_lengths_in_a_fixed_order():
    texts = light.sample_texts()
    assert texts == light.sample_texts() and len({*texts}) == len(texts) > 1000
