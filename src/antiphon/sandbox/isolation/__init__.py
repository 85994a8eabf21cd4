"""What isolates a command from the machine: namespaces, system calls, limits, users, mounts."""
