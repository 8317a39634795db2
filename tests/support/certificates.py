"""A certificate that signs itself, for a server on loopback."""

from __future__ import annotations

import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Certificate:
    """`trusted`: the file that a client's SSL_CERT_FILE names."""

    trusted: Path
    key: Path

    def context(self) -> ssl.SSLContext:
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.load_cert_chain(self.trusted, self.key)
        return made


def certificate(directory: Path, names: str = "IP:127.0.0.1") -> Certificate:
    """`names`: for which hosts, as openssl spells it."""
    made = Certificate(directory / "certificate.pem", directory / "key.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
         "-keyout", str(made.key), "-out", str(made.trusted), "-days", "2", "-subj", "/CN=test",
         "-addext", f"subjectAltName={names}"],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    return made
