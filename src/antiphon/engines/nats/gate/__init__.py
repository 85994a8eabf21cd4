"""The gate's side of the engine: serves the reads, writes and blobs that members ask for."""
