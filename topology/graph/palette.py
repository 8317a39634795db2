"""Colours of kinds and roles. Each text and line has a contrast of at least 4.5 : 1 on what it stands on."""

from __future__ import annotations

from topology.graph.model import Kind, Role

INK, QUIET, PAPER, FRAME = "#1b1f24", "#57606a", "#f6f7f9", "#d0d5dc"

# (fill, line) of a node.
NODES: dict[Kind, tuple[str, str]] = {
    "work": ("#e7effd", "#1d4ed8"),
    "dlx": ("#ffffff", "#b42318"),
    "dlq": ("#fdecea", "#b42318"),
    "step": ("#f3ebfc", "#6b3fa0"),
    "due": ("#ffffff", "#17663a"),
    "unrouted": ("#ffffff", "#57606a"),
    "catch_all": ("#eceef1", "#57606a"),
}
EDGES: dict[Role, str] = {
    "dies": "#b42318",
    "kept": "#b42318",
    "retried": "#6b3fa0",
    "waits": "#6b3fa0",
    "due": "#17663a",
    "unrouted": "#57606a",
}
