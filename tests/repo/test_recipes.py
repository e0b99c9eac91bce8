"""Each recipe of CONTRIBUTING.md works: carried out on a copy, it passes the tests it names.

The preflight's own, a check, is carried out by its own tests.
"""

import pytest
from recipes import copy, recipe

pytestmark = [pytest.mark.long, pytest.mark.slow]

TITLES = [
    "Fix a sentence",
    "Add an exercise",
    "Add a symptom",
    "Add a kind of TPU",
    "Add a learning-rate schedule",
    "Add a text format",
    "Change how a page looks",
]
# A step without which the tests that a recipe names fail: its place in the recipe.
NEEDED = {
    "Fix a sentence": 1,  # tidy
    "Add a symptom": 2,  # the page
    "Add a kind of TPU": 0,
    "Add a text format": 0,
}


@pytest.mark.parametrize("title", TITLES)
def test_a_recipe_works(title, tmp_path):
    copy(tmp_path)
    for step in recipe(title):
        step.carry_out(tmp_path)


@pytest.mark.parametrize("title", NEEDED)
def test_a_recipe_that_misses_a_step_fails(title, tmp_path):
    copy(tmp_path)
    steps = recipe(title)
    missing = steps[NEEDED[title]]
    with pytest.raises(AssertionError):
        for step in steps_without(steps, missing):
            step.carry_out(tmp_path)


def steps_without(steps, missing):
    """The steps but one; of commands, without the first."""
    others = []
    for step in steps:
        if step is not missing:
            others.append(step)
        elif not step.text:
            commands = step.code.split("\n", 1)[1]
            others.append(type(step)("", commands))
    return others


def test_the_recipes_are_all_there():
    for title in TITLES:
        steps = recipe(title)
        assert len(steps) >= 2, title
        assert "pytest" in steps[-1].code, title
