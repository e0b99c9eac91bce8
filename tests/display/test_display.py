import matplotlib.pyplot as plt
import pytest
from matplotlib.figure import Figure

from helpers.base.errors import CourseError
from helpers.display import figures as display


def test_expect_prints_type_and_matching_line(capsys):
    with display.expect(ValueError, match="second"):
        raise ValueError("first line\nthe second line")
    assert capsys.readouterr().out == "ValueError: the second line\n"


def test_expect_prints_the_whole_message_where_the_match_spans_lines(capsys):
    with display.expect(ValueError, match=r"first\nsecond"):
        raise ValueError("first\nsecond")
    assert capsys.readouterr().out == "ValueError: first second\n"


def test_expect_takes_a_subclass_and_names_it(capsys):
    with display.expect(Exception, match="gone"):
        raise FileNotFoundError("gone")
    assert capsys.readouterr().out == "FileNotFoundError: gone\n"


def test_expect_ends_a_long_line_with_the_matching_sentence(capsys):
    with display.expect(ValueError, match="second"):
        raise ValueError(f"The first. The second one. {'Advice follows here. ' * 20}")
    assert capsys.readouterr().out == "ValueError: The first. The second one.\n"


def test_expect_wraps_long_lines(capsys):
    with display.expect(ValueError, match="word"):
        raise ValueError("word " * 60)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 1
    assert all(len(line) <= 96 for line in lines)
    assert all(line.startswith("  ") for line in lines[1:])


def test_expect_fails_when_nothing_is_raised(capsys):
    with (
        pytest.raises(display.NotRaised, match="Expected ValueError, but nothing was raised"),
        display.expect(ValueError, match="x"),
    ):
        pass
    assert capsys.readouterr().out == ""


def test_expect_fails_on_another_type_and_chains_it():
    with (
        pytest.raises(display.WrongError, match="Expected ValueError, but KeyError") as caught,
        display.expect(ValueError, match="x"),
    ):
        raise KeyError("x")
    assert isinstance(caught.value.__cause__, KeyError)
    assert isinstance(caught.value, CourseError)


def test_expect_fails_on_another_message_and_chains_it():
    with (
        pytest.raises(display.WrongError, match="does not contain 'wanted'") as caught,
        display.expect(ValueError, match="wanted"),
    ):
        raise ValueError("other")
    assert str(caught.value.__cause__) == "other"


def test_expect_lets_an_interrupt_through():
    with pytest.raises(KeyboardInterrupt), display.expect(ValueError, match="x"):
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("line", "steadied"),
    [
        ("can't read /home/ada/course/data/ko.txt now", "can't read ko.txt now"),
        ("in __inference_step_1234: no", "in __inference_step: no"),
        (
            "graph __inference_<lambda>_327[_XlaMustCompile=true,x=1] on",
            "graph __inference_<lambda> on",
        ),
        ("File __autograph_generated_filexyz12.py, line 3", "File autograph, line 3"),
        ("object at 0x7f01a2b3c4d5>", "object at 0x…>"),
        (
            "{{function_node __wrapped__GatherV2_device_/job:localhost/task:0/device:CPU:0}}"
            " indices[1] = 7 is not in [0, 6) [Op:GatherV2] name: ",
            "indices[1] = 7 is not in [0, 6)",
        ),
        ("op kernel compatible with node {{node U}}){{node U}}", "op kernel)"),
        ("Input 1 to {{node range}} is bad", "Input 1 to range is bad"),
        (
            "See https://example.org/guide/limits.md#top",
            "See https://example.org/guide/limits.md#top",
        ),
        (
            "Error in user-defined function passed to MapDataset:4 transformation with iterator: "
            "Iterator::Root::ParallelMapV2: assertion failed: [no]",
            "assertion failed: [no]",
        ),
        ("a ratio of 3/4 and a/b/c stay", "a ratio of 3/4 and a/b/c stay"),
    ],
)
def test_steady_removes_what_changes_and_nothing_else(line, steadied):
    assert display.steady(line) == steadied
    assert display.steady(steadied) == steadied


def test_subplots_differ_by_marker_and_colour():
    fig, ax = display.subplots(4, 2)
    lines = [ax.plot([0, 1], [i, i])[0] for i in range(len(display.PALETTE))]
    assert len({line.get_color() for line in lines}) == len(display.PALETTE)
    assert len({line.get_marker() for line in lines}) == len(display.PALETTE)
    assert fig.get_size_inches().tolist() == [4, 2]
    plt.close(fig)


def test_subplots_pass_options_on_and_leave_the_global_style_alone():
    before = dict(plt.rcParams)
    fig, axes = display.subplots(ncols=2, sharey=True)
    assert len(axes) == 2
    assert dict(plt.rcParams) == before
    plt.close(fig)


def test_figure_shows_a_closed_png_with_its_alt_text_and_a_caption(monkeypatch):
    shown = []
    monkeypatch.setattr(display, "display", lambda *parts: shown.extend(parts))
    fig, ax = display.subplots()
    ax.plot([1, 2])
    display.figure(fig, alt="it rises")._ipython_display_()
    assert not plt.fignum_exists(fig.number)
    image, caption = shown
    data, metadata = image._repr_mimebundle_()
    assert image.data.startswith(b"\x89PNG")
    assert "image/png" in data
    assert metadata["image/png"]["alt"] == "it rises"
    assert caption.data == "*it rises*"


def test_figure_is_the_same_twice():
    pictures = []
    for _ in range(2):
        fig, ax = display.subplots()
        ax.plot([1, 2])
        pictures.append(display.figure(fig, alt="it rises").png)
    assert pictures[0] == pictures[1]


@pytest.mark.parametrize("alt", ["", "  \n"])
def test_figure_asks_for_an_alt_text(alt):
    with pytest.raises(display.NoAlt, match="no text alternative"):
        display.figure(Figure(), alt=alt)
