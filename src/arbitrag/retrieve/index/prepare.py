"""Before an update: open or create the index, choose its sources, and check that it can be changed safely."""

from __future__ import annotations

import dataclasses
import os
import stat
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from arbitrag.errors import DataError, IndexFileError, UsageError
from arbitrag.retrieve.documents.ingest import READ, DocumentFile, find_documents
from arbitrag.retrieve.documents.selection import ExcludedPath, Selection, count_exclusions
from arbitrag.retrieve.documents.sources import Source, SourceChoice, choose
from arbitrag.retrieve.index import analysis
from arbitrag.retrieve.index.bm25 import engine_errors
from arbitrag.retrieve.index.manifest import (
    FILE,
    VECTORS,
    WORDS,
    IndexManifest,
    corrupt,
    has_vectors,
    is_vacant,
    read_manifest,
    unusable,
)
from arbitrag.retrieve.index.snapshot import META, read_commit, verify
from arbitrag.text import printable

if TYPE_CHECKING:
    from arbitrag.encode.base import Encoder
    from arbitrag.retrieve.index.embedding import Embedder

PASSAGE_TOKENS = 256


def prepare(
    folder: Path,
    inputs: Sequence[str | Path],
    *,
    passage_tokens: int | None,
    language: str | None,
    vectors: bool,
    add: bool,
    replace: bool,
    globs: tuple[Sequence[str] | None, Sequence[str] | None],
) -> tuple[IndexManifest, SourceChoice, bool]:
    """The manifest of the index in ``folder``, the sources that it is to have, and whether it was made just now."""
    if passage_tokens is not None and not 16 <= passage_tokens <= 8192:
        raise UsageError(f"passages of {passage_tokens} tokens; choose 16 to 8192 (256 by default)")
    if not os.path.lexists(folder) or (folder.is_dir() and is_vacant(folder)):
        choice = _with_globs(choose(folder, inputs, (), add, replace), globs, ((), ()))
        manifest = IndexManifest(
            passage_tokens or PASSAGE_TOKENS,
            language or "english",
            choice.sources,
            choice.include,
            choice.exclude,
            generation=int(vectors),
        )
        _make(folder, manifest)
        _refuse_strangers(folder)
        return manifest, choice, True
    manifest = read_manifest(folder)
    _same_settings(folder, manifest, passage_tokens, language)
    before = ((), ()) if replace else (manifest.include, manifest.exclude)
    choice = _with_globs(choose(folder, inputs, manifest.sources, add, replace), globs, before)
    _refuse_strangers(folder)
    if not os.access(folder, os.W_OK):
        raise unusable(folder, "", PermissionError(13, "no permission to write there"), writing=True)
    return manifest, choice, False


def check_words(folder: Path, manifest: IndexManifest) -> None:
    """Raise IndexFileError when the text index is damaged, before a merge would write the damage anew."""
    words = folder / WORDS
    with engine_errors(folder):
        try:
            commit = read_commit(words)
        except FileNotFoundError:
            if manifest.finished:
                raise corrupt(folder, f"it has no {WORDS}/{META}") from None
            return
        if commit.number == manifest.commit and manifest.finished and commit.crc != manifest.words_crc:
            raise corrupt(folder, f"{WORDS}/{META} is not what was written (another checksum)")
        verify(words, commit.files)


def open_vectors_of(
    folder: Path, manifest: IndexManifest, encoder: str | Encoder | None
) -> tuple[IndexManifest, AbstractContextManager[Embedder | None]]:
    """What makes the vectors: by the given encoder, or by the one that the index was made with, if any; and the
    manifest, which knows of them from now on."""
    if encoder is None and not manifest.generation:
        return manifest, nullcontext()
    from arbitrag.retrieve.index.embedding import open_embedder
    from arbitrag.retrieve.index.vectors import read_vector_manifest

    new = not (folder / WORDS / META).exists()
    if manifest.generation and not new:
        read_vector_manifest(folder / VECTORS)
    elif encoder is None and not has_vectors(folder):
        raise IndexFileError(
            f"{printable(str(folder))} was begun with vectors and has none yet; name the encoder again (--encoder)"
        )
    if new and not manifest.generation:
        manifest = dataclasses.replace(manifest, generation=1)
        manifest.write(folder)
    return manifest, open_embedder(folder, encoder, new=new)


def no_documents(sources: Sequence[Source], left: Iterable[ExcludedPath], including: bool) -> DataError:
    """The error for sources without a document, with what was excluded from them."""
    names = ", ".join(printable(source.path) for source in sources)
    why = "\n".join([f"no file of a kind that is read ({READ})", *count_exclusions(left).lines(including=including)])
    return DataError(f"nothing to index in {names}: {why}")


def _with_globs(
    choice: SourceChoice,
    globs: tuple[Sequence[str] | None, Sequence[str] | None],
    before: tuple[Sequence[str], Sequence[str]],
) -> SourceChoice:
    include, exclude = (tuple(there if given is None else given) for given, there in zip(globs, before, strict=True))
    Selection(include, exclude)  # raises for a glob that can match nothing
    return dataclasses.replace(choice, include=include, exclude=exclude)


def _make(folder: Path, manifest: IndexManifest) -> None:
    left: list[ExcludedPath] = []
    for item in find_documents(manifest.sources, Selection(manifest.include, manifest.exclude)):
        if isinstance(item, DocumentFile):
            break
        if isinstance(item, ExcludedPath):
            left.append(item)
    else:
        raise no_documents(manifest.sources, left, bool(manifest.include))
    analysis.analyzer(manifest.language)
    try:
        (folder / WORDS).mkdir(parents=True, exist_ok=True)
        manifest.write(folder)
    except OSError as error:
        shown = printable(str(folder))
        raise IndexFileError(
            f"the index {shown} cannot be made: {error.strerror}; choose another place (-o)"
        ) from error


def _same_settings(folder: Path, manifest: IndexManifest, passage_tokens: int | None, language: str | None) -> None:
    for what, asked, there in (
        ("passages of {} tokens", passage_tokens, manifest.passage_tokens),
        ("the language {}", language, manifest.language),
    ):
        if asked is not None and asked != there:
            raise IndexFileError(
                f"{printable(str(folder))} was made with {what.format(there)}, asked were {asked}; "
                "leave the option out, or make another index (-o OTHER.idx)"
            )


def _refuse_strangers(folder: Path) -> None:
    """Raise IndexFileError when something in an index is a link, a pipe or a device, which a writer would follow."""
    for inside in (folder, folder / WORDS, folder / VECTORS):
        try:
            names = sorted(os.listdir(inside))
        except FileNotFoundError:
            continue
        except OSError as error:
            raise unusable(folder, inside.name, error, writing=True) from error
        for name in names:
            mode = (inside / name).lstat().st_mode
            if not (stat.S_ISREG(mode) or (stat.S_ISDIR(mode) and inside == folder)):
                what = "a link" if stat.S_ISLNK(mode) else "no regular file"
                shown = printable(str(inside / name))
                raise IndexFileError(
                    f"{shown} is {what}, which Arbitrag did not put there; nothing was written.\n"
                    f"See who did, and remove it; {FILE} and the folders beside it hold regular files only"
                )
