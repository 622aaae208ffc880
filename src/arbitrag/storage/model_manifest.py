"""``manifest.json``: what a model folder holds, with a hash of every file, so that a changed file is noticed.

    {"format": 1, "name": "lab", "files": {"model.onnx": "sha256…"}, "parameters": 2557632, "context_tokens": 1024,
     "precision": "fp16", "world": {"version": 1, "seed": 7}, "made": {…}, "measured": […]}

``world`` names the lab world that a model was trained on, null for others. ``made`` says how it was made and
``measured`` what was measured, in whatever form suits; nothing reads them but people.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from arbitrag.errors import DataError
from arbitrag.serialization import from_plain
from arbitrag.storage.files import file_digest, read_json

NAME = "manifest.json"
FORMAT = 1


@dataclass(frozen=True)
class Manifest:
    """``files`` maps paths inside the folder, with forward slashes, to their SHA-256.

    ``passages`` is how many passages the model reads well at a time, where that is known; ``world`` the version and
    seed of the lab world that it knows.
    """

    name: str
    files: dict[str, str]
    parameters: int
    context_tokens: int | None
    precision: str
    passages: int | None = None
    world: dict[str, int] | None = None
    made: dict[str, Any] = field(default_factory=dict)
    measured: tuple[Any, ...] = ()
    format: int = FORMAT

    def write(self, folder: Path) -> None:
        text = json.dumps(vars(self), indent=2, ensure_ascii=False)
        (folder / NAME).write_text(text + "\n", encoding="utf-8")

    def verify(self, folder: Path, *names: str) -> None:
        """Raise DataError when one of the named files (all without names) is missing or not what it was."""
        for name in names or self.files:
            path = folder / name
            if name not in self.files:
                raise DataError(f"{folder / NAME} does not list {name}; export the model again")
            if not path.is_file():
                raise DataError(f"{path} is missing, though {NAME} lists it; export the model again")
            if file_digest(path) != self.files[name]:
                raise DataError(f"{path} is not the file that {NAME} lists (another SHA-256); export the model again")


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of a model folder, None where there is none; raises DataError for one that breaks the form."""
    path = folder / NAME
    if not path.is_file():
        return None
    try:
        found = read_json(path, {})
        if found.get("format", FORMAT) != FORMAT:
            raise DataError(f"{path} has format {found['format']}; this version reads {FORMAT}. Export the model again")
        manifest = from_plain(Manifest, found)
    except ValueError as error:
        raise DataError(f"{path} is not a manifest: {error}") from None
    if any(Path(name).is_absolute() or ".." in Path(name).parts for name in manifest.files):
        raise DataError(f"{path} names a file outside of its folder")
    return manifest


def hash_files(folder: Path) -> dict[str, str]:
    """The SHA-256 of every file under a folder, but for the manifest itself."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != NAME)
    return {path.relative_to(folder).as_posix(): file_digest(path) for path in paths}
