"""TensorFlow's operations that matter to the preflight, and where a graph has them."""

import pathlib
import tomllib
from typing import Any

import tensorflow as tf

_FILE = pathlib.Path(__file__).with_suffix(".toml")
_NAMES = tomllib.loads(_FILE.read_text("utf-8"))

# By what they do: ``drawn``, ``seeded``, ``dropped``, ``python`` and ``readers``.
OPERATIONS = {purpose: frozenset(names) for purpose, names in _NAMES.items()}


def calls_of(graph: tf.Graph, types: frozenset[str]) -> list[tf.Operation]:
    """List a function's operations of types such as ``{"PyFunc"}``, and its calls of such.

    A call is an operation whose functions have one of them, however deep.
    """
    # A graph lists the functions that it calls, and those that they call.
    functions = {}
    for function in graph.as_graph_def().library.function:
        functions[function.signature.name] = function.node_def

    def leads_there(node: Any) -> bool:
        return node.op in types or not calling.isdisjoint(_functions_called(node))

    # A function that calls one of these is one of them, so look until no other is found.
    calling: set[str] = set()
    is_complete = False
    while not is_complete:
        is_complete = True
        for name, nodes in functions.items():
            if name not in calling and any(map(leads_there, nodes)):
                calling.add(name)
                is_complete = False
    return [operation for operation in graph.get_operations() if leads_there(operation.node_def)]


def _functions_called(node: Any) -> set[str]:
    """Name the functions that a node hands its work to."""
    names = {node.op}
    for value in node.attr.values():
        names.add(value.func.name)
        names.update(function.name for function in value.list.func)
    return names
