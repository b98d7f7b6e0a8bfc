"""PDE: the constants of an equation that a field obeys, from the equation's text."""

from .recovery import recover as recover
from .recovery import register as register
