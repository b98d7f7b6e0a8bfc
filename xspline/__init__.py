"""xspline: smooth, differentiable fields through any amount of labelled data, from sums that add up exactly.

The method is that of Naveen Mysore, "Recovering Governing Dynamics from Distributed Observations via Exact Spline
Merging", which docstrings call "the paper".
"""

from __future__ import annotations

from types import ModuleType as _ModuleType

from xspline import accessor as _accessor
from xspline import synthetic as synthetic
from xspline.execution import ClusterLostError as ClusterLostError
from xspline.execution import Plan as Plan
from xspline.execution import WorkerMemoryError as WorkerMemoryError
from xspline.fitting import constrain as constrain
from xspline.fitting import discover as discover
from xspline.fitting import fit as fit
from xspline.fitting import plan as plan
from xspline.fitting import recover as recover
from xspline.fitting import space as space
from xspline.fitting import statistics as statistics
from xspline.labels.derivatives import EARTH_RADIUS as EARTH_RADIUS
from xspline.labels.field import Field as Field
from xspline.labels.field import open_field as open_field
from xspline.labels.field_base import Draws as Draws
from xspline.labels.merging import merge_models as merge_models
from xspline.labels.read.parts import Part as Part
from xspline.labels.report.findings import FitCheck as FitCheck
from xspline.labels.statistics import Statistics as Statistics
from xspline.labels.statistics import merge as merge
from xspline.labels.statistics import open_statistics as open_statistics
from xspline.pde.physics.constrained import ConstrainedField as ConstrainedField
from xspline.pde.physics.constrained import EquationField as EquationField
from xspline.pde.physics.equation_penalty import Physics as Physics
from xspline.solve import ConvergenceError as ConvergenceError
from xspline.solve import FitWarning as FitWarning
from xspline.solve import Penalty as Penalty
from xspline.solve import Ridge as Ridge
from xspline.solve import Roughness as Roughness
from xspline.solve import SingularSystemError as SingularSystemError
from xspline.solve import Sobolev as Sobolev
from xspline.solve import SpaceTime as SpaceTime
from xspline.spaces import Axis as Axis
from xspline.spaces import Basis as Basis
from xspline.spaces import BSpline as BSpline
from xspline.spaces import Fourier as Fourier
from xspline.spaces import Polynomial as Polynomial
from xspline.spaces import Space as Space

__version__ = "0.1.0"

# What `help(xspline)` lists.
__all__ = ["synthetic"]
__all__ += sorted(
    n for n, v in globals().items() if n[0] != "_" and n != "annotations" and type(v) is not _ModuleType
)

_accessor.register()
