"""HTTP with every byte under control: raw paths, missing headers, bodies in pieces, watches read as they come."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit


@dataclass
class Answer:
    """An answer that was read to its end."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        """The body as JSON; `None` where it is none."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None


# Servers close a connection that was idle for two minutes; one that was for half of that is made anew.
FRESH_SECONDS = 60


class Wire:
    """One kept connection to one server."""

    def __init__(
        self, url: str, context: ssl.SSLContext | None, headers: dict[str, str], patience: float | None = 120
    ) -> None:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
        self.url, self.context, self.headers = url, context, headers
        self.used = time.monotonic()
        self.connection: http.client.HTTPConnection = (
            http.client.HTTPConnection(host, port, timeout=patience)
            if context is None
            else http.client.HTTPSConnection(host, port, timeout=patience, context=context)
        )

    def another(self, patience: float | None = 120) -> Wire:
        """A second connection of the same kind."""
        return Wire(self.url, self.context, self.headers, patience)

    def call(
        self, method: str, path: str, body: Any = None, *, headers: dict[str, str] | None = None, chunked: bool = False
    ) -> Answer:
        """One exchange with exactly this path and these headers; what is not bytes is sent as JSON."""
        self.send(method, path, body, headers=headers, chunked=chunked)
        return self.answer()

    def send(
        self, method: str, path: str, body: Any = None, *, headers: dict[str, str] | None = None, chunked: bool = False
    ) -> None:
        """The request alone."""
        payload = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        if time.monotonic() - self.used > FRESH_SECONDS:
            self.connection.close()
        self.connection.putrequest(method, path, skip_accept_encoding=True)
        for name, value in {**self.headers, **(headers or {})}.items():
            self.connection.putheader(name, value)
        if chunked:
            self.connection.putheader("Transfer-Encoding", "chunked")
        elif payload is not None:
            self.connection.putheader("Content-Length", str(len(payload)))
        self.connection.endheaders()
        if payload is None:
            return
        pieces = [payload[at : at + 1000] for at in range(0, len(payload), 1000)] if chunked else [payload]
        for piece in pieces:
            self.connection.send(b"%x\r\n%s\r\n" % (len(piece), piece) if chunked else piece)
        if chunked:
            self.connection.send(b"0\r\n\r\n")

    def answer(self) -> Answer:
        """The answer alone."""
        response = self.connection.getresponse()
        body = response.read()
        self.used = time.monotonic()
        return Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, body)

    def close(self) -> None:
        """Ends the connection."""
        self.connection.close()


@dataclass
class Watch:
    """A watch whose events are collected while it is open."""

    wire: Wire
    path: str
    status: int = 0
    events: list[dict[str, Any]] = field(default_factory=list)
    ended: str = ""
    seconds: float = 0.0

    def __post_init__(self) -> None:
        self.changed = threading.Condition()
        # Silence is no reason to end it from here.
        self.wire = self.wire.another(patience=None)
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self) -> None:
        """Collects until the server ends it; says how that was."""
        began = time.monotonic()
        try:
            self.wire.send("GET", self.path)
            response = self.wire.connection.getresponse()
            self.status = response.status
            if response.status != 200:
                self.events.append({"type": "REFUSED", "object": json.loads(response.read())})
            else:
                while line := response.readline():
                    with self.changed:
                        self.events.append(json.loads(line))
                        self.changed.notify_all()
            ended = "cleanly"
        except Exception as error:
            ended = f"{type(error).__name__}: {error}"
        self.seconds = time.monotonic() - began
        with self.changed:
            self.ended = ended
            self.changed.notify_all()

    def until(self, wanted: Any, patience: float = 60) -> dict[str, Any] | None:
        """The first event that is wanted, or `None` when there is none in time."""
        with self.changed:
            self.changed.wait_for(lambda: self.ended or any(wanted(event) for event in self.events), patience)
            return next((event for event in self.events if wanted(event)), None)

    def finish(self, patience: float = 60) -> str:
        """How it ended."""
        self.thread.join(patience)
        return self.ended or "still open"

    def close(self) -> None:
        """Ends it from here."""
        sock = self.wire.connection.sock
        if sock is not None:
            sock.close()
