"""Writes trace.csv: ten minutes of invented requests in the columns of the Azure LLM inference traces.

Two kinds of users: chats with middling inputs and answers, and code completions with long inputs and short answers.

Usage: python examples/make_trace.py  (same seed, same file)
"""

import csv
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

SEED = 7
SECONDS = 600
REQUESTS_PER_SECOND = 1.5
START = datetime(2026, 11, 20, 9, 0, tzinfo=UTC)
TARGET = Path(__file__).with_name("trace.csv")


def main(target: Path = TARGET) -> None:
    draw = Random(SEED)
    with target.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["TIMESTAMP", "ContextTokens", "GeneratedTokens"])
        elapsed_s = 0.0
        while elapsed_s < SECONDS:
            is_chat = draw.random() < 0.6
            context = draw.lognormvariate(6.3, 0.8) if is_chat else draw.lognormvariate(7.6, 0.5)
            generated = draw.lognormvariate(5.3, 0.6) if is_chat else draw.lognormvariate(2.8, 0.7)
            time = (START + timedelta(seconds=elapsed_s)).strftime("%Y-%m-%d %H:%M:%S.%f")
            writer.writerow([time, min(16_000, 1 + int(context)), min(2_000, 1 + int(generated))])
            elapsed_s += draw.expovariate(REQUESTS_PER_SECOND)


if __name__ == "__main__":
    main()
