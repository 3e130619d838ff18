"""Says what the database has beside what was acknowledged before it was asked."""

import json
import sqlite3
from pathlib import Path

last = Path("/w/sqlite.acknowledged").read_text().rsplit("\n", 2)[-2]
pid, row = map(int, last.split())
base = sqlite3.connect("/w/rows.db", timeout=20)
base.execute("BEGIN")
count, top = base.execute("SELECT count(*), max(id) FROM rows").fetchone()
print(
    json.dumps(
        {
            "pid": pid,
            "acknowledged": row,
            "count": count,
            "top": top,
            "integrity": base.execute("PRAGMA integrity_check").fetchone()[0],
        }
    )
)
