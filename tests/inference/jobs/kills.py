"""A worker process that embeds files, also in child processes that are killed. It loads torch once for all of them.

Of each line of standard input, as JSON: model, file, out, on_error, rows (of a block), and shares: how much of the file
is written when a child is killed, for each child, or null for every `stride`-th call that puts something on the disk.
Answered by a line: the digest of the file left in peace, those after kills and the going on after them, how many kills
fell before the end, the most memory of a child in bytes.
"""

import hashlib
import json
import os
import signal
import sys
import time
from dataclasses import replace
from itertools import count
from pathlib import Path

from bothways.inference.jobs import blocks, journal, plan, verbs
from bothways.inference.load import load
from bothways.settings import Embed

CALLS = ("fsync", "replace", "unlink")


def child(settings, dies_at=0, after=None):
    """(exit status or minus the signal, bytes of memory) of one that embeds, killed before its n-th call, or after so
    many bytes."""
    number = os.fork()
    if number == 0:
        die_at(dies_at)
        try:
            verbs.embed(settings)
            os._exit(0)
        finally:
            os._exit(1)
    if after is not None:
        partial = settings.out.with_name(f".{settings.out.name}.partial")
        while not settings.out.exists() and not (partial.exists() and partial.stat().st_size >= after):
            time.sleep(0.001)
        os.kill(number, signal.SIGKILL)
    _, status, used = os.wait4(number, 0)
    return os.waitstatus_to_exitcode(status), used.ru_maxrss * 1024


def die_at(number):
    calls = count(1)

    def dying(real):
        def call(*arguments, **options):
            if next(calls) == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **options)

        return call

    for name in CALLS:
        setattr(os, name, dying(getattr(os, name)))


def digest(out):
    """Of the file and of the list of what was set aside."""
    aside = journal.side_file(out)
    return hashlib.sha256(out.read_bytes() + (aside.read_bytes() if aside.exists() else b"")).hexdigest()


def remove_all(out):
    for place in (out, journal.side_file(out), *out.parent.glob(f".*{out.name}*")):
        place.unlink(missing_ok=True)


def killed(job):
    blocks.ROWS, shares, stride = job.pop("rows"), job.pop("shares"), job.pop("stride")
    out, settings = Path(job.pop("out")), {**job, "model": Path(job["model"]), "dtype": "float32"}
    new = Embed(out=out, **settings)
    resumed = replace(new, resume=True)
    model = load(new.model, dtype="float32")
    plan.load = lambda *arguments, **options: model
    verbs.embed(new)
    whole, size, digests, kills, memory = digest(out), out.stat().st_size, [], 0, 0
    remove_all(out)
    if shares is None:  # a new file each time, resumed to its end
        for number, dies_at in enumerate(count(1, stride), 1):
            status, _ = child(new, dies_at=dies_at)
            kills += status == -signal.SIGKILL
            if not out.exists():
                status, _ = child(resumed)
                assert status == 0, (dies_at, status)
                assert not [*out.parent.glob(f".*{out.name}*")], dies_at
            digests.append(digest(out))
            remove_all(out)
            if kills < number:
                break
    else:
        for share in shares:
            status, used = child(resumed, after=share * size)
            kills, memory = kills + (status == -signal.SIGKILL), max(memory, used)
        if not out.exists():
            status, used = child(resumed)
            assert status == 0, status
            memory = max(memory, used)
        digests.append(digest(out))
    return {"whole": whole, "digests": digests, "kills": kills, "memory": memory}


for line in sys.stdin:
    print(json.dumps(killed(json.loads(line))), flush=True)
