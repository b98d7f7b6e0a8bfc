"""Kernels: from a block of data to its sums, and from coefficients to values. Arrays in, arrays out."""

from .evaluate import evaluate as evaluate
from .evaluate import evaluate_pairs as evaluate_pairs
from .layout import Block as Block
from .layout import Group as Group
from .layout import Layout as Layout
from .passes import accumulate as accumulate
