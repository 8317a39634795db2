"""Names of watched queues: as they are, or with a vhost and percent-encoded."""

from __future__ import annotations

import pytest

from topology.settings import TopologySettings
from topology.watched import Place, Watched


@pytest.mark.parametrize(
    ("text", "watched"),
    [
        ("theirs.dead", Watched("theirs.dead")),
        ("a/b", Watched("a/b")),
        ("/a", Watched("/a")),
        ("50%", Watched("50%")),
        ("%2F", Watched("%2F")),
        ("//shop/dead", Watched("dead", "shop")),
        ("//%2F/dead", Watched("dead", "/")),
        ("//a%2Fb/c%2Cd%25%2F", Watched("c,d%/", "a/b")),
        ("//sh op/d%C3%A9ad", Watched("déad", "sh op")),
    ],
)
def test_a_name_is_read(text: str, watched: Watched) -> None:
    assert Watched.parse(text) == watched


@pytest.mark.parametrize("text", ["//", "//shop", "//shop/", "///dead", "//a/b/c", "//a/50%", "//a/%FF"])
def test_what_is_no_vhost_and_queue_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"must look like|no escape|no UTF-8"):
        Watched.parse(text)


def test_a_queue_named_twice_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDRIVE_AMQP_URL", "amqp://localhost/home")
    monkeypatch.setenv("REDRIVE_WATCH", "dead, //home/dead ,//shop/dead,, a/b")
    settings = TopologySettings(_env_file=None)  # type: ignore[call-arg]
    assert settings.watched == (Place("home", "dead"), Place("shop", "dead"), Place("home", "a/b"))
