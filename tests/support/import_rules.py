"""The project's rules about who may import, name and call what, read from the syntax tree of one file."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import PurePosixPath

# What each package may import of ours, besides itself.
MAY_IMPORT = {
    "topology": set[str](),
    "storage": set[str](),
    "outbound": set[str](),
    "workers": {"topology", "storage", "outbound"},
    "dlq_consumer": {"topology", "storage", "outbound"},
    "api": {"topology", "storage", "outbound"},
    "dev": {"topology", "storage"},  # it starts the others as processes
    # It measures the whole, on the tests' servers, beside others' programs.
    "benchmarks": {"topology", "storage", "workers", "dev", "tests"},
}
OURS = {*MAY_IMPORT, "tests", "benchmarks"}
# Where settings are built: one place per process, so that nothing is read at import or half-way.
ENTRY_POINTS = {
    "api/app.py",
    "api/keys_cli.py",
    "dlq_consumer/cli.py",
    "storage/cli.py",
    "topology/commands/configured.py",
    "workers/app.py",
    "workers/settings.py",  # an adopter's `Redrive(…)` is their entry point
}
READ_SETTINGS = "read_settings"
# An extension of OpenAPI begins so too.
BROKER_ARGUMENT = re.compile(r"x-(?!events$)[a-z]+(-[a-z]+)*")
SQL = re.compile(
    r"\s*(SELECT\s.*\sFROM\s|INSERT\s+INTO\s|UPDATE\s+\S+\s.*SET\s|DELETE\s+FROM\s|(CREATE|ALTER|DROP)\s+TABLE\s|"
    r"WITH\s+\w+\s+AS\s*\(|LISTEN\s+\w+|NOTIFY\s+\w+)",
    re.IGNORECASE | re.DOTALL,
)
DECLARING = {"queue_declare", "exchange_declare", "queue_bind", "exchange_bind"}


def offences(path: PurePosixPath, source: str) -> list[str]:
    """Every breach in one file, as `path:line: what`. `path` is relative to the project's root."""
    package, tree = path.parts[0], ast.parse(source)
    if package == "tests":
        found = [*_sleeps(tree)] if path.name.startswith("test_") else []
    else:
        found = [*_imports(package, tree)]
        # dev makes servers and databases ready, never our tables; a benchmark fills tables.
        if package not in ("storage", "dev", "benchmarks"):
            found += _matching_strings(tree, SQL, "holds SQL; only storage does")
        if package not in ("topology", "benchmarks"):  # a benchmark writes down other people's brokers
            found += _matching_strings(
                tree, BROKER_ARGUMENT, "names a broker argument; only topology does", full=True
            )
            found += _declarations(tree)
        if package not in ("dev", "benchmarks"):
            found += _settings(path, tree)
    return [f"{path}:{line}: {what}" for line, what in sorted(found)]


def _imports(package: str, tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                yield node.lineno, "imports relatively; write the package's name"
            names = [node.module or ""]
        else:
            continue
        for name in names:
            top = name.partition(".")[0]
            if top in OURS - {package} - MAY_IMPORT.get(package, set()):
                yield (
                    node.lineno,
                    f"imports {name}; {package} may import {_listed(MAY_IMPORT.get(package))} of ours",
                )
            if top == "asyncpg" and package not in ("storage", "benchmarks"):
                yield node.lineno, "imports asyncpg; only storage does"


def _settings(path: PurePosixPath, tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Attribute)
            and node.attr in ("environ", "getenv")
            and path.name != "settings.py"
        ):
            if isinstance(node.value, ast.Name) and node.value.id == "os":
                yield node.lineno, f"reads os.{node.attr}; settings come from a settings class"
        elif isinstance(node, ast.Call) and not node.args and str(path) not in ENTRY_POINTS:
            name = _called(node)
            if name.endswith("Settings"):
                yield node.lineno, f"builds {name}; only entry points do"
        elif isinstance(node, ast.Call) and _called(node) == READ_SETTINGS and str(path) not in ENTRY_POINTS:
            yield node.lineno, f"calls {READ_SETTINGS}; only entry points do"


def _declarations(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _called(node) in DECLARING:
            yield node.lineno, f"calls {_called(node)}; only topology declares"


def _sleeps(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _called(node) == "sleep":
            yield node.lineno, "sleeps; wait on a condition with tests.support.waiting"


def _matching_strings(
    tree: ast.AST, pattern: re.Pattern[str], what: str, *, full: bool = False
) -> Iterator[tuple[int, str]]:
    test = pattern.fullmatch if full else pattern.match
    documentation = _docstrings(tree)
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Constant) and isinstance(node.value, str)) or id(node) in documentation:
            continue
        if test(node.value):
            yield node.lineno, f"{node.value.strip()[:40]!r} {what}"


def _docstrings(tree: ast.AST) -> set[int]:
    return {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }


def _called(node: ast.Call) -> str:
    target = node.func
    if isinstance(target, ast.Attribute):
        return target.attr
    return target.id if isinstance(target, ast.Name) else ""


def _listed(names: set[str] | None) -> str:
    return " and ".join(sorted(names or ())) or "nothing"
