"""A private PostgreSQL server from the machine's package, over TCP on 127.0.0.1 alone."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from dev.processes import Account, Child, spawn, tail
from dev.runs import TESTS, Run
from dev.servers.contract import ServersFailed, ServerUrls
from dev.servers.readiness import NotReady, Question, ask_database
from dev.servers.secrets import DATABASE, USER, Secrets
from dev.waiting import Say

OLDEST = 15


def find_binaries() -> Path | None:
    """The directory of the newest installed server (15 or newer), or None."""
    versions = {path.parent.parent: path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")}
    for _, binaries in sorted(((int(root.name), path) for root, path in versions.items()), reverse=True):
        if int(binaries.parent.name) >= OLDEST and (binaries / "postgres").exists():
            return binaries
    found = shutil.which("initdb")
    return Path(found).resolve().parent if found else None


def account() -> Account | None:
    """The user the server runs as: PostgreSQL refuses root, so root hands it to the package's account."""
    if os.geteuid() != 0:
        return None
    try:
        entry = pwd.getpwnam("postgres")
    except KeyError as error:
        raise ServersFailed(
            "Postgres does not run as root, and there is no account `postgres` to run it."
        ) from error
    return Account(entry.pw_uid, entry.pw_gid, entry.pw_dir)


@dataclass
class LocalDatabase:
    run: Run
    secrets: Secrets
    port: int
    binaries: Path
    say: Say
    child: Child | None = None

    def spawn(self) -> None:
        """Starts the server; makes its cluster first if there is none. Raises ServersFailed if that fails."""
        owner = account()
        home = self._home(owner)
        data = home / "data"
        if not (data / "PG_VERSION").exists():
            self._make_cluster(home, data, owner)
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": "",
            "max_connections": 200,
            "shared_buffers": "64MB",
        }
        if self.run.purpose in TESTS:
            # Tests kill the server, never the machine: the kernel keeps what was written, so nothing is lost.
            settings["fsync"] = "off"
        argv = [str(self.binaries / "postgres"), "-D", str(data)]
        argv += [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        # SIGINT is Postgres's fast stop; SIGTERM would wait for every client to leave.
        self.child = spawn(
            self.run,
            "postgres",
            argv,
            env=_environment(home),
            cwd=home,
            account=owner,
            stop_signal=signal.SIGINT,
        )

    def stop(self) -> None:
        if self.child:
            self.child.stop()
            self.child = None

    def kill(self) -> None:
        if self.child:
            self.child.kill()
            self.child = None

    def question(self, urls: ServerUrls) -> Question:
        def ask() -> None:
            ask_database(urls)
            answer = self._psql("postgres", "SELECT 1")
            if answer.returncode != 0:
                raise NotReady(f"Postgres: {answer.stderr.strip()}")

        def exited() -> str | None:
            code = self.child.exit_code() if self.child else 0
            return None if code is None else f"exited with {code}"

        return Question("Postgres", ask, exited, lambda: tail(self.run.logs / "postgres.log"))

    def make_database(self) -> None:
        """Creates the demo's database unless it is kept from an earlier run. Raises ServersFailed."""
        if self._psql(DATABASE, "SELECT 1").returncode == 0:
            return
        made = self._psql("postgres", f"CREATE DATABASE {DATABASE}")
        if made.returncode != 0:
            raise ServersFailed(f"Postgres could not create the database {DATABASE}: {made.stderr.strip()}")

    def _psql(self, database: str, statement: str) -> subprocess.CompletedProcess[str]:
        server = ["-h", "127.0.0.1", "-p", str(self.port), "-U", USER, "-d", database]
        return subprocess.run(
            [str(self.binaries / "psql"), "-X", "-w", "-At", *server, "-c", statement],
            env={**_environment(self.run.directory), "PGPASSWORD": self.secrets.database_password},
            capture_output=True,
            text=True,
            timeout=30,
        )

    def _home(self, owner: Account | None) -> Path:
        """The directory around the cluster, owned by the server's account.

        Under a home closed to that account the cluster moves to /var/tmp, where the run's record names it.
        """
        moved = self.run.directory / "postgres-directory"
        if moved.exists() and Path(moved.read_text()).is_dir():
            return Path(moved.read_text())
        home = self.run.directory / "postgres"
        home.mkdir(mode=0o700, exist_ok=True)
        if owner is None:
            return home
        os.chown(home, owner.uid, owner.gid)
        if _reaches(home, owner):
            return home
        home.rmdir()
        home = Path(tempfile.mkdtemp(prefix=f"redrive-{self.run.purpose}-", dir="/var/tmp"))
        self.run.record(directory=home)
        moved.write_text(str(home))
        os.chown(home, owner.uid, owner.gid)
        self.say(
            f"Postgres runs as `postgres`, which cannot reach {self.run.directory}: its data goes to {home}"
        )
        return home

    def _make_cluster(self, home: Path, data: Path, owner: Account | None) -> None:
        """initdb into another name, then rename: a cluster is there whole or not at all."""
        new, password = home / "data.new", home / "password"
        shutil.rmtree(new, ignore_errors=True)
        password.touch(mode=0o600)
        password.write_text(self.secrets.database_password)
        if owner:
            os.chown(password, owner.uid, owner.gid)
        options = ["--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-instructions"]
        made = subprocess.run(
            [str(self.binaries / "initdb"), "-D", str(new), "-U", USER, f"--pwfile={password}", *options],
            cwd=home,
            env=_environment(home),
            user=owner.uid if owner else None,
            group=owner.gid if owner else None,
            extra_groups=[owner.gid] if owner else None,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        password.unlink()
        if made.returncode != 0:
            raise ServersFailed(f"initdb failed (exit {made.returncode}):\n{made.stdout}")
        new.rename(data)


def _reaches(directory: Path, owner: Account) -> bool:
    """Asked of the system itself, so that groups and access lists count as they do."""
    probe = subprocess.run(
        ["test", "-x", str(directory)], cwd="/", user=owner.uid, group=owner.gid, extra_groups=[owner.gid]
    )
    return probe.returncode == 0


def _environment(home: Path) -> dict[str, str]:
    """Complete: no PG* variable of the caller reaches the server or psql."""
    return {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", "HOME": str(home)}
