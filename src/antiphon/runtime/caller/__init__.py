"""The submitter's side: submit a job, wait for its end, cancel it, retry it."""
