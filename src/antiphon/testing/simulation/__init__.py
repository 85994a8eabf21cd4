"""One simulated cluster: the real core and runtime on the memory engine, in virtual time.

    world       the cluster, and how a run goes from chaos over healing to its audit
    ground      what all machines stand on: loop, server, mesh, referee, weather
    machines    what lives on a machine; how it starts, dies and comes back
    owner       those who write control ops: owner, heir, middle-men
    charter     who is granted what, and when that ends
    workload    who calls which jobs, and what their handlers do
    network     what happens to messages, by the weather
    adversary   the schedule of faults: of processes, lines, the server, clocks and people
    hostile     a member that lies, and its tools
    deeds       what it does with them
    greed       how it keeps jobs from others
    forgeries   what it does about authority, where there is any
    facts       a record read without the core
    mandates    who may do what, worked out from the log without the core
    ledger      who held what, until when and under what, likewise
    laws        what holds at every record
    referee     judges every commit on the spot and holds it against the laws
    audit       what is checked when all is quiet
    story       a lane as a person reads it
    shortcuts   what makes a run quick and changes nothing in it

`antiphon.testing.simulate` runs seeds; `antiphon.testing.mutants` shows that the laws bite.
"""
