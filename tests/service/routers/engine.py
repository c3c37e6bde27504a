"""A stand-in for an engine, as a process: /health, and completions that say who wrote them. `engine.py NAME SECONDS`

It says its port on stdout and takes SECONDS for a completion.
"""

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Engine(BaseHTTPRequestHandler):
    wbufsize = 65_536  # an answer goes out whole: whoever kills the engine interrupts none

    def do_GET(self) -> None:
        self._answer({})

    def do_POST(self) -> None:
        request = json.loads(self._body())
        time.sleep(float(sys.argv[2]))
        self._answer({"system_fingerprint": sys.argv[1], "model": request["model"]})

    def _body(self) -> bytes:
        if self.headers["Transfer-Encoding"] != "chunked":
            return self.rfile.read(int(self.headers["Content-Length"]))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size + 2)[:-2]
        return body

    def _answer(self, body: dict[str, str]) -> None:
        content = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        return


class Server(ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True


if __name__ == "__main__":
    with Server(("127.0.0.1", int(sys.argv[3]) if len(sys.argv) > 3 else 0), Engine) as server:
        sys.stdout.write(f"{server.server_port}\n")
        sys.stdout.flush()
        server.serve_forever()
