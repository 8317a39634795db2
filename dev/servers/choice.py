"""Where the servers of a run come from: pure decisions over what was found on the machine."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args
from urllib.parse import SplitResult, urlsplit

from dev.errors import DevError
from dev.runs import TESTS, Purpose
from dev.servers.contract import Kind, ServerUrls

FORCE = "REDRIVE_SERVERS"
_SCHEMES = {
    "AMQP_URL": ("amqp", "amqps"),
    "MANAGEMENT_URL": ("http", "https"),
    "DATABASE_URL": ("postgresql", "postgres"),
}


class WrongEnvironment(DevError):
    """A variable that names the servers is missing, malformed, or asks for what is not there."""


@dataclass(frozen=True)
class Docker:
    """Whether Docker can serve this run; if not, `problem` says why. `engine`: one answers, usable or not."""

    usable: bool
    engine: bool
    problem: str = ""


def prefix_of(purpose: Purpose) -> str:
    """Tests have names of their own: they create and drop vhosts and databases."""
    return "REDRIVE_TEST_" if purpose in TESTS else "REDRIVE_"


def named_urls(purpose: Purpose, environment: Mapping[str, str | None]) -> ServerUrls | None:
    """The servers that the environment names, or None when it names none. An empty value counts as none.

    Raises WrongEnvironment when some are named and others not, or one is no URL of its kind.
    """
    prefix = prefix_of(purpose)
    found = {name: (environment.get(prefix + name) or "").strip() for name in _SCHEMES}
    if not any(found.values()):
        return None
    if missing := [prefix + name for name, value in found.items() if not value]:
        present = " and ".join(prefix + name for name, value in found.items() if value)
        raise WrongEnvironment(
            f"{' and '.join(missing)} must be set beside {present}. "
            "Set all three to use your own servers, or none."
        )
    for name, schemes in _SCHEMES.items():
        url = urlsplit(found[name])
        if url.scheme not in schemes or not url.hostname or not _has_a_port_or_none(url):
            # Quoting nothing: a password with a reserved character makes any part a piece of it.
            raise WrongEnvironment(
                f"{prefix}{name} must look like {schemes[0]}://user:password@host:port/…; "
                "in a password / ? # @ are written %2F %3F %23 %40."
            )
    return ServerUrls(found["AMQP_URL"], found["MANAGEMENT_URL"].rstrip("/"), found["DATABASE_URL"])


def _has_a_port_or_none(url: SplitResult) -> bool:
    try:
        return url.port != 0
    except ValueError:
        return False


def forced_kind(environment: Mapping[str, str | None]) -> Kind | None:
    """The value of REDRIVE_SERVERS, if set. Raises WrongEnvironment when it is none of the three."""
    value = (environment.get(FORCE) or "").strip()
    kinds: tuple[Kind, ...] = get_args(Kind)
    for kind in kinds:
        if value == kind:
            return kind
    if value:
        raise WrongEnvironment(f"{FORCE} is {value!r}; it may be {', '.join(kinds)}, or unset.")
    return None


def choose(purpose: Purpose, named: bool, forced: Kind | None, docker: Docker) -> Kind:
    """The environment, else Docker, else private local servers; `forced` overrides the order.

    Raises WrongEnvironment when the forced kind is not to be had.
    """
    if forced == "environment" and not named:
        names = ", ".join(prefix_of(purpose) + name for name in _SCHEMES)
        raise WrongEnvironment(f"{FORCE}=environment, but none of {names} is set.")
    if forced == "docker" and not docker.usable:
        raise WrongEnvironment(f"{FORCE}=docker, but {docker.problem}.")
    if forced:
        return forced
    if named:
        return "environment"
    return "docker" if docker.usable else "local"
