"""Settings that need not be typed each time: a file ``arbitrag.toml``, and variables of the environment.

    llm = "openai:llama3@http://localhost:8000/v1"
    index = "docs.idx"
    method = "trustmargin"

    [limits]
    answer_tokens = 64

    [settings.trustmargin]
    threshold = -1.0

The command line goes before the environment (``ARBITRAG_LLM``, ``ARBITRAG_ANSWER_TOKENS`` ...), that before the file,
and that before the defaults. The file is the one that ``--config`` or ``ARBITRAG_CONFIG`` names; without either, the
``arbitrag.toml`` in the working directory, or in the nearest of its parents up to the root of the project (the folder
with ``.git``) or the home folder. Paths in it are relative to it. A file that was found and not named may be a
stranger's: an address in it is used only where it stays on this machine (see ``trust``), code is not, and neither is
a folder for responses outside its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arbitrag.errors import DataError, UsageError, nearest
from arbitrag.run_options import OPTIONS, Option, flag
from arbitrag.text import one_line

if TYPE_CHECKING:
    from arbitrag.security.trust import FromFile

NAME = "arbitrag.toml"
NAMED = "ARBITRAG_CONFIG"
PREFIX = "ARBITRAG_"
SETTINGS = "settings"  # the table of tables with the settings of methods
LARGEST = 1 << 20  # bytes of a file
_META = "arbitrag.configuration"  # where click's context keeps it
_NAMED_BEFORE = "arbitrag.config"  # and the file that was named before the command


@dataclass(frozen=True, slots=True)
class Key:
    """An option of a run that can be set: under ``declared.key`` in the file (``limits.answer_tokens``)."""

    name: str
    declared: Option

    @property
    def option(self) -> str:
        return flag(self.name)

    @property
    def variable(self) -> str:
        return PREFIX + (self.declared.variable or self.name.upper())


KEYS = {declared.key: Key(name, declared) for name, declared in OPTIONS.items() if declared.key}
# The options that are taken from here, by command. A command that is not named takes none: what replay or tune are to
# do, and which model validates a set of questions, is always typed.
TAKEN = {
    command: frozenset(key.option for key in KEYS.values() if command in key.declared.settable)
    for command in dict.fromkeys(command for key in KEYS.values() for command in key.declared.settable)
}


@dataclass(frozen=True, slots=True)
class SetValue:
    """What is set, as it would be typed (``where`` several times), and where: a variable, or a file and its line.

    ``source`` marks a file that was found and not named.
    """

    typed: tuple[str, ...]
    place: str
    line: int = 0
    source: FromFile | None = None

    @property
    def origin(self) -> str:
        return f"{self.place} line {self.line}" if self.line else self.place


@dataclass(frozen=True)
class Configuration:
    """What the environment and the file say. ``file`` is None without one, and ``named`` whether a person named it.

    ``settings`` are those of methods, by the method's name, as they would be typed. ``used`` are the options of a
    command that are taken from here, with where they were set, and ``parameters`` their names in its code.
    """

    file: Path | None = None
    named: bool = False
    values: Mapping[str, SetValue] = field(default_factory=dict)
    settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    used: Mapping[str, str] = field(default_factory=dict)
    parameters: frozenset[str] = frozenset()

    def source(self, option: str) -> FromFile | None:
        """The mark of an address that a file gave; None where it was typed, set in the environment or not used."""
        return self.values[option].source if option in self.used else None

    def settled(self, method: str) -> str:
        """A method as it was typed, with the file's settings for it where none was typed."""
        import shlex

        from arbitrag.methods.base import name_and_options

        name, typed = name_and_options(method)
        more = [f"{key}={value}" for key, value in self.settings.get(name, {}).items() if key not in typed]
        return shlex.join([name, *(f"{key}={value}" for key, value in typed.items()), *more]) if more else method

    def told(self, *methods: str) -> str:
        """What is taken from where, in words, settings of these methods included; nothing where all was typed.

        For instance: ``method from ARBITRAG_METHOD; llm (line 1) and index (line 2) from arbitrag.toml``.
        """
        places: dict[str, list[str]] = {}
        for option in self.used:
            value = self.values[option]
            places.setdefault(value.place, []).append(option[2:] + (f" (line {value.line})" if value.line else ""))
        for name in dict.fromkeys(method.partition(" ")[0] for method in methods):
            if name in self.settings and self.file is not None:
                places.setdefault(_place(self.file), []).append(f"{SETTINGS}.{name}")
        return "; ".join(f"{', '.join(names)} from {one_line(place, 200)}" for place, names in places.items())


