"""`chaos stale`: a worker that slept past its lease cannot finish the job that it lost."""
