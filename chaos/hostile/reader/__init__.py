"""`chaos hostile --only reader`: a member that may read, and floods whatever it may publish on."""
