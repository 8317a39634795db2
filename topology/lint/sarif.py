"""The report as SARIF 2.1.0, which code hosts and editors show beside the file.

https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from urllib.parse import quote

from topology.lint.codes import CATALOGUE
from topology.lint.explain import page
from topology.lint.finding import Finding
from topology.lint.report import Report

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
DOCUMENTATION = "https://www.rabbitmq.com/docs/dlx"  # for a page that names no other
_LEVELS = {"error": "error", "warning": "warning", "info": "note"}
_LINK = re.compile(r"https://www\.rabbitmq\.com/[^\s)>\]`'\"]+")


def as_sarif(report: Report) -> str:
    """One run. A finding's fingerprint is made of its code, virtual host and entity, so that it stays the
    same when lines move or a message is worded anew."""
    codes = list(dict.fromkeys(finding.code for finding in report.findings))
    seen: Counter[str] = Counter()
    results = []
    for finding in report.findings:
        identity = "\0".join((finding.code, finding.vhost, finding.entity))
        print_of_it = sha256(f"{identity}\0{seen[identity]}".encode("utf-8", "surrogatepass")).hexdigest()
        seen[identity] += 1
        results.append(_result(report, finding, codes.index(finding.code), print_of_it))
    run = {
        "tool": {
            "driver": {
                "name": "topology lint",
                "version": _version(),
                "rules": [_rule(code) for code in codes],
            }
        },
        "columnKind": "unicodeCodePoints",
        "invocations": [{"executionSuccessful": True}],
        "properties": {"rabbitmqVersion": report.target, "source": report.source},
        "results": results,
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _rule(code: str) -> dict[str, Any]:
    text = page(code)
    link = _LINK.search(text)
    title = CATALOGUE[code].title
    return {
        "id": code,
        "name": "".join(word.capitalize() for word in code.split("-")),
        "shortDescription": {"text": title},
        "fullDescription": {"text": _first_paragraph(text) or title},
        "help": {"text": text, "markdown": text},
        "helpUri": link[0].rstrip(".,;") if link else DOCUMENTATION,
        "defaultConfiguration": {"level": _LEVELS[CATALOGUE[code].severity]},
    }


def _first_paragraph(text: str) -> str:
    for paragraph in re.split(r"\n\s*\n", text):
        if not paragraph.lstrip().startswith(("#", "Severity:")):
            return " ".join(paragraph.split())
    return ""


def _result(report: Report, finding: Finding, rule: int, fingerprint: str) -> dict[str, Any]:
    return {
        "ruleId": finding.code,
        "ruleIndex": rule,
        "level": _LEVELS[finding.severity],
        "message": {"text": f"{finding.entity}: {finding.message}. Fix: {finding.fix}"},
        "locations": [_location(report, finding)],
        "partialFingerprints": {"codeVhostEntity/v1": fingerprint},
        "properties": {
            "vhost": finding.vhost,
            "entity": finding.entity,
            "path": list(finding.path),
            "fix": finding.fix,
            "versions": finding.versions,
        },
    }


def _location(report: Report, finding: Finding) -> dict[str, Any]:
    name = f"{finding.vhost}: {finding.entity}" if finding.vhost else finding.entity
    location: dict[str, Any] = {
        "logicalLocations": [{"name": finding.entity, "fullyQualifiedName": name, "kind": "resource"}]
    }
    if report.file is not None:
        place = report.places.of(finding) if report.places else None
        location["physicalLocation"] = {
            "artifactLocation": {"uri": _uri(report.file)},
            "region": {
                "startLine": place.line if place else 1,
                "startColumn": place.column if place else 1,
            },
        }
    return location


def _uri(file: str) -> str:
    """Relative to the working directory where it is below it, as code hosts want it."""
    path = Path(file).absolute()
    if path.is_relative_to(here := Path.cwd()):
        return quote(os.fsencode(path.relative_to(here)))
    return path.as_uri()


def _version() -> str:
    try:
        return version("redrive")
    except PackageNotFoundError:  # run from a checkout that is not installed
        return "0"
