"""Which program computes a run's numbers: this room's sources, and the libraries' versions."""

import ast
import functools
import hashlib
import pathlib

import numpy as np
import tensorflow as tf
import tf_keras
import tokenizers
import transformers

_HELPERS = pathlib.Path(__file__).resolve().parents[1]
# What computes, draws or orders: not how a run is stored or what it says.
_SOURCES = (
    "bert/data.py",
    "bert/model.py",
    "bert/pretraining.py",
    "bert/step.py",
    "text/masking.py",
    "text/records/rows.py",
)


@functools.cache
def current_program() -> dict[str, str]:
    """Give a digest of the sources and the version of each library that decides numbers.

    Comments, docstrings and layout don't count.
    """
    digest = hashlib.sha256()
    for name in _SOURCES:
        source = (_HELPERS / name).read_text("utf-8")
        digest.update(f"{name}\0{_code_of(source)}\0".encode())
    return {
        "sources": digest.hexdigest()[:16],
        "tensorflow": tf.__version__,
        "tf-keras": tf_keras.__version__,
        "transformers": transformers.__version__,
        "numpy": np.__version__,
        "tokenizers": tokenizers.__version__,
    }


def _code_of(source: str) -> str:
    """Write a module again without comments and docstrings."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        is_documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        if is_documented and ast.get_docstring(node) is not None:
            node.body[0] = ast.Pass()
    return ast.unparse(tree)
