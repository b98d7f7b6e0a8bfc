"""xspline: smooth, differentiable fields through any amount of labelled data, from sums that add up exactly."""

from __future__ import annotations

from xspline import accessor as _accessor
from xspline import pde as _pde
from xspline import synthetic as synthetic
from xspline.fitting import fit as fit
from xspline.fitting import plan as plan
from xspline.fitting import space as space
from xspline.fitting import statistics as statistics
from xspline.labels.field import Field as Field
from xspline.labels.models import merge_models as merge_models
from xspline.labels.sphere import EARTH_RADIUS as EARTH_RADIUS
from xspline.labels.statistics import Statistics as Statistics
from xspline.labels.statistics import merge as merge
from xspline.labels.store import open_field as open_field
from xspline.labels.store import open_statistics as open_statistics
from xspline.solve import ConvergenceError as ConvergenceError
from xspline.solve import Ridge as Ridge
from xspline.solve import Roughness as Roughness
from xspline.solve import SingularSystemError as SingularSystemError
from xspline.spaces import BSpline as BSpline
from xspline.spaces import Fourier as Fourier
from xspline.spaces import Polynomial as Polynomial
from xspline.spaces import Space as Space

__version__ = "0.1.0"

_accessor.register()
_pde.register()
