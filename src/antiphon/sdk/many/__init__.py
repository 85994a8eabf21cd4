"""Many jobs at once: bound calls, and the methods of `Mesh` that submit them."""