def load(named: str | None, environ: Mapping[str, str], folder: Path) -> Configuration:
    """What is set for a command that is typed in a folder. Raises DataError for a file that is not one of settings."""
    asked = named or environ.get(NAMED)
    path = Path(asked).expanduser() if asked else found(folder)
    values: dict[str, SetValue] = {}
    settings: dict[str, dict[str, str]] = {}
    if path is not None:
        values, settings = _SettingsFile.read(path, bool(asked)).taken()
    if environ.get(PREFIX + "LLM"):
        values.pop("--price", None)  # which is that of the file's own model
    for key in KEYS.values():
        if text := environ.get(key.variable):
            values[key.option] = SetValue((text,), key.variable)
    return Configuration(path, bool(asked), values, settings)


def found(folder: Path) -> Path | None:
    """The nearest ``arbitrag.toml``: in the folder or, inside a project or the home folder, in one of its parents."""
    folder = folder.absolute()
    above = [folder, *folder.parents]
    ends = [at for at, each in enumerate(above) if (each / ".git").exists() or each == Path.home()]
    inside = above[: ends[0] + 1] if ends else [folder]
    return next((each / NAME for each in inside if (each / NAME).is_file()), None)


@dataclass(frozen=True)
class _SettingsFile:
    """One file, read; ``source`` is set where nobody named it."""

    path: Path
    text: str
    plain: Mapping[str, Any]
    source: FromFile | None

    @classmethod
    def read(cls, path: Path, named: bool) -> _SettingsFile:
        import tomllib

        from arbitrag.security.trust import FromFile

        try:
            if path.stat().st_size > LARGEST:
                raise DataError(f"{path} is no file of settings: it is larger than {LARGEST:,} bytes")
            text = path.read_text(encoding="utf-8")
            plain = tomllib.loads(text)
        except OSError as error:
            raise DataError(f"{path} cannot be read: {error.strerror}") from None
        except ValueError as error:  # TOMLDecodeError, which has the line, and UnicodeDecodeError
            raise DataError(f"{path} is not TOML: {one_line(str(error))}") from None
        except RecursionError:
            raise DataError(f"{path} is no file of settings: its lists are too deep") from None
        return cls(path, text, plain, None if named else FromFile(str(path), ""))

    def taken(self) -> tuple[dict[str, SetValue], dict[str, dict[str, str]]]:
        values, settings = {}, {}
        for name, value in self._flat():
            if name == SETTINGS:
                settings = self._settings(value)
            elif name in KEYS:
                values[KEYS[name].option] = self._value(KEYS[name], value)
            else:
                raise self._unknown(name, [*KEYS, SETTINGS])
        return values, settings

    def _flat(self) -> Iterator[tuple[str, Any]]:
        """The keys with the names of the tables that they stand in; ``where`` and ``settings`` are whole."""
        for name, value in self.plain.items():
            if isinstance(value, dict) and name not in ("where", SETTINGS):
                yield from ((f"{name}.{inner}", each) for inner, each in value.items())
            else:
                yield name, value

    def _value(self, key: Key, value: Any) -> SetValue:
        origin, kinds = (_place(self.path), self._line(key.declared.key)), {int: "a whole number", float: "a number"}
        if key.declared.kind is dict:
            if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
                raise self._wrong(key.declared.key, 'a table of texts, such as where = { language = "en" }', value)
            return SetValue(tuple(f"{name}={each}" for name, each in value.items()), *origin)
        fits = isinstance(value, (int, float) if key.declared.kind is float else key.declared.kind) and not isinstance(
            value, bool
        )
        if not fits or (key.declared.kind is not str and value <= 0):
            what = kinds.get(key.declared.kind, "a text in quotes")
            raise self._wrong(key.declared.key, what if key.declared.kind is str else f"{what} above 0", value)
        source = None if self.source is None else replace(self.source, option=key.option)
        return SetValue((self._typed(key, str(value), source),), *origin, source)

    def _typed(self, key: Key, text: str, source: FromFile | None) -> str:
        """As it would be typed here: a path from this folder. Raises UsageError for what a file may not decide."""
        if source is not None:
            self._refuse(key, text, source)
        if (
            key.declared.names in (None, "address")
            or "://" in text
            or (key.name == "index" and ":" in text)
            or text == "lab"
        ):
            return text
        return os.path.relpath(self.path.parent / Path(text).expanduser()) if self.path.parent != Path() else text

    def _refuse(self, key: Key, text: str, source: FromFile) -> None:
        how = f"\nOr name the file, if it is yours: --config {self.path} (or {NAMED}={self.path})"
        try:
            if key.declared.names == "address":
                source.check(text)
            elif key.name == "index":
                source.check_index(text)
        except UsageError as error:
            raise UsageError(f"{error}{how}") from None
        if key.name == "method" and ":" in text.partition(" ")[0]:
            where = self._at(key.declared.key)
            raise UsageError(f"{where}: the method is code of its own, and the file may be a stranger's{how}")
        inside = (self.path.parent / text).resolve().is_relative_to(self.path.parent.resolve())
        if key.name == "cache" and not inside:
            raise UsageError(
                f"{self._at(key.declared.key)}: '{one_line(text)}' lies outside the folder of the file{how}"
            )

    def _settings(self, tables: Any) -> dict[str, dict[str, str]]:
        """The settings of each method, checked as if they were typed."""
        from arbitrag.methods import METHODS, load
        from arbitrag.methods.base import configure

        taken: dict[str, dict[str, str]] = {}
        if not isinstance(tables, dict) or not all(isinstance(each, dict) for each in tables.values()):
            raise self._wrong(SETTINGS, "a table for each method, such as [settings.trustmargin]", tables)
        for method, table in tables.items():
            try:
                load(method)  # of ours, or of an installed package
            except UsageError:
                raise self._unknown(f"{SETTINGS}.{method}", [f"{SETTINGS}.{each}" for each in METHODS]) from None
            taken[method] = {name: _text(value) for name, value in table.items()}
            for name, text in taken[method].items():
                try:
                    configure(load(method), {name: text})
                except UsageError as error:
                    raise UsageError(f"{self._at(f'{SETTINGS}.{method}.{name}')}: {error}") from None
        return taken

    def _unknown(self, name: str, known: list[str]) -> UsageError:
        close = nearest(name, known)
        guess = f"; did you mean '{close}'?" if close else f". Known: {', '.join(known)}"
        key = " A key goes into OPENAI_API_KEY, never into a file." if "key" in name else ""
        return UsageError(f"{self._at(name)}: unknown key '{one_line(name)}'{guess}{key}")

    def _wrong(self, name: str, wanted: str, value: Any) -> UsageError:
        return UsageError(f"{self._at(name)}: {name} is {wanted}; got {one_line(repr(value))}")

    def _at(self, name: str) -> str:
        return f"{one_line(str(self.path), 200)} line {self._line(name)}"

    def _line(self, name: str) -> int:
        """The line on which a key or the head of its table stands, the first being 1."""
        *tables, key = name.split(".")
        wanted, table, head = ".".join(tables), "", 0
        for number, line in enumerate(self.text.splitlines(), 1):
            bare = line.split("#", 1)[0].strip().replace('"', "").replace("'", "")
            if bare.startswith("["):
                table = bare.strip("[] ").replace(" ", "")
                head = number if table == name else head
            written = bare.partition("=")[0].strip().replace(" ", "")
            if "=" in bare and name in (f"{table}.{written}".lstrip("."), written if not table else ""):
                return number
            if table == wanted and "=" in bare and written == key:
                return number
        return head or 1


