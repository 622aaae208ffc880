"""Addresses of servers, with what is secret in them kept apart from what may be shown."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from arbitrag.errors import UsageError


@dataclass(frozen=True)
class Url:
    """An http address. ``plain`` has no user and password in it, nor has ``shown``, which is for people."""

    plain: str
    user: str = field(default="", repr=False)
    password: str = field(default="", repr=False)

    @classmethod
    def of(cls, text: str) -> Url:
        """Raises UsageError for all but http://host[:port][/path], without repeating it: it may hold a password."""
        try:
            parts = urlsplit(text)
            port = parts.port
        except ValueError:
            parts, port = urlsplit(""), None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError("this is not a server's address; one looks like https://localhost:9200")
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        default = 443 if parts.scheme == "https" else 80
        plain = f"{parts.scheme}://{host}:{port or default}{parts.path.rstrip('/')}"
        return cls(plain, unquote(parts.username or ""), unquote(parts.password or ""))

    @property
    def shown(self) -> str:
        return self.plain.partition("://")[2]
