"""The Dockerfile, as far as it can be checked without Docker."""

import ast
import json
import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from bothways.cli import main
from bothways.serving import openapi
from bothways.settings import Serve

ROOT = Path(__file__).parent.parent


@pytest.fixture
def steps():
    """The instructions as (name, arguments)."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    lines = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ").splitlines()
    return [tuple(line.split(maxsplit=1)) for line in lines if line.strip()]


@pytest.fixture
def last_stage(steps):
    start = max(index for index, (name, _) in enumerate(steps) if name == "FROM")
    return steps[start:]


def copied(steps):
    """The files that are copied from the repository."""
    copies = [arguments.split() for name, arguments in steps if name == "COPY"]
    return [source for words in copies if not words[0].startswith("--from=") for source in words[:-1]]


def value_of(steps, name):
    (value,) = (arguments for step, arguments in steps if step == name)
    return value


def test_what_is_copied_is_there_and_is_all_that_docker_reads(steps):
    assert copied(steps) and all((ROOT / source).exists() for source in copied(steps))
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert "*" in lines and {line[1:] for line in lines if line.startswith("!")} == {*copied(steps)}


def test_the_package_finds_the_files_that_its_metadata_names(steps):
    named = re.findall(r'"(README\.md|LICENSE|NOTICE)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert {"README.md", "LICENSE", "NOTICE"} == {*named} and {*named, "pyproject.toml", "bothways"} <= {*copied(steps)}


def test_torch_is_installed_in_the_version_of_the_constraints(steps):
    (command,) = (arguments for name, arguments in steps if name == "RUN" and "TORCH_INDEX" in arguments)
    pattern = re.search(r"grep '(.+)' constraints.txt", command)[1]
    constraints = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    assert len(re.findall(pattern, constraints, re.MULTILINE)) == 1
    assert value_of(steps, "ARG") == 'EXTRAS="serve" TORCH_INDEX="" BOTHWAYS_BUILD="zig"'


def test_the_server_runs_without_root(last_stage):
    names = [name for name, _ in last_stage]
    assert names.index("USER") < names.index("ENTRYPOINT") and names.count("USER") == 1
    user = value_of(last_stage, "USER")
    assert int(user) > 0
    assert any(f"--uid {user} " in arguments for name, arguments in last_stage[: names.index("USER")] if name == "RUN")


def test_the_entry_point_is_a_command_that_listens_on_the_port_that_is_exposed(last_stage):
    program, verb, *options = json.loads(value_of(last_stage, "ENTRYPOINT"))
    assert (program, verb) == ("bothways", "serve")
    settings = main.parse(verb, [*options, "support=my-classifier"])
    assert isinstance(settings, Serve) and settings.host == "0.0.0.0" and settings.models == ("support=my-classifier",)
    assert settings.port == int(value_of(last_stage, "EXPOSE"))


def test_the_health_check_asks_a_route_that_needs_no_key(last_stage):
    from bothways.serving.guard import OPEN_PATHS

    python, option, code = json.loads(value_of(last_stage, "HEALTHCHECK").partition("CMD ")[2])
    assert (python, option) == ("python", "-c") and ast.parse(code)
    url = urlsplit(re.search(r"'(http://.+?)'", code)[1])
    assert url.path in openapi.GETS and url.path in OPEN_PATHS
    assert url.hostname == "127.0.0.1" and url.port == int(value_of(last_stage, "EXPOSE"))
