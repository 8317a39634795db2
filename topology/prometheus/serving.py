"""`GET /metrics` of a process that serves nothing else, from a thread of its own."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any
from weakref import WeakSet

from topology.prometheus.text import CONTENT_TYPE

log = logging.getLogger(__name__)
# For the bytes of one request to come.
REQUEST_S = 5.0


class MetricsServer:
    """Serves from the moment that it is made, until `close`."""

    def __init__(self, server: ThreadingHTTPServer) -> None:
        self._server = server
        self.port = int(server.server_address[1])
        self._thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def serve(host: str, ports: Sequence[int], page: Callable[[], str]) -> MetricsServer | None:
    """Serve `page` on the first of `ports` that is free; None where there is none, as the log then says.

    Args:
        page: called for each request, in a thread of its own.
    """
    problem = ""
    for port in ports:
        try:
            server = _Server((host, port), _handler(page))
        except OSError as error:
            problem = f"{host}:{port}: {error.strerror or error}"
            continue
        made = MetricsServer(server)
        fields = {"action": "metrics_served", "address": f"{host}:{port}"}
        log.info("serving /metrics", extra=fields)
        return made
    if problem:
        fields = {"action": "metrics_not_served"}
        log.error("no /metrics: none of %s ports can be had; %s", len(ports), problem, extra=fields)
    return None


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def server_bind(self) -> None:
        # Without HTTPServer's, which asks a name server for this machine's name.
        TCPServer.server_bind(self)
        _OPEN.add(self)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no matter; a page that cannot be made is logged where it is made."""


_OPEN: WeakSet[_Server] = WeakSet()


def _let_go() -> None:
    # A forked pool process would hold the port, and let requests wait for ever, after its parent has ended.
    for server in _OPEN:
        server.socket.close()


os.register_at_fork(after_in_child=_let_go)


def _handler(page: Callable[[], str]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = REQUEST_S
        server_version = "redrive"
        sys_version = ""

        def do_GET(self) -> None:
            if self.path.partition("?")[0] != "/metrics":
                self.send_error(404, "only /metrics is here")
                return
            try:
                body = page().encode()
            except Exception:
                log.exception("the figures cannot be told", extra={"action": "metrics_failed"})
                self.send_error(500, "see the log")
                return
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
            """No line for each scrape."""

    return Handler
