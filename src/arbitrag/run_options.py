"""The options of a run, each declared once: what it is for, how it is typed, where it may be set, what a run remembers.

The command line (``cli.options.option``), the file of settings and its variables (``cli.config``), the checks of
arguments in Python (``arguments``), the default limits (``kit.Limits``) and what a run file remembers
(``cli.bench.options``) are derived from the fields of ``RunOptions`` and their metadata. A new option is a field here,
and a line in the signature of each command that takes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, TypeAlias

from arbitrag.registry import ENCODERS, INDEXES, LLMS, forms
from arbitrag.text import listed

# What a value names: a model or an encoder, an index, a folder, or a folder of responses. It decides what a file that
# may be a stranger's is allowed to say (see ``security.trust``), and what is secret in it and not kept.
Names: TypeAlias = Literal["address", "index", "folder", "responses"]


@dataclass(frozen=True)
class Option:
    """How one option is typed on the command line, set in a file, and given in Python.

    ``in_python`` says in words what an argument of its name takes there, where that is checked. ``per`` has what is
    different in a command, by the command's name.
    """

    help: str
    metavar: str | None = "NUMBER"
    default: Any = None
    least: int | None = None
    completes: str = ""  # the function of cli.terminal.completion
    names: Names | None = None
    key: str = ""  # in the file of settings; "" where it cannot be set
    kind: type = str  # of its value in that file
    variable: str = ""  # of the environment, where it is not called as the option
    settable: tuple[str, ...] = ("ask", "bench run")  # the commands that take it from there
    remembered: bool = False  # a run goes on with it
    in_python: str = ""
    per: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def of(self, command: str) -> Option:
        """As it is for a command."""
        return replace(self, **self.per.get(command, {}))


def _option(help: str, **declared: Any) -> Any:
    return field(default=None, metadata={"option": Option(help, **declared)})


_AS_IT_WAS = {"bench retry": {"help": "As given to bench run."}}
_MODEL = "an address such as 'openai:gpt-4o-mini', 'hf:MODEL' or 'lab', or a model"
_FOLDER = "the path of a folder"


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What a run is made of and how it is carried out, as it was typed; None is what was not given."""

    llm: str | None = _option(
        f"The model: {listed(forms(LLMS), 'or')}.",
        metavar="ADDRESS",
        completes="models",
        names="address",
        key="llm",
        settable=("ask", "bench run", "doctor"),
        in_python=_MODEL,
        per={
            "bench run": {"help": "A model, as for ask. Repeatable.", "completes": ""},
            "bench retry": {
                "help": "A model of the run, typed again because it is remote. Repeatable.",
                "completes": "",
            },
            "doctor": {"help": "A model to test. Repeatable.", "completes": ""},
        },
    )
    scorer: str | None = _option(
        "A second model that scores, if --llm gives no likelihoods.",
        metavar="ADDRESS",
        names="address",
        key="scorer",
        remembered=True,
        in_python=_MODEL,
        per={"bench run": {"help": "A second model that scores, if an --llm gives no likelihoods."}, **_AS_IT_WAS},
    )
    encoder: str | None = _option(
        f"The encoder for vectors: {', '.join(forms(ENCODERS))}.",
        metavar="ADDRESS",
        completes="encoders",
        names="address",
        key="encoder",
        settable=("ask", "bench run", "search", "index"),
        remembered=True,
        in_python="an address such as 'hash' or 'st:NAME', or an encoder",
    )
    index: str | None = _option(
        f"An index made by arbitrag index, or {', '.join(forms(INDEXES))}.",
        metavar="ADDRESS",
        names="index",
        key="index",
        remembered=True,
    )
    mode: str | None = _option(
        "How to search an index with vectors: bm25, dense or hybrid.",
        metavar="NAME",
        completes="modes",
        key="mode",
        settable=("ask", "bench run", "search"),
        remembered=True,
        in_python="'bm25', 'dense' or 'hybrid'",
    )
    where: Sequence[str] | None = _option(
        "Only passages with this value in their metadata. Repeatable.",
        metavar="KEY=VALUE",
        key="where",
        kind=dict,
        settable=("ask", "bench run", "search"),
        remembered=True,
        in_python="a mapping of texts such as {'language': 'en'}",
    )
    method: str | None = _option(
        "The method; arbitrag methods lists them. auto is rag.",
        metavar="NAME",
        default="auto",
        completes="methods",
        key="method",
        per={
            "bench run": {
                "help": 'A method, with settings if need be: "rag k=5". Repeatable. See: arbitrag methods.',
                "metavar": "METHOD",
                "default": None,
            },
            "tune": {"help": "The method to tune.", "metavar": "trustmargin|bridge", "default": None, "completes": ""},
        },
    )
    answer: str | None = _option(
        "long adds an answer in sentences that cite the passages.",
        metavar="short|long",
        default="short",
        key="answer",
        settable=("ask",),
    )
    price: str | None = _option(
        "The price of a million prompt and completion tokens of --llm.",
        metavar="PROMPT,COMPLETION",
        key="price",
        in_python="Price(prompt=..., completion=...) of arbitrag.llm.base",
        per={
            name: {"help": "The price of a million prompt and completion tokens, for all models or one each."}
            for name in ("bench run", "bench retry")
        },
    )
    cache: str | None = _option(
        "Cache model responses in this folder.",
        metavar="DIR",
        names="responses",
        key="cache",
        variable="RESPONSE_CACHE",  # ARBITRAG_CACHE is where the answers of probes are kept
        remembered=True,
        in_python=_FOLDER,
        per={"bench run": {"help": "Cache model responses in this folder, also for other runs."}, **_AS_IT_WAS},
    )
    wording: str | None = _option(
        "A folder with your own prompt files.",
        metavar="DIR",
        names="folder",
        key="wording",
        remembered=True,
        in_python=_FOLDER,
        per=_AS_IT_WAS,
    )
    concurrency: int | None = _option(
        "How many questions run concurrently.",
        default=16,
        least=1,
        key="concurrency",
        kind=int,
        per={name: {"help": "How many rows run concurrently.", "default": 64} for name in ("bench run", "bench retry")},
    )
    context_tokens: int | None = _option(
        "The token limit for all passages of a prompt.",
        default=2048,
        least=1,
        key="limits.context_tokens",
        kind=int,
        remembered=True,
        per={"bench run": {"default": None}},  # those of the run file, or the same
    )
    answer_tokens: int | None = _option(
        "The token limit for an answer.",
        default=32,
        least=1,
        key="limits.answer_tokens",
        kind=int,
        remembered=True,
        per={"bench run": {"default": None}},
    )
    writing_tokens: int | None = _option(
        "The token limit for a method's intermediate texts.",
        default=256,
        least=1,
        key="limits.writing_tokens",
        kind=int,
        remembered=True,
        per={"bench run": {"default": None}},
    )
    max_tokens: int | None = _option(
        "A limit on the prompt and completion tokens of the run; it stops before exceeding it.",
        least=1,
        key="limits.max_tokens",
        kind=int,
    )
    max_cost: float | None = _option(
        "A limit on the run's cost; it stops before exceeding it. Needs --price.",
        metavar="MONEY",
        key="limits.max_cost",
        kind=float,
    )
    passages: str | None = _option(
        'A JSON-lines file of passages {"text": ...}, given to every question.',
        metavar="FILE",
        remembered=True,
        per={
            "bench run": {
                "help": "Use the questions' own passages, or retrieve from the index.",
                "metavar": "given|retrieved",
            }
        },
    )
    questions: str | None = _option(
        "A file of questions: JSON lines, CSV, or one question per line. See: arbitrag data check.",
        metavar="FILE|-",
        per={
            "bench run": {"help": "A question set; see arbitrag data check. Repeatable.", "metavar": "ADDRESS"},
        },
    )
    limit: int | None = _option("How many questions of each set to use, at most.", least=1)
    seed: int | None = _option(
        "Choose the --limit questions at random with this seed; else the first ones.",
        remembered=True,
        per={"tune": {"help": "The seed of the bootstrap.", "default": 0}},
    )
    retries: int | None = _option("How often a failed request is retried.", least=0, remembered=True)
    deterministic: bool | None = _option(
        "Reproducible numbers at any --concurrency, for in-process models.", metavar=None, remembered=True
    )


OPTIONS: Mapping[str, Option] = {each.name: each.metadata["option"] for each in fields(RunOptions)}


def flag(name: str) -> str:
    """How an option is typed: ``--context-tokens`` for ``context_tokens``."""
    return "--" + name.replace("_", "-")
