import hashlib


def digest(folder):
    h = hashlib.sha256()
    for f in sorted([*folder.glob("*.c"), *folder.glob("*.h")]):
        h.update(f.name.encode())
        h.update(f.read_bytes())
    return h.hexdigest()[:12]


def library_name(folder, suffix=".so"):
    return f"libcore-{digest(folder)}{suffix}"
