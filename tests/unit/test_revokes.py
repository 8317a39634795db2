"""Which revokes count for a job that was replayed."""

from __future__ import annotations

from workers.revokes import Revokes


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_only_a_revoke_since_the_replay_is_meant() -> None:
    clock = Clock()
    revokes = Revokes(clock)
    revokes.told(["a", "b"])
    assert revokes.meant("a", {}, since=99.0)
    assert not revokes.meant("a", {}, since=101.0)
    assert not revokes.meant("c", {}, since=0.0)
    clock.now = 102.0
    revokes.told("a")
    assert revokes.meant("a", {}, since=101.0)
    assert not revokes.meant("b", {}, since=101.0)


def test_a_stamp_is_meant_by_either_form_of_the_command() -> None:
    revokes = Revokes(Clock())
    revokes.told_stamps({"customer": ["seven", 8]})
    revokes.told_stamps(["order=a=b"])
    assert revokes.meant("any", {"customer": "seven"}, since=99.0)
    assert revokes.meant("any", {"customer": ["six", 8]}, since=99.0)
    assert revokes.meant("any", {"order": "a=b"}, since=99.0)
    assert not revokes.meant("any", {"customer": "six", "order": None}, since=99.0)
    assert not revokes.meant("any", {"customer": "seven"}, since=101.0)


def test_times_are_kept_across_a_restart_with_another_clock() -> None:
    saved_at = Clock()
    before = Revokes(saved_at, lambda: 1_000.0)
    before.told("a")
    after = Revokes(lambda: 7.0, lambda: 1_060.0)
    after.load(before.save())
    assert after.meant("a", {}, since=-53.0)
    assert not after.meant("a", {}, since=-52.0)


def test_the_oldest_are_forgotten_first() -> None:
    revokes = Revokes(Clock(), most=2)
    revokes.told(["a", "b"])
    revokes.told("a")
    revokes.told("c")
    known = [job for job in ("a", "b", "c") if revokes.meant(job, {}, since=0.0)]
    assert known == ["a", "c"]
