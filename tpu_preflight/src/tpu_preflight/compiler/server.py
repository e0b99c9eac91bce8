"""The process in which Google's TPU compiler runs; `client` gives it its jobs.

The compiler can end its process (SIGILL and SIGSEGV were seen), take all memory, or go on for
hours, so it never runs in the learner's own. Imports jax and no TensorFlow: two copies of XLA in
one process are one too many. Knows nothing of caches, limits and messages for people.
"""

import functools
import gzip
import os
import pathlib
import re
import time
from collections.abc import Callable
from typing import Any

from tpu_preflight import processes

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

    def _main(self, module: Any) -> Any:
        return self._mlir.ir.SymbolTable(module.operation)["main"]

    def _fill(self, module: Any) -> None:
        """Make each bounded result as large as its bound, as a TPU hands it to its host.

        jax has no bounded shapes, and the compiler takes them inside a program only.
        """
        ir, hlo = self._mlir.ir, self._hlo
        main = self._main(module)
        end = list(main.entry_block.operations)[-1]
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
        main.attributes["function_type"] = ir.TypeAttr.get(
            ir.FunctionType.get(list(main.type.inputs), results)
        )

    def _lower(self, context: Any, *arguments: Any, module: bytes, results: tuple) -> Any:
        """Put the module into the program that jax builds, as a function, and call it."""
        ir, mlir = self._mlir.ir, self._mlir
        inner = ir.Module.parse(module)
        types = list(self._main(inner).type.results)
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

    def _read(self, text: bytes, *changes: Callable[[Any], None]) -> tuple[bytes, tuple, tuple]:
        """Read a module of StableHLO and change it; give its parameters and results, too."""
        mlir = self._mlir
        with mlir.make_ir_context():
            module = mlir.ir.Module.parse(text)
            for change in changes:
                change(module)
            kinds = self._main(module).type
            types = (tuple(map(self._abstract, part)) for part in (kinds.inputs, kinds.results))
            return mlir.module_to_bytecode(module), *types

    def _strip(self, module: Any) -> None:
        """Remove what jax says of arguments: it comes with the job."""
        attributes = self._main(module).attributes
        for told in ("arg_attrs", "res_attrs"):
            if told in attributes:
                del attributes[told]

    def _translate(self, module: Any) -> None:
        """Mend what TensorFlow writes and jax or a TPU's plugin has not."""
        operations: list[Any] = []
        module.operation.walk(
            lambda each: operations.append(each) or self._mlir.ir.WalkResult.ADVANCE
        )
        for operation in operations:
            if operation.name == "mhlo.copy":
                operation.results[0].replace_all_uses_with(operation.operands[0])
                operation.erase()
            elif operation.name == "stablehlo.all_reduce":  # jax counts devices, not groups of them
                operation.attributes["use_global_device_ids"] = self._mlir.ir.UnitAttr.get()
        self._fill(module)

    def compile(self, job: dict[str, Any], program: bytes) -> Any:
        """Compile for one device, or for several that each run a part of it.

        In the job: ``topology``, ``chip`` (how its cores are joined, where it isn't libtpu's
        default), ``devices`` (how many that makes), ``replicas``, ``mesh`` (axes and sizes of the
        devices), ``shardings`` (for each parameter, the axes over which each dimension lies),
        ``donated`` (parameters whose memory holds a result), ``effort``, ``folder`` (where libtpu
        writes what it makes), and ``form``: of ``stablehlo``, a text that jax divides over the
        mesh, or ``hlo``, a serialised ``HloModuleProto`` of one replica.
        """
        from jax.sharding import Mesh, NamedSharding, PartitionSpec

        jax, replicas = self._jax, job["replicas"]
        about = {"chip_config_name": job["chip"]} if "chip" in job else {}
        devices = self._topology(job["topology"], "tpu", **about).devices
        if len(devices) != job["devices"]:
            raise RuntimeError(f"libtpu lists {len(devices)} devices, not {job['devices']}")
        axes, sizes = zip(*job["mesh"], strict=True)
        mesh = Mesh(self._np.array(devices[:replicas]).reshape(sizes), axes)
        specs = tuple(
            PartitionSpec(*(tuple(part) or None for part in parts)) for parts in job["shardings"]
        )
        if job["form"] == "hlo":
            module, inputs, results = self._read(self._stablehlo(program), self._translate)
        else:
            module, inputs, results = self._read(program, self._strip)

        def run(*arguments: Any) -> Any:  # its name is the program's
            return self._module.bind(*arguments, module=module, results=results)

        shapes = [x.shape for x in inputs]
        if job["form"] == "hlo" and replicas > 1:
            same = [PartitionSpec()] * len(results)
            run = jax.shard_map(run, mesh=mesh, in_specs=specs, out_specs=same, check_vma=False)
            shapes = [
                (shape[0] * replicas, *shape[1:]) if parts else shape
                for shape, parts in zip(shapes, job["shardings"], strict=True)
            ]
        arguments = [
            jax.ShapeDtypeStruct(shape, x.dtype, sharding=NamedSharding(mesh, spec))
            for shape, x, spec in zip(shapes, inputs, specs, strict=True)
        ]
        options = {"optimization_level": 9} if job["effort"] == "least" else {}
        options |= {"xla_dump_to": job["folder"], "xla_dump_hlo_as_text": True}
        jitted = jax.jit(run, donate_argnums=tuple(job["donated"]), keep_unused=True)
        return jitted.lower(*arguments).compile(compiler_options=options)

    def answer(self, job: dict[str, Any], program: bytes) -> processes.Answer:
        """Compile and measure; give what is to be told, and the program's compressed text."""
        start = time.monotonic()
        try:
            compiled = self.compile(job, program)
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
            "peak_bytes": memory.peak_memory_in_bytes,
        }
        # As libtpu wrote it: jaxlib 0.10.2 can't read back what libtpu 0.0.51 makes for v5p, v6e
        # and TPU7x, where the SparseCore gathers rows meanwhile (2026-11).
        texts = [*pathlib.Path(job["folder"]).glob("*.after_codegen.txt")]
        if not texts:
            raise RuntimeError("libtpu writes no program for a function without a result")
        text = max(texts, key=os.path.getsize)
        return told, gzip.compress(text.read_bytes(), 1, mtime=0)


def main() -> None:
    """Serve the process that started this one."""
    made = functools.cache(Compiler)

    def answer(
        job: dict[str, Any], program: bytes, tell: Callable[[str], None]
    ) -> processes.Answer:
        try:
            tell("starting")
            compiler = made()
            tell("compiling")
            return compiler.answer(job, program)
        except MemoryError:
            os._exit(1)
        except Exception as error:  # not Google's verdict: this jax is not the one we know
            return {"verdict": "error", "message": f"{type(error).__name__}: {error}"}, b""

    processes.serve(answer)


if __name__ == "__main__":
    main()
