"""Sums: everything that a fit needs from the data, additive over observations. Host NumPy, float64."""

from .factor import Factor as Factor
from .factor import digest_key as digest_key
from .gram import Gram as Gram
from .pairs import masked_pairs as masked_pairs
from .pairs import outer_pairs as outer_pairs
from .shares import Shares as Shares
from .shares import leave_one_out as leave_one_out
from .sums import Sums as Sums
from .tally import Tally as Tally
from .window import Window as Window
