"""The requirements that Antiphon answers to: one row each, and how far each has come.

M: mesh coordination. S: write safety. G: claim resolution. P: job plane. B: beats.

A row is *tested* by any test that carries its mark, `@pytest.mark.req("M12")`; *explained* when
the project answers it differently, with the reason in `EXPLAINED`; *pending* while it is neither.
A row may be both: tests show what holds here, and the reason says why it is not what was asked for.
`scripts/conformance` holds the three apart and writes docs/conformance.md. `PENDING` only
shrinks: `scripts/conformance --write` strikes out rows that have gained a test and lowers the
ceiling with them.
"""

from typing import Final

TITLES: Final[dict[str, str]] = {
    "M1": "Roles can be combined; a peer reads what its grant covers, with no worker part present",
    "M2": "Coordinator and route ops count only from the owner",
    "M3": "The log names one coordinator at any point, by designation alone",
    "M4": "The five transitions of a job's life happen and no others",
    "M5": "Completing and yielding are the claimer's; expiring is open to the authorised",
    "M6": "A claim on a finished job is refused",
    "M7": "The deadline is read from the claim's HLC, and only strictly later is late",
    "M8": "Expiring twice at once is the same as expiring once",
    "M9": "A lease grows only through a new claim op made in time",
    "M10": "Of two rival claims one order decides, and the other is refused",
    "M11": "Two ops with one timestamp from one author are treated as a fault",
    "M12": "A refused claimer stays back until the job is free again",
    "M13": "A route in force admits its target alone",
    "M14": "The newest route wins, and an empty one lifts it",
    "M15": "Only the coordinator derives, and any full node derives again and names a difference",
    "M16": "A coordinator can be named again, from that place on",
    "M17": "A silent coordinator is reported and never replaced by itself",
    "M18": "An op waits for what it depends on before it is committed",
    "M19": "A loop among jobs is never offered",
    "M20": "The roster answers for one job, for claimable jobs and for overdue ones",
    "M21": "A worker takes no more than it can finish in its lease",
    "M22": "A worker that cannot finish gives the job back, with its reason",
    "M23": "A claimed job is left alone by the other workers",
    "M24": "Claim attempts are spread by jitter",
    "M25": "Kinds are dotted names, routed by prefix; unknown ones are never claimed",
    "M26": "Inference snapshots hang on their job, and its completion lists them as outputs",
    "M27": "Under audit, a completion lacking its snapshot is refused",
    "M28": "A snapshot records the whole model call, from prompt to telemetry",
    "M29": "The right to claim a kind carries the right to read that kind, and ends there",
    "M30": "The roster's questions suffice to write a worker",
    "S1": "Coordination state outlives a crash with a mesh, and needs no server without one",
    "S2": "Any number of orchestrators share one state",
    "S3": "Many nodes may create the shared structures at the same moment",
    "S4": "A lock says who, which agent, what, since when, until when and with which fence",
    "S5": "Taking a lock is atomic, and an expired one is free at once",
    "S6": "A lock's fence only ever grows",
    "S7": "Dead locks disappear by themselves, with the documented lifetimes",
    "S8": "The log only grows, is chained, and rebuilds a crashed node",
    "S9": "Messages wait in a durable inbox and cross over HTTP, or by polling",
    "S10": "Stored first, one delivery try and three more, then the message stays to be fetched",
    "S11": "Live nodes can be listed by how recently they were heard",
    "S12": "What is append-only is never written over",
    "S13": "Rival edits are compared first, settled by a strategy, or listed until somebody does",
    "S14": "Reads are local and quick; writes go out and come back",
    "S15": "One backoff formula for engine and HTTP alike",
    "S16": "A breaker with its own switch opens, waits, probes, and keeps writes meanwhile",
    "S17": "Nine things and more are set by documented environment variables",
    "G1": "The lowest draw wins, the same for everybody and by the grid's own function",
    "G2": "The draw's seed is 32 bytes of the job's signature",
    "G3": "A worker that knows no other claims",
    "G4": "Equal workers win equally often",
    "G5": "Draws can be neither foreseen nor steered",
    "G6": "A claim is announced, and makes its worker known",
    "G7": "Disagreeing views cost double work, never two results",
    "G8": "The earlier of two claims wins, the lower id on a tie",
    "G9": "Weights are possible and off unless asked for",
    "G10": "Any worker may vanish and the work still ends",
    "G11": "Deciding costs a hash per candidate, or nothing with a queue",
    "P1": "An accepted job announces itself",
    "P2": "The manifest has a closed set of fields with exact meanings; two are recommended",
    "P3": "YAML in, canonical JSON hashed: spelling does not change the id",
    "P4": "The content id is the job's name; a ULID is only an alias",
    "P5": "A first claim is a compare-and-set against an empty lane",
    "P6": "Losing a race leads to growing, jittered pauses",
    "P7": "A result names its job, points to its artifacts and carries a proof",
    "P8": "A proof signs the job's id, can attest the runner, and has a published schema",
    "P9": "Results carry the trailers in exact encodings, which are documented",
    "P10": "The states of a job and the ways between them",
    "P11": "A job's whole life can be read as Git objects, named by its id",
    "P12": "Jobs written offline arrive later",
    "P13": "A change of state can start a checkable job",
    "B1": "A BeatFrame holds the relative fields, complete",
    "B2": "A StatusClaim says what an agent does, waits for and has left, at every beat and change",
    "B3": "A HelpPromise ends its thread by itself",
    "B4": "A BarReport sums up what happened between two downbeats",
    "B5": "No absolute bar travels; the old form is mapped",
    "B6": "Index, epoch and distance are worked out locally",
    "B7": "One pulse leader; without it, followers keep time alone",
    "B8": "Without a leader: the median, then one's own clock, at a frozen tempo",
    "B9": "Both sides of a partition count on, and agree again by HLC",
    "B10": "Tempo moves on downbeats, under a policy all can compare",
    "B11": "A score plans phases, waits, shrinking retries, escalations, under the original keys",
    "B12": "Phases and help budgets end in time, with an honest result",
    "B13": "A wait ends at its budget, a promise with its bar, and the escalation runs",
    "B14": "Locks and leases end with the bar or phase unless renewed, beat by beat",
    "B15": "A checkpoint on the downbeat makes resuming safe",
    "B16": "Tempo and phases adapt slowly, between bars, and not during incidents",
    "B17": "Policy bounds the tempo, whatever a score hints",
    "B18": "Events and artifacts carry their beat and HLC",
    "B19": "Three alarms tell of missed promises, overruns and silence",
    "B20": "Keys turn on downbeats, by project and role; old tokens are refused",
    "B21": "Budgets under the original keys; cost over beats and measured resources, by class",
    "B22": "Seven key figures, each with its definition",
    "B23": "Addresses carry beats and phase; the old form is mapped, with a warning",
    "B24": "Metrics, health and readiness; a pulse that hardly drifts",
    "B25": "One tempo policy file, known by its hash",
    "B26": "Named topics for beats, status and promises",
    "B27": "Batches come in on review beats, stamped",
    "B28": "An HLC in a frame reads as time and counter, without loss",
}

