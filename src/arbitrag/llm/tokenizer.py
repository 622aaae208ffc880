"""Text to token ids and back for the engines in this process, without torch.

Whatever a prompt says is untrusted: a passage may well contain ``</s>`` or ``<|im_end|>``. Such a piece must stay text,
so **the first character of every control token in a text or a message becomes ``‹``** (``</s>`` is read as ``‹/s>``).
Control tokens are those that the tokenizer marks as special, and every added token that looks like a tag (``<think>``,
``[INST]``). Only the chat template and the tokenizer's own post-processor write them.
"""

from __future__ import annotations

import hashlib
import json
import re
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from arbitrag.errors import BackendError, DataError
from arbitrag.llm.base import Message, Prompt
from arbitrag.storage.files import read_json

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_NAMES = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")
_TAG = re.compile(r"<.+>|\[.+\]", re.DOTALL)
_REMEMBERED = 1024  # texts whose ids are kept: those that 64 questions under way come back to
_LABEL = re.compile(r"^(?=(?:System|User|Assistant):)", re.MULTILINE)


class Codec(Protocol):
    """A tokenizer as the engine uses it: prompts and texts to token ids, and token ids to text (see ``TextCodec``)."""

    @property
    def eos_ids(self) -> frozenset[int]: ...

    @property
    def identity(self) -> str: ...

    def encode_prompt(self, prompt: Prompt) -> list[int]: ...

    def lead(self, prompt: Prompt) -> str: ...

    def encode(self, text: str) -> list[int]: ...

    def decode(self, ids: Sequence[int]) -> str: ...


class TextCodec:
    """A tokenizer with its chat template. Nothing in it changes after it was made."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        template: str | None = None,
        names: Mapping[str, str] | None = None,
        eos_ids: Iterable[int] = (),
    ) -> None:
        """``names`` are the texts of the named tokens (``bos_token`` ...), as a chat template knows them."""
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self._tokenizer = tokenizer

        @lru_cache(maxsize=_REMEMBERED)  # a prompt is counted, then written after, then scored after
        def read(text: str, complete: bool) -> array[int]:
            return array("i", tokenizer.encode(text, add_special_tokens=complete).ids)

        self._read = read
        self._read_prompt = lru_cache(maxsize=_REMEMBERED)(self._prompt_ids)
        self._tells_time = template is not None and "strftime_now" in template
        self._names = dict(names or {})
        named = tokenizer.token_to_id(self._names.get("eos_token", ""))
        self.eos_ids = frozenset([*eos_ids, *([] if named is None else [named])])
        self.template = template
        self._render = None if template is None else _compiled(template, self._names)
        self._control = _control_tokens(tokenizer)
        self._literal = _any_of(self._control.values())
        unknown = tokenizer.token_to_id(self._names.get("unk_token", "<unk>"))
        added = tokenizer.get_added_tokens_decoder()
        # A token matched after normalisation has other spellings ("＜/s＞" under NFKC), which only encoding finds.
        self._disguised = {id for id in self._control if added[id].normalized and id != unknown}
        self.identity = _digest(tokenizer)

    @classmethod
    def from_folder(cls, folder: Path) -> TextCodec:
        """Read ``tokenizer.json`` and, where they are, its config, chat template and the ids that end a text.

        Raises DataError for a file that is missing or cannot be read.
        """
        from tokenizers import Tokenizer

        path = folder / "tokenizer.json"
        if not path.is_file():
            raise DataError(f"{folder} has no tokenizer.json; a model folder needs it beside the model")
        try:
            tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # noqa: BLE001  (what the package raises for whatever is wrong with the file)
            raise DataError(f"{path} is not a tokenizer: {error}") from None
        config = read_json(folder / "special_tokens_map.json", {}) | read_json(folder / "tokenizer_config.json", {})
        ends = [read_json(folder / name, {}).get("eos_token_id") for name in ("generation_config.json", "config.json")]
        return cls(
            tokenizer,
            template=_template_in(folder, config),
            names=_named_tokens(config),
            eos_ids=[id for end in ends for id in _ids(end)],
        )

    @classmethod
    def from_transformers(cls, tokenizer: Any, *, eos_ids: Iterable[int] = ()) -> TextCodec:
        """The same from a loaded transformers tokenizer; ``eos_ids`` are those of the model's generation config.

        The tokenizer is copied, because transformers switches padding and truncation on and off in its own.
        Raises BackendError for a tokenizer that is not backed by the ``tokenizers`` package.
        """
        from tokenizers import Tokenizer

        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise BackendError(
                f"{type(tokenizer).__name__} has no fast form; convert the model to one with tokenizer.json"
            )
        template = _default_template(tokenizer.chat_template)
        return cls(
            Tokenizer.from_str(backend.to_str()),
            template=template,
            names=_named_tokens(tokenizer.special_tokens_map),
            eos_ids=eos_ids,
        )

    @property
    def has_template(self) -> bool:
        return self._render is not None

    @property
    def vocabulary_size(self) -> int:
        """Tokens that the tokenizer knows; a model's output can be wider, padded to a round number."""
        return self._tokenizer.get_vocab_size(with_added_tokens=True)

    def encode_prompt(self, prompt: Prompt) -> list[int]:
        """The ids that the model reads, up to where its answer begins (``prompt.lead`` not included).

        Plain text goes through the tokenizer's post-processor, which adds the beginning of a text where there is one.
        A chat template writes that itself, so nothing is added to what it gives. Messages for a model without a
        template become plain text: ``System: …``, ``User: …`` and a last ``Assistant:``, a line each.
        Raises BackendError when the template refuses the messages.
        """
        read = self._prompt_ids if self._tells_time else self._read_prompt
        return list(read(prompt.text, tuple(prompt.messages)))

    def _prompt_ids(self, text: str | None, given: tuple[Message, ...]) -> array[int]:
        if text is not None:
            return self._read(self._harmless(text), True)
        messages = [Message(message.role, self._harmless(message.text)) for message in given]
        if self._render is None:
            return self._read(as_text(messages), True)
        return self._read(_rendered(self._render, messages), False)

    def lead(self, prompt: Prompt) -> str:
        """What stands between a prompt and its answer: ``prompt.lead``, and after messages in plain text a space."""
        return " " if prompt.text is None and self._render is None else prompt.lead

    def encode(self, text: str) -> list[int]:
        """The ids of a piece of text, with nothing added before or after it."""
        return list(self._read(self._harmless(text), False))

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids; special tokens leave none."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=True)

    def _harmless(self, text: str) -> str:
        """``text`` with every control token in it broken; see the module's rule."""
        while self._literal is not None and self._literal.search(text):
            text = self._literal.sub(lambda match: _broken(match[0]), text)
        if not self._disguised:
            return text
        while True:
            found = self._tokenizer.encode(text, add_special_tokens=False)
            spans = [span for id, span in zip(found.ids, found.offsets, strict=True) if id in self._disguised]
            if not spans:
                return text
            for start, end in reversed(spans):
                text = text[:start] + _broken(text[start:end]) + text[end:]


