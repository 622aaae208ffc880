"""A scripted OpenAI-compatible server in a process of its own, so that only the client's time is measured."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO

from harness.processes import environment, python


class Running:
    """The server while it runs. ``base_url`` is its address."""

    def __init__(self, to: IO[str], of: IO[str]) -> None:
        self._to, self._of = to, of
        self.base_url = of.readline().strip()

    def requested(self) -> list[str]:
        """The paths of the requests since the last call."""
        self._to.write("\n")
        self._to.flush()
        return self._of.readline().split()


@contextmanager
def scripted_server(
    replies: str | Mapping[str, str] = "yes", *, style: str = "none", delay_s: float = 0.0
) -> Iterator[Running]:
    """A server that replies with one text, or by a piece of the prompt, each after ``delay_s`` seconds.

    ``style`` is the likelihoods that it offers, as for ``arbitrag.testing.ScriptedServer``.
    """
    command = python("harness.scripted_server", json.dumps([replies, style, delay_s]))
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment())
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield Running(process.stdin, process.stdout)
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()


def _serve() -> None:
    """Serve until standard input ends; answer each line there with the paths of the requests since the last."""
    from arbitrag.testing import ScriptedServer
    from arbitrag.testing.server import repeats

    replies, style, delay_s = json.loads(sys.argv[1])

    def likely(before: str, token: str) -> float:
        return repeats(before[-400:], token)  # of a whole prompt it takes long

    def reply(prompt: object) -> str:
        return str(replies)

    scripted = reply if isinstance(replies, str) else replies
    with ScriptedServer(scripted, style=style, likelihood=likely, delay_s=delay_s) as server:
        print(server.base_url, flush=True)
        for _ in sys.stdin:
            print(" ".join(request.path for request in server.requests), flush=True)
            server.requests.clear()


if __name__ == "__main__":
    _serve()
