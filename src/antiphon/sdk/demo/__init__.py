"""What `antiphon demo` shows: a mesh of three machines in one directory, and what can go wrong."""
