"""How Sphinx builds the documentation: `make docs`."""

from __future__ import annotations

from trainwright import __version__

project = "Trainwright"
author = "The Trainwright authors"
copyright = "The Trainwright authors"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
myst_enable_extensions = ["colon_fence", "deflist", "fieldlist", "substitution"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = f"Trainwright {__version__}"
html_theme_options = {"navigation_with_keys": True}
autodoc_typehints = "description"
nitpicky = False
