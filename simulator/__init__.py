"""A simulated mesh: the real core and runtime on the memory engine, in virtual time.

    seeds            one simulated cluster after another: `python -m simulator`
    mutants          deliberate bugs that the laws must notice: `python -m simulator.mutants`
    tempo            a world of its own: beats: `python -m simulator.tempo`
    messages         a world of its own: inboxes: `python -m simulator.messages`
    archive          a world of its own: days pass, lanes are archived, purged and begun again
    locks            agents that take locks, and the laws that hold of them
    hostile          a hostile member: its attacks, forgeries, starvation of others, false proofs
    actors           machines, workload (who submits which jobs), the owner, guests
    checks           laws and a referee that read the log without the core
    cluster          what all machines share: loop, server, mesh, referee, network
    network          latency and loss of messages
    linearizability  whether a concurrent history could have happened one operation at a time
    patch            applies a deliberate bug and removes it again
    plain_proofs     proofs for completions that nobody ran
    speedups         what makes a run quick and changes nothing in it

No part of the package: it runs from a checkout. `chaos` holds real processes to the same laws.
"""
