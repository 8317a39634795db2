"""What the third party is told to do: rules, and which one a request meets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Seconds = Annotated[float, Field(ge=0, le=3600)]


class Step(BaseModel):
    """What one request gets.

    `delay` alone answers late but well; with `status` or `drop` it fails late. `timeout` keeps silent for
    that long and then drops the connection. Times are seconds. With `effect` the endpoint acts first: only
    its answer is lost.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    status: Annotated[int, Field(ge=200, le=599)] | None = None
    retry_after: Seconds | None = None
    body: Any = None
    delay: Seconds = 0
    timeout: Seconds | None = None
    drop: bool = False
    effect: bool = False

    @model_validator(mode="after")
    def _one_end(self) -> Self:
        ends = [self.status is not None, self.timeout is not None, self.drop]
        if sum(ends) > 1:
            raise ValueError("a step has one of status, timeout and drop")
        if self.status is None and (self.retry_after is not None or self.body is not None):
            raise ValueError("retry_after and body go with a status")
        if not any(ends) and not self.delay:
            raise ValueError("a step without status, timeout, drop or delay does nothing")
        if self.effect and not any(ends):
            raise ValueError(
                "effect goes with a status, a timeout or a drop: otherwise the endpoint acts anyway"
            )
        return self


class Rule(BaseModel):
    """Requests to `path` (`*` stands for any characters) whose JSON body has the fields of `match`.

    Each takes the next step. After the last, `then`: all is well again, or the last step repeats.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: Annotated[str, Field(pattern="^/")]
    method: str | None = None
    match: dict[str, Any] | None = None
    steps: Annotated[tuple[Step, ...], Field(min_length=1)]
    then: Literal["ok", "repeat"] = "ok"

    def meets(self, method: str, path: str, body: object) -> bool:
        if self.method not in (None, method) or not fnmatchcase(path, self.path):
            return False
        if self.match is None:
            return True
        return isinstance(body, Mapping) and all(
            name in body and body[name] == value for name, value in self.match.items()
        )

    def same_requests(self, other: Rule) -> bool:
        return (self.path, self.method, self.match) == (other.path, other.method, other.match)


@dataclass
class Rules:
    """The rules in force, each with the number of its steps that were taken."""

    taken: list[tuple[Rule, int]] = field(default_factory=list)

    def put(self, rule: Rule) -> None:
        """Adds a rule, in the place of one for the same requests. The newest rule that is met counts."""
        self.taken = [(rule, 0), *(each for each in self.taken if not each[0].same_requests(rule))]

    def clear(self) -> None:
        self.taken = []

    def next_step(self, method: str, path: str, body: object) -> Step | None:
        """The step for this request, or None when all is well. Counts it."""
        for position, (rule, count) in enumerate(self.taken):
            if not rule.meets(method, path, body):
                continue
            self.taken[position] = (rule, count + 1)
            if count < len(rule.steps):
                return rule.steps[count]
            return rule.steps[-1] if rule.then == "repeat" else None
        return None
