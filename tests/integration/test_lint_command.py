"""`topology lint` as a process: files, live brokers, code, and everything that is none of them."""

from __future__ import annotations

import json
import secrets
import shutil
import socketserver
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from tests.support.processes import clean_environment, console_script
from tests.support.vhosts import Vhost
from tests.support.waiting import eventually
from topology.lint.document import MAX_BYTES

QUEUE = {"name": "orders", "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}
LOST = {**QUEUE, "arguments": {"x-dead-letter-exchange": "nowhere"}}
TEMPORARY = {**QUEUE, "arguments": {"x-message-ttl": 1000}}


@dataclass(frozen=True)
class Run:
    code: int
    out: str
    err: str

    @property
    def findings(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]

    def codes(self, severity: str) -> set[tuple[str, str]]:
        return {(found["code"], found["entity"]) for found in self.findings if found["severity"] == severity}


def lint(directory: Path, *arguments: str, stdin: bytes = b"", env: dict[str, str] | None = None) -> Run:
    """Runs in `directory`, without any setting of ours."""
    ended = subprocess.run(
        console_script("topology.cli:main", "lint", *arguments),
        cwd=directory,
        env=clean_environment(env or {}),
        input=stdin,
        capture_output=True,
        timeout=60,
        check=False,
    )
    return Run(ended.returncode, ended.stdout.decode(), ended.stderr.decode())


def refused(directory: Path, *arguments: str, stdin: bytes = b"", env: dict[str, str] | None = None) -> Run:
    """A run that says in one line why it could not lint."""
    run = lint(directory, *arguments, stdin=stdin, env=env)
    assert run.out == ""
    assert "Traceback" not in run.err
    (line,) = run.err.splitlines()
    assert line.startswith("topology lint: ")
    return run


def exported(*queues: dict[str, Any], version: str = "4.3.6") -> str:
    return json.dumps(
        {"rabbitmq_version": version, "vhosts": [{"name": "/"}], "queues": list(queues)}, indent=1
    )


# Files.


def test_a_file_needs_no_settings_and_errors_exit_1(tmp_path: Path) -> None:
    (tmp_path / "broker.json").write_text(exported(LOST))
    run = lint(tmp_path, "broker.json")
    assert run.code == 1
    assert "error DLX-MISSING" in run.out
    assert "queue 'orders'  broker.json:9" in run.out
    assert "linted for RabbitMQ 4.3 (the file states 4.3.6)" in run.out
    assert "\x1b" not in run.out
    assert run.err == ""


def test_warnings_exit_0_and_with_strict_1_and_ignored_ones_do_not_count(tmp_path: Path) -> None:
    (tmp_path / "broker.json").write_text(exported(TEMPORARY))
    run = lint(tmp_path, "broker.json", "--format", "json")
    assert run.code == 0
    assert run.codes("warning") == {("DROP-TTL", "queue 'orders'")}
    assert lint(tmp_path, "broker.json", "--strict").code == 1
    ignoring = lint(tmp_path, "broker.json", "--strict", "--ignore", "drop-ttl", "--format", "json")
    assert (ignoring.code, ignoring.codes("warning")) == (0, set())


def test_the_target_is_what_the_file_states_or_what_is_asked(tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text(exported(QUEUE, version="3.12.14"))
    assert "RabbitMQ 3.10 (the file states 3.12.14)" in lint(tmp_path, "old.json").out
    assert "RabbitMQ 4.0 (--target)" in lint(tmp_path, "old.json", "--target", "4.0").out
    (tmp_path / "none.json").write_text('{"vhosts": [], "queues": []}')
    assert "RabbitMQ 4.3 (the newest" in lint(tmp_path, "none.json").out


def test_a_finding_that_holds_for_older_brokers_alone_is_left_out_for_newer_ones(tmp_path: Path) -> None:
    bare = {name: value for name, value in QUEUE.items() if name != "durable"}
    (tmp_path / "broker.json").write_text(exported(bare))

    def errors(target: str) -> set[tuple[str, str]]:
        return lint(tmp_path, "broker.json", "--target", target, "--format", "json").codes("error")

    assert errors("3.10") == {("FIELD-MISSING", "queue 'orders'")}
    assert errors("4.3") == set()


def test_one_virtual_host_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "broker.json").write_text(exported(LOST, {**TEMPORARY, "vhost": "b"}))
    assert lint(tmp_path, "broker.json", "--vhost", "b", "--format", "json").codes("error") == set()
    misspelt = {**LOST, "exclusiv": False}
    (tmp_path / "both.json").write_text(exported(misspelt, {**TEMPORARY, "vhost": "b"}))
    warned = lint(tmp_path, "both.json", "--format", "json").codes("warning")
    assert ("FIELD-UNKNOWN", "queue 'orders'") in warned
    only = lint(tmp_path, "both.json", "--vhost", "b", "--format", "json").codes("warning")
    assert "FIELD-UNKNOWN" not in {code for code, _ in only}
    assert "no virtual host 'c'; there are '/', 'b'" in refused(tmp_path, "broker.json", "--vhost", "c").err


def test_standard_input_is_read(tmp_path: Path) -> None:
    run = lint(tmp_path, "-", "--format", "json", stdin=exported(LOST).encode())
    assert ("DLX-MISSING", "queue 'orders'") in run.codes("error")


def test_sarif_is_written_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "broker.json").write_text(exported(LOST))
    run = lint(tmp_path, "broker.json", "--format", "sarif")
    assert run.code == 1
    results = json.loads(run.out)["runs"][0]["results"]
    lost = next(result for result in results if result["ruleId"] == "DLX-MISSING")
    place = lost["locations"][0]["physicalLocation"]
    assert (place["artifactLocation"]["uri"], place["region"]["startLine"]) == ("broker.json", 9)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("broker.yaml", b"queues:\n  - name: orders\n", "not JSON: line 1 column 1"),
        ("cut.json", b'{"queues": [{"name": "or', "the file is cut off"),
        ("package.json", b'{"name": "web", "version": "1.0.0"}', "no RabbitMQ definitions"),
        ("list.json", b"[]", "a JSON list"),
        ("empty.json", b"", "empty"),
        ("binary.json", b"\x00\x01\x02", "NUL"),
        ("utf16.json", '{"queues": []}'.encode("utf-16"), "UTF-16"),
        ("deep.json", b'{"queues": ' + b"[" * 10**6, "nested too deeply"),
    ],
)
def test_what_is_no_definitions_file_exits_2_with_one_line(
    tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    (tmp_path / name).write_bytes(content)
    run = refused(tmp_path, name, "--format", "json")
    assert run.code == 2
    assert f"{name}: " in run.err
    assert said in run.err


def test_a_file_of_100_mb_is_refused_without_reading_it_all(tmp_path: Path) -> None:
    with (tmp_path / "huge.json").open("wb") as file:
        file.write(b'{"queues": [')
        file.truncate(100 * 1024 * 1024)
    run = refused(tmp_path, "huge.json")
    assert run.code == 2
    assert f"larger than {MAX_BYTES // 1024**2} MiB" in run.err


def test_what_cannot_be_opened_exits_2(tmp_path: Path) -> None:
    assert "nope.json: No such file or directory" in refused(tmp_path, "nope.json").err
    assert "Is a directory" in refused(tmp_path, str(tmp_path)).err
    assert "the source is empty" in refused(tmp_path, "").err
    run = lint(tmp_path, "nope.json", "--ignore", "NO-SUCH-CODE")
    assert (run.code, "no code NO-SUCH-CODE" in run.err) == (2, True)


def test_explain_has_the_page_of_a_code_and_lists_all(tmp_path: Path) -> None:
    def explain(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = console_script("topology.cli:main", "explain", *arguments)
        return subprocess.run(
            command,
            cwd=tmp_path,
            env=clean_environment({}),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    assert explain("dlx-missing").stdout.startswith("# DLX-MISSING: ")
    listed = explain().stdout.splitlines()
    assert any(line.split()[:2] == ["DLX-MISSING", "error"] for line in listed)
    unknown = explain("DLX-MISING")
    assert (unknown.returncode, "did you mean DLX-MISSING" in unknown.stderr) == (2, True)


# Code.


def test_code_is_linted_by_name_and_by_setting(tmp_path: Path) -> None:
    (tmp_path / "ours.py").write_text(
        "from topology.spec import Topology, WorkQueue\nTOPOLOGY = Topology((WorkQueue('orders'),))\n"
        "NUMBER = 5\nraise_on = None\n"
    )
    (tmp_path / "broken.py").write_text("1 / 0\n")
    named = lint(tmp_path, "ours:TOPOLOGY", "--strict")
    assert (named.code, "ours:TOPOLOGY, " in named.out) == (0, True)
    by_setting = lint(tmp_path, "--strict", env={"REDRIVE_TOPOLOGY": "ours:TOPOLOGY"})
    assert (by_setting.code, "ours:TOPOLOGY, " in by_setting.out) == (0, True)
    assert "topology.catalogue:TOPOLOGY, " in lint(tmp_path).out
    for name, said in [
        ("ours:NUMBER", "is a int, no Topology"),
        ("ours:MISSING", "no attribute 'MISSING'"),
        ("nowhere:TOPOLOGY", "No module named 'nowhere'"),
        ("broken:TOPOLOGY", "ZeroDivisionError"),
    ]:
        run = refused(tmp_path, name)
        assert (run.code, said in run.err) == (2, True), run.err


@pytest.mark.parametrize("target", ["3.10", "3.13", "4.0", "4.3"])
def test_the_sample_catalogue_lints_clean(tmp_path: Path, target: str) -> None:
    run = lint(tmp_path, "--target", target, "--strict", "--format", "json")
    assert (run.code, run.codes("error"), run.codes("warning")) == (0, set(), set())


# Live brokers.


def test_a_live_broker_is_linted_as_what_it_is(
    vhost: Vhost, broker_release: tuple[int, int], tmp_path: Path
) -> None:
    with vhost.channel() as channel:
        channel.queue_declare("orders", durable=True, arguments={"x-dead-letter-exchange": "nowhere"})
        policy = {"pattern": "^mail", "apply-to": "queues", "definition": {"message-ttl": 1000}}
        vhost.management.put(f"/api/policies/{vhost.vhost}/short", json=policy).raise_for_status()
        channel.queue_declare("mails", durable=True)
        channel.queue_declare("mine", exclusive=True)
        channel.queue_bind("mine", "amq.topic", "news")
        channel.queue_declare("", exclusive=True)
        run = lint(tmp_path, vhost.management_url, "--vhost", vhost.vhost, "--format", "json")
        text = lint(tmp_path, vhost.management_url, "--vhost", vhost.vhost).out
    assert run.code == 1
    assert run.codes("error") == {("DLX-MISSING", "queue 'orders'")}
    assert run.codes("warning") == {("DROP-TTL", "queue 'mails'")}
    assert f"linted for RabbitMQ {'4.3' if broker_release >= (4, 3) else '3.10'} (the broker states" in text
    password = urlsplit(vhost.management_url).password or ""
    assert password not in run.out + run.err


@pytest.fixture
def user(vhost: Vhost) -> Iterator[Any]:
    """`user(tags, may=…)`: the management URL of a new user."""
    made: list[str] = []

    def make(tags: str, *, may: bool) -> str:
        name = f"lint-{secrets.token_hex(4)}"
        made.append(name)
        body = {"password": "pass/word#1", "tags": tags}
        vhost.management.put(f"/api/users/{name}", json=body).raise_for_status()
        if may:
            rights = {"configure": "^$", "write": "^$", "read": "^$"}
            vhost.management.put(f"/api/permissions/{vhost.vhost}/{name}", json=rights).raise_for_status()
        host = urlsplit(vhost.management_url).netloc.rpartition("@")[2]
        return f"http://{name}:{quote('pass/word#1', safe='')}@{host}"

    yield make
    for name in made:
        vhost.management.delete(f"/api/users/{name}").raise_for_status()


def test_without_the_tag_administrator_what_is_open_is_linted(
    vhost: Vhost, user: Any, tmp_path: Path
) -> None:
    with vhost.channel() as channel:
        channel.exchange_declare("dlx", "fanout", durable=True, arguments={"alternate-exchange": "spare"})
        channel.exchange_declare("spare", "fanout", durable=True)
        channel.queue_declare(
            "orders", durable=True, arguments={"x-dead-letter-exchange": "dlx", "x-queue-type": "quorum"}
        )
        channel.queue_declare("orders.dlq", durable=True)
        channel.queue_bind("orders.dlq", "spare", "")
        channel.queue_declare("mails", durable=True)
    policy = {"pattern": "^mail", "apply-to": "queues", "definition": {"message-ttl": 1000}}
    vhost.management.put(f"/api/policies/{vhost.vhost}/short", json=policy).raise_for_status()
    cap = {"pattern": "^orders$", "apply-to": "queues", "definition": {"max-length": 5}}
    vhost.management.put(f"/api/operator-policies/{vhost.vhost}/cap", json=cap).raise_for_status()

    def in_force() -> bool:
        mails, orders = (vhost.queue(name) or {} for name in ("mails", "orders"))
        return (mails.get("policy"), orders.get("operator_policy")) == ("short", "cap")

    eventually(in_force, 20, "the management API tells the policies")
    run = lint(tmp_path, user("management", may=True), "--format", "json")
    assert "is no administrator" in run.err
    as_administrator = lint(tmp_path, vhost.management_url, "--vhost", vhost.vhost, "--format", "json")
    assert run.findings == as_administrator.findings
    assert ("DROP-TTL", "queue 'mails'") in run.codes("warning")


def test_of_policies_that_tie_the_one_in_force_on_the_broker_counts(
    vhost: Vhost, user: Any, tmp_path: Path
) -> None:
    with vhost.channel() as channel:
        channel.queue_declare("work", durable=True)
    says = {"a": {"message-ttl": 1000}, "m": {"max-length": 5}, "z": {"message-ttl": 1000}}
    for name, definition in says.items():
        policy = {"pattern": "^work$", "apply-to": "queues", "definition": definition}
        vhost.management.put(f"/api/policies/{vhost.vhost}/{name}", json=policy).raise_for_status()
    for without in ("", "a", "z"):
        if without:
            vhost.management.delete(f"/api/policies/{vhost.vhost}/{without}").raise_for_status()
            del says[without]
        winner: Any = eventually(
            lambda: in_force if (in_force := (vhost.queue("work") or {}).get("policy")) in says else None,
            15,
            "the policy in force",
        )
        code = "DROP-TTL" if "message-ttl" in says[winner] else "DROP-MAXLEN"
        for url in (vhost.management_url, user("management", may=True)):
            run = lint(tmp_path, url, "--vhost", vhost.vhost, "--format", "json")
            dropping = [one for one in run.codes("warning") if one[0].startswith("DROP-")]
            assert dropping == [(code, "queue 'work'")], winner


def test_a_user_who_may_see_nothing_is_told_what_to_set(vhost: Vhost, user: Any, tmp_path: Path) -> None:
    nobody = refused(tmp_path, user("", may=True))
    assert (nobody.code, "set_user_tags" in nobody.err) == (1, True)
    blind = refused(tmp_path, user("monitoring", may=False), "--vhost", vhost.vhost)
    assert (blind.code, f"set_permissions -p {vhost.vhost}" in blind.err) == (1, True)
    wrong = user("monitoring", may=True).replace("%231", "2")
    refusal = refused(tmp_path, wrong)
    assert (refusal.code, "wrong password" in refusal.err) == (1, True)
    assert "pass" not in refusal.err.replace("wrong password", "")


@contextmanager
def answering(answer: bytes, tls: ssl.SSLContext | None = None) -> Iterator[int]:
    """The port of a server that answers each connection with `answer`, whatever it says."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            connection = self.request
            with suppress(OSError):  # the client may not like the certificate
                if tls is not None:
                    connection = tls.wrap_socket(connection, server_side=True)
                with connection:
                    connection.recv(65_536)
                    connection.sendall(answer)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def http(status: str, media_type: str, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {media_type}\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Connection: close\r\n\r\n".encode() + body


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"AMQP\x00\x00\x09\x01", "does not speak HTTP"),
        (http("404 Not Found", "text/html", b"<html>nginx</html>"), "is no RabbitMQ management API"),
        (http("200 OK", "text/html", b"<html>hello</html>"), "is no RabbitMQ management API"),
        (http("200 OK", "application/json", b'{"cluster_name": "elastic"}'), "is no RabbitMQ management API"),
        (http("302 Found", "text/html", b""), "is no RabbitMQ management API"),
        (http("502 Bad Gateway", "text/html", b"<html></html>"), "answered 502"),
        (b"", "does not speak HTTP"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_another_server_is_told_apart(tmp_path: Path, answer: bytes, said: str) -> None:
    with answering(answer) as port:
        run = refused(tmp_path, f"http://guest:secret@127.0.0.1:{port}")
    assert (run.code, said in run.err) == (1, True), run.err
    assert "secret" not in run.err


def test_the_port_of_amqp_and_a_closed_port_say_what_to_do(vhost: Vhost, tmp_path: Path) -> None:
    amqp = urlsplit(vhost.amqp_url)
    asked = refused(tmp_path, f"http://guest:guest@{amqp.hostname}:{amqp.port}")
    assert (asked.code, "AMQP's port (5672) is not the management API's" in asked.err) == (1, True)
    with answering(b"") as port:
        pass
    closed = refused(tmp_path, f"http://127.0.0.1:{port}")
    assert (closed.code, "rabbitmq-plugins enable rabbitmq_management" in closed.err) == (1, True)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("amqp://guest:hush@127.0.0.1:5672/", "through its management API: http://"),
        ("http://user:hush/y@127.0.0.1:15672", "in a password / ? # @ are written"),
        ("http://guest:hush@127.0.0.1:99999", "port is no number up to 65535"),
        ("http://", "must look like http://user:password@host:15672"),
        ("https://guest:hush@[::1", "port is no number up to 65535"),
    ],
)
def test_a_url_that_is_none_exits_2_without_quoting_it(tmp_path: Path, url: str, said: str) -> None:
    run = refused(tmp_path, url)
    assert (run.code, said in run.err) == (2, True), run.err
    assert "hush" not in run.err


def test_tls_without_a_trusted_certificate_names_the_way_out(tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("not run: no openssl to make a certificate with")
    key, certificate = tmp_path / "key.pem", tmp_path / "ca.pem"
    made = f"openssl req -x509 -newkey rsa:2048 -nodes -keyout {key} -out {certificate} -days 2"
    named = "-subj /CN=localhost -addext subjectAltName=IP:127.0.0.1"
    subprocess.run([*made.split(), *named.split()], check=True, capture_output=True)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    with answering(http("200 OK", "text/html", b"hello"), tls) as port:
        stranger = refused(tmp_path, f"https://127.0.0.1:{port}")
        assert (stranger.code, "SSL_CERT_FILE" in stranger.err) == (1, True), stranger.err
        trusted = refused(tmp_path, f"https://127.0.0.1:{port}", env={"SSL_CERT_FILE": str(certificate)})
        assert "is no RabbitMQ management API" in trusted.err
        for named in (str(tmp_path / "none.pem"), str(key)):
            wrong = refused(tmp_path, f"https://127.0.0.1:{port}", env={"SSL_CERT_FILE": named})
            assert (wrong.code, "SSL_CERT_FILE has to name a file" in wrong.err) == (1, True), wrong.err
    with answering(http("200 OK", "text/html", b"hello")) as port:
        plain = refused(tmp_path, f"https://127.0.0.1:{port}")
        assert (plain.code, "does not speak TLS" in plain.err) == (1, True), plain.err
