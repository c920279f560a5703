"""A worker that fine-tunes in child processes, which are killed. It loads torch once for all of them.

Each line of standard input is JSON: settings of a classifier and die_in, the place where a child is killed: "before" or
"after" and a function, "module:name" or "module:Class.name" in the package (null: nowhere). The answer is a line with
the child's exit status, or minus its signal.
"""

import json
import os
import signal
import sys
from importlib import import_module

import matplotlib.pyplot  # noqa: F401 (so that no child has to)
import sklearn.linear_model  # noqa: F401

from bothways.finetuning.finetune import run as run_task
from bothways.settings import Classify


def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)


def after(function):
    def call(*arguments, **options):
        function(*arguments, **options)
        die()

    return call


def prepare(place):
    """Patch this process so that it dies there."""
    when, function = place.split()
    module, _, path = function.partition(":")
    owner = import_module(f"bothways.{module}")
    *classes, name = path.split(".")
    for one in classes:
        owner = getattr(owner, one)
    setattr(owner, name, die if when == "before" else after(getattr(owner, name)))


def status_of_child(settings, place):
    number = os.fork()
    if number == 0:
        try:
            if place:
                prepare(place)
            run_task(Classify(**settings))
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.wait4(number, 0)[1])


for line in sys.stdin:
    case = json.loads(line)
    print(status_of_child(case["settings"], case["die_in"]), flush=True)
