"""A small HTTP server in this process, whose answers a test writes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType


@dataclass
class Request:
    """What the server got."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Answer:
    """What the server says; `cut` breaks the connection off behind the body.

    It says nothing until `delay` is true, and does nothing behind the body until `delay_end` is.
    """

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False
    delay: Callable[[], bool] | None = None
    delay_end: Callable[[], bool] | None = None


class HttpServer:
    """Listens on a free port while the block lasts."""

    def __init__(self, answer: Callable[[Request], Answer]) -> None:
        self.requests: list[Request] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do(self) -> None:
                length = int(self.headers.get("content-length", 0))
                headers = {key.lower(): value for key, value in self.headers.items()}
                request = Request(self.command, self.path, headers, self.rfile.read(length))
                outer.requests.append(request)
                said = answer(request)
                while said.delay is not None and not said.delay():
                    time.sleep(0.01)
                self.send_response(said.status)
                for key, value in said.headers.items():
                    self.send_header(key, value)
                # A body that is cut promises more than it holds.
                self.send_header("content-length", str(len(said.body) + (100 if said.cut else 0)))
                self.end_headers()
                self.wfile.write(said.body)
                self.wfile.flush()
                while said.delay_end is not None and not said.delay_end():
                    time.sleep(0.01)
                if said.cut:
                    self.close_connection = True

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do

            def log_message(self, format: str, *args: object) -> None:
                """Tests print nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> HttpServer:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Answers nobody any more."""
        self._server.shutdown()
        self._server.server_close()
