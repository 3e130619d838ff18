"""Plays the model: five calls of the tool, each building on what the ones before left."""

from interpreter import TOOL, CodeInterpreter

CALLS = [
    "prices = [12.5, 9.75, 31.0]\nprint('stored', len(prices))",
    "import statistics\nstatistics.mean(prices)",
    "prices['apple']",
    "open('report.txt', 'w').write(f'total {sum(prices)}')\nwhile True: pass",
    "open('report.txt').read()",
]

with CodeInterpreter(time_limit=3) as interpreter:
    for code in CALLS:
        print(f">>> {TOOL['name']}({code!r})")
        print(interpreter.run_python(code), end="")
