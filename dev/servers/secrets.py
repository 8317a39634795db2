"""Log-ins of the servers of a run: made up once, kept as long as the data they open."""

import json
import os
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path

USER = "redrive"
DATABASE = "redrive"


@dataclass(frozen=True)
class Secrets:
    """Hexadecimal, so that they need no quoting in a URL, a config file or YAML."""

    broker_password: str
    database_password: str
    cookie: str
    node: str  # a short suffix of the broker's node name


def keep(directory: Path) -> Secrets:
    """The run directory's secrets; new ones when it has none."""
    path = directory / "secrets.json"
    if path.exists():
        return Secrets(**json.loads(path.read_text()))
    made = Secrets(*(secrets.token_hex(length) for length in (16, 16, 16, 4)))
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(asdict(made), file)
    return made
