"""Files that jobs read and write: the store, its cache, and how a file is written to disk."""
