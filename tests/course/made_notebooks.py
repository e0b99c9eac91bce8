"""Small notebooks for tests of the course's machinery, without TensorFlow."""

import io
import pathlib

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from rich.console import Console

OPENING = """# {title}

[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://example.org)

**You will be able to**

- run it, then go on to [the next](07_child.ipynb); what a [TPU VM](WORDS.md#TPU-VM) is

**Time** about 20 minutes to read and try; 1 to run · **Needs** a CPU and 2 GB of memory
"""

# What a browser would fetch, if it were let.
NASTY = """
import IPython.display as show
show.display(show.HTML('''
<script src="https://example.org/a.js"></script><script>alert(1)</script>
<img src="https://example.org/a.png" alt="a far picture" srcset="https://example.org/b.png 2x">
<iframe src="https://example.org/frame"></iframe><link rel="stylesheet" href="//example.org/a.css">
<style>@import "https://example.org/b.css"; p {background: url( 'https://example.org/c.png')}</style>
<p style="background: url(https://example.org/d.png)">kept</p>
<svg><image href="https://example.org/e.png"/></svg><a href="https://example.org">a link</a>
'''))
show.display(show.Javascript("fetch('https://example.org')"))
show.display({"application/vnd.jupyter.widget-view+json": {}, "text/plain": "Slider()"}, raw=True)
show.Image(data=__import__("base64").b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="
), format="png", alt="one point")
"""


def write(folder, name, *sources, parameters=None, title=None):
    """Write a notebook: its opening, its parameters, then sections of one code cell each."""
    cells = [new_markdown_cell(OPENING.format(title=title or f"Is {name} a question?"))]
    if parameters is not None:
        cells.append(new_code_cell(parameters, metadata={"tags": ["parameters"]}))
    for at, source in enumerate(sources, 1):
        cells += [new_markdown_cell(f"## Part {at}"), new_code_cell(source)]
    for at, cell in enumerate(cells):
        cell.id = f"cell-{at}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    node = new_notebook(cells=cells, metadata={"kernelspec": kernel})
    folder.mkdir(parents=True, exist_ok=True)
    path = pathlib.Path(folder / f"{name}.ipynb")
    nbformat.write(node, path)
    return path


def quiet():
    """A console that no one sees."""
    return Console(file=io.StringIO(), width=100)
