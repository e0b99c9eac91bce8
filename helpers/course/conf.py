"""The course as pages: what Sphinx, MyST-NB and Furo are told. `make site` builds them.

The stored outputs are shown; nothing is executed or fetched. The README is the first page, and
each symptom gets a page, so that the search finds it by the words of its message.
"""

from helpers.course import site

project = html_title = "TensorFlow on TPU"
html_theme = "furo"
html_static_path = ["../base/templates/site.css", "../base/templates/site.js"]
html_css_files, html_js_files = ["site.css"], ["site.js"]
html_copy_source = html_show_sourcelink = html_show_sphinx = html_show_copyright = False
html_show_search_summary = False  # a browser refuses to fetch it for a page of the disk
html_permalinks = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b57a4", "color-brand-content": "#0b57a4"},
    "dark_css_variables": {"color-brand-primary": "#8cc4ff", "color-brand-content": "#8cc4ff"},
}
pygments_style, pygments_dark_style = "a11y-high-contrast-light", "a11y-high-contrast-dark"
extensions = ["myst_nb"]
myst_enable_extensions = ["tasklist"]
myst_heading_anchors = 4
myst_heading_slug_func = "helpers.course.site.slug"
nb_execution_mode = "off"
nb_ipywidgets_js = {}
nb_code_prompt_hide = "Hide the code"


def setup(app: object) -> None:
    """Write the sources now, and mend the pages at the end."""
    site.write()
    app.connect("build-finished", lambda app, error: site.mend(app.outdir))
