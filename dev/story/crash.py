"""A worker is killed in the middle of a job, and another finishes it."""

from __future__ import annotations

from typing import Any

from dev.story.stage import Stage
from dev.story.telling import expect
from dev.waiting import NotYet

SECTIONS = 4
SECTION_S = 1.0
REPORT = "report-8"


def killed_worker(stage: Stage, lease_s: float) -> None:
    stage.tell.step("A worker is killed with SIGKILL in the middle of a job")
    second = stage.stack.start_worker()
    stage.tell.seen(f"a second worker consumes, pid {second.pid}")
    stage.third_party.fail("/files/*", {"delay": SECTION_S}, method="PUT", then="repeat")
    made = stage.submit("reports.generate_report", {"report_id": REPORT, "sections": SECTIONS}, REPORT)
    job = stage.wait("the report to be half written", lambda: _half_written(stage, made.job_id))
    first_worker = job["attempts"][-1]["worker"]
    victim = stage.stack.child(first_worker.partition("@")[0])
    stage.stack.kill(victim)
    done = job["progress"]["meta"]["done"]
    stage.tell.seen(
        f"{first_worker} (pid {victim.pid}) and its children killed after section {done} of {SECTIONS}"
    )
    interrupted = stage.api.job(made.job_id)
    expect(interrupted["state"] == "RUNNING", "the job to be left RUNNING by its dead worker", interrupted)
    stage.tell.seen(f"the job's row still says RUNNING; its lease of {lease_s:g} s has to run out")
    job = stage.until(made.job_id, "SUCCEEDED")
    outcomes = [f"{each['outcome']} on {each['worker']}" for each in job["attempts"]]
    expect(
        [each["outcome"] for each in job["attempts"]] == ["lost", "succeeded"],
        "lost, then succeeded",
        outcomes,
    )
    finisher = job["attempts"][1]["worker"]
    expect(finisher != first_worker, "another worker to finish it", outcomes)
    stage.tell.seen(f"SUCCEEDED; attempts on record: {'; '.join(outcomes)}")
    name = f"{REPORT}.json"
    writes = [each for each in stage.third_party.requests(f"/files/{name}") if each["method"] == "PUT"]
    expect(len(writes) == 1 and name in stage.third_party.files(), "one report, written once", writes)
    result = stage.api.result(made.job_id)
    expect(result["url"].endswith(f"/files/{name}"), "the report's URL as the result", result)
    expect(0 < result["written"] < SECTIONS, "sections of the dead worker to be kept", result)
    kept = SECTIONS - result["written"]
    stage.tell.seen(f"one file {name}, written once; {kept} of its {SECTIONS} sections are the dead worker's")
    stage.tell.seen(f"GET /jobs/…/result: {result}")


def _half_written(stage: Stage, job_id: str) -> dict[str, Any]:
    job = stage.api.job(job_id)
    if job["state"] != "RUNNING" or not job["progress"]:
        raise NotYet(f"{job['state']}, progress {job['progress']}")
    return job
