"""A worker that trains in child processes, which are killed. It loads torch once for all of them.

Each line of standard input is JSON: settings, the name of their class (`kind`, by default Classify), and die_in, the
place where a child is killed: "before" or "after" and a function, "module:name" or "module:Class.name" in the package,
and perhaps a number, which call of it (null: nowhere). With a world (1) as many children train together, of which the
last dies; it is stopped instead if `stops` is true, until the main process has said for which process it waits. The
answer is a line with the exit status, or minus the signal, of each child. What they log is in OUT.log.
"""

import json
import os
import signal
import socket
import sys
import traceback
from importlib import import_module
from itertools import count
from pathlib import Path

import sklearn.linear_model  # noqa: F401 (so that no child has to)
import torch._dynamo  # what DDP imports when it is first used
import torch.distributed.fsdp  # noqa: F401

import bothways.training.finetuning.finetune  # noqa: F401
from bothways import settings as kinds
from bothways import train as run_settings
from bothways.base.log import messages_to
from bothways.training import distributed


def die(number):
    os.kill(os.getpid(), number)


def prepare(place, number):
    """Patch this process so that it gets a signal there."""
    when, function, *call = place.split()
    module, _, path = function.partition(":")
    owner = import_module(f"bothways.{module}")
    *classes, name = path.split(".")
    for one in classes:
        owner = getattr(owner, one)
    original, calls, last = getattr(owner, name), count(1), int(*call) if call else 1

    def patched(*arguments, **options):
        now = next(calls) == last
        if now and when == "before":
            die(number)
        result = original(*arguments, **options)
        if now and when == "after":
            die(number)
        return result

    setattr(owner, name, patched)


def train(case, rank, world, port):
    """In a child process."""
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    last, stopped, stops = rank == world - 1, world - 1, case.get("stops")
    if case.get("die_in") and last:
        prepare(case["die_in"], signal.SIGSTOP if stops else signal.SIGKILL)
    if stops:
        distributed.SILENCE = 0.2
    settings = case["settings"]
    with Path(f"{settings['out']}.log").open("a") as log:

        def say(line):
            print(line, file=log, flush=True)
            if f"waiting for process {stopped} on {socket.gethostname()}" in line:
                os.kill(case["children"][-1], signal.SIGCONT)

        try:
            with messages_to(say):
                run_settings(getattr(kinds, case.get("kind", "Classify"))(**settings))
            return 0
        except BaseException:
            traceback.print_exc(file=log)
            return 1


def statuses(case):
    world, port, case["children"] = case.get("world", 1), free_port(), []
    for rank in reversed(range(world)):  # the main process knows all others
        number = os.fork()
        if number == 0:
            status = 1
            try:
                status = train(case, rank, world, port)
            finally:
                os._exit(status)
        case["children"].insert(0, number)
    return [os.waitstatus_to_exitcode(os.waitpid(number, 0)[1]) for number in case["children"]]


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


for line in sys.stdin:
    print(*statuses(json.loads(line)), flush=True)
