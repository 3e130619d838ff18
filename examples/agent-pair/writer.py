"""The writer: sends a draft to the reviewer by its name and mends what the reviewer remarks, until it approves."""

import sys
import urllib.request

REVIEWER = "http://reviewer:8000/"


def ask(draft: str) -> str:
    with urllib.request.urlopen(REVIEWER, draft.encode(), timeout=60) as answer:
        return answer.read().decode()


def mend(draft: str, remark: str) -> str:
    if remark.startswith("too long"):
        return " ".join(draft.split()[:8])
    return draft + "."


draft = sys.argv[1]
while (remark := ask(draft)) != "approved":
    print(f"reviewer: {remark}")
    draft = mend(draft, remark)
print(f"approved: {draft}")
