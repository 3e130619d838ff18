"""The answer of a program that listens in a sandbox."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class HttpAnswer:
    """Status, headers (names in lower case) and body."""

    status: int
    headers: dict[str, str]
    content: bytes

    @property
    def text(self) -> str:
        """The body as text; what is not valid UTF-8 is replaced."""
        return self.content.decode("utf-8", "replace")

    @property
    def is_success(self) -> bool:
        """Whether the status is 2xx."""
        return 200 <= self.status < 300

    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.content)
