"""The map of notebook 11 names what there is."""

import json
import operator
import re

import pytest
from conventions import ROOT, source

pytestmark = pytest.mark.slow

CELLS = json.loads((ROOT / "notebooks/11_after_tensorflow.ipynb").read_text("utf-8"))["cells"]
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for text in map(source, CELLS)
    for line in text.splitlines()
    if re.match(r"\| .* \| \d\d(?:, \d\d)* \|$", line)
]
NAMES = re.findall(
    r"\b(?:jax|jnp|keras|tf)\.[\w.]+", " ".join(old + " " + new for old, new, _ in ROWS)
)


@pytest.mark.parametrize("name", sorted({*NAMES} - {"tf.keras"}))
def test_a_name_of_the_map_exists(name):
    import jax
    import jax.numpy
    import keras
    import tensorflow as tf

    roots = {"jax": jax, "jnp": jax.numpy, "keras": keras, "tf": tf}
    root, _, path = name.partition(".")
    operator.attrgetter(path)(roots[root])


def test_the_map_is_read_and_its_notebooks_exist():
    assert len(ROWS) == 31 and len({*NAMES}) > 40
    there = {path.name[:2] for path in (ROOT / "notebooks").glob("*.ipynb")}
    assert {number for *_, numbers in ROWS for number in numbers.strip(" |").split(", ")} <= there