EXPLAINED: Final[dict[str, str]] = {
    "M5": (
        "Any holder of `/job/complete` for the kind may expire, not any node: otherwise somebody "
        "without any right could end everybody's leases."
    ),
    "M7": (
        "Late means strictly past the deadline on two clocks, the author's HLC and the engine's "
        "commit stamp: one future-dated node could otherwise end everybody's leases."
    ),
    "M10": (
        "Of two committed claims the first on the log wins, whatever their HLCs say: a claim that "
        "arrives late with an older timestamp would otherwise take back a finished job. Among "
        "claims that are not committed the smaller HLC wins. Decision 0022."
    ),
    "M11": (
        "The node is part of the HLC, so only one author can collide with itself. Of two that are "
        "not committed both are dropped; a committed first stands, since rejecting it afterwards "
        "would rewrite history. The second is rejected, and the pair is evidence that quarantines "
        "its author."
    ),
    "M14": (
        "The last route on the log rules. An owner's op that is not newer than the one before is "
        "`stale`, so the log's order and the HLC's agree, and no verdict changes when a back- "
        "dated op arrives."
    ),
    "M15": (
        "A wrong seal is rejected. A false offer is not: nobody judges what a job waits for, since "
        "not every reader of it may read that. Every full node derives offers, plans and quorums "
        "again, and logs the difference."
    ),
    "M16": (
        "A designation holds from its place on the log, where `stale` makes both orders agree: "
        "verdicts on records in between must not change when a back-dated op arrives."
    ),
    "M18": (
        "A committed record whose deps are missing is rejected and not deferred: it needs one "
        "verdict for ever. An op can only name what has a place on the log, so its author waits "
        "before it writes. A job that follows one which waits in the outbox waits there. A job "
        "that depends on others, of whatever kind, says so in its schedule and waits for the "
        "coordinator's offer."
    ),
    "M19": (
        "`after` is not judged: not every reader of a job may read what it waits for. The "
        "coordinator cancels a job that names no job accepted before it, so no loop is ever "
        "offered, and a graph is checked before anything of it is sent."
    ),
    "M22": (
        "A worker watches its machine's battery itself. Of sleep it is told, by a signal that a "
        "suspend hook sends: hearing it from the system would need D-Bus. A machine that sleeps "
        "untold keeps its leases until they end, and stops its work when it wakes."
    ),
    "M25": (
        "Kinds are dotted lower-case names and not any text: they are tokens of subjects, on "
        "which permissions and filters rest. Reverse-DNS names fit."
    ),
    "M27": (
        "Under the root, audit is in force where the owner's rule says so, for every node; a chain "
        "says so in its metadata. Every chain begins at the root: if that alone put audit in "
        "force, no command could ever use a network."
    ),
    "S7": (
        "Nothing is swept: the next take is judged by its own clock and the log's, and finds an "
        "expired lock free at once. So no clean-up can be late, and no op ends a hold."
    ),
    "S8": (
        "BLAKE3 throughout, as everywhere else here. A lane is chained by its signed "
        "predecessors; across lanes seals chain everything in a Merkle tree, which also covers "
        "verdicts, times and omissions. A link from each record to the one before it would have "
        "writers wait for each other."
    ),
    "S11": (
        "Heartbeats are messages and are not stored: rows per node and beat would grow with the "
        "fleet. Every node hears them and answers for all. What is kept, beside the replica, is "
        "every change of a node's level: who came, fell silent and went."
    ),
    "S13": (
        "The revision is compared, not the time of the last change: two clocks can silently lose "
        "an update."
    ),
    "S14": (
        "Full nodes have the replica. Light workers do without: their cost must not grow with the "
        "mesh."
    ),
    "S15": (
        "One formula for all. Calls to another machine begin at half a second. What waits inside a "
        "running engine connection (a write whose outcome is unknown, a listener that was cut "
        "off) begins at 50 to 100 ms: there a job's lease is running meanwhile."
    ),
    "S17": (
        "Mesh and breaker are on by default: founding or joining is what opts in, and nobody is "
        "helped by waiting for an engine that is silent. The mesh is switched off by the engine's "
        "own variable, `ANTIPHON_ENGINE=memory`: one thing has one name. There is no HTTP "
        "interface unless `ANTIPHON_HTTP_ADDRESS` or `--http` says where, and never one without "
        "a token."
    ),
    "G1": (
        "The draw is one of two selections. The default is `queue`: one delivery per job instead "
        "of every worker reading every call. A rule switches, by kind, and the claim's compare- "
        "and-set decides either way."
    ),
    "G5": (
        "A caller can sign again until it likes who is first, with its own jobs only. It gains "
        "nothing by it: who is first only tries first, needs the same right and labels as all "
        "others, and the claim decides."
    ),
    "G6": (
        "Under `rendezvous` workers announce what they took. Under `queue` nobody has to be told: "
        "nobody else was handed the job, and the committed claim is there for all to read."
    ),
    "G8": (
        "Claims that workers only heard of are compared so. Between committed claims the log's "
        "order decides: a claim with an earlier timestamp that arrives later would take back a "
        "finished job. Decision 0022."
    ),
    "P2": (
        "Inputs are a closed set (bytes by digest, nonces) and not opaque pointers: a worker must "
        "be able to check what it reads. `outputs`, `secrets` and `network` are ours: what a "
        "command asks for belongs to what is hashed. That `policy_root` and `inputs` are "
        "recommended is said in the manual and in the published schema, where editors show it."
    ),
    "P10": (
        "Beside the six there is `waiting`, for jobs that wait for something, and yield and "
        "expire lead back to `pending`: leases and waits need ways back."
    ),
    "P11": (
        "The log decides, and the repository shows it: a claim ref is created with the old value "
        "zero, but such a ref for each worker excludes nobody. The proof is a file of the result, "
        "and a later commit has the bundle with which it can be checked."
    ),
    "B7": (
        "A lease elects the leader, not Raft or etcd: the engine already agrees on keys, and "
        "the pulse decides no state."
    ),
    "B14": (
        "A lease ends with a phase or a bar, and its renewals say the beats left. They are written "
        "when a third of the lease has passed, not on every beat: each is a record on the log, and "
        "writes per beat would grow with the fleet. "
    ),
    "B15": (
        "A checkpoint is stored when the handler has something to store, at most once a beat, and "
        "not only on downbeats: after a kill less is done again."
    ),
    "B18": (
        "Every op carries its HLC, and its record a commit time. The beat is computed where it is "
        "shown, from that time and from the tempo and policy that held then; their history is "
        "kept. A beat inside the op would be a second truth that could contradict."
    ),
    "B20": (
        "What turns on every downbeat is the token, for one project and one role. The key that "
        "signs it stays: delegations and the log name it, and another one in each bar would need "
        "a delegation in each bar."
    ),
    "B25": (
        "The file's keys are taken as they stand. What it says becomes an owner's op: one signed "
        "source, whose hash every frame carries."
    ),
    "B26": (
        "Topics are subjects of the mesh's bus, since permissions follow subjects; the addresses "
        "`backbeat://`, `status://` and `promise://` name them on the command line."
    ),
}

PENDING_CEILING: Final = 0

PENDING: Final[frozenset[str]] = frozenset()
