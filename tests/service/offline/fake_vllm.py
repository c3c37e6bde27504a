"""Stands in for the `vllm` command: a server that loads for a while, answers, and writes down its start and end.

Settings come in a JSON file beside it: {"load_s": {model: seconds, null: never}, "ends": [models that fail]}. Every
server has a child of its own, as vLLM has.
"""

import json
import os
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import FrameType

FOLDER = Path(__file__).parent
SETTINGS = json.loads((FOLDER / "settings.json").read_text("utf-8"))
WORDS = sys.argv[1:]
GPUS = os.environ["CUDA_VISIBLE_DEVICES"]


def value_of(flag: str) -> str:
    """Of `--flag value` or `--flag=value`."""
    joined = [word.partition("=")[2] for word in WORDS if word.startswith(f"{flag}=")]
    return joined[0] if joined else WORDS[WORDS.index(flag) + 1]


MODEL = value_of("--served-model-name")


def note(event: str, child: int = 0) -> None:
    """One line, written at once."""
    record = {"event": event, "model": MODEL, "gpus": GPUS, "pid": os.getpid(), "child": child, "words": WORDS}
    line = json.dumps({**record, "at_s": time.monotonic()}) + "\n"
    with (FOLDER / "events.jsonl").open("a", encoding="utf-8") as stream:
        stream.write(line)


class Handler(BaseHTTPRequestHandler):
    """/health, and completions that take a moment."""

    def do_GET(self) -> None:
        self.answer({})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        time.sleep(0.02)
        self.answer({"choices": [{"text": f"{asked['prompt']} by {self.server.server_port}"}]})  # type: ignore[attr-defined]

    def answer(self, value: object) -> None:
        content = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Silent."""


def end(number: int, frame: FrameType | None) -> None:
    if MODEL in SETTINGS.get("stubborn", []):
        return
    note("stop")
    os._exit(0)


def main() -> None:
    signal.signal(signal.SIGTERM, end)
    child = subprocess.Popen(["sleep", "300"])
    note("start", child.pid)
    print(f"loading {MODEL}", flush=True)
    load_s = SETTINGS.get("load_s", {}).get(MODEL, 0.0)
    time.sleep(300.0 if load_s is None else load_s)
    if MODEL in SETTINGS.get("ends", []):
        sys.exit("out of memory")
    ThreadingHTTPServer(("127.0.0.1", int(value_of("--port"))), Handler).serve_forever()


if __name__ == "__main__":
    main()
