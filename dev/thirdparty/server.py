"""The third party's server: control, then rules, then business."""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict, dataclass, field

from pydantic import ValidationError

from dev.loopback_http import Request, Response
from dev.thirdparty.endpoints import Business
from dev.thirdparty.rules import Rule, Rules, Step

CONTROL = "/_control/"


@dataclass
class Arrival:
    """One request. `at` is unix seconds; `answered` is a status, "dropped", "silent", or None as yet."""

    at: float
    method: str
    path: str
    key: str | None
    body: object
    answered: int | str | None = None


@dataclass
class ThirdParty:
    rules: Rules = field(default_factory=Rules)
    business: Business = field(default_factory=Business)
    arrivals: list[Arrival] = field(default_factory=list)

    async def handle(self, request: Request) -> Response | None:
        if request.path.startswith(CONTROL):
            return self._control(request)
        body = request.json()
        arrival = Arrival(
            time.time(), request.method, request.path, request.headers.get("idempotency-key"), body
        )
        self.arrivals.append(arrival)
        step = self.rules.next_step(request.method, request.path, body)
        response = self.business.answer(request) if step is None or step.effect else None
        if step is not None:
            response = await self._follow(step, request, response)
        arrival.answered = response.status if response else "silent" if step and step.timeout else "dropped"
        return response

    async def _follow(self, step: Step, request: Request, acted: Response | None) -> Response | None:
        await asyncio.sleep(step.delay + (step.timeout or 0))
        if step.drop or step.timeout is not None:
            return None
        if step.status is None:
            return acted or self.business.answer(request)
        headers = {} if step.retry_after is None else {"Retry-After": f"{step.retry_after:g}"}
        body = {"detail": "told to fail"} if step.body is None else step.body
        return Response.of(body, step.status, headers)

    def _control(self, request: Request) -> Response:
        match (request.method, request.path.removeprefix(CONTROL)):
            case ("PUT", "rules"):
                try:
                    rule = Rule.model_validate_json(request.body)
                except ValidationError as error:
                    # Without the input: bytes that are no JSON cannot be quoted in JSON.
                    errors = error.errors(include_url=False, include_context=False, include_input=False)
                    return Response.of({"errors": errors}, 422)
                self.rules.put(rule)
                return Response.of(rule.model_dump(mode="json"))
            case ("DELETE", "rules"):
                self.rules.clear()
                return Response(204)
            case ("POST", "reset"):
                self.rules, self.business, self.arrivals = Rules(), Business(), []
                return Response(204)
            case ("GET", "requests"):
                wanted = request.query.get("path")
                return Response.of([asdict(each) for each in self.arrivals if wanted in (None, each.path)])
            case ("GET", "payments"):
                return Response.of(self.business.payments)
            case ("GET", "charges"):
                return Response.of(list(self.business.charges.values()))
            case ("GET", "emails"):
                return Response.of(list(self.business.emails.values()))
            case ("GET", "events"):
                return Response.of(self.business.events)
            case ("GET", "files"):
                return Response.of({name: len(content) for name, content in self.business.files.items()})
            case ("GET", "health"):
                return Response.of({"status": "ok"})
            case _:
                return Response.of({"detail": f"there is no {request.method} {request.path}"}, 404)
