"""``arbitrag doctor``: what is installed here, what each model really offers, and where things are kept."""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arbitrag.cli.config import KEYS, NAME, Config, Configuration, configured
from arbitrag.cli.options import AsJson, option
from arbitrag.security.addresses import HIDDEN, shown

if TYPE_CHECKING:
    from arbitrag.llm.base import Capabilities
    from arbitrag.security.trust import FromFile

EXAMPLE = "arbitrag doctor --llm openai:llama3@http://localhost:8000/v1"


@dataclass(frozen=True)
class Examined:
    """What a model offers, or the error in place of that."""

    address: str
    capabilities: Capabilities | None
    error: str = ""


def doctor(
    context: typer.Context,
    llm: Annotated[list[str] | None, option("llm", "doctor")] = None,
    as_json: AsJson = False,
    config: Config = None,
) -> int:
    """Check the installation, and test what models offer.

    The exit status is 1 when something of it does not work.
    """
    import asyncio

    from arbitrag.cli.terminal.output import say, say_json

    configuration = configured(context)
    examined = asyncio.run(_examine(llm or ["lab"], configuration.source("--llm")))
    report: dict[str, Any] = {
        "versions": _versions(),
        "extras": _extras(),
        "models": [_model(each) for each in examined],
        "embedded model": _embedded(),
        "places": _places(),
        "configuration": _configuration(configuration),
    }
    if as_json:
        say_json(report)
    else:
        say("\n".join(_told(report)))
    return 1 if any(each.error for each in examined) or "error" in report["embedded model"] else 0


def _versions() -> dict[str, str]:
    from arbitrag import __version__

    packages = {name: _version(name) for name in sorted(_required(None))}
    return {"arbitrag": __version__, "python": f"{platform.python_version()} on {platform.platform()}", **packages}


def _extras() -> dict[str, dict[str, str]]:
    """The packages of every extra with their versions, ``not installed`` where one is missing."""
    from importlib.metadata import metadata

    names = metadata("arbitrag").get_all("Provides-Extra") or []
    return {extra: {name: _version(name) for name in sorted(_required(extra))} for extra in names if extra != "all"}


def _required(extra: str | None) -> set[str]:
    """Names of the distributions that Arbitrag requires, for an extra or without any."""
    import re
    from importlib.metadata import requires

    found = set()
    for line in requires("arbitrag") or []:
        requirement, _, marker = line.partition(";")
        wanted = re.search(r"extra == ['\"]([^'\"]+)['\"]", marker)
        if (wanted[1] if wanted else None) == extra:
            found.add(re.split(r"[^A-Za-z0-9._-]", requirement.strip(), maxsplit=1)[0].lower())
    return found


def _version(distribution: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(distribution)
    except PackageNotFoundError:
        return "not installed"


async def _examine(addresses: list[str], source: FromFile | None) -> list[Examined]:
    from arbitrag.cli.terminal.output import progress

    found: list[Examined] = []
    with progress("Examining") as show:
        for address in addresses:
            show(len(found), len(addresses), shown(address, mark=HIDDEN))
            found.append(await _examine_one(address, source))
    return found


async def _examine_one(address: str, source: FromFile | None) -> Examined:
    from arbitrag.errors import ArbitragError
    from arbitrag.llm import open_llm
    from arbitrag.llm.base import capabilities_of
    from arbitrag.types import Need

    told = shown(address, mark=HIDDEN)
    try:
        backend = open_llm(address, source=source)
        try:
            return Examined(told, await capabilities_of(backend, Need.GENERATE | Need.SCORE, fresh=True))
        finally:
            await backend.aclose()
    except ArbitragError as error:
        return Examined(told, None, f"{type(error).__name__}: {error}")


def _model(examined: Examined) -> dict[str, Any]:
    capabilities = examined.capabilities
    if capabilities is None:
        return {"address": examined.address, "error": examined.error}
    return {
        "address": examined.address,
        "offers": capabilities.needs.names(),
        "context_tokens": capabilities.context_tokens,
        "evidence": list(capabilities.evidence),
    }


def _embedded() -> dict[str, Any]:
    """Name, size and hash of the manifest of the embedded model, whose files are checked against it."""
    from arbitrag.errors import ArbitragError
    from arbitrag.lab import model
    from arbitrag.storage import model_manifest
    from arbitrag.storage.files import file_digest

    try:
        found = model.manifest()
        found.verify(model.FOLDER)
        return {
            "name": found.name,
            "parameters": found.parameters,
            "precision": found.precision,
            "manifest": f"sha256:{file_digest(model.FOLDER / model_manifest.NAME)}",
        }
    except ArbitragError as error:
        return {"error": f"{type(error).__name__}: {error}"}


def _places() -> dict[str, str]:
    from arbitrag.llm.http.probe_cache import cache_folder

    hub = os.environ.get("HF_HOME") or str(Path.home() / ".cache" / "huggingface")
    return {
        "package": str(Path(__file__).parents[1]),
        "interpreter": sys.executable,
        "response cache": "off; ask with --cache DIR",
        "known servers": str(known / "servers") if (known := cache_folder()) else "off, by ARBITRAG_CACHE=off",
        "models of hf": hub,
        "OPENAI_API_KEY": "set" if os.environ.get("OPENAI_API_KEY") else "not set",
        "OPENAI_BASE_URL": shown(os.environ.get("OPENAI_BASE_URL", "")) or "not set",
    }


def _configuration(configuration: Configuration) -> dict[str, str]:
    """The file of settings, and everything that is set by it or by the environment, with where."""
    none = f"none; {NAME} is looked for here and in the parents, up to the project's root or the home folder"
    told = {"file": none if configuration.file is None else str(configuration.file)}
    for name, key in KEYS.items():
        if value := configuration.values.get(key.option):
            told[name] = f"{', '.join(map(shown, value.typed))} (from {value.origin})"
    for method, settings in configuration.settings.items():
        told[f"settings.{method}"] = ", ".join(f"{name}={value}" for name, value in settings.items())
    return told


def _told(report: dict[str, Any]) -> list[str]:
    lines = ["Versions", *_pairs(report["versions"]), "", "Extras"]
    for extra, packages in report["extras"].items():
        missing = [name for name, version in packages.items() if version == "not installed"]
        state = f"not installed; type: pip install 'arbitrag[{extra}]'" if missing else "installed"
        lines.append(f"  {extra:<16}{state} ({', '.join(f'{name} {version}' for name, version in packages.items())})")
    lines += ["", "Models"]
    for model in report["models"]:
        lines.append(f"  {model['address']}")
        if "error" in model:
            lines += [f"    {line}" for line in model["error"].splitlines()]
            continue
        context = "an unknown number of" if model["context_tokens"] is None else f"{model['context_tokens']:,}"
        lines.append(f"    offers {model['offers']}; reads {context} tokens")
        lines += [f"    {line}" for line in model["evidence"]]
    for part in ("embedded model", "configuration", "places"):
        lines += ["", part.capitalize(), *_pairs(report[part])]
    return lines


def _pairs(values: dict[str, Any]) -> list[str]:
    shown = ((name, f"{value:,}" if isinstance(value, int) else value) for name, value in values.items())
    return [f"  {name:<15} {value}" for name, value in shown]
