"""One query layer for the command line, HTTP and programs: pages of everything, by cursor.

What is where: `page` (a page, and the cursor of the next one), `job_query` (which jobs are wanted,
in people's words), `due_jobs` (jobs that somebody should look at now), `many_jobs` (jobs that are
cancelled or retried together), `log_status` (bytes, seals, refusals), `namespace` (`mesh.queries`).
"""
