"""A block that must fail: shown in two lines when it does, an error when it doesn't."""

import pytest

from helpers.base.errors import CourseError
from helpers.display.expect import expect

COURSE = "No text. A byte is odd."


@pytest.mark.parametrize(
    ("expected", "match", "raised", "printed"),
    [
        (ValueError, "second", ValueError("first line\nthe second line"), "the second line"),
        # The whole message where the match spans lines; a subclass by its own name.
        (ValueError, r"first\nsecond", ValueError("first\nsecond"), "first second"),
        (OSError, "gone", FileNotFoundError("/a/b.txt: gone"), "b.txt: gone"),
        # A long line ends with the sentence that matches.
        (ValueError, "2", ValueError(f"The 1st. The 2nd. {'Do it. ' * 60}"), "The 1st. The 2nd."),
        # A cause comes after what happened, and a type that the message repeats is said once.
        (CourseError, "byte", CourseError("No text.", "A byte is odd.", "Mend it."), COURSE),
        (ValueError, "odd", ValueError("in user code:\n  ValueError: odd"), "odd"),
    ],
)
def test_it_prints_type_and_matching_line(capsys, expected, match, raised, printed):
    with expect(expected, match=match):
        raise raised
    assert capsys.readouterr().out == f"{type(raised).__name__}: {printed}\n"


@pytest.mark.parametrize("other", [None, ValueError("other")])
def test_it_fails_without_an_error_and_on_another_message(capsys, other):
    words = "does not contain 'wanted'" if other else "Expected ValueError, but nothing was raised"
    with pytest.raises(CourseError, match=words) as caught, expect(ValueError, match="wanted"):
        if other:
            raise other
    assert caught.value.__cause__ is other
    assert not capsys.readouterr().out
