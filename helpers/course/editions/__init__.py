"""The course in other forms: in another language, and as pages to read and search."""

import re


def slug(heading: str) -> str:
    """Name a heading of the pages as JupyterLab does, so that the notebooks' links reach it.

    The symptoms of a notebook keep their English name, which the links of every edition have.
    """
    return re.sub(r"^\S+ (?=\d\d$)", "Notebook-", heading).replace(" ", "-")
