"""A world of its own: days pass, lanes are archived and purged, old records are sent again."""
