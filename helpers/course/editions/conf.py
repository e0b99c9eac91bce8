"""The course as pages: what Sphinx, MyST-NB and Furo are told. `make site` builds them.

The stored outputs are shown; nothing is executed or fetched. The README is the first page, and
each symptom gets a page, so that the search finds it by the words of its message.
"""

import re

from sphinx.search import SearchLanguage

from helpers.course.editions import site

project = html_title = "TensorFlow on TPU"
html_theme = "furo"
html_static_path = ["../../base/templates/site.css", "../../base/templates/site.js"]
html_css_files, html_js_files = ["site.css"], ["site.js"]
html_copy_source = html_show_sourcelink = html_show_sphinx = html_show_copyright = False
html_show_search_summary = False  # a browser refuses to fetch it for a page of the disk
html_permalinks = False
smartquotes_action = "q"  # --flag stays --flag
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b57a4", "color-brand-content": "#0b57a4"},
    "dark_css_variables": {"color-brand-primary": "#8cc4ff", "color-brand-content": "#8cc4ff"},
}
pygments_style, pygments_dark_style = "a11y-high-contrast-light", "a11y-high-contrast-dark"
extensions = ["myst_nb"]
myst_enable_extensions = ["tasklist"]
myst_heading_anchors = 4
myst_heading_slug_func = "helpers.course.editions.site.slug"
nb_execution_mode = "off"
nb_ipywidgets_js = {}
nb_code_prompt_hide = "Hide the code"


class Korean(SearchLanguage):
    """Finds a Korean word also where a particle follows it."""

    lang = "ko"

    def split(self, input: str) -> list[str]:
        """Give the words of a text, and those without their particles."""
        words = super().split(input)
        stems = (PARTICLES.fullmatch(word) for word in words)
        return [*words, *(found[1] for found in stems if found)]


PARTICLES = re.compile(
    r"(\w{2,}?)(?:은|는|이|가|을|를|의|에|에서|에는|로|으로|와|과|도|만|까지|부터|보다|입니다|이다)"
)


def setup(app: object) -> None:
    """Write the sources now, and mend the pages at the end."""
    app.add_search_language(Korean)
    site.write(app.srcdir, app.config.language)
    app.connect("build-finished", lambda app, error: site.mend(app.outdir, app.config.language))
