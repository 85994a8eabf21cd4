"""`chaos gitface`: jobs are pushed with git while the bridge is killed; a clone proves them."""
