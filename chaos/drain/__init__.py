"""`chaos drain`: a worker that is told to stop finishes what it can and gives the rest back."""
