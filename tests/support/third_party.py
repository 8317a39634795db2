"""A third party on loopback for the sample jobs: answers 200 unless it is told otherwise."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class ThirdParty:
    """`answers[path]` is what the next requests to a path get, one each: (status, headers)."""

    url: str = ""
    answers: dict[str, list[tuple[int, dict[str, str]]]] = field(default_factory=lambda: defaultdict(list))
    requests: list[dict[str, Any]] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)

    def seen(self, path: str) -> list[dict[str, Any]]:
        return [request for request in self.requests if request["path"] == path]


@contextmanager
def third_party() -> Iterator[ThirdParty]:
    """A running one."""
    state, lock = ThirdParty(), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *arguments: object) -> None:
            pass

        def _handle(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            with lock:
                key = self.headers.get("Idempotency-Key")
                state.requests.append({"method": self.command, "path": self.path, "key": key, "body": body})
                told = state.answers[self.path]
                status, headers = told.pop(0) if told else (200, {})
                if self.path.startswith("/files/") and status == 200:
                    if self.command == "PUT":
                        state.files[self.path] = body
                    elif self.path not in state.files:
                        status = 404
            answer = b"" if self.command == "HEAD" else json.dumps({"id": f"ref-{key}"}).encode()
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_GET = do_POST = do_PUT = do_HEAD = _handle  # noqa: N815 - names of the standard library

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
