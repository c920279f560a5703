"""Print figures about a package's layout: files, rooms, lines, largest file, largest number of imports.

Usage: python tools/measure_layout.py [DIRECTORY ...], each a checkout; the default is this one. For an older
version, use git worktree add ../before COMMIT. The figures are shown in docs/LOG.md, "The layout in
figures".
"""

import ast
import sys
from collections import Counter
from pathlib import Path


def measure(package: Path) -> dict[str, str]:
    """Figures of the package in one directory. A room is a folder, or a single file at the top level."""
    paths = {path.relative_to(package).with_suffix("").as_posix(): path for path in package.rglob("*.py")}
    files = {name: path for name, path in paths.items() if not name.endswith(("__init__", "__main__"))}
    lines = {name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in paths.items()}
    rooms = Counter(name.split("/")[0] for name in files if "/" in name)
    largest = max(files, key=lambda name: lines[name])
    imports = {name: imported(path, package, set(paths)) - {name} for name, path in files.items()}
    widest = max(imports, key=lambda name: len(imports[name]))
    entered = {name: {other.split("/")[0] for other in others} for name, others in imports.items()}
    most_rooms = max(entered, key=lambda name: len(entered[name]))
    return {
        "files": f"{len(paths)}",
        "rooms": f"{len(rooms)} folders, {sum('/' not in name for name in files)} files at the top",
        "largest room": "{} ({} files)".format(*rooms.most_common(1)[0]),
        "lines": f"{sum(lines.values()):,}",
        "largest file": f"{largest}.py ({lines[largest]} lines)",
        "widest fan-out: files that one file imports": f"{widest}.py ({len(imports[widest])})",
        "rooms that one file imports": f"{most_rooms}.py ({len(entered[most_rooms])})",
        "files imported by a file, mean": f"{sum(map(len, imports.values())) / len(imports):.1f}",
        "functions that take the settings of pre-training": settings_takers({name: paths[name] for name in files}),
    }


def settings_takers(paths: dict[str, Path]) -> str:
    """Functions with a parameter of type Pretrain or its completing subclass, outside the command line."""
    names = {"Pretrain", "Complete", "CompleteSettings"}
    takers = Counter[str]()
    for name, path in paths.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and not name.startswith(("cli", "verbs", "settings")):
                annotations = [argument.annotation for argument in (*node.args.args, *node.args.kwonlyargs)]
                takers[name] += any(isinstance(kind, ast.Name) and kind.id in names for kind in annotations)
    return f"{takers.total()} in {len(+takers)} files"


def imported(file: Path, package: Path, names: set[str]) -> set[str]:
    """The package's own files that a file imports, including imports inside functions."""
    files = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        modules = []
        if isinstance(node, ast.ImportFrom) and node.module:
            modules = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        inside = {module.removeprefix(f"{package.name}.").replace(".", "/") for module in modules}
        files |= {name for module in inside for name in (module, f"{module}/__init__")}
    return files & names


if __name__ == "__main__":
    checkouts = [Path(argument) for argument in sys.argv[1:]] or [Path(__file__).parent.parent]
    columns = [measure(checkout / "bothways") for checkout in checkouts]
    for name in columns[0]:
        print(" | ".join([name, *(column[name] for column in columns)]))
