"""Solve: from sums and a penalty to coefficients. Host NumPy; the only room that uses SciPy."""

from .errors import ConvergenceError as ConvergenceError
from .errors import SingularSystemError as SingularSystemError
from .penalty import Penalty as Penalty
from .penalty import PenaltySum as PenaltySum
from .penalty import Ridge as Ridge
from .penalty import Roughness as Roughness
from .penalty import as_penalty as as_penalty
from .penalty import penalty_code as penalty_code
from .select import Choice as Choice
from .smoothing import Smoothing as Smoothing
from .smoothing import choice_for as choice_for
from .smoothing import choose as choose
from .solution import Factorisation as Factorisation
from .solution import Solution as Solution
from .solution import factorise as factorise
from .solution import solve as solve

penalty_from_dict = Penalty.from_dict
