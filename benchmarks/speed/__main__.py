"""Speed of a model on this machine: texts and tokens per second, and latency, by batch size and text length.

    python -m benchmarks.speed [MODEL] [-o chart.png] [--with texts.csv]

Bothways is compared with sentence-transformers, transformers, ONNX Runtime and OpenVINO, if they are installed (extra
`bench`). If they cannot read the model, they run its encoder in their own number formats.
"""

import os
import sys
from collections.abc import Sequence

from benchmarks.speed.options import Options, parse


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments, __doc__)
    # Before torch is loaded, as for the commands of bothways: threads that wait leave the cores to other programs.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("GOMP_SPINCOUNT", "30000")
    from bothways.base.errors import InputError, command_line

    with command_line():
        try:
            run(options)
        except (InputError, OSError) as error:
            sys.exit(f"benchmarks.speed: error: {error}")


def run(options: Options) -> None:
    from benchmarks.speed import measure
    from benchmarks.speed.result import as_json, as_table
    from bothways.base.log import messages_to
    from bothways.base.terminal import print_json, print_lines, print_message

    with messages_to(print_message):
        result = measure.run(options)
    if options.json:
        print_json(as_json(result))
        return
    print_lines(*as_table(result))
    if options.out:
        no_chart = "no chart: only one system was measured; pip install 'bothways[bench]' and leave out --no-peers"
        print_lines(f"chart in {options.out}" if result.has_comparison else no_chart)


if __name__ == "__main__":
    main()
