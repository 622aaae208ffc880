"""Size limits for Office documents, checked before they are parsed: a small file can declare huge tables.

A sheet with a cell in its last column and one in its last row is a table of 17 billion cells; a text that stands once
is shown by a million cells; a presentation lists one slide a million times. All of it is counted first, by the names of
elements whatever the part is called, since that is the author's choice.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass

from arbitrag.retrieve.documents.archive import parse_xml
from arbitrag.retrieve.documents.readers import LONGEST_TITLE, NotReadable

MOST_CELLS = 2_000_000  # of a sheet, counted as rows times columns: a parser fills the gaps
_PROPERTIES = "docProps/core.xml"
_RELATIONS = ".rels"
_LONGEST_NUMBER = 20  # digits


def checked(members: Mapping[str, bytes], largest: int) -> tuple[str, int]:
    """The title of a document and the number of cells of its sheets. Every member is parsed once.

    Raises NotReadable for XML that is broken or forbidden (see ``parse_xml``), and where over ``largest`` bytes would
    be shown.
    """
    surveys = {name: _Survey(content) for name, content in members.items() if not name.endswith(_RELATIONS)}
    relations = {name: _relations(content) for name, content in members.items() if name.endswith(_RELATIONS)}
    tables = [survey.texts for survey in surveys.values() if survey.texts]
    if len(tables) > 1:
        raise NotReadable("a workbook with two tables of texts")
    for survey in surveys.values():
        survey.check_shown(tables[0] if tables else array("Q"), largest)
    _check_listed(surveys, relations, members, largest)
    title = surveys[_PROPERTIES].title if _PROPERTIES in surveys else ""
    return title, sum(survey.cells for survey in surveys.values())


@dataclass(frozen=True, slots=True)
class _Relation:
    identity: str
    kind: str
    target: str  # the last part of its name, which is looked up whatever the folder


class _Survey:
    """The sizes that one member declares: the extent of a table, its texts, and the parts that it lists."""

    def __init__(self, content: bytes) -> None:
        self.title = ""
        self.listed: list[str] = []  # identities of slides and sheets, as often as they are listed
        self.texts = array("Q")  # the length of each shared text
        self._referred = array("Q")  # the numbers of the shared texts that cells show
        self._rows = self._columns = self._column = 0
        self._inside = self._number = ""
        self._refers = False
        parse_xml(content, self._begin, self._text)
        self._settle()

    @property
    def cells(self) -> int:
        """Rows times columns."""
        return self._rows * self._columns

    def check_shown(self, texts: array[int], largest: int) -> None:
        if sum(texts[number] for number in self._referred if number < len(texts)) > largest:
            raise NotReadable(f"a sheet whose cells show over {largest >> 20} MB of text")

    def _begin(self, name: str, attributes: dict[str, str]) -> None:
        self._inside = local = _local(name)
        if local == "c":
            self._settle()
            self._refers = attributes.get("t") == "s"
            self._column = max(self._column + 1, _column(attributes.get("r", "")))
            self._columns = max(self._columns, self._column)
        elif local == "row":
            self._rows, self._column = self._rows + 1, 0
        elif local == "si":
            self.texts.append(0)
        elif local in ("sldId", "sheet"):
            self.listed += [value for key, value in attributes.items() if ":" in key and _local(key) == "id"]
        if self.cells > MOST_CELLS:
            raise NotReadable(f"a sheet of over {MOST_CELLS:,} cells, the empty ones between them counted")

    def _text(self, text: str) -> None:
        if self._refers and len(self._number) < _LONGEST_NUMBER:
            self._number += text
        if self.texts:
            self.texts[-1] += len(text)
        if self._inside == "title" and len(self.title) < LONGEST_TITLE:
            self.title += text

    def _settle(self) -> None:
        number = self._number.strip()[:_LONGEST_NUMBER]
        if number.isdecimal() and int(number) < 1 << 32:
            self._referred.append(int(number))
        self._number = ""


def _relations(content: bytes) -> list[_Relation]:
    found: list[_Relation] = []

    def begins(_: str, attributes: dict[str, str]) -> None:
        if "Target" in attributes:
            target = attributes["Target"].rpartition("/")[2]
            found.append(_Relation(attributes.get("Id", ""), attributes.get("Type", ""), target))

    parse_xml(content, begins)
    return found


def _check_listed(
    surveys: Mapping[str, _Survey],
    relations: Mapping[str, list[_Relation]],
    members: Mapping[str, bytes],
    largest: int,
) -> None:
    """What is shown when every slide or sheet that is listed is read, with the notes that belong to it, is bounded."""
    sizes: dict[str, int] = {}
    for name, content in members.items():
        sizes[_last(name)] = max(len(content), sizes.get(_last(name), 0))
    related: dict[str, list[_Relation]] = {}
    for name, found in relations.items():
        related.setdefault(_last(name).removesuffix(_RELATIONS), []).extend(found)

    def cost(part: str) -> int:
        notes = [relation.target for relation in related.get(part, []) if relation.kind.endswith("/notesSlide")]
        return sum(sizes.get(name, 0) for name in (part, *notes))

    shown = 0
    for name, survey in surveys.items():
        costs = {relation.identity: cost(relation.target) for relation in related.get(_last(name), [])}
        shown += sum(costs.get(identity, 0) for identity in survey.listed)
    if shown > largest:
        raise NotReadable(f"its slides or sheets come to over {largest >> 20} MB")


def _last(name: str) -> str:
    return name.rpartition("/")[2]


def _local(name: str) -> str:
    return name.rpartition(":")[2]


def _column(reference: str) -> int:
    """The number of the column in a reference such as AB12, from 1; 0 without one."""
    number = 0
    for letter in reference[:4].upper():
        if not "A" <= letter <= "Z":
            break
        number = 26 * number + ord(letter) - ord("A") + 1
    return number
