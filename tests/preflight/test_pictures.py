"""The pictures of a step: every part is in them, and the words beside them are right."""

import base64
import dataclasses

import pytest

from helpers.preflight.estimate import pictures
from helpers.preflight.estimate.step import AllReduce, Row, Timing
from helpers.preflight.report import Report

PRODUCTS = Row("MatMul", 8.0, 0.8, "compute", flops=1e12, bytes=1e9)
SOFTMAX = Row("Softmax", 1.5, 0.15, "vector", bytes=1e9)
REST = Row("12 more", 0.5, 0.05, "", flops=1e9, bytes=1e8)
ROWS = (PRODUCTS, SOFTMAX, REST)
SENT = AllReduce(4e8, 4, 4, 3.9, 7.7)
STEP = Timing("v5e-8", 10.0, 11.0, 14.0, "from runs", 0.5, 0, ROWS, ROWS, ROWS, SENT)


def test_the_roofline_says_what_the_largest_operation_reaches(monkeypatch):
    drawn = []
    monkeypatch.setattr(pictures, "figure", lambda fig, alt: drawn.append((fig, alt)))
    pictures.roofline_plot(STEP)
    ((fig, alt),) = drawn
    (axes,) = fig.axes
    labels = axes.get_legend_handles_labels()[1]
    assert labels == ["memory", "compute", "interconnect", "MatMul (80%)"]
    ((x, y),) = axes.lines[-1].get_xydata()
    assert (x, y) == pytest.approx((1e12 / 1e9, 1e12 / 8e-3))
    assert "197 TFLOP/s, from 241 operations" in alt
    assert "MatMul, 80% of the step, reaches 125 TFLOP/s at 1e+03" in alt


def test_a_step_without_products_is_drawn_too():
    still = dataclasses.replace(STEP, operations=(SOFTMAX,), all_reduce=None)
    assert "no products of matrices" in pictures.roofline_plot(still).alt


def test_the_page_holds_the_pictures(tmp_path):
    Report("model", ("v5e-8",), (), (), (STEP,)).save_html(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    png = base64.b64encode(b"\x89PNG").decode().rstrip("=")[:5]
    assert page.count(f'src="data:image/png;base64,{png}') == 4 and "http" not in page
    assert page.count("8 are MatMul (80%), the longest of the layers.") == 2
