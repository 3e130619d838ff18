"""Compares results with what a scenario expects."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any


def mismatch(expected: Any, actual: Any, path: str = "result") -> str | None:
    """The first difference in words, or None."""
    if not isinstance(expected, Mapping):
        return None if expected == actual else f"{path} is {actual!r}, not {expected!r}"
    if "contains" in expected:
        return None if expected["contains"] in actual else f"{path} is {actual!r}, without {expected['contains']!r}"
    if "matches" in expected:
        return None if re.search(expected["matches"], actual) else f"{path} {actual!r} !~ {expected['matches']!r}"
    if "atLeast" in expected:
        return None if actual >= expected["atLeast"] else f"{path} is {actual!r}, below {expected['atLeast']!r}"
    for key, value in expected.items():
        if key not in actual:
            return f"{path} has no {key}"
        found = mismatch(value, actual[key], f"{path}.{key}")
        if found is not None:
            return found
    return None


def substitute(value: Any, kept: Mapping[str, Any]) -> Any:
    """Replaces `${name.field}` in every text below a value."""
    if isinstance(value, str):
        return re.sub(r"\$\{([a-z-]+)(?:\.([A-Za-z]+))?\}", lambda match: _look_up(match, kept), value)
    if isinstance(value, Mapping):
        return {substitute(key, kept): substitute(inner, kept) for key, inner in value.items()}
    if isinstance(value, list):
        return [substitute(inner, kept) for inner in value]
    return value


def _look_up(match: re.Match[str], kept: Mapping[str, Any]) -> str:
    name, field = match.group(1), match.group(2)
    if name not in kept:
        return match.group(0)
    return str(kept[name] if field is None else kept[name][field])
