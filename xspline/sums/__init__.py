"""Sums: everything that a fit needs from the data, additive over observations. Host NumPy, float64."""

from xspline.sums.factor import Factor as Factor
from xspline.sums.factor import digest_key as digest_key
from xspline.sums.factor import masked_pairs as masked_pairs
from xspline.sums.factor import matrix_entries as matrix_entries
from xspline.sums.factor import outer_pairs as outer_pairs
from xspline.sums.gram import Gram as Gram
from xspline.sums.observed import cell_weights as cell_weights
from xspline.sums.observed import observed_cells as observed_cells
from xspline.sums.sums import HolderSums as HolderSums
from xspline.sums.sums import Sums as Sums
from xspline.sums.sums import Tally as Tally
from xspline.sums.sums import leave_one_out as leave_one_out
from xspline.sums.terms import join_overlapping as join_overlapping
from xspline.sums.window import Window as Window
