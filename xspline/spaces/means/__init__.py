"""Functions as means over cells, which observations are that have CF bounds."""

from xspline.spaces.means.cells import CellMeans as CellMeans
from xspline.spaces.means.cells import CellSpace as CellSpace
from xspline.spaces.means.cells import as_cells as as_cells
from xspline.spaces.means.cells import middle as middle
from xspline.spaces.means.cells import neighbours as neighbours
