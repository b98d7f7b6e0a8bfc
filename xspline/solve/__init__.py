"""Solve: from sums and a penalty to coefficients. Host NumPy; the only room that uses SciPy."""

from xspline.solve.costs import Resources as Resources
from xspline.solve.errors import ConvergenceError as ConvergenceError
from xspline.solve.errors import FitWarning as FitWarning
from xspline.solve.errors import SingularSystemError as SingularSystemError
from xspline.solve.errors import TooLargeError as TooLargeError
from xspline.solve.penalties.roughness import Penalty as Penalty
from xspline.solve.penalties.roughness import Ridge as Ridge
from xspline.solve.penalties.roughness import Roughness as Roughness
from xspline.solve.penalties.roughness import as_penalty as as_penalty
from xspline.solve.penalties.roughness import criterion_of as criterion_of
from xspline.solve.penalties.roughness import penalises_roughness as penalises_roughness
from xspline.solve.penalties.roughness import penalty_code as penalty_code
from xspline.solve.penalties.roughness import rounded as rounded
from xspline.solve.penalties.sobolev import Sobolev as Sobolev
from xspline.solve.penalties.space_time import SpaceTime as SpaceTime
from xspline.solve.select import SOLVERS as SOLVERS
from xspline.solve.smoothing.choose import Smoothing as Smoothing
from xspline.solve.smoothing.choose import choose as choose
from xspline.solve.smoothing.family import choice_for as choice_for
from xspline.solve.smoothing.memory import Likelihood as Likelihood
from xspline.solve.smoothing.scores import Scores as Scores
from xspline.solve.smoothing.scores import scores_of as scores_of
from xspline.solve.solution import Solution as Solution
from xspline.solve.solution import condition as condition
from xspline.solve.solution import condition_bound as condition_bound
from xspline.solve.solution import factorise as factorise
from xspline.solve.solution import interval_factor as interval_factor
from xspline.solve.solution import solve as solve
from xspline.solve.solution import strength_derivatives as strength_derivatives
from xspline.solve.solution import student_below as student_below
from xspline.solve.system import Choice as Choice
from xspline.solve.system import Factorisation as Factorisation

penalty_from_dict = Penalty.from_dict