def _place(path: Path) -> str:
    """A file as one would type it here."""
    return os.path.relpath(path) if path.is_absolute() else str(path)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _apply(context: typer.Context, named: str | None) -> str | None:
    """Read what is set, as soon as a command begins to read its options, and give it to click as their defaults."""
    if context.resilient_parsing:  # a shell completes, or a help page is made
        return named
    configuration = load(named or context.meta.get(_NAMED_BEFORE), os.environ, Path.cwd())
    taken = TAKEN[" ".join(context.command_path.split()[1:])]
    defaults: dict[str, Any] = {}
    for parameter in context.command.params:
        for option in taken.intersection(parameter.opts) & configuration.values.keys():
            typed = configuration.values[option].typed
            defaults[str(parameter.name)] = list(typed) if getattr(parameter, "multiple", False) else typed[0]
    context.default_map = defaults
    context.meta[_META] = configuration
    return named


def name_before(context: typer.Context, named: str | None) -> None:
    """``arbitrag --config FILE ask``: for the command that follows."""
    context.meta[_NAMED_BEFORE] = named


def configured(context: typer.Context) -> Configuration:
    """What was set for this command, with what of it is used: what is not typed."""
    configuration: Configuration = context.meta[_META]
    taken = {
        option: str(parameter.name)
        for parameter in context.command.params
        for option in configuration.values.keys() & set(parameter.opts)
        if getattr(context.get_parameter_source(str(parameter.name)), "name", "") == "DEFAULT_MAP"
    }
    used = {option: configuration.values[option].origin for option in sorted(taken)}
    return replace(configuration, used=used, parameters=frozenset(taken.values()))


Config = Annotated[
    str | None,
    typer.Option(
        "--config",
        metavar="FILE",
        is_eager=True,
        callback=_apply,
        help=f"Settings instead of those in {NAME}; see docs/config.md.",
    ),
]
