"""A notebook server with one kernel, inside the sandbox: POST /cells runs and saves a cell, GET /notebook shows all."""

import contextlib
import io
import json
import pathlib
import traceback
from http.server import BaseHTTPRequestHandler, HTTPServer

NOTEBOOK = pathlib.Path("/notebooks/notebook.ipynb")
EMPTY = {"nbformat": 4, "nbformat_minor": 5, "metadata": {"kernelspec": {"name": "python3"}}, "cells": []}

namespace: dict[str, object] = {}


def run_cell(source: str) -> str:
    """Runs a cell in the kernel's namespace; returns what it printed, or the traceback."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        try:
            exec(compile(source, "<cell>", "exec"), namespace)
        except Exception:
            output.write(traceback.format_exc())
    return output.getvalue()


def load() -> dict:
    return json.loads(NOTEBOOK.read_text()) if NOTEBOOK.exists() else EMPTY


def save(cell: str, output: str) -> None:
    notebook = load()
    outputs = [{"output_type": "stream", "name": "stdout", "text": output}]
    notebook["cells"].append({"cell_type": "code", "source": cell, "metadata": {}, "outputs": outputs})
    # Written aside and renamed: going to sleep in the middle leaves the old file or the new one.
    aside = NOTEBOOK.with_suffix(".tmp")
    aside.write_text(json.dumps(notebook, indent=1))
    aside.replace(NOTEBOOK)


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.answer(json.dumps(load()))

    def do_POST(self) -> None:
        cell = self.rfile.read(int(self.headers["Content-Length"])).decode()
        output = run_cell(cell)
        save(cell, output)
        self.answer(output)

    def answer(self, text: str) -> None:
        body = text.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


for saved in load()["cells"]:
    run_cell(saved["source"])
print(f"ready with {len(load()['cells'])} cells", flush=True)
HTTPServer(("0.0.0.0", 8888), Handler).serve_forever()
