"""`chaos locks`: many processes contend for a few locks while they and their server are killed."""
