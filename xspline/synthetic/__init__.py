"""Fields with a known truth: solutions of four equations, and a synthetic ocean."""

from xspline.synthetic.equations import burgers as burgers
from xspline.synthetic.equations import diffusion as diffusion
from xspline.synthetic.equations import heat as heat
from xspline.synthetic.equations import wave as wave
from xspline.synthetic.ocean import sea_surface_temperature as sea_surface_temperature
from xspline.synthetic.truth import Truth as Truth
