"""The command line: ``arbitrag COMMAND``. One module per command; what a command needs is imported when it runs."""

from __future__ import annotations

import logging
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arbitrag.cli import ask, demo, doctor, index, methods, replay, search, tune
from arbitrag.cli.bench import run as bench
from arbitrag.cli.config import name_before
from arbitrag.cli.data import check as data
from arbitrag.cli.lab import world as lab
from arbitrag.cli.terminal.help import App
from arbitrag.cli.terminal.output import complain

if TYPE_CHECKING:
    from arbitrag.errors import ArbitragError

_KEYS = ("OPENAI_API_KEY", "ELASTIC_API_KEY", "QDRANT_API_KEY", "PGPASSWORD", "HF_TOKEN")
INTERRUPTED = 130  # what a shell gives for a process stopped by Ctrl-C


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; ``arguments`` are the process's own unless they are given.

    An expected failure is one or two lines on standard error. ``ARBITRAG_DEBUG=1`` adds the traceback to any failure.
    """
    from arbitrag.errors import ArbitragError

    _quieten_libraries()
    given = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal that cannot show a character shows its code
            stream.reconfigure(errors="backslashreplace")
    try:
        with warnings.catch_warnings():
            warnings.showwarning = partial(_warn, given)
            status = _command().main(args=given, prog_name="arbitrag", standalone_mode=False)
        sys.stdout.flush()
        if status == INTERRUPTED:
            complain("stopped")
        return int(status or 0)
    except ArbitragError as error:
        return _expected(error, given)
    except KeyboardInterrupt:
        complain("stopped")
        return INTERRUPTED
    except BrokenPipeError:  # the reader, such as head, has enough; let Python's own flush at the end go nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        return _refused_by_system(error, given)
    except Exception as error:  # noqa: BLE001 - the last stop; it is told, and its traceback is to be had
        return _misused(error, given) if hasattr(error, "format_message") else _unexpected(error, given)


def _quieten_libraries() -> None:
    """Keep what libraries log (pypdf, of every broken file) off the terminal, unless logging was set up already."""
    if not logging.root.handlers:
        logging.root.addHandler(logging.NullHandler())
    # The hub's client has a handler of its own, and says of every retry what the error at the end says once.
    os.environ.setdefault("HF_HUB_VERBOSITY", "error")
    if not sys.stderr.isatty():
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")


def _command() -> Any:
    app = App(add_completion=True, pretty_exceptions_enable=False, callback=_root, epilog="arbitrag demo")
    app.command(epilog=index.EXAMPLE)(index.index)
    app.command(epilog=search.EXAMPLE)(search.search)
    app.command(epilog=ask.EXAMPLE)(ask.ask)
    app.command(epilog=replay.EXAMPLE)(replay.replay)
    app.command(epilog=tune.EXAMPLE)(tune.tune)
    app.command(epilog=methods.EXAMPLE)(methods.methods)
    app.command(epilog=doctor.EXAMPLE)(doctor.doctor)
    app.command(epilog=demo.EXAMPLE)(demo.demo)
    app.add_typer(bench.group, name="bench")
    app.add_typer(data.group, name="data")
    app.add_typer(lab.group, name="lab")
    return typer.main.get_command(app)


def _version(wanted: bool) -> None:
    if wanted:
        from arbitrag import __version__

        print(f"arbitrag {__version__}")
        raise typer.Exit


def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    config: Annotated[
        str | None, typer.Option("--config", metavar="FILE", help="A file of settings for the command.")
    ] = None,
) -> None:
    """Decide, question by question, whether a language model should trust its memory, the retrieved passages, both,
    or neither, and show why."""
    name_before(context, config)


def _warn(given: Sequence[str], message: Warning | str, *_place: object, **_more: object) -> None:
    """A warning is for the person, and its place in the code is not."""
    _tell(f"Warning: {message}", given)


def _expected(error: ArbitragError, given: Sequence[str]) -> int:
    _trace_if_asked(given)
    _tell(f"{type(error).__name__}: {error}", given)
    return error.exit_status


def _misused(error: Any, given: Sequence[str]) -> int:
    """A wrong option or argument, found by typer."""
    _trace_if_asked(given)
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "arbitrag"
    _tell(f"UsageError: {error.format_message()}\nType: {command} --help", given)
    return int(error.exit_code)


def _refused_by_system(error: OSError, given: Sequence[str]) -> int:
    """No permission, no space, no such folder: that is about the file, not about this code."""
    if error.strerror is None:
        return _unexpected(error, given)
    _trace_if_asked(given)
    named = [str(name) for name in (error.filename, error.filename2) if name is not None]
    hint = ""
    if isinstance(error, PermissionError):
        hint = "\nThis user may not do that there; choose another place, or change who may."
    _tell(f"{type(error).__name__}: {' and '.join(named) or 'the system'}: {error.strerror}{hint}", given)
    return 1


def _unexpected(error: Exception, given: Sequence[str]) -> int:
    _trace_if_asked(given)
    _tell(
        f"Unexpected {type(error).__name__}: {error}\n"
        "This is a fault in Arbitrag. Run the command again with ARBITRAG_DEBUG=1 for a traceback, and report it.",
        given,
    )
    return 70  # EX_SOFTWARE


def _trace_if_asked(given: Sequence[str]) -> None:
    if os.environ.get("ARBITRAG_DEBUG"):
        _tell(traceback.format_exc().rstrip("\n"), given)


def _tell(text: str, given: Sequence[str]) -> None:
    """A message beside the results, without the keys and passwords that this command was given."""
    from arbitrag.security.addresses import secrets_in
    from arbitrag.security.redaction import Secrets

    keys = [os.environ.get(name, "") for name in _KEYS]
    addresses = [*given, os.environ.get("OPENAI_BASE_URL", "")]
    complain(Secrets({*keys, *secrets_in(addresses)}).clean(text))