def _broken(piece: str) -> str:
    """``piece`` without its first character; one that was marked before and still counts as a token goes altogether."""
    return "" if piece.startswith("‹") else "‹" + piece[1:]


def _control_tokens(tokenizer: Tokenizer) -> dict[int, str]:
    added = tokenizer.get_added_tokens_decoder()
    return {id: token.content for id, token in added.items() if token.special or _TAG.fullmatch(token.content)}


def _any_of(texts: Iterable[str]) -> re.Pattern[str] | None:
    longest_first = sorted(filter(None, texts), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first))) if longest_first else None


def _digest(tokenizer: Tokenizer) -> str:
    """Equal for tokenizers that give every token the same id."""
    vocabulary = sorted(tokenizer.get_vocab(with_added_tokens=True).items(), key=lambda item: item[1])
    text = "\x00".join(f"{id}\x01{token}" for token, id in vocabulary)
    return f"tokens:{hashlib.sha256(text.encode(errors='surrogatepass')).hexdigest()[:16]}"


def as_text(messages: Sequence[Message]) -> str:
    """Messages for a model that knows no chat. A line of content that looks like a label of ours is indented."""
    lines = [f"{message.role.capitalize()}: {_LABEL.sub(' ', message.text)}" for message in messages]
    return "\n".join([*lines, "Assistant:"])


def _rendered(render: Callable[[list[dict[str, str]]], str], messages: Sequence[Message]) -> str:
    """What the template makes of the messages; one that knows no system role gets that text with the first message."""
    from jinja2 import TemplateError

    try:
        return render([{"role": message.role, "content": message.text} for message in messages])
    except TemplateError as error:
        if len(messages) > 1 and messages[0].role == "system":
            first = Message(messages[1].role, f"{messages[0].text}\n\n{messages[1].text}")
            return _rendered(render, [first, *messages[2:]])
        raise BackendError(f"the model's chat template refuses these messages: {error}") from None


def _compiled(template: str, names: Mapping[str, str]) -> Callable[[list[dict[str, str]]], str]:
    """A chat template with what such templates expect of transformers, in jinja's sandbox: it comes with the model."""
    from jinja2 import TemplateError, TemplateSyntaxError
    from jinja2.ext import loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def refuse(message: str) -> None:
        raise TemplateError(message)

    def now(form: str) -> str:
        from datetime import datetime

        return datetime.now().strftime(form)

    def tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _generation_block()]
    )
    environment.filters["tojson"] = tojson  # jinja's own escapes for HTML
    environment.globals.update(raise_exception=refuse, strftime_now=now)
    try:
        compiled = environment.from_string(template)
    except TemplateSyntaxError as error:
        raise DataError(f"the model's chat template cannot be read: line {error.lineno}: {error.message}") from None

    def render(messages: list[dict[str, str]]) -> str:
        return compiled.render(messages=messages, tools=None, documents=None, add_generation_prompt=True, **names)

    return render


def _generation_block() -> type[Any]:
    """``{% generation %}``, with which templates mark the assistant's words for training; here it only holds them."""
    from jinja2 import nodes
    from jinja2.ext import Extension
    from jinja2.parser import Parser

    class Generation(Extension):
        tags = {"generation"}  # noqa: RUF012  (the way jinja declares it)

        def parse(self, parser: Parser) -> list[nodes.Node]:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    return Generation


def _template_in(folder: Path, config: Mapping[str, Any]) -> str | None:
    path = folder / "chat_template.jinja"
    if path.is_file():
        return path.read_text(encoding="utf-8")
    return _default_template(config.get("chat_template"))


def _default_template(given: Any) -> str | None:
    """A template is a text, or several by name, of which ``default`` is the one for chat."""
    if isinstance(given, list):
        given = {entry["name"]: entry["template"] for entry in given}
    if isinstance(given, Mapping):
        given = given.get("default")
    return given if isinstance(given, str) else None


def _named_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """``bos_token`` and its like, which files give as a text or as ``{"content": text}``."""
    found = {name: config.get(name) for name in _NAMES}
    texts = {name: token.get("content") if isinstance(token, Mapping) else token for name, token in found.items()}
    return {name: str(text) for name, text in texts.items() if text is not None}


def _ids(value: Any) -> list[int]:
    return [value] if isinstance(value, int) else list(value or [])
