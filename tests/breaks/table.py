"""Every row that has tests, and how its features are taken out."""

from tests.breaks import beat, grid, mesh, plane, safety
from tests.breaks.replacement import Break

BREAKS: dict[str, tuple[Break, ...]] = {
    **mesh.BREAKS,
    **safety.BREAKS,
    **grid.BREAKS,
    **plane.BREAKS,
    **beat.BREAKS,
}
