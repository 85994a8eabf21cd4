"""What a valid bundle proves and what it does not, a sentence each: for every door the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antiphon.core.record.ids import short_node
from antiphon.core.record.verdict import Verdict
from antiphon.sdk.proofs.bundles import names_in
from antiphon.sdk.proofs.proof import cost_words, usage_words

if TYPE_CHECKING:
    from antiphon.sdk.proofs.bundles import Report
    from antiphon.sdk.proofs.proof import Proof


def proved(report: Report, *, is_owner_given: bool) -> list[str]:
    """What the bundle proves, one sentence each."""
    trust = (
        "the owner that you named"
        if is_owner_given
        else "whom you did not name, so it may be the wrong owner (--owner DID)"
    )
    about = "the job until its end" if report.is_job else "it until then"
    sentences = [
        f"the mesh {report.name!r} ({report.mesh}) was created by {report.owner}, {trust}",
        f"{_counted(report.records, 'record')}, each with its place, its time and its verdict, are"
        f" covered by one seal over the first {report.seal.size:,} records of the log",
        f"the seal is signed by {report.coordinator}, whom the owner named as coordinator in this"
        " bundle",
        "every signature is valid, and the same rules accept again what was accepted; nothing that"
        f" happened to {about} is left out",
    ]
    if not report.is_job:
        return [*sentences, *(f"record {line.seq}: {line.words}" for line in report.story())]
    completion = report.completion
    sentences += _answers(report)
    if report.quorum:
        sentences.append(_agreement(report))
    elif completion is not None and completion.body.answered is not None:
        sentences.append(
            f"{_called(report, completion.author)} was asked {completion.body.answered.text!r},"
            f" answered {completion.body.outputs[0].text}, and signed both"
        )
    elif completion is None:
        sentences.append(f"the job ended as {report.job.outcome}; no run of it was completed")
    else:
        body = completion.body
        what = ", ".join(f"{output.name} ({output.hash})" for output in body.outputs)
        by = _called(report, completion.author)
        sentences.append(
            f"the worker {by} completed it, {body.status}, under fence {body.fence}"
            + (f"; outputs: {what}" if what else "; it has no outputs")
        )
        if body.proof is not None:
            sentences.append(
                "its proof of execution is signed by the same worker"
                f" ({names_in(report).get(completion.author) or short_node(completion.author)})"
                " and agrees with the completion"
            )
            sentences.append(f"the worker states: {in_its_words(body.proof, body.exit)}")
    return sentences


def _answers(report: Report) -> list[str]:
    """What people were asked for the job, and who answered."""
    told = []
    for one in report.answers:
        if one.answer is not None:
            who = " and ".join(_called(report, by) for by in one.by)
            told.append(f"{who} was asked {one.text!r}, answered {one.answer}, and signed both")
        elif one.text:
            told.append(f"nobody answered {one.text!r}: the question ended as {one.outcome}")
    return told


def _called(report: Report, node: str) -> str:
    """A node by its whole id, which cannot be imitated, and by its name."""
    name = names_in(report).get(node, "")
    return f"{name} ({node})" if name else node


def _agreement(report: Report) -> str:
    """Who agreed on the result of a job that was run several times."""
    workers = " and ".join(_called(report, done.author) for done in report.quorum)
    counted_by = "keys" if report.control.rules.authority == "open" else "members of the owner"
    return (
        f"{_counted(len(report.quorum), 'replica')} of it agree on its outputs, completed by"
        f" {workers}, for different {counted_by}; each has a proof of execution by its worker"
    )


def in_its_words(said: Proof, exit_code: int | None) -> str:
    """What the worker states about how the job was run."""
    program = said.runner.name
    if said.runner.digest is not None and said.runner.digest.sha256 is not None:
        program += f" (sha256 {said.runner.digest.sha256[:16]}…)"
    where = {
        "none": "in the worker's own process",
        "process": "as a plain process, WITHOUT a sandbox",
        "sandbox": "in a sandbox",
    }[said.isolation.level]
    held = next((one for one in said.isolation.held if one.startswith("network:")), "")
    network = {"network:none": ", without the network", "network:host": ", with the network"}
    ended = f", exit code {exit_code}" if exit_code is not None else ""
    used = f"; it used {words}" if (words := usage_words(said.usage)) else ""
    cost = "" if said.cost is None else f"; it cost {cost_words(said.cost)}"
    took = f"{said.usage.wall_ms} ms{ended}"
    return f"{program} ran {where}{network.get(held, '')}, {took}{used}{cost}"


def not_proved(report: Report) -> list[str]:
    """What no bundle can prove, and what this one does not."""
    sentences = [
        "whether the owner's key was replaced or another coordinator named, in records that are"
        f" not in this bundle or came after record {report.seal.upto:,}",
    ]
    if not report.is_job:
        sentences.append("what was written about it later")
    else:
        sentences += _not_proved_of_a_job(report)
    if any(verdict is not Verdict.OK for _, verdict in report.lane):
        sentences.append("what rejected records say: the seal has their digests and verdicts")
    if report.control.rules.authority == "open":
        sentences.append("that anyone had permission: the mesh is open, and checks none")
    return sentences


def _not_proved_of_a_job(report: Report) -> list[str]:
    sentences = [
        "repeated submissions, and records about the job after its end: neither changes it",
    ]
    sentences += [
        f"who answered the question {one.key.kind} {one.key.name[:8]}: its records are not in here"
        for one in report.answers
        if not one.text
    ]
    if report.quorum:
        sentences.append("that the workers which agree did not arrange that with each other")
        return sentences
    if report.completion is not None and report.completion.body.answered is not None:
        sentences.append("that whoever holds the key is who you think, or understood the question")
        return sentences
    if report.completion is not None:
        sentences.append("that the worker told the truth about what it ran")
    if report.completion is None or report.completion.body.proof is None:
        sentences.append("a proof of execution: there is none")
    return sentences


def outcome(report: Report) -> str:
    """What it is about, and how that ended."""
    name = f"{report.key.kind} {report.key.name[:8]}"
    if not report.is_job:
        return f"{name}, of {report.key.family}"
    return f"{name}, {report.job.outcome or report.job.state.value}"


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
