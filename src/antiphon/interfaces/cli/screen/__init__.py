"""What commands share: output, exit codes, progress, options, and looking up jobs.

Nothing here is a command.
"""
