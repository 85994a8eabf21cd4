"""One simulated cluster: the real core and runtime on the memory engine, in virtual time.

    world            the cluster, and a run's phases: faults, healing, audit
    cluster          what all machines share: loop, server, mesh, referee, network
    seed_plan        what a seed means
    grant_plan       who is granted what, by whom, and when that ends
    fault_schedule   the faults: of processes, connections, the server, clocks and operators
    network          latency and loss of messages
    locks            agents that take locks, and the laws that hold of them
    messages         a world of its own: inboxes
    tempo            a world of its own: beats
    actors           machines, workload (who submits which jobs), the owner, guests
    hostile          a hostile member: its attacks, forgeries, starvation of others, false proofs
    checks           laws and a referee that read the log without the core
    final_audit      what is checked when all is quiet
    lane_story       a lane as a person reads it
    speedups         what makes a run quick and changes nothing in it

`antiphon.testing.simulate` runs seeds; `antiphon.testing.mutants` shows that the laws bite.
"""
