"""`chaos tamper`: a bundle that was changed is refused with an error message, never with a crash.

Bytes are flipped, inserted and cut out anywhere. Records are left out, doubled, swapped and
inserted from another job under the same seal. Paths, places, times and verdicts are changed and
the file is written again in its canonical form. Each trial is one change, and each must be refused.
"""

from __future__ import annotations

from typing import Final

from antiphon.errors import AntiphonError
from antiphon.sdk.proofs.bundles import open_bundle
from bench.measurement.report import say
from chaos.cluster.command_frame import parser_for, report, run_to_end
from chaos.tamper.changes import all_changes
from chaos.tamper.sealed_jobs import make_sealed_jobs

SEED: Final = 20261115


def check_bundle(data: bytes, owner: str) -> str:
    """What the check of one changed bundle did: `refused`, `accepted` or `crashed`."""
    try:
        open_bundle(data, owner=owner)
    except AntiphonError as refusal:
        return "refused" if refusal.message else "crashed"
    except Exception as crash:  # noqa: BLE001 - that there is none is what is measured
        return f"crashed: {crash!r}"
    return "accepted"


def main(argv: list[str]) -> int:
    parser = parser_for("tamper", "200 random changes", has_seed=False)
    parser.add_argument(
        "--trials", type=int, default=4000, help="random changes of bytes; half as many of fields"
    )
    parser.add_argument("--seed", type=int, default=SEED)
    args = parser.parse_args(argv)
    jobs = run_to_end(make_sealed_jobs())
    open_bundle(jobs.bundle, owner=jobs.owner)
    done = refused = crashed = 0
    for what, data in all_changes(jobs, count=200 if args.quick else args.trials, seed=args.seed):
        if data == jobs.bundle:
            continue
        done += 1
        ended = check_bundle(data, jobs.owner)
        refused += ended == "refused"
        crashed += ended.startswith("crashed")
        if ended != "refused":
            say(f"{ended}: {what}")
    summary = {"trials": done, "refused": refused, "crashed": crashed}
    return report(summary, holds=refused == done)
