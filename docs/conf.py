"""Settings of Sphinx: `make docs` builds the pages of this folder as a site, API reference and notebooks included."""

import os

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator

from arelu_meta import __version__

os.environ["MLFLOW_TRACKING_URI"] = "sqlite:///mlflow.db"  # of the folder that a notebook is run in, whoever builds

project, author, release = "arelu_meta", "The arelu_meta developers", __version__
copyright = f"2026, {author}"  # noqa: A001  (the name that Sphinx reads)
extensions = ["sphinx.ext.autodoc", "sphinx.ext.napoleon", "myst_nb"]
exclude_patterns = ["_build", "cluster"]
html_theme = "furo"
html_title = f"arelu_meta {release}"
html_theme_options = {"navigation_with_keys": True}
html_math_renderer = "mathml"

myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 4  # links to headings, as the repository page has them

nb_execution_mode = "force"  # outputs are never older than the code
nb_execution_in_temp = True
nb_execution_timeout = 300
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_merge_streams = True
nb_output_stderr = "remove"  # progress bars, and warnings that name folders of whoever builds

autodoc_typehints = "signature"
autodoc_member_order = "alphabetical"
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False
# Nothing is looked up in the network, so names of torch and of Python lead nowhere; links between pages must.
default_role = "code"
nitpicky = True
nitpick_ignore_regex = [(r"py:.*", r".*")]
linkcheck_ignore = [r"https?://.*"]  # links into the network are not the build's to judge


def _page_of_file(_app: Sphinx, page: str, source: list[str]) -> None:
    """Let links to files above this folder, which the repository page needs, lead to the pages that include them."""
    up = "../" * page.count("/")
    for name in ("CHANGELOG", "CONTRIBUTING", "SECURITY"):
        source[0] = source[0].replace(f"](../{up}{name}.md)", f"]({up}project/{name.lower()}.md)")


def _is_skipped(_app: Sphinx, _kind: str, name: str, _thing: object, skip: bool, _options: object) -> bool:
    """Leave out what scikit-learn adds to every estimator for its metadata routing, with links into its own pages."""
    return skip or (name.startswith("set_") and name.endswith("_request")) or name == "get_metadata_routing"


def _indented_is_code(_app: Sphinx, kind: str, _name: str, _thing: object, _options: object, lines: list[str]) -> None:
    """Show what is indented in the docstring of a module, which is Python for the reader, as code."""
    if kind == "module":
        for number in range(len(lines) - 1, 0, -1):
            if lines[number].startswith("    ") and not lines[number - 1].strip():
                lines[number:number] = ["::", ""] if lines[number - 2][:4].strip() else []


def _formula(translator: HTML5Translator, node: nodes.math) -> None:
    """Write a formula as MathML, which browsers show by themselves: no script is fetched from anywhere."""
    translator.body.append(tex2mathml(node.astext()))
    raise nodes.SkipNode


def _displayed_formula(translator: HTML5Translator, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="math">{tex2mathml(node.astext(), as_block=True)}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    """Tell Sphinx of the functions above."""
    app.add_html_math_renderer("mathml", inline_renderers=(_formula, None), block_renderers=(_displayed_formula, None))
    app.connect("source-read", _page_of_file)
    app.connect("autodoc-process-docstring", _indented_is_code)
    app.connect("autodoc-skip-member", _is_skipped)
