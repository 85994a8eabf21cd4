"""Plans at run time: cron ticks, the coordinator's derivations, and what others check of them."""
