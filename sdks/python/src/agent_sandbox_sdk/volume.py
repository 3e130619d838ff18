"""Storage of a sandbox."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Volume:
    """Storage that outlives suspension."""

    path: str
    size: str = "1Gi"
    """A Kubernetes quantity, for example `10Gi`."""
    storage_class: str | None = None
