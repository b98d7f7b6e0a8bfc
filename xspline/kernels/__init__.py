"""Kernels: from a block of data to its sums, and from coefficients to values. Arrays in, arrays out."""

from xspline.kernels.block import Block as Block
from xspline.kernels.block import Group as Group
from xspline.kernels.block import Layout as Layout
from xspline.kernels.evaluate import evaluate as evaluate
from xspline.kernels.passes import accumulate as accumulate
