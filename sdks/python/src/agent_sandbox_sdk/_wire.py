"""Values as they travel."""

from __future__ import annotations

import re
from datetime import datetime, timezone

_FRACTION = re.compile(r"(\.\d{1,6})\d*")


def parse_time(text: str | None) -> datetime | None:
    """An RFC 3339 time; nanoseconds are cut to microseconds, which is all that datetime holds."""
    if not text:
        return None
    return datetime.fromisoformat(_pad(_FRACTION.sub(r"\1", text)).replace("Z", "+00:00"))


def _pad(text: str) -> str:
    # Python 3.10 reads fractions of exactly three or six digits only.
    return re.sub(r"\.(\d+)", lambda match: "." + match.group(1).ljust(6, "0"), text)


def format_time(time: datetime) -> str:
    """RFC 3339 in UTC with whole seconds, as Kubernetes wants it."""
    return time.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
