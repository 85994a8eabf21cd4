"""`chaos partition`: workers whose network to the server is late, half open, or cut, at random.

Workers are processes on several sites. Each site reaches the server through a proxy of its own
(`proxy_faults.py`), or has a network of its own that loses packets (`namespace_faults.py`). A site
that is frozen takes itself for connected for a while: its workers go on with what they hold and
must stop in time by themselves. The checks and the keys are those of `chaos workers`.
"""

from __future__ import annotations

from chaos.cluster.command_frame import parser_for, run_to_end
from chaos.partition import namespace_faults, proxy_faults
from chaos.partition.trial import Plan


def main(argv: list[str]) -> int:
    parser = parser_for("partition", "under 45 s")
    parser.add_argument("--how", choices=("proxy", "namespaces"), default="proxy")
    parser.add_argument("--faults", type=int)
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--workers", type=int, default=6)
    parser.add_argument("--replicas", type=int, choices=(1, 3), default=1)
    args = parser.parse_args(argv)
    if args.replicas != 1 and args.how == "proxy":
        parser.error("--replicas needs --how namespaces: proxies stand before one server only")
    quick = 15 if args.replicas == 1 else 8  # a cluster takes its time to come back
    faults = args.faults or (quick if args.quick else 150)
    plan = Plan(
        workers=args.workers,
        jobs=args.jobs or faults * 20,
        faults=faults,
        replicas=args.replicas,
        seed=args.seed,
    )
    if args.how == "namespaces":
        return namespace_faults.main(plan)
    return run_to_end(proxy_faults.run(plan))
