"""Every function that signs or stores something for others, and how it is read back (0094).

`test_makers.py` compares this with the code. A new maker needs a row in `MAKERS`, with the function
that its readers use and a test in which a fault is planted; or a reason in `NOT_READ_BACK`.
"""

from typing import NamedTuple


class Maker(NamedTuple):
    """How what a function makes is read back."""

    reader: str
    """What readers call; the maker hands it to `read_back`, or calls it itself."""
    fault: str
    """The test in which something goes wrong between making and telling."""
    by: str = ""
    """The function that reads back, if it is another one, which the maker calls."""


ARCHIVE = "tests/runtime/archive/test_archive_read_back.py::"
BACKUP = "tests/runtime/backup/test_backup_read_back.py::"
FAULTS = "tests/makers/test_faults.py::"
SNAPSHOTS = "tests/runtime/coordinator/test_unreadable_snapshots.py::"
WRITER = "antiphon.runtime.archive.archive_writer:ArchiveWriter"
READ_BACK = "antiphon.runtime.archive.archive_read_back:ArchiveReadBack"
FILES = "antiphon.runtime.backup.backup_files:BackupFiles"
NOT_ANNOUNCED = f"{ARCHIVE}test_nothing_is_announced_that_cannot_be_read_back"
NOT_IN_A_BACKUP = f"{BACKUP}test_a_backup_that_cannot_be_read_back_leaves_the_former_one"
MESSAGES = f"{FAULTS}test_a_message_that_receivers_would_refuse_is_not_signed"

MAKERS = {
    "antiphon.runtime.coordinator.archiver:Archiver._store": Maker(
        "antiphon.runtime.node.snapshot_search:stored_snapshot",
        f"{SNAPSHOTS}test_an_unreadable_snapshot_is_not_announced_and_people_are_told",
    ),
    f"{WRITER}._write_records": Maker(
        "antiphon.runtime.archive.archive_check:hashes_of", NOT_ANNOUNCED, by=f"{READ_BACK}.bundle"
    ),
    f"{WRITER}._write_upto": Maker(
        "antiphon.runtime.archive.archive_reader:ArchiveReader.tile",
        NOT_ANNOUNCED,
        by=f"{READ_BACK}.tile",
    ),
    f"{WRITER}._sign": Maker("antiphon.runtime.archive.archive_read_back:opened", NOT_ANNOUNCED),
    "antiphon.runtime.archive.archive_eraser:erase_places": Maker(
        "antiphon.core.archive.record_files:Unpacker.add",
        f"{ARCHIVE}test_a_file_whose_other_records_would_be_lost_is_not_replaced",
        by="antiphon.core.archive.record_files:CheckedPacker._read_back",
    ),
    "antiphon.runtime.archive.bundle_assembly:written": Maker(
        "antiphon.core.bundle:read", f"{FAULTS}test_a_bundle_is_neither_exported_nor_mirrored"
    ),
    "antiphon.runtime.attention.dismissals:_replace": Maker(
        "antiphon.runtime.attention.dismissals:opened",
        "tests/sdk/dismissals/test_dismissals.py::test_a_rule_that_nobody_could_read_is_not_kept",
        by="antiphon.runtime.attention.dismissals:_note",
    ),
    f"{FILES}.put": Maker(f"{FILES}.host_files", NOT_IN_A_BACKUP),
    f"{FILES}.put_segment": Maker(f"{FILES}.segment", NOT_IN_A_BACKUP),
    f"{FILES}.finish": Maker(f"{FILES}.manifest", NOT_IN_A_BACKUP),
    "antiphon.runtime.backup.manifest:write": Maker(
        "antiphon.runtime.backup.manifest:read",
        f"{BACKUP}test_a_manifest_is_read_back_before_the_former_one_is_replaced",
    ),
    "antiphon.assembly.backups:store_keys": Maker(
        "antiphon.assembly.backups:_restorable",
        f"{BACKUP}test_a_file_of_keys_that_could_not_be_opened_takes_no_other_ones_place",
    ),
    "antiphon.runtime.gate.tickets:write_ticket": Maker(
        "antiphon.runtime.gate.tickets:read_ticket",
        f"{FAULTS}test_a_ticket_is_not_given_to_anybody",
    ),
    "antiphon.sdk.http.bar_tokens:BarTokens._sign": Maker(
        "antiphon.sdk.http.bar_tokens:_token_in", f"{FAULTS}test_a_token_is_not_sent"
    ),
    "antiphon.sdk.http.job_links:make_link": Maker(
        "antiphon.sdk.http.job_links:_link_in", f"{FAULTS}test_a_link_is_not_given_to_anybody"
    ),
    "antiphon.core.bus.signed_message:MessageType.sign": Maker(
        "antiphon.core.bus.signed_message:MessageType._again", MESSAGES
    ),
    "antiphon.runtime.log.author:Author._blocks": Maker(
        "antiphon.core.opened_record:open_own",
        "tests/runtime/log/test_too_large_ops.py::test_an_author_writes_the_largest_op_or_says_why_not",
        by="antiphon.runtime.log.author:Author._encoded",
    ),
    "antiphon.runtime.identity.genesis:sign": Maker(
        "antiphon.core.record.codec:decode",
        f"{FAULTS}test_a_mesh_that_no_reader_would_know_is_not_created",
    ),
    "antiphon.core.ucan.envelope:issue": Maker(
        "antiphon.core.ucan.envelope:open_envelope",
        "tests/core/ucan/test_envelope.py::test_odd_payloads_are_not_written",
        by="antiphon.core.ucan.envelope:seal_envelope",
    ),
    "antiphon.runtime.worker.runs.model_calls:ModelCalls._store": Maker(
        "antiphon.core.inference.snapshot:decode",
        f"{FAULTS}test_a_run_whose_model_call_cannot_be_read_says_so",
    ),
    "antiphon.interfaces.git.commit_notes:NotesTree.say": Maker(
        "antiphon.interfaces.git.commit_notes:said_in",
        f"{FAULTS}test_a_note_that_readers_would_pass_over_is_not_written",
    ),
}

