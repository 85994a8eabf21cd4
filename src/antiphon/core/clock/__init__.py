"""Time in the core: the hybrid logical clock, its high-water mark, and the mesh's time.

Everything takes the time as an argument; nothing reads a clock.
"""
