"""What a run really did, established apart from the code under test.

Here lives what judges a run: the journal of executions, the check of the whole log afterwards, and
the summary that compares the two. Nothing here starts, kills or delays anything.
"""
