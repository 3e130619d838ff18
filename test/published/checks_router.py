"""K20-K25: what the SDKs need of the router."""

from __future__ import annotations

import time
from typing import Any

from session import Session, settle
from wire import Wire

ECHO_PORT = "8123"

# A server of the user's in the sandbox: says what reached it, and answers each piece of a body as it comes.
ECHO = """
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Echo(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass

    def do_GET(self):
        body = json.dumps({"path": self.path, "headers": dict(self.headers)}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        while size := int(self.rfile.readline(), 16):
            piece = self.rfile.read(size)
            self.rfile.readline()
            self.wfile.write(b"%x\\r\\n%s\\r\\n" % (size, piece))
            self.wfile.flush()
        self.rfile.readline()
        self.wfile.write(b"0\\r\\n\\r\\n")

ThreadingHTTPServer(("0.0.0.0", 8123), Echo).serve_forever()
"""


async def echo(s: Session) -> Wire:
    """A connection to the echo server in the sandbox, which is started on first use."""
    wire = await s.wire(extra={"X-Sandbox-Port": ECHO_PORT})
    if not await settle(s.sandbox.files.exists("echo.py")):
        await settle(s.sandbox.files.write("echo.py", ECHO))
        await s.run("setsid python3 echo.py >echo.log 2>&1 </dev/null &")
    await s.becomes(lambda: wire.call("GET", "/up").status == 200)
    return wire


async def k20(s: Session) -> None:
    """A listener that asks for nothing takes any request; one that asks refuses with JSON and at once."""
    body = {"command": "echo hello"}
    wire = await s.wire()
    s.same("as the SDK sends it", wire.call("POST", "/execute", body).status, 200)
    token = {"Authorization": f"Bearer {s.options['token']}"}
    s.same("with a token", wire.call("POST", "/execute", body, headers=token).status, 200)
    stranger = Wire(s.options["tlsUrl"], s.tls(with_certificate=False), {"X-Sandbox-ID": s.sandbox.sandbox_id})
    for what, headers in (("without", {}), ("with a wrong", {"Authorization": "Bearer wrong"})):
        began = time.monotonic()
        refused = stranger.call("GET", "/", headers=headers)
        s.holds(f"{what} credential", refused.status in (401, 403), refused.status)
        s.holds("as JSON", isinstance(refused.json(), dict), refused.body)
        s.holds("at once", time.monotonic() - began < s.options["patience"], time.monotonic() - began)


async def k21(s: Session) -> None:
    """The address is a hint, and the time limit is kept to the fraction of a second."""
    wire = await s.wire()
    own = await settle(s.sandbox.get_pod_ip())
    for what, address in (("right", own), ("another's", "10.99.99.99"), ("junk", "not-an-address")):
        answer = wire.call("POST", "/execute", {"command": "hostname"}, headers={"X-Sandbox-Pod-IP": str(address)})
        if what != "junk":
            s.same(
                f"{what} address", [answer.status, (answer.json() or {}).get("stdout")], [200, await s.run("hostname")]
            )
        else:
            s.holds("junk is no failure of the server", answer.status in (200, 400), answer.status)
    slow = {"command": "sleep 30"}
    began = time.monotonic()
    limited = (await s.wire()).call("POST", "/execute", slow, headers={"X-Sandbox-Timeout": "1.5"})
    took = time.monotonic() - began
    s.holds(
        "a limit of 1.5 s", limited.status >= 400 and 1.4 <= took <= 1.5 + s.options["patience"], [limited.status, took]
    )
    patient = wire.call("POST", "/execute", {"command": "sleep 1"}, headers={"X-Sandbox-Timeout": "110.0"})
    s.same("a limit of 110.0 s", patient.status, 200)


