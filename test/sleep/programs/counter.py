"""Counts, and writes each count down with both clocks before the next one."""

import os
import time
from pathlib import Path

with Path("/w/counter").open("a") as kept:
    count = 0
    while True:
        count += 1
        kept.write(f"{os.getpid()} {count} {time.time()} {time.monotonic()}\n")
        kept.flush()
        time.sleep(0.05)
