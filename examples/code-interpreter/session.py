"""Runs inside the sandbox: reads one snippet per line of JSON, runs all of them in one namespace, answers per line."""

import ast
import contextlib
import io
import json
import sys
import traceback

namespace: dict[str, object] = {"__name__": "__main__"}
answers = sys.stdout


def run(code: str) -> dict[str, object]:
    """Runs a snippet; like a prompt, it shows the value of a last expression."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        try:
            tree = ast.parse(code, "<snippet>")
            last = ast.Expression(tree.body.pop().value) if tree.body and isinstance(tree.body[-1], ast.Expr) else None
            exec(compile(tree, "<snippet>", "exec"), namespace)
            value = eval(compile(last, "<snippet>", "eval"), namespace) if last else None
        except BaseException as error:
            # SystemExit too: `exit()` in a snippet must not end the session. The first frame is this function's.
            frames = error.__traceback__.tb_next if error.__traceback__ else None
            return {
                "ok": False,
                "output": output.getvalue() + "".join(traceback.format_exception(error.with_traceback(frames))),
            }
    shown = output.getvalue() + (f"{value!r}\n" if value is not None else "")
    return {"ok": True, "output": shown}


for line in sys.stdin:
    answers.write(json.dumps(run(json.loads(line)["code"])) + "\n")
    answers.flush()
