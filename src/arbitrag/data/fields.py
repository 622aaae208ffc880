"""The fields of one row, taken one after the other, with every fault noted instead of only the first."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from arbitrag.data.mixtures import Mixed, Mixture
from arbitrag.data.rows import Problem
from arbitrag.errors import nearest
from arbitrag.serialization import from_plain
from arbitrag.text import agree, one_line, printable, vanishes
from arbitrag.types import Passage

T = TypeVar("T")

_CONTROL = ("Cc", "Cs")  # categories of Unicode: control characters, halves of surrogate pairs


class Fields:
    """``take`` gives a field's value or its default; what is wrong is added to ``problems``.

    ``unread`` names the fields that were given, but not as what they should be.
    """

    def __init__(self, line: int, plain: dict[str, Any]) -> None:
        self.line = line
        self.problems: list[Problem] = []
        self.unread: set[str] = set()
        self._plain = plain

    def fault(self, text: str) -> None:
        self.problems.append(Problem(self.line, text))

    def warn(self, text: str) -> None:
        self.problems.append(Problem(self.line, text, warning=True))

    @property
    def bad(self) -> bool:
        return any(not problem.warning for problem in self.problems)

    def only(self, known: Iterable[str]) -> None:
        """Fault every key that is not among ``known``."""
        names = list(known)
        for key in self._plain:
            if key not in names:
                close = nearest(key, names)
                guess = f"did you mean '{close}'?" if close else f"known: {', '.join(names)}"
                self.fault(f"'{one_line(key)}' is not known; {guess}")

    def has(self, name: str) -> bool:
        return name in self._plain

    def take(self, name: str, kind: type[T], default: T, prepared: Callable[[Any], Any] = lambda plain: plain) -> T:
        """The value of a field, or ``default`` where it is not given or of another type.

        ``prepared`` brings short forms, such as a string for a list of one, into the long one.
        """
        if name not in self._plain:
            return default
        try:
            return from_plain(kind, prepared(self._plain[name]), name)
        except ValueError as error:
            self.fault(one_line(str(error), 200))
            self.unread.add(name)
            return default

    def text(self, name: str, *, needed: bool = False) -> str:
        """A string without control characters; one that is ``needed`` must be there and not be blank."""
        found = self.take(name, str, "")
        if needed and not self.has(name):
            self.fault(f"'{name}' is missing")
        elif needed and not found.strip() and name not in self.unread:
            self.fault(f"'{name}' is empty")
        self.refuse_control(name, found)
        return found

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of strings that are not blank, or one string for a list of one."""
        found = self.take(name, tuple[str, ...], (), listed)
        for position, each in enumerate(found):
            if not each.strip():
                self.fault(f"'{name}[{position}]' is empty")
                self.unread.add(name)
            self.refuse_control(f"{name}[{position}]", each)
        return tuple(each for each in found if each.strip())

    def mixed(self, mixture: Mixture, clean: Sequence[Passage], poison: Sequence[Passage], question: str) -> Mixed:
        """The passages of a mixture; none where there are too few, which is a fault, or the row is bad already."""
        if self.bad:
            return Mixed((), frozenset())
        try:
            return mixture.of(clean, poison, question)
        except ValueError as error:
            self.fault(str(error))
            return Mixed((), frozenset())

    def refuse_control(self, name: str, text: str) -> None:
        """Fault a control character; warn of one that cannot be seen, such as a mark of direction."""
        for each in _strange(text)[:1]:
            if unicodedata.category(each) in _CONTROL:
                self.fault(f"'{name}' has a control character, {printable(each)}")
            else:
                self.warn_of_strange(name, text)

    def warn_of_strange(self, name: str, text: str) -> None:
        """Warn of a control character or one that cannot be seen, in a text that somebody else wrote."""
        for each in _strange(text)[:1]:
            kind = "a control character" if unicodedata.category(each) in _CONTROL else "a character that is not seen"
            self.warn(f"'{name}' has {kind}, {printable(each)}")

    def check_gold(self, answers: Sequence[str], options: Sequence[str], planted: Sequence[str]) -> None:
        """What must hold between the answers of a question, its options, and what an attack plants."""
        for answer in answers:
            if vanishes(answer):
                self.warn(f"the answer '{one_line(answer)}' is empty when normalised; it must be matched exactly")
            if any(agree(answer, wrong) for wrong in planted):
                self.fault(f"the answer '{one_line(answer)}' is planted as a wrong one, too")
        if not options:
            return
        if len(options) == 1:
            self.fault("'options' has one option; give two or more, or none")
        for number, option in enumerate(options):
            if any(agree(option, other) for other in options[:number]):
                self.warn(f"the option '{one_line(option)}' is there twice when normalised")
        if answers and not any(agree(answer, option) for answer in answers for option in options):
            listed = one_line(" | ".join(options), 120)
            self.fault(f"no option is the answer '{one_line(answers[0])}'; the options are: {listed}")


def listed(plain: Any) -> Any:
    return [plain] if isinstance(plain, str) else plain


def _strange(text: str) -> list[str]:
    """The characters that may not reach a terminal, control characters first."""
    if printable(text) == text:
        return []
    found = [each for each in text if each != "\r" and printable(each) != each]
    return sorted(found, key=lambda each: unicodedata.category(each) not in _CONTROL)
