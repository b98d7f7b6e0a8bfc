"""Cells: the bounds of labels whose observations are means between them."""

from xspline.labels.read.cells.bounds import bounds_of as bounds_of
from xspline.labels.read.cells.bounds import cells_of as cells_of
from xspline.labels.read.cells.bounds import has_cells as has_cells
from xspline.labels.read.cells.bounds import over_cells as over_cells
from xspline.labels.read.cells.bounds import range_of_cells as range_of_cells
from xspline.labels.read.cells.bounds import warn_of_cut as warn_of_cut
