"""What commands share: output, exit codes, progress, options, and finding what a person means.

Nothing here is a command.
"""
