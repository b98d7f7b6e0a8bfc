"""How the site is built: python -m pip install ".[docs]" && make -C docs html."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import sphinx_autosummary_accessors

import xspline

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))  # figures.py, for pages that draw
# Kernels of notebooks start in the folder of their page and import the same module.
os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"  # whatever a terminal has
os.environ["PYTHONWARNINGS"] = "error::UserWarning"  # a page that warns says so itself, and catches it
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")]))

project = "xspline"
author = "The xspline developers"
copyright = "The xspline developers"
version = release = xspline.__version__
language = "en"

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx_autosummary_accessors",
    "numpydoc",
    "myst_nb",
    "sphinx_copybutton",
    "sphinx_design",
]
exclude_patterns = ["_build", "**/.ipynb_checkpoints"]
templates_path = ["_templates", sphinx_autosummary_accessors.templates_path]
html_static_path = ["_static"]

# ---- pages that run code --------------------------------------------------------------------------------------------

nb_execution_mode = "cache"
nb_execution_cache_path = str(HERE / "_build" / "notebooks")
nb_execution_timeout = 180  # seconds a cell; a page should need a tenth of it
nb_execution_raise_on_error = True
nb_merge_streams = True
nb_output_stderr = "remove"  # lines that say how far a search is; errors are not streams
nb_execution_show_tb = True
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

# ---- the interface --------------------------------------------------------------------------------------------------

autosummary_generate = True
autodoc_typehints = "none"  # types are in the text of each parameter, or in the signature
numpydoc_show_class_members = False  # the template of a class lists them, each with a page
numpydoc_xref_param_type = False
python_use_unqualified_type_names = True
nitpicky = True

# Links to other projects, only where the network may be used: the site builds without.
intersphinx_mapping = {}
nitpick_ignore_regex = [(r"py:.*", r"(xarray|dask|numpy|scipy|pandas)\..*")]
if os.environ.get("ONLINE"):
    nitpick_ignore_regex = []
    intersphinx_mapping = {
        "python": ("https://docs.python.org/3", None),
        "numpy": ("https://numpy.org/doc/stable", None),
        "scipy": ("https://docs.scipy.org/doc/scipy", None),
        "xarray": ("https://docs.xarray.dev/en/stable", None),
        "dask": ("https://docs.dask.org/en/stable", None),
    }

# ---- looks ----------------------------------------------------------------------------------------------------------

html_theme = "pydata_sphinx_theme"
html_title = "xspline"
html_css_files = ["site.css"]
html_show_sourcelink = False
html_sidebars = {
    page: [] for page in ("index", "start", "how-it-works", "benchmarks", "compared", "developers", "changes")
}
html_theme_options = {
    "logo": {"text": "xspline"},
    "show_toc_level": 2,
    "collapse_navigation": True,
    "navigation_with_keys": False,
    "show_prev_next": True,
    "header_links_before_dropdown": 6,
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
    "pygments_light_style": "tango",
    "pygments_dark_style": "monokai",
}
html_context = {"default_mode": "auto"}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True


OWN_NAMES = re.compile(r":(class|meth|func|attr):`([A-Z]\w*(?:\.\w+)?)`")  # :meth:`Field.check` of any module
INSIDE = re.compile(r":\w+:`(xspline\.(?:labels|execution|solve|kernels|sums|spaces)\.[\w.]+)`")


def tidy_docstring(app: object, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Let names link from every page, and keep the bars of |G|² from being read as substitutions."""

    def escaped(bar: re.Match[str]) -> str:
        return "".join(f"\\{character}" for character in bar[0])  # of Σ_|α| the underscore too

    in_doctest = False
    for i, line in enumerate(lines):
        in_doctest = line.lstrip().startswith(">>>") or (in_doctest and bool(line.strip()))
        if not in_doctest:
            line = INSIDE.sub(r"``\1``", OWN_NAMES.sub(r":\1:`\2 <xspline.\2>`", line))
            parts = line.split("``")  # every other one is literal
            lines[i] = "``".join(p if k % 2 else re.sub(r"_?\|", escaped, p) for k, p in enumerate(parts))


def setup(app: object) -> None:
    """Connect what the extensions do not do."""
    app.connect("autodoc-process-docstring", tidy_docstring, priority=900)  # type: ignore[attr-defined]  # after numpydoc
