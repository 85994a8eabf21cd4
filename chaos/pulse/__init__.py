"""`chaos pulse`: whoever sends the beats is killed, again and again."""
