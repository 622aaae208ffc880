"""A completion that a server streams as events (``text/event-stream``), put together as if it had come whole.

Half an answer is never one: a stream that ends without a reason to end, or says that something broke, is an error.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from arbitrag.llm.base import OnText
from arbitrag.llm.http.body import BodyError
from arbitrag.text import one_line

KIND = "text/event-stream"
OPTIONS = {"stream": True, "stream_options": {"include_usage": True}}  # the tokens come in an event of their own
_DONE = "[DONE]"


def is_stream(content_type: str) -> bool:
    """Whether a body of this type is a stream of events."""
    return content_type.partition(";")[0].strip().lower() == KIND


class Stream:
    """Takes the pieces of a body as they arrive, and gives ``on_text`` the whole text so far after each.

    ``said`` makes one short line, without secrets, of what a server says.
    """

    def __init__(self, on_text: OnText, said: Callable[[str], str] = one_line) -> None:
        self._on_text = on_text
        self._said = said
        self._line = bytearray()
        self._texts: list[str] = []
        self._finish: object = None
        self._usage: object = None
        self._chat = False
        self._done = False

    @property
    def begun(self) -> bool:
        """Whether a text was given already; the request is then not made again."""
        return bool(self._texts)

    def feed(self, piece: bytes) -> None:
        """Raises BodyError for an event that is none, or that says that the server failed."""
        *lines, rest = (bytes(self._line) + piece).split(b"\n")
        self._line = bytearray(rest)
        before = len(self._texts)
        for line in lines:
            self._event(line.strip())
        if len(self._texts) > before:
            self._on_text("".join(self._texts))

    def answer(self) -> dict[str, Any]:
        """The completion as a server that does not stream gives it. Raises BodyError where it is not whole."""
        self._event(bytes(self._line).strip())
        if self._finish is None and not self._done:
            raise BodyError("ended before the text did")
        text = "".join(self._texts)
        choice: dict[str, Any] = {"index": 0, "finish_reason": self._finish}
        choice |= {"message": {"role": "assistant", "content": text}} if self._chat else {"text": text}
        return {"choices": [choice], "usage": self._usage}

    def _event(self, line: bytes) -> None:
        if not line.startswith(b"data:") or self._done:
            return  # a comment, the name of an event, or the empty line between two
        data = line[5:].strip().decode("utf-8", "replace")
        if data == _DONE:
            self._done = True
            return
        try:
            event = json.loads(data)
        except (ValueError, RecursionError):
            raise BodyError(f"streams something that is not JSON: '{self._said(data)}'") from None
        if not isinstance(event, dict) or event.get("error"):
            said = event.get("error") if isinstance(event, dict) else event
            said = said.get("message", said) if isinstance(said, dict) else said
            raise BodyError(f"broke off: {self._said(str(said))}")
        self._usage = event.get("usage") or self._usage
        choices = event.get("choices")
        if isinstance(choices, list) and choices and isinstance(choices[0], dict):
            self._choice(choices[0])

    def _choice(self, choice: dict[str, Any]) -> None:
        delta = choice.get("delta")
        self._chat = self._chat or isinstance(delta, dict)
        text = delta.get("content") if isinstance(delta, dict) else choice.get("text")
        if isinstance(text, str) and text:
            self._texts.append(text)
        self._finish = choice.get("finish_reason") or self._finish
