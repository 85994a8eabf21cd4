"""An independent account of one job: who held it, under which fence, and how it ended.

It reads the JSON of accepted records and nothing of the core's, so that the two can be held
against each other. It does not decide verdicts; it says which accepted ones are impossible.
"""

import json
from collections import Counter
from dataclasses import dataclass, field


def fence_of(hlc: tuple[int, int]) -> str:
    return f"{hlc[0]:012x}{hlc[1]:04x}"


@dataclass
class Account:
    """What the accepted records of one lane add up to."""

    hlc: tuple[int, int] = (-1, 0)
    called: bool = False
    waiting: bool = False
    not_before: int = 0
    ended: bool = False
    holder: str | None = None
    fence: str = ""
    deadline: int = 0
    fences: list[str] = field(default_factory=list)
    results: list[tuple[str, str]] = field(default_factory=list)
    artifacts: Counter[str] = field(default_factory=Counter)
    attempts: int = 0
    attempts_max: int = 0
    yields: int = 0

    def accept(self, payload: bytes, commit_ms: int, tail: int, rules: dict[str, int]) -> None:
        """Take an accepted record in, or fail if it should never have been accepted."""
        op = json.loads(payload.partition(b"\n")[0])
        hlc, body, author = tuple(op["hlc"]), op["body"], op["author"]
        assert not self.ended, "something happened after the end"
        assert op["prev"] == tail, "the chain has a gap"
        assert hlc > self.hlc, "time went back"
        assert hlc[0] <= commit_ms + rules["max_drift_ms"], "the future owns the order"
        assert self.called == (op["type"] != "job.schedule"), "called twice, or never"
        match op["type"]:
            case "job.schedule":
                self.called = True
                self.waiting = bool({"after", "not_before", "concurrency"} & body.keys())
                self.not_before = body.get("not_before", 0)
                asked = body.get("retry", {}).get("attempts")
                self.attempts_max = asked or rules["attempts"]
            case "job.offer":
                assert self.holder is None, "offered while it was held"
                if not self.waiting:
                    return
                assert min(hlc[0], commit_ms) >= self.not_before, "offered before its time"
                self.waiting = False
            case "job.claim":
                self._claim(author, hlc, body, commit_ms)
            case "job.start" | "job.artifact" | "job.complete" | "job.yield":
                assert self.holder == author, "someone else spoke for the tenure"
                assert self.fence == body["fence"], "an old fence was accepted"
                self._by_holder(op["type"], body, rules)
            case "job.expire":
                self._expire(hlc[0], body, commit_ms)
            case "job.cancel":
                self._end()
        self.hlc = hlc

    def _claim(self, author, hlc, body, commit_ms) -> None:
        assert not self.waiting, "claimed while it waited"
        until = hlc[0] + body["lease_ms"]
        if self.holder is not None:
            assert self.holder == author, "two held it at once"
            assert max(hlc[0], commit_ms) <= self.deadline, "renewed after the end"
            self.deadline = max(self.deadline, until)
            return
        assert "fence" not in body, "a renewal began a tenure"
        fence = fence_of(hlc)
        assert all(fence > earlier for earlier in self.fences), "fences must grow"
        self.fences.append(fence)
        self.holder, self.fence, self.deadline = author, fence, until

    def _by_holder(self, kind, body, rules) -> None:
        if kind == "job.artifact":
            assert body["n"] == self.artifacts[body["as"]], "one was left out, or stored twice"
            assert ("value" in body) != ("digest" in body), "it has no content, or two"
            self.artifacts[body["as"]] += 1
        if kind == "job.complete":
            self.results.append((body["fence"], body["status"]))
            assert len(self.results) == 1, "two results"
            self._end()
        if kind == "job.yield":
            is_error = body["reason"] == "error"
            self.attempts += is_error
            self.yields += not is_error
            self._release(exhausted=self.yields > rules["yields_max"])

    def _expire(self, wall_ms, body, commit_ms) -> None:
        if "fence" not in body:
            assert self.holder is None, "a tenure was ended as a wait"
            self._end()
            return
        assert (self.holder is not None, self.fence) == (True, body["fence"]), "not this tenure"
        assert min(wall_ms, commit_ms) > self.deadline, "expired before its deadline"
        self.attempts += 1
        self._release(exhausted=False)

    def _release(self, *, exhausted: bool) -> None:
        self.holder, self.fence = None, ""
        if exhausted or self.attempts >= self.attempts_max:
            self._end()

    def _end(self) -> None:
        self.holder, self.ended = None, True
