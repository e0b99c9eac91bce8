"""The process in which Google's TPU compiler runs; `compiler` starts it and talks to it.

The compiler can end its process (SIGILL and SIGSEGV were seen), take all memory, or go on for
hours, so it never runs in the learner's own. Imports jax and no TensorFlow: two copies of XLA in
one process are one too many.

A job is a line of JSON on standard input, followed by the module's bytes; an answer is a line of
JSON on standard output, followed by the compressed text of the compiled program. Knows nothing of
caches, limits and messages for people.
"""

import contextlib
import gzip
import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, BinaryIO

# Names of element types in StableHLO's text (https://openxla.org/stablehlo/spec) and in NumPy's.
_TYPES = {
    "i1": "bool",
    "bf16": "bfloat16",
    "complex<f32>": "complex64",
    "complex<f64>": "complex128",
    **{f"f{n}": f"float{n}" for n in (16, 32, 64)},
    **{f"i{n}": f"int{n}" for n in (2, 4, 8, 16, 32, 64)},
    **{f"ui{n}": f"uint{n}" for n in (2, 4, 8, 16, 32, 64)},
    "f8E4M3FN": "float8_e4m3fn",
    "f8E5M2": "float8_e5m2",
}


class RefusedError(Exception):
    """A program has values that no TPU has."""


