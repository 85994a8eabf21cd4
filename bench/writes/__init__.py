"""`bench writes`: what one record costs the engine, by the way in which it is written."""
