"""Images for each TensorFlow and TPU: the right one is found, a wrong one has its message."""

import re
import shlex

import pytest
from tables import table

from helpers.base.errors import CourseError
from helpers.base.settings import DRIVER
from helpers.tpu.runtimes import check, runtime
from tpu_preflight.chips.hardware import slice_of


@pytest.mark.parametrize(("tensorflow", "kind", "version"), table("images.tsv"))
def test_the_image_for_a_tensorflow(tensorflow, kind, version):
    found = runtime(tensorflow, kind)
    assert found.version == version
    if version.startswith("tpu-vm-tf"):
        assert found.install == "" and repr(found) == version
    else:
        assert f"tensorflow-tpu=={tensorflow} " in found.install
        assert found.install in " ".join(repr(found).split())
        assert (DRIVER in found.install) == (tensorflow == "2.20.0")
        assert shlex.split(found.install)[-1] == f"tf-keras~={tensorflow[:4]}.0"


def test_a_tensorflow_without_image_and_package_is_told():
    with pytest.raises(CourseError, match=r"(?s)TensorFlow 2\.21\.0.*2\.20\.0.*one of"):
        runtime("2.21.0", "v5e-8")
    with pytest.raises(CourseError, match=r"2\.14\.1 can't run on a v6e"):
        runtime("2.14.1", "v6e-4")


@pytest.mark.parametrize(
    ("kind", "version", "words"),
    [
        ("v5e-8", "2.18.0", r"'2\.18\.0' is no TPU VM image.*versions list"),
        ("v5e-8", "tpu-vm-tf-2.20.0-pjrt", "no TPU VM image.*2.11.0 to 2.18.0"),
        ("v5e-8", "v2-alpha-tpuv6e", "no TPU VM image.*v2-alpha-tpuv5-lite"),
        ("v5e-8", "tpu-vm-tf-2.14.1", r"2\.15 or newer.*2\.18\.0-pjrt, or an older TPU"),
    ],
)
def test_an_image_that_is_unknown_or_too_old_has_its_message(kind, version, words):
    with pytest.raises(CourseError, match=f"(?s){words}"):
        check(version, slice_of(kind))


@pytest.mark.parametrize(("kind", "wrong", "words", "right"), table("wrong_images.tsv"))
def test_an_image_that_does_not_fit_is_told_with_the_one_that_does(kind, wrong, words, right):
    told = rf"(?s)tpu-vm-tf-{wrong} does not fit.*{words}.*Take tpu-vm-tf-{re.escape(right)}\.$"
    with pytest.raises(CourseError, match=told):
        check(f"tpu-vm-tf-{wrong}", slice_of(kind))
    check(f"tpu-vm-tf-{right}", slice_of(kind))
