"""The reviewer: answers every draft that is sent to it with one remark, or with its approval."""

from http.server import BaseHTTPRequestHandler, HTTPServer


def review(draft: str) -> str:
    if len(draft.split()) > 8:
        return "too long: at most eight words"
    if not draft.endswith("."):
        return "a sentence ends with a full stop"
    return "approved"


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = review(self.rfile.read(int(self.headers["Content-Length"])).decode()).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


HTTPServer(("0.0.0.0", 8000), Handler).serve_forever()