def _end_with_the_parent() -> None:
    """End this process soon after the one that started it, which may have been killed."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class Compiler:
    """Google's TPU compiler by way of jax."""

    def __init__(self) -> None:
        import jax
        import numpy as np
        from jax.experimental import topologies
        from jax.extend.core import Primitive
        from jax.extend.mlir import hlo_to_stablehlo
        from jax.extend.mlir.dialects import func, stablehlo
        from jax.interpreters import mlir

        # TensorFlow's int64 and float64 stay what they are.
        jax.config.update("jax_enable_x64", True)
        self._jax, self._np, self._mlir, self._func, self._hlo = jax, np, mlir, func, stablehlo
        self._topology, self._stablehlo = topologies.get_topology_desc, hlo_to_stablehlo
        self._module = Primitive("tensorflow_module")
        self._module.multiple_results = True
        self._module.def_abstract_eval(lambda *_, module, results: list(results))
        mlir.register_lowering(self._module, self._lower)

    def _operations(self, operation: Any) -> list[Any]:
        """List all operations inside one, however deep."""
        blocks = [block for region in operation.regions for block in region.blocks]
        inner = [found for block in blocks for found in block.operations]
        return [x for found in inner for x in (found, *self._operations(found.operation))]

    def _main(self, module: Any) -> tuple[Any, Any]:
        """Find the main function of a module, and its type."""
        ir = self._mlir.ir
        named = {ir.StringAttr(f.attributes["sym_name"]).value: f for f in module.body.operations}
        main = named["main"]
        return main, ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value)

    def _fill(self, module: Any) -> None:
        """Make each bounded result as large as its bound, as a TPU hands it to its host.

        jax has no bounded shapes, and the compiler takes them inside a program only.
        """
        ir, hlo = self._mlir.ir, self._hlo
        main, kind = self._main(module)
        block = main.regions[0].blocks[0]
        end = list(block.operations)[-1]
        results = []
        with ir.Location.unknown(), ir.InsertionPoint(end):
            for at, value in enumerate(end.operands):
                ranked = ir.RankedTensorType(value.type)
                found = re.search(r"bounds<(.*?)>", str(ranked))
                sizes, bounds = list(ranked.shape), re.split(", *", found[1]) if found else []
                for i, bound in enumerate(bounds):
                    if bound == "?":
                        continue
                    sizes[i], bounds[i] = int(bound), "?"
                    left = f"#stablehlo.bounds<{', '.join(bounds)}>"
                    encoding = ir.Attribute.parse(left) if set(bounds) != {"?"} else None
                    shape = ir.RankedTensorType.get(sizes, ranked.element_type, encoding)
                    most = ir.DenseElementsAttr.get(self._np.array(sizes[i], "int32"))
                    size = hlo.ConstantOp(most).result
                    value = hlo.SetDimensionSizeOp(value, size, i, results=[shape]).result
                end.operands[at] = value
                results.append(value.type)
        kind = ir.FunctionType.get(list(kind.inputs), results)
        main.attributes["function_type"] = ir.TypeAttr.get(kind)

    def _lower(self, context: Any, *arguments: Any, module: bytes, results: tuple) -> Any:
        """Put the module into the program that jax builds, as a function, and call it."""
        ir, mlir = self._mlir.ir, self._mlir
        inner = ir.Module.parse(module)
        types = list(self._main(inner)[1].results)
        outer = context.module_context
        for operation in list(inner.body.operations):
            mesh = operation.operation.name == "sdy.mesh"
            if mesh and ir.StringAttr(operation.attributes["sym_name"]).value in outer.symbol_table:
                operation.operation.erase()
        name = mlir.merge_mlir_modules(
            outer.module, "tensorflow_main", inner, dst_symtab=outer.symbol_table
        )
        call = self._func.CallOp(types, ir.FlatSymbolRefAttr.get(name), list(arguments))
        return call.results

    def _abstract(self, type_: Any) -> Any:
        ranked = self._mlir.ir.RankedTensorType(type_)
        text = str(ranked.element_type)
        if text not in _TYPES:
            raise RefusedError(f"A TPU has no values of type {text}.")
        if any(ranked.is_dynamic_dim(i) for i in range(ranked.rank)):
            raise RefusedError(f"The shape {ranked} is known only at run time.")
        return self._jax.core.ShapedArray(tuple(ranked.shape), self._jax.numpy.dtype(_TYPES[text]))

    def _read_jax(self, text: bytes) -> tuple[bytes, tuple, tuple]:
        """Read the text that jax wrote; what it says of arguments comes with the job."""
        mlir = self._mlir
        with mlir.make_ir_context():
            module = mlir.ir.Module.parse(text)
            function, main = self._main(module)
            for told in ("arg_attrs", "res_attrs"):
                if told in function.attributes:
                    del function.attributes[told]
            types = (tuple(map(self._abstract, kinds)) for kinds in (main.inputs, main.results))
            return mlir.module_to_bytecode(module), *types

    def _read(self, hlo: bytes) -> tuple[bytes, tuple, tuple]:
        """Translate TensorFlow's module; give its parameters and results, too."""
        mlir = self._mlir
        with mlir.make_ir_context():
            module = mlir.ir.Module.parse(self._stablehlo(hlo))
            for operation in self._operations(module.operation):
                kind = operation.operation.name
                if kind == "mhlo.copy":  # the TPU's plugin has no such operation
                    operation.results[0].replace_all_uses_with(operation.operands[0])
                    operation.operation.erase()
                elif kind == "stablehlo.all_reduce":  # jax counts devices, not groups of them
                    unit = mlir.ir.UnitAttr.get()
                    operation.operation.attributes["use_global_device_ids"] = unit
            self._fill(module)
            main = self._main(module)[1]
            types = (tuple(map(self._abstract, kinds)) for kinds in (main.inputs, main.results))
            return mlir.module_to_bytecode(module), *types

    def compile(self, job: dict[str, Any], hlo: bytes) -> Any:
        """Compile a serialised ``HloModuleProto`` for one device, or for several that each run it.

        In the job: ``topology``, ``chip`` (how its cores are joined, where it isn't libtpu's
        default), ``devices`` (how many that makes), ``replicas``, ``sharded`` (number of
        parameters, the first ones, of which each replica has its own part), ``donated``
        (parameters whose memory holds a result), ``effort``. With ``form``, it is a text of
        StableHLO that jax divides over the axes of a ``mesh`` as its ``shardings`` say.
        """
        jax, replicas = self._jax, job["replicas"]
        from jax.sharding import Mesh, NamedSharding, PartitionSpec

        about = {"chip_config_name": job["chip"]} if "chip" in job else {}
        devices = self._topology(job["topology"], "tpu", **about).devices
        if len(devices) != job["devices"]:
            raise RuntimeError(f"libtpu lists {len(devices)} devices, not {job['devices']}")
        if "form" in job:
            return self._compile_jax(job, hlo, devices[:replicas])
        module, inputs, results = self._read(hlo)
        mesh = Mesh(self._np.array(devices[:replicas]), ("replica",))
        own, same = PartitionSpec("replica"), PartitionSpec()
        specs = tuple(
            own if replicas > 1 and i < job["sharded"] and x.shape else same
            for i, x in enumerate(inputs)
        )

        run = self._calling(module, results)
        if replicas > 1:
            run = jax.shard_map(
                run, mesh=mesh, in_specs=specs, out_specs=[same] * len(results), check_vma=False
            )
        arguments = [
            jax.ShapeDtypeStruct(
                (x.shape[0] * replicas, *x.shape[1:]) if spec == own else x.shape,
                x.dtype,
                sharding=NamedSharding(mesh, spec),
            )
            for x, spec in zip(inputs, specs, strict=True)
        ]
        return self._finish(job, run, arguments)

    def _compile_jax(self, job: dict[str, Any], text: bytes, devices: list[Any]) -> Any:
        """Compile a function of jax, for one device or divided over all."""
        from jax.sharding import Mesh, NamedSharding, PartitionSpec

        module, inputs, results = self._read_jax(text)
        axes, sizes = zip(*job["mesh"], strict=True) if job["mesh"] else (("device",), (1,))
        mesh = Mesh(self._np.array(devices).reshape(sizes), axes)
        shardings = job["shardings"] or [[]] * len(inputs)
        arguments = [
            self._jax.ShapeDtypeStruct(
                x.shape,
                x.dtype,
                sharding=NamedSharding(mesh, PartitionSpec(*(tuple(part) or None for part in s))),
            )
            for x, s in zip(inputs, shardings, strict=True)
        ]

        return self._finish(job, self._calling(module, results), arguments)

    def _calling(self, module: bytes, results: tuple) -> Callable[..., Any]:
        """Give a function that jax can trace and whose program is the module."""

        def run(*arguments: Any) -> Any:
            return self._module.bind(*arguments, module=module, results=results)

        return run

    def _finish(self, job: dict[str, Any], run: Any, arguments: list[Any]) -> Any:
        jitted = self._jax.jit(run, donate_argnums=tuple(job["donated"]), keep_unused=True)
        options = {"optimization_level": 9} if job["effort"] == "least" else None
        return jitted.lower(*arguments).compile(compiler_options=options)

    def answer(self, job: dict[str, Any], hlo: bytes) -> tuple[dict[str, Any], bytes]:
        """Compile and measure; give what is to be told, and the program's compressed text."""
        start = time.monotonic()
        try:
            compiled = self.compile(job, hlo)
        except (RefusedError, self._jax.errors.JaxRuntimeError) as error:
            full = str(error).startswith("RESOURCE_EXHAUSTED")
            return {"verdict": "out of memory" if full else "refused", "message": str(error)}, b""
        finally:
            self._jax.clear_caches()
        seconds = time.monotonic() - start
        cost, memory = compiled.cost_analysis() or {}, compiled.memory_analysis()
        told = {
            "verdict": "compiles",
            "message": "",
            "seconds": seconds,
            "flops": cost.get("flops", 0.0),
            "bytes_accessed": cost.get("bytes accessed", 0.0),
            "argument_bytes": memory.argument_size_in_bytes,
            "output_bytes": memory.output_size_in_bytes,
            "alias_bytes": memory.alias_size_in_bytes,
            "temporary_bytes": memory.temp_size_in_bytes,
            "peak_bytes": getattr(memory, "peak_memory_in_bytes", 0),
        }
        return told, gzip.compress(compiled.as_text().encode(), 1, mtime=0)


