"""`bench flames`: where a worker's time goes while it drains a queue, as a picture."""