async def k22(s: Session) -> None:
    """Paths are untouched, bodies pass in both directions piece by piece, nothing is redirected."""
    wire = await echo(s)
    for path in ("/a%2Fb", "/100%25", "/x/%2E%2E/y", "/a//b?c=%2F&d", "/%C3%BC"):
        s.same(path, wire.call("GET", path).json()["path"], path)
    legacy = await s.wire()
    lists = [legacy.call("GET", path) for path in ("/list", "/list/")]
    s.same("both reach the runtime", [answer.status for answer in lists], [200, 200])
    s.same("and are one", lists[0].json(), lists[1].json())
    s.same("pieces come back one by one", pieces(await echo(s)), [b"first", b"second"])


def pieces(wire: Wire) -> list[bytes]:
    """Sends a chunk only when the one before has come back."""
    wire.connection.putrequest("POST", "/duplex")
    for name, value in {**wire.headers, "Transfer-Encoding": "chunked"}.items():
        wire.connection.putheader(name, value)
    wire.connection.endheaders()
    wire.connection.send(b"5\r\nfirst\r\n")
    response = wire.connection.getresponse()
    seen = [response.read1(100)]
    wire.connection.send(b"6\r\nsecond\r\n0\r\n\r\n")
    return [*seen, response.read()]


async def k23(s: Session) -> None:
    """A 5xx says that nothing ran; what ran is never a 5xx, so nothing runs twice."""
    wire = await s.wire()
    s.same("a failing command", wire.call("POST", "/execute", {"command": "false"}).status, 200)
    s.same("a missing program", wire.call("POST", "/execute", {"command": "no-such-program"}).status, 200)
    nobody = (await s.wire(extra={"X-Sandbox-Port": "8999"})).call("GET", "/")
    s.holds("nobody listens", nobody.status in (502, 503), nobody.status)
    await s.run("rm -f ran.txt")
    command = {"command": "sh -c 'echo x >> ran.txt; sleep 3'"}
    late = (await s.wire()).call("POST", "/execute", command, headers={"X-Sandbox-Timeout": "1"})
    s.holds("too slow is no 5xx", 400 <= late.status < 500, late.status)
    if s.is_new:
        # A 0.5 client sends again whatever is answered; a 1.0 client never does.
        await s.run("rm -f ran.txt")
        s.holds(
            "the SDK gives up", await given_up(s) in ("SandboxRequestError None", "SandboxRequestError 408"), "else"
        )
    s.same("it ran once", await s.run("cat ran.txt"), "x\n")


async def given_up(s: Session) -> str:
    """What the SDK says of a slow command; its own limit and the router's are the same, so it may see either first."""
    try:
        await settle(s.sandbox.commands.run("sh -c 'echo x >> ran.txt; sleep 3'", timeout=1))
    except Exception as error:
        return f"{type(error).__name__} {getattr(error, 'status_code', None)}"
    return "nothing"


async def k24(s: Session) -> None:
    """A slow command is not cut before the client's own limit."""
    seconds = s.options["slowSeconds"]
    began = time.monotonic()
    ran: Any = await settle(s.sandbox.commands.run(f"sleep {seconds}", timeout=seconds + 60))
    s.same("it ended by itself", ran.exit_code, 0)
    s.holds("in its own time", time.monotonic() - began >= seconds, time.monotonic() - began)
    if s.is_new:
        limited = await settle(s.sandbox.commands.run("sleep 2", timeout=1, command_timeout=30))
        s.same("command_timeout + 10 is asked for and granted", [limited.exit_code, limited.timed_out], [0, False])


async def k25(s: Session) -> None:
    """TLS with an authority of one's own, and client certificates, on the direct URL."""
    s.same("the mode's own way", await s.run("echo secure"), "secure\n")
    for what, with_certificate, headers, wanted in (
        ("by token", False, {"Authorization": f"Bearer {s.options['token']}"}, 200),
        ("by certificate", True, {}, 200),
        ("by neither", False, {}, 401),
    ):
        routed = {"X-Sandbox-ID": s.sandbox.sandbox_id, **headers}
        wire = Wire(s.options["tlsUrl"], s.tls(with_certificate=with_certificate), routed)
        s.same(what, wire.call("POST", "/execute", {"command": "true"}).status, wanted)


CHECKS = {"K20": k20, "K21": k21, "K22": k22, "K23": k23, "K24": k24, "K25": k25}
