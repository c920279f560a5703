"""Make the bill of materials of the wheel (CycloneDX 1.6): its files with checksums, its models, what it requires.

The build writes it into the wheel (bothways_backend.py). To see that of an installed package:
python -m zipfile -e WHEEL DIR, then DIR/bothways-VERSION.dist-info/sboms/bothways.cdx.json.
"""

import hashlib
import json
import re
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from email.message import Message
from pathlib import Path
from typing import Any

FILE_NAME = "bothways.cdx.json"
# Compiled files, float32 weights of old versions, and libraries that an earlier build has left.
NOT_SHIPPED = re.compile(r"(^|/)(__pycache__/|\.|libcore-)|\.py[co]$")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
EXTRA = re.compile(r"""extra\s*==\s*["']([^"']+)["']""")

# What the package carries beside its own code; NOTICE and the cards of the models say more.
MODELS = (
    {
        "folder": "pretrained/bothways-en",
        "description": "English BERT, 6 layers of 384",
        "license": "Apache-2.0 AND MIT",
        "ancestors": (
            ("sentence-transformers/all-MiniLM-L6-v2", "Apache-2.0"),
            ("nreimers/MiniLM-L6-H384-uncased", "MIT"),
            ("microsoft/MiniLM-L12-H384-uncased", "MIT"),
            ("google-research/bert bert-base-uncased (vocabulary)", "Apache-2.0"),
        ),
    },
    {
        "folder": "pretrained/bothways-en-static",
        "description": "Static English vectors of 384 numbers, fitted to those of bothways-en",
        "license": "Apache-2.0",
        "ancestors": (("bothways-en", "Apache-2.0 AND MIT"),),
    },
)
SAMPLE = "sample"


def bill_of_materials(
    metadata: Message,
    package: Path,
    seconds: int,
    library: Path | None = None,
) -> dict[str, Any]:
    """The bill as JSON. It depends on nothing else, so that two builds of a commit make the same.

    metadata: the METADATA file of the wheel.
    package: folder of the package, such as bothways/ of the checkout.
    seconds: time of the bill since 1970, such as that of the commit.
    library: the compiled file of bothways/core in the wheel, wherever it lies; None for a wheel without it.
    """
    name, version = metadata["Name"], metadata["Version"]
    root = _purl(name, version)
    requirements = _requirements(metadata)

    components = [_model(package, model, version) for model in MODELS]
    components.append(_sample(package, version))
    components.append(_code(package, metadata, library))
    components += requirements

    content = json.dumps(components, sort_keys=True)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, root + content)}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "lifecycles": [{"phase": "build"}],
            "component": {
                "type": "library",
                "bom-ref": root,
                "name": name,
                "version": version,
                "description": metadata["Summary"],
                "licenses": _licenses(metadata["License-Expression"]),
                "purl": root,
            },
        },
        "components": components,
        "dependencies": [
            {"ref": root, "dependsOn": sorted(component["bom-ref"] for component in components)},
        ],
    }


def to_bytes(bill: dict[str, Any]) -> bytes:
    """The bill as a file."""
    return (json.dumps(bill, indent=1, ensure_ascii=False) + "\n").encode("utf-8")


def _model(package: Path, model: dict[str, Any], version: str) -> dict[str, Any]:
    folder = package / model["folder"]
    ancestors = [
        {"type": "machine-learning-model", "name": name, "licenses": _licenses(terms)}
        for name, terms in model["ancestors"]
    ]
    return {
        "type": "machine-learning-model",
        "bom-ref": f"model:{folder.name}",
        "name": folder.name,
        "version": version,
        "description": model["description"],
        "licenses": _licenses(model["license"]),
        "pedigree": {"ancestors": ancestors},
        "components": [_file(package, path) for path in _shipped(folder)],
    }


def _sample(package: Path, version: str) -> dict[str, Any]:
    """The sample data. bothways/sample/README.md has the source of each file."""
    folder = package / SAMPLE
    return {
        "type": "data",
        "bom-ref": "data:sample",
        "name": "bothways sample data",
        "version": version,
        "description": "Excerpts of novels in the public domain, and rows written for the package",
        "components": [_file(package, path) for path in _shipped(folder) if path.suffix != ".py"],
    }


def _code(package: Path, metadata: Message, library: Path | None) -> dict[str, Any]:
    """All files that are neither of a model nor of the sample data."""
    elsewhere = [package / model["folder"] for model in MODELS]
    files = []
    for path in _shipped(package):
        is_data = path.parent == package / SAMPLE and path.suffix != ".py"
        if not is_data and not any(folder in path.parents for folder in elsewhere):
            files.append(_file(package, path))
    if library is not None:
        files.append(_file_as(f"{package.name}/core/{library.name}", library))

    return {
        "type": "library",
        "bom-ref": "code:bothways",
        "name": "bothways code",
        "version": metadata["Version"],
        "licenses": _licenses("Apache-2.0"),
        "components": files,
    }


def _requirements(metadata: Message) -> list[dict[str, Any]]:
    """The packages that the wheel requires, and those of its extras, each once. The wheel holds none of them."""
    specifiers: dict[str, list[str]] = {}
    extras: dict[str, set[str]] = {}
    for line in metadata.get_all("Requires-Dist", []):
        requirement, _, marker = line.partition(";")
        name = _normal_name(NAME.match(requirement)[0])  # type: ignore[index]
        if name == _normal_name(metadata["Name"]):  # an extra that contains another
            continue
        found = EXTRA.search(marker)
        specifiers.setdefault(name, [])
        if requirement.strip() not in specifiers[name]:
            specifiers[name].append(requirement.strip())
        extras.setdefault(name, set()).add(found[1] if found else "")

    components = []
    for name in sorted(specifiers):
        is_required = "" in extras[name]
        properties = [{"name": "bothways:requirement", "value": value} for value in sorted(specifiers[name])]
        properties += [{"name": "bothways:extra", "value": extra} for extra in sorted(extras[name] - {""})]
        components.append(
            {
                "type": "library",
                "bom-ref": _purl(name),
                "name": name,
                "scope": "required" if is_required else "optional",
                "purl": _purl(name),
                "properties": properties,
            }
        )
    return components


def _shipped(folder: Path) -> Iterator[Path]:
    """The files below a folder that a wheel holds, in an order that no file system decides."""
    for path in sorted(folder.rglob("*"), key=lambda path: path.as_posix()):
        if path.is_file() and not NOT_SHIPPED.search(path.relative_to(folder).as_posix()):
            yield path


def _file(package: Path, path: Path) -> dict[str, Any]:
    return _file_as(path.relative_to(package.parent).as_posix(), path)


def _file_as(name: str, path: Path) -> dict[str, Any]:
    """name: of the file in the wheel."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return {
        "type": "file",
        "bom-ref": f"file:{name}",
        "name": name,
        "hashes": [{"alg": "SHA-256", "content": digest}],
    }


def _licenses(terms: str) -> list[dict[str, Any]]:
    """An SPDX expression, or a single identifier of SPDX, in CycloneDX's form."""
    if " " in terms:
        return [{"expression": terms}]
    return [{"license": {"id": terms}}]


def _normal_name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _purl(name: str, version: str = "") -> str:
    """Package URL of a Python package."""
    return f"pkg:pypi/{_normal_name(name)}" + (f"@{version}" if version else "")
