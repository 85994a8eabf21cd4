"""Submitting a job by manifest: reads the file, chooses the kind, and submits it."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from antiphon.interfaces.cli.screen.durations import span_words
from antiphon.interfaces.cli.screen.exits import WrongUsage
from antiphon.interfaces.cli.screen.progress import Uploads
from antiphon.interfaces.cli.screen.terminal import counted

if TYPE_CHECKING:
    from antiphon.interfaces.cli.shared.wait import WaitOptions
    from antiphon.sdk.call_options import CallOptions
    from antiphon.sdk.handle import JobHandle
    from antiphon.sdk.manifests.authored_manifest import Manifest
    from antiphon.sdk.mesh import Mesh

STANDARD_INPUT: Final = "-"

Call = Callable[["Mesh", "CallOptions"], Awaitable["JobHandle[Any]"]]


class Authored(NamedTuple):
    """A manifest that a person wrote, and how to submit it."""

    kind: str
    job: Manifest
    again: bool
    """As a new job."""
    alias: bool
    """With a new ULID as its name."""

    def final(self) -> Manifest:
        """The manifest as it is submitted."""
        from antiphon.sdk.manifests import authored_manifest

        chosen = self.job
        if self.again:
            chosen = authored_manifest.again(chosen)
        return authored_manifest.with_alias(chosen) if self.alias else chosen

    def note(self, handle: JobHandle[Any], submitted: Manifest, notes: dict[str, str]) -> None:
        """Note the alias, if the job has it."""
        from antiphon.sdk.manifests import authored_manifest

        if self.alias and handle.is_new:
            notes["alias"] = authored_manifest.alias_of(submitted) or ""


def read(what: str) -> Manifest:
    """The manifest in a file, or on standard input."""
    from antiphon.sdk.manifests import authored_manifest

    if what == STANDARD_INPUT:
        job = authored_manifest.read_manifest(
            sys.stdin.buffer.read(authored_manifest.MAX_BYTES + 1)
        )
    else:
        job = authored_manifest.read_manifest(Path(what))
    return job


def by_manifest(authored: Authored, notes: dict[str, str]) -> Call:
    """Submit a handler's job from a manifest."""
    from antiphon.sdk.manifests import authored_manifest

    authored_manifest.require_handler_call(authored.job)

    async def call(mesh: Mesh, options: CallOptions) -> JobHandle[Any]:
        chosen = authored.final()
        handle = await mesh.submit_manifest(authored.kind, chosen, options=options)
        authored.note(handle, chosen, notes)
        return handle

    return call


async def run_authored(
    mesh: Mesh,
    authored: Authored,
    files: list[tuple[Path, str]],
    options: CallOptions,
    wait_options: WaitOptions,
) -> int:
    """Submit a command from a manifest, with further inputs, and print its output."""
    from antiphon.interfaces.cli.shared.follow import follow
    from antiphon.sdk.command_job import with_inputs
    from antiphon.sdk.manifests import authored_manifest

    with Uploads() as uploads:
        job = await with_inputs(mesh.artifacts, authored.job, files, telling=uploads.telling)
    chosen = authored._replace(job=job).final()

    async def call() -> JobHandle[Any]:
        handle = await mesh.submit_manifest(authored.kind, chosen, options=options)
        authored.note(handle, chosen, wait_options.notes)
        return handle

    name = (authored.kind, authored_manifest.job_id(chosen))
    return await follow(mesh, name, call, wait_options, is_live=options["retry"].attempts == 1)


def kind_of(job: Manifest, what: str, asked: str | None) -> str:
    """The kind to submit under: `--kind`, which a manifest does not contain, or the handler's."""
    named = job.handler
    if named is None and asked is None:
        raise WrongUsage(
            "a manifest needs --kind: the kind decides who may run the job",
            hint=f"antiphon submit {what} --kind build",
        )
    if named is not None and asked is not None and named != asked:
        raise WrongUsage(
            f"the manifest's handler is @{named}, but --kind is {asked}", hint="leave out --kind"
        )
    return asked or named or ""


def bounds(reason: str, mesh: Mesh) -> str:
    """What the mesh's rules would have allowed."""
    rules = mesh.authority.rules
    match reason:
        case "lease":
            low, high = rules.lease_min_ms / 1000, rules.lease_max_ms / 1000
            return f"a lease between {low:g} and {high:g} s"
        case "attempts":
            return f"at most {counted(rules.attempts_max, 'attempt')}"
        case "delay":
            return f"at most {span_words(rules.horizon_ms)} from now (rule horizon_ms)"
        case _:
            return ""
