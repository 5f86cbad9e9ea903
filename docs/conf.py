"""Sphinx's configuration: pages in Markdown, docstrings by numpydoc, mathematics as MathML.

Nothing is fetched when a page is read: no script draws the formulas, and the fonts are the
reader's own.
"""

from __future__ import annotations

import logging
import re
from itertools import cycle
from pathlib import Path
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert

import ssdml

project = "ssdml"
author = "the authors of ssdml"
version = release = ssdml.__version__
html_title = f"ssdml {version}"
html_theme = "furo"
html_copy_source = False
html_show_copyright = False
html_static_path = ["static"]
html_css_files = ["ssdml.css"]
html_js_files = ["scrolling.js"]

extensions = [
    *("myst_parser", "sphinx.ext.autodoc", "numpydoc"),
    *("sphinx_copybutton", "sphinx_gallery.gen_gallery"),
]
nitpicky = True  # a reference that leads nowhere is an error
nitpick_ignore = [
    ("py:meth", "parameter_groups"),  # inherited, and documented at Loss alone
]
default_role = "literal"
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
html_math_renderer = "mathml"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

for logger in ("ssdml", "faiss"):  # the examples' stages are no news of a build
    logging.getLogger(logger).setLevel(logging.WARNING)

# The examples run in each build; their pages are written to docs/gallery, which git ignores.
sphinx_gallery_conf = {
    "examples_dirs": str(Path(__file__).resolve().parents[1] / "examples" / "gallery"),
    "gallery_dirs": "gallery",
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_memory": False,
    "show_signature": False,
    "write_computation_times": False,
}

autodoc_typehints = "none"
autodoc_class_signature = "mixed"
numpydoc_show_class_members = False
numpydoc_xref_param_type = False


BAR = re.compile(r'<mo stretchy="false">&#x0007C;</mo>')  # those of \left and \right are paired


def _mathml(formula: str, display: str = "inline") -> str:
    """A formula, its bars in pairs: what MathML makes of a bar is an operator with space about."""
    forms = cycle(("prefix", "postfix"))
    return BAR.sub(
        lambda _: f'<mo form="{next(forms)}" fence="true" stretchy="false">|</mo>',
        convert(formula, display=display),
    )


def _inline(writer: Any, node: nodes.math) -> None:
    writer.body.append(_mathml(node.astext()))
    raise nodes.SkipNode


def _block(writer: Any, node: nodes.math_block) -> None:
    writer.body.append(f'<div class="math">{_mathml(node.astext(), "block")}</div>')
    raise nodes.SkipNode


def _skip(app: Any, what: str, name: str, member: Any, skip: bool, options: Any) -> bool | None:
    """Fields of a named tuple, which its docstring has, and methods that scikit-learn adds."""
    is_request = name.startswith("set_") and name.endswith("_request")
    return True if is_request or type(member).__name__ == "_tuplegetter" else None


ROLES = {  # of furo and docutils, which screen readers cannot use
    'role="heading"': 'role="heading" aria-level="2"',
    ' role="doc-biblioentry"': "",
    'role="list" class="citation-list"': 'class="citation-list"',
}


def _accessible(app: Any, exception: Exception | None) -> None:
    """Complete the roles of the pages, or remove them."""
    for page in Path(app.outdir).rglob("*.html") if exception is None else ():
        text = page.read_text(encoding="utf-8")
        for given, mended in ROLES.items():
            text = text.replace(given, mended)
        page.write_text(text, encoding="utf-8")


def setup(app: Any) -> None:
    """Register the renderer of the formulas, what the reference leaves out, and the roles."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    app.connect("autodoc-skip-member", _skip)
    app.connect("build-finished", _accessible)
