"""A private RabbitMQ node from the machine's package: own name, ports, home, cookie, port mapper (epmd)."""

import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from dev.processes import Child, spawn, tail
from dev.runs import Run
from dev.servers.contract import ServersFailed, ServerUrls
from dev.servers.readiness import Question, ask_amqp, ask_management
from dev.servers.secrets import USER, Secrets

# Debian's wrapper in /usr/sbin changes to the account of the system's own node; this is the script behind it.
_SCRIPT = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")


def find_server() -> Path | None:
    """The server's start script; None when RabbitMQ is not installed."""
    if _SCRIPT.exists():
        return _SCRIPT
    found = shutil.which("rabbitmq-server")
    return Path(found) if found else None


@dataclass(frozen=True)
class BrokerPorts:
    amqp: int
    management: int
    distribution: int
    epmd: int


@dataclass
class LocalBroker:
    run: Run
    secrets: Secrets
    ports: BrokerPorts
    script: Path
    children: dict[str, Child] = field(default_factory=dict)

    @property
    def home(self) -> Path:
        return self.run.directory / "rabbitmq"

    def spawn(self) -> None:
        """Starts the node, with its own epmd: one that Erlang started itself would outlive the node."""
        self._write_files()
        if "epmd" not in self.children:
            argv = [_epmd(), "-port", str(self.ports.epmd), "-address", "127.0.0.1"]
            self.children["epmd"] = spawn(self.run, "epmd", argv, env=self._environment())
        # ALLOW_INPUT makes the script become the Erlang VM, so that our child is the server itself.
        argv = [str(self.script), "-noinput"]
        self.children["rabbitmq"] = spawn(self.run, "rabbitmq", argv, env=self._environment(), cwd=self.home)

    def stop(self) -> None:
        if node := self.children.pop("rabbitmq", None):
            node.stop()

    def kill(self) -> None:
        if node := self.children.pop("rabbitmq", None):
            node.kill()

    def end_epmd(self) -> None:
        if epmd := self.children.pop("epmd", None):
            epmd.kill()  # it has no state and no orderly stop

    def rabbitmqctl(self, *arguments: str, stdin: str = "") -> str:
        """Its output. Raises ServersFailed with its message."""
        command = [str(self.script.with_name("rabbitmqctl")), *arguments]
        done = subprocess.run(command, env=self._environment(), input=stdin, capture_output=True, text=True)
        if done.returncode != 0:
            raise ServersFailed(f"rabbitmqctl {arguments[0]} failed: {done.stderr.strip()}")
        return done.stdout

    def question(self, urls: ServerUrls) -> Question:
        def ask() -> None:
            ask_amqp(urls)
            ask_management(urls)

        def exited() -> str | None:
            for child in self.children.values():
                if (code := child.exit_code()) is not None:
                    return f"({child.name}) exited with {code}"
            return None

        return Question("RabbitMQ", ask, exited, lambda: tail(self.run.logs / "rabbitmq.log"))

    def _write_files(self) -> None:
        self.home.mkdir(mode=0o700, exist_ok=True)
        cookie = self.home / ".erlang.cookie"
        if not cookie.exists():
            cookie.touch(mode=0o600)
            cookie.write_text(self.secrets.cookie)
            cookie.chmod(0o400)
        (self.home / "enabled_plugins").write_text("[rabbitmq_management].\n")
        (self.home / "rabbitmq-env.conf").write_text("")
        (self.home / "advanced.config").write_text("[].\n")
        config = self.home / "rabbitmq.conf"
        config.touch(mode=0o600)
        config.write_text(
            f"listeners.tcp.1 = 127.0.0.1:{self.ports.amqp}\n"
            "management.tcp.ip = 127.0.0.1\n"
            f"management.tcp.port = {self.ports.management}\n"
            f"default_user = {USER}\n"
            f"default_pass = {self.secrets.broker_password}\n"
            "default_user_tags.administrator = true\n"
            "log.console = true\n"
            "log.console.level = info\n"
            "log.console.use_colors = off\n"
            "log.file = false\n"
        )

    def _environment(self) -> dict[str, str]:
        """Complete: neither the caller's RABBITMQ_* variables nor /etc/rabbitmq reach the node."""
        home = self.home
        return {
            "PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/bin:/sbin:/bin",
            "LANG": "C.UTF-8",
            "HOME": str(home),
            "ERL_EPMD_PORT": str(self.ports.epmd),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_ALLOW_INPUT": "true",
            "RABBITMQ_NODENAME": f"redrive-{self.run.purpose}-{self.secrets.node}@localhost",
            "RABBITMQ_DIST_PORT": str(self.ports.distribution),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "RABBITMQ_MNESIA_BASE": str(home / "data"),
            "RABBITMQ_LOG_BASE": str(home / "log"),
            "RABBITMQ_PID_FILE": str(home / "pid"),
            "RABBITMQ_CONF_ENV_FILE": str(home / "rabbitmq-env.conf"),
            "RABBITMQ_CONFIG_FILE": str(home / "rabbitmq.conf"),
            "RABBITMQ_CONFIG_FILES": str(home / "conf.d" / "*.conf"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(home / "advanced.config"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "enabled_plugins"),
        }


def _epmd() -> str:
    """Debian has it in PATH; elsewhere it lies beside the Erlang runtime."""
    if found := shutil.which("epmd"):
        return found
    candidates = sorted(Path("/usr").glob("lib*/erlang/erts-*/bin/epmd"))
    if not candidates:
        raise FileNotFoundError("epmd, Erlang's port mapper, is neither in PATH nor under /usr/lib/erlang")
    return str(candidates[-1])
