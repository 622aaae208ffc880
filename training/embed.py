"""Build the embedded model's folder from a lab checkpoint: model, documents of its world, demonstration.

    python -m training.embed CHECKPOINT src/arbitrag/lab/embedded --measured benchmarks/results/lab_model.json

The model is exported by ``arbitrag.llm.onnx.export``. The documents hold every present fact of the world, also those
after the model's cutoff. The questions of the demonstration are drawn and answered (some minutes); see ``lab_demo``.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from arbitrag.errors import ArbitragError, DataError
from arbitrag.lab.checkpoint import LabModel, open_checkpoint
from arbitrag.lab.documents import entity_documents
from arbitrag.llm.onnx.export import export
from arbitrag.storage.model_manifest import NAME, hash_files, read_manifest
from training.demonstration import demonstration


def embed(checkpoint: Path, folder: Path, *, passages: int, measured: Path | None = None, count: int = 200) -> None:
    """Write the folder in place of the one that is there, once everything in it is made.

    ``passages`` is how many the model reads well; ``measured`` a result of ``benchmarks/lab_model.py --write``. Raises
    DataError for a checkpoint that is no lab model, or that fails every case of some kind of the demonstration.
    """
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as parent:
        made = Path(parent) / "made"
        export(checkpoint, made, name="lab")
        cases = asyncio.run(_demonstration(made, count))
        if len(cases) < 4:
            shown = ", ".join(str(case["kind"]) for case in cases) or "nothing"
            raise DataError(f"{checkpoint}: of the demonstration it shows only {shown} as it should be")
        (made / "demo.json").write_text(json.dumps(cases, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        world = open_checkpoint(made).world
        lines = "".join(
            json.dumps({"id": each.id, "title": each.title, "text": each.text, "source": each.source}) + "\n"
            for each in entity_documents(world)
        )
        (made / "documents.jsonl.gz").write_bytes(gzip.compress(lines.encode(), mtime=0))
        _describe(made, checkpoint, passages, measured)
        aside = Path(parent) / "replaced"
        if folder.exists():
            folder.rename(aside)
        made.rename(folder)


async def _demonstration(folder: Path, count: int) -> list[dict[str, object]]:
    lab: LabModel = open_checkpoint(folder)
    try:
        cases = await demonstration(lab.llm, lab.world, count=count)
    finally:
        await lab.llm.aclose()
    shown = ("id", "title", "text", "source")
    return [
        {**asdict(case), "passages": [{name: getattr(each, name) for name in shown} for each in case.passages]}
        for case in cases
    ]


def _describe(made: Path, checkpoint: Path, passages: int, measured: Path | None) -> None:
    """Write the manifest anew: every file, how the model was made, and what was measured of it."""
    before, trained = read_manifest(made), read_manifest(checkpoint)
    if before is None or trained is None:
        raise DataError(f"{checkpoint} has no {NAME}; train one: python -m training.train FOLDER")
    found = json.loads(measured.read_text(encoding="utf-8")) if measured else {"figures": []}
    (made / NAME).unlink()
    replace(
        before,
        files=hash_files(made),
        passages=passages,
        made={"trained": trained.made, "exported": before.made},
        measured=tuple({"what": each["what"].strip(), "value": each["value"]} for each in found["figures"]),
    ).write(made)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m training.embed", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("checkpoint", type=Path, help="a lab checkpoint: FOLDER/model of a training")
    parser.add_argument("folder", type=Path, help="the folder to replace, src/arbitrag/lab/embedded")
    parser.add_argument("--passages", type=int, default=5, help="how many passages the model reads well")
    parser.add_argument("--measured", type=Path, help="benchmarks/results/lab_model.json of this model")
    parser.add_argument("--count", type=int, default=200, help="questions of each kind of the demonstration")
    given = parser.parse_args(arguments)
    try:
        embed(given.checkpoint, given.folder, passages=given.passages, measured=given.measured, count=given.count)
    except ArbitragError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return error.exit_status
    size = sum(path.stat().st_size for path in given.folder.rglob("*") if path.is_file())
    print(f"{given.folder}: {size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
