"""Writes rows to SQLite, and acknowledges each once its transaction is committed."""

import os
import sqlite3
import time
from pathlib import Path

base = sqlite3.connect("/w/rows.db", isolation_level=None)
base.execute("PRAGMA journal_mode=WAL")
base.execute("PRAGMA synchronous=FULL")
base.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, body TEXT NOT NULL)")
base.execute("CREATE INDEX bodies ON rows (body)")
with Path("/w/sqlite.acknowledged").open("a") as acknowledged:
    row = 0
    while True:
        row += 1
        base.execute("BEGIN IMMEDIATE")
        base.execute("INSERT INTO rows VALUES (?, ?)", (row, f"{row * 7919 % 10007} {'x' * 200}"))
        base.execute("COMMIT")
        acknowledged.write(f"{os.getpid()} {row}\n")
        acknowledged.flush()
        time.sleep(0.01)
