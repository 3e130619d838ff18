"""A dev server: serves the files beside it, and tells every open page over a WebSocket when one of them changes."""

import base64
import hashlib
import pathlib
import time
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

ROOT = pathlib.Path(__file__).parent
# RFC 6455, section 1.3: what a server adds to the client's key to show that it speaks the protocol.
WEBSOCKET_ID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def versions() -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in ROOT.iterdir() if path.suffix in (".html", ".css", ".js")}


class Handler(SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, *args: object) -> None:
        super().__init__(*args, directory=str(ROOT))

    def do_GET(self) -> None:
        if self.headers.get("Upgrade", "").lower() == "websocket":
            self.tell_changes()
        else:
            super().do_GET()

    def tell_changes(self) -> None:
        """Upgrades and sends the name of every file that changes, until the page is closed."""
        accept = hashlib.sha1((self.headers["Sec-WebSocket-Key"] + WEBSOCKET_ID).encode()).digest()
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(accept).decode())
        self.end_headers()
        self.close_connection = True
        self.send_text("connected")
        seen = versions()
        while True:
            time.sleep(0.1)
            current = versions()
            for name in sorted(name for name in current if current[name] != seen.get(name)):
                self.send_text(f"reload {name}")
            seen = current

    def send_text(self, text: str) -> None:
        # One unmasked text frame; shorter than 126 bytes, so that the length fits its first byte.
        payload = text.encode()
        self.wfile.write(bytes([0x81, len(payload)]) + payload)


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A page that was closed is no error."""


print("listening on 5173", flush=True)
Server(("0.0.0.0", 5173), Handler).serve_forever()
