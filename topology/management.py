"""A client of RabbitMQ's management API, and in words what is wrong where it does not answer."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import httpx

from topology.errors import TopologyError
from topology.management_url import LOOPBACK, ManagementUrl

TIMEOUT_S = 10.0
CONNECT_TIMEOUT_S = 5.0
# The definitions of about 100,000 queues.
MAX_ANSWER_BYTES = 32 * 1024 * 1024


class ManagementError(TopologyError):
    """The management API gave no usable answer; the message says why and what to do."""


class ManagementUnreachableError(ManagementError):
    """Nothing answers there."""


class ManagementRefusedError(ManagementError):
    """It does not know the user, or the user may not do this."""


class ManagementRequestError(ManagementError):
    """It refused the request itself, e.g. a policy with a key that this version does not know."""


def segment(name: str) -> str:
    """A name as one segment of a path: the vhost `/` is `%2F`."""
    return quote(name, safe="")


class Management:
    """Requests to one broker. `url` may hold user and password; no message quotes them.

    Raises, from every method:
        ManagementUnreachableError: nothing answers.
        ManagementRefusedError: 401 or 403.
        ManagementRequestError: any other 4xx but 404.
        ManagementError: what answers is no management API, or is broken.
    """

    def __init__(self, url: str, timeout_s: float = TIMEOUT_S) -> None:
        """Raises InvalidManagementUrlError, and ManagementError where SSL_CERT_FILE holds no certificates."""
        parsed = ManagementUrl.parse(url)
        self.address = parsed.address
        self.user = parsed.user
        self._client = httpx.Client(
            base_url=self.address,
            auth=(parsed.user, parsed.password),
            timeout=httpx.Timeout(timeout_s, connect=min(timeout_s, CONNECT_TIMEOUT_S)),
            # A proxy meant for the world outside must not be asked for this machine. SSL_CERT_FILE
            # counts all the same.
            trust_env=parsed.host not in LOOPBACK,
            verify=_trusted(),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def get(self, path: str, parameters: Mapping[str, str] | None = None) -> Any:
        """The answer's JSON, or None where there is no such thing (404)."""
        answer = self._send("GET", path, params=dict(parameters or {}))
        if answer.status_code == httpx.codes.NOT_FOUND:
            return self._absent(answer)
        return self._json(answer)

    def listed(self, path: str, parameters: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
        """The answer's list of objects.

        Raises:
            ManagementError: also where there is no such thing, e.g. no such vhost.
        """
        found = self.get(path, parameters)
        if found is None:
            raise ManagementError(f"{self.address}: there is no {path}")
        if not isinstance(found, list):
            raise self._foreign()
        return found

    def put(self, path: str, body: Mapping[str, Any]) -> None:
        """Create or replace."""
        self._send("PUT", path, json=dict(body))

    def delete(self, path: str) -> None:
        """Remove; nothing happens where there is no such thing."""
        self._send("DELETE", path)

    def version(self) -> str:
        """The broker's version, e.g. `3.10.8`."""
        overview = self.get("/api/overview")
        if not isinstance(overview, dict) or "rabbitmq_version" not in overview:
            raise self._foreign()
        return str(overview["rabbitmq_version"])

    def _send(self, method: str, path: str, **more: Any) -> httpx.Response:
        try:
            with self._client.stream(method, path, **more) as streamed:
                answer = self._read(streamed)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            if "certificate" in str(error).lower():
                raise ManagementUnreachableError(
                    f"the certificate of {self.address} is not trusted ({str(error).rpartition('] ')[2]}): "
                    "name the file of its authority in SSL_CERT_FILE"
                ) from error
            if "SSL" in str(error):
                raise ManagementUnreachableError(
                    f"{self.address} does not speak TLS ({error}): is it http://?"
                ) from error
            raise ManagementUnreachableError(
                f"nothing answers at {self.address} ({error}): is the address right, and the management "
                "plugin enabled (rabbitmq-plugins enable rabbitmq_management)?"
            ) from error
        except (httpx.RemoteProtocolError, httpx.ReadError) as error:
            raise ManagementError(
                f"{self.address} does not speak HTTP: AMQP's port (5672) is not the management API's "
                "(15672), and with TLS it is https://"
            ) from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise ManagementError(f"no answer from {self.address}: {type(error).__name__} {error}") from error
        code = answer.status_code
        if code == httpx.codes.UNAUTHORIZED and not self._let_in(answer):
            raise ManagementRefusedError(
                f"{self.address} does not let {self.user!r} in ({self._reason(answer)}): wrong password, "
                "or a user without a management tag (rabbitmqctl set_user_tags USER monitoring)"
            )
        if code in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
            raise ManagementRefusedError(
                f"{self.address} does not let user {self.user!r} {method} {path} ({self._reason(answer)})"
            )
        if code >= 500:
            raise ManagementError(
                f"{self.address} answered {code} to {method} {path}: {self._reason(answer)}"
            )
        if code >= 400 and code != httpx.codes.NOT_FOUND:
            raise ManagementRequestError(self._reason(answer))
        if code >= 300 and code < 400:
            raise self._foreign()
        return answer

    def _read(self, streamed: httpx.Response) -> httpx.Response:
        body = bytearray()
        for chunk in streamed.iter_bytes():
            body += chunk
            if len(body) > MAX_ANSWER_BYTES:
                raise ManagementError(
                    f"{self.address} answers with more than {MAX_ANSWER_BYTES // 1024**2} MiB, "
                    "the most that is read"
                )
        return httpx.Response(streamed.status_code, content=bytes(body))

    def _json(self, answer: httpx.Response) -> Any:
        try:
            return answer.json()
        except (ValueError, RecursionError):
            raise self._foreign() from None

    def _absent(self, answer: httpx.Response) -> None:
        if self._reason(answer) == "":  # another server's page
            raise self._foreign()

    def _let_in(self, answer: httpx.Response) -> bool:
        # Spelt with z for a log-in that failed, with s for what a user may not see (3.10 and 4.3).
        return '"not_authorised"' in answer.text and "Not management user" not in answer.text

    def _reason(self, answer: httpx.Response) -> str:
        try:
            body = answer.json()
        except (ValueError, RecursionError):
            return ""
        if not isinstance(body, dict):
            return ""
        return str(body.get("reason") or body.get("error") or "")

    def _foreign(self) -> ManagementError:
        return ManagementError(f"{self.address} is no RabbitMQ management API (its port is usually 15672)")


def _trusted() -> ssl.SSLContext:
    try:
        return httpx.create_ssl_context()
    except OSError as error:  # ssl.SSLError is one
        raise ManagementError(
            f"SSL_CERT_FILE has to name a file of certificates (PEM): {error.strerror or error}"
        ) from error