NOT_READ_BACK = {
    "calls one that is in the table": (
        "antiphon.assembly.hosted_mesh:_found",
        "antiphon.assembly.memory_mesh:MemoryMesh.__init__",
        "antiphon.runtime.log.author:Author.draft",
        "antiphon.runtime.log.writer:sign_together",
        "antiphon.runtime.worker.runs.model_calls:ModelCalls._content",
        "antiphon.sdk.connection.connection_outbox:ConnectionOutbox._sender.deliver",
        "antiphon.sdk.messages.http_sender:HttpSender._post",
        "antiphon.sdk.messages.namespace:Messages._put_or_keep.put",
    ),
    "a step of one that is in the table, which reads back the whole": (
        "antiphon.core.archive.record_files:Packer.add",
        "antiphon.core.record.signing:sign_together",
        "antiphon.interfaces.git.commit_notes:NotesTree.write",
        "antiphon.runtime.backup.backup_files:BackupFiles._write",
        "antiphon.runtime.file_store:FolderStore.write",
    ),
    "only signs what it is given": (
        "antiphon.engines.nats.credentials.keypairs:EngineKey.sign",
        "antiphon.runtime.gate.gate_requests:engine_signer",
        "antiphon.runtime.identity.key_files:SeedKeyring.sign",
        "antiphon.runtime.log.author:Author.vouch",
    ),
    "readers make what was signed again from an op, and that is read back": (
        "antiphon.runtime.log.author:Author.prove",
        "antiphon.runtime.log.author:Author.answer",
    ),
    "nats-server or a TLS library reads it, at once; the size of logins is checked": (
        "antiphon.engines.nats.connection.login:Login.signer",
        "antiphon.engines.nats.credentials.jwts:signed",
        "antiphon.engines.nats.server.certificate_authority:Authority.new",
        "antiphon.engines.nats.server.certificate_authority:Authority.issue",
    ),
    "Git checks objects when it takes them, and what is in them follows from the log": (
        "antiphon.interfaces.git.job_refs:refs_of",
        "antiphon.interfaces.git.job_refs:bundle_refs",
        "antiphon.interfaces.git.job_refs:_files",
        "antiphon.interfaces.git.objects:Objects.pack",
    ),
    "bytes under their digest, which is checked while they are stored": (
        "antiphon.runtime.artifacts.mirrored_blobs:MirroredBlobs.put",
        "antiphon.runtime.artifacts.store:Artifacts._put",
        "antiphon.runtime.artifacts.waiting_blobs:WaitingBlobs.send",
        "antiphon.runtime.backup.backup_files:BackupFiles.put_blob",
        "antiphon.runtime.backup.backup_writer:_blobs",
        "antiphon.runtime.coordinator.coordinator:Coordinator._store",
    ),
    "values under their digest, no larger than readers take them": (
        "antiphon.runtime.executors.handler_call:keep_arguments",
        "antiphon.runtime.executors.handler_call:keep_result",
        "antiphon.runtime.memory.document_values:keep",
        "antiphon.runtime.worker.runs.artifact_writer:ArtifactWriter._content",
        "antiphon.runtime.worker.runs.checkpoint_saver:CheckpointSaver._put",
        "antiphon.runtime.worker.runs.kept_output:with_output",
    ),
    "a copy of files that their maker has read back": (
        "antiphon.runtime.backup.backup_files:BackupFiles._copy",
        "antiphon.runtime.file_store:copy_files",
    ),
    "registers of the gate, by compare-and-set; what members sent was opened before": (
        "antiphon.runtime.messages.dead_letter_store:DeadLetterStore._write",
        "antiphon.runtime.messages.message_gate:MessageGate._write",
        "antiphon.runtime.rate_books:RateBooks._save",
    ),
    "nothing is in it, or it is in memory": (
        "antiphon.runtime.backup.backup_files:BackupFiles.locked",
        "antiphon.runtime.log.session:Session.judge_first",
    ),
}
"""Functions that sign or store, by the reason why nothing is read back there."""
