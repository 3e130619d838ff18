"""Prints the names that the Python SDK exports, with their types, as one JSON object; `sync` or `async` is the twin."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import sys
import textwrap
from typing import Any

import agent_sandbox_sdk
from agent_sandbox_sdk import options as option_types

Surface = dict[str, str]


def main(twin: str) -> None:
    """Reads the names of one twin; the other twin's classes are left out."""
    surface: Surface = {}
    for name in agent_sandbox_sdk.__all__:
        is_twin = f"Async{name}" in agent_sandbox_sdk.__all__
        if name.startswith("Async") if twin == "sync" else is_twin:
            continue
        exported = getattr(agent_sandbox_sdk, name)
        shown = name.removeprefix("Async")
        surface[shown] = ""
        if inspect.isclass(exported):
            for member, kind in _members(exported).items():
                surface[f"{shown}.{member}"] = kind
            for member, found in _functions(exported).items():
                surface.update({f"{shown}.{member}({option})": "" for option in _options(found)})
    print(json.dumps(surface))


def _members(cls: type) -> Surface:
    """What the class itself declares: methods, properties, fields, and what its constructor sets."""
    found: Surface = {}
    for name, value in vars(cls).items():
        if name.startswith("_"):
            continue
        if isinstance(value, property):
            found[name] = _annotation(value.fget)
        elif callable(getattr(value, "__func__", value)):
            found[name] = _annotation(getattr(value, "__func__", value))
    if dataclasses.is_dataclass(cls):
        found.update({name: str(kind) for name, kind in cls.__annotations__.items()})
    elif "__init__" in vars(cls):
        found.update({name: "" for name in _set_by(vars(cls)["__init__"]) if name not in found})
    return found


def _functions(cls: type) -> dict[str, Any]:
    every = {name: getattr(value, "__func__", value) for name, value in vars(cls).items()}
    return {name: value for name, value in every.items() if not name.startswith("_") and inspect.isfunction(value)}


def _annotation(function: Any) -> str:
    return str(inspect.signature(function).return_annotation)


def _options(function: Any) -> list[str]:
    """Arguments that may be left out, those of an unpacked TypedDict among them."""
    found = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            of = str(parameter.annotation).removeprefix("Unpack[").removesuffix("]")
            kind = getattr(option_types, of)
            found += sorted(kind.__optional_keys__ | kind.__required_keys__)
        elif parameter.default is not parameter.empty:
            found.append(parameter.name)
    return found


def _set_by(constructor: Any) -> list[str]:
    """Public attributes that a constructor sets."""
    body = ast.parse(textwrap.dedent(inspect.getsource(constructor)))
    targets = [
        target
        for statement in ast.walk(body)
        if isinstance(statement, ast.Assign | ast.AnnAssign)
        for target in (statement.targets if isinstance(statement, ast.Assign) else [statement.target])
    ]
    named = [target.attr for target in targets if isinstance(target, ast.Attribute)]
    return [name for name in named if not name.startswith("_")]


main(sys.argv[1] if len(sys.argv) > 1 else "sync")