def serve(jobs: BinaryIO, answers: BinaryIO, make: Callable[[], Compiler]) -> None:
    """Answer jobs until there are no more: lines of JSON, with ``size`` bytes after each."""

    def tell(told: dict[str, Any], text: bytes = b"") -> None:
        answers.write(json.dumps(told | {"size": len(text)}).encode() + b"\n" + text)
        answers.flush()

    compiler = None
    with contextlib.suppress(Exception):  # the first job tries again, and tells what is wrong
        compiler = make()
    while line := jobs.readline():
        job = json.loads(line)
        data = jobs.read(job["size"])
        try:
            if compiler is None:
                tell({"stage": "starting"})
                compiler = make()
            tell({"stage": "compiling"})
            told, text = compiler.answer(job, data)
        except MemoryError:
            os._exit(1)
        except Exception as error:  # not Google's verdict: this jax is not the one we know
            told, text = {"verdict": "error", "message": f"{type(error).__name__}: {error}"}, b""
        tell(told, text)


def main(make: Callable[[], Compiler] = Compiler) -> None:
    """Serve the process that started this one; nothing else reaches its pipes."""
    _end_with_the_parent()
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # a library that prints harms nothing
    with contextlib.suppress(BrokenPipeError):
        serve(sys.stdin.buffer, answers, make)


if __name__ == "__main__":
    main()
