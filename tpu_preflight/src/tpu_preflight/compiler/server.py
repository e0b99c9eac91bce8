"""The process in which Google's TPU compiler runs; `client` gives it its jobs.

The compiler can end its process (SIGILL and SIGSEGV were seen), take all memory, or go on for
hours, so it never runs in the learner's own. Imports jax and no TensorFlow: two copies of XLA in
one process are one too many. Knows nothing of caches, limits and messages for people.
"""

import dataclasses
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
    "f8E4M3FN": "float8_e4m3fn",
    "f8E5M2": "float8_e5m2",
}
for bits in (16, 32, 64):
    _TYPES[f"f{bits}"] = f"float{bits}"
for bits in (2, 4, 8, 16, 32, 64):
    _TYPES[f"i{bits}"] = f"int{bits}"
    _TYPES[f"ui{bits}"] = f"uint{bits}"


class RefusedError(Exception):
    """A program has values that no TPU has."""


@dataclasses.dataclass(frozen=True)
class _Program:
    """A module of StableHLO that jax can call."""

    module: bytes
    inputs: tuple[Any, ...]  # shape and type of each parameter
    results: tuple[Any, ...]  # the same of each result


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
        self._jax = jax
        self._np = np
        self._mlir = mlir
        self._func = func
        self._hlo = stablehlo
        self._topology = topologies.get_topology_desc
        self._to_stablehlo = hlo_to_stablehlo
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
        ir = self._mlir.ir
        main = self._main(module)
        terminator = list(main.entry_block.operations)[-1]
        types = []
        with ir.Location.unknown(), ir.InsertionPoint(terminator):
            for i, value in enumerate(terminator.operands):
                static = self._fill_value(value)
                terminator.operands[i] = static
                types.append(static.type)
        main.attributes["function_type"] = ir.TypeAttr.get(
            ir.FunctionType.get(list(main.type.inputs), types)
        )

    def _fill_value(self, value: Any) -> Any:
        """Set each bounded size of a value to its bound; one without bounds stays as it is."""
        ir = self._mlir.ir
        ranked = ir.RankedTensorType(value.type)
        match = re.search(r"bounds<(.*?)>", str(ranked))
        if match is None:
            return value
        sizes = list(ranked.shape)
        bounds = re.split(", *", match[1])
        for dimension, bound in enumerate(bounds):
            if bound == "?":
                continue
            sizes[dimension] = int(bound)
            bounds[dimension] = "?"
            encoding = None  # of the bounds that are left
            if set(bounds) != {"?"}:
                encoding = ir.Attribute.parse(f"#stablehlo.bounds<{', '.join(bounds)}>")
            shape = ir.RankedTensorType.get(sizes, ranked.element_type, encoding)
            number = ir.DenseElementsAttr.get(self._np.array(sizes[dimension], "int32"))
            size = self._hlo.ConstantOp(number).result
            operation = self._hlo.SetDimensionSizeOp(value, size, dimension, results=[shape])
            value = operation.result
        return value

    def _lower(self, context: Any, *arguments: Any, module: bytes, results: tuple) -> Any:
        """Put the module into the program that jax builds, as a function, and call it."""
        ir = self._mlir.ir
        inner = ir.Module.parse(module)
        types = list(self._main(inner).type.results)
        outer = context.module_context
        # A mesh that both have would be there twice.
        for view in list(inner.body.operations):
            operation = view.operation
            if operation.name == "sdy.mesh":
                name = ir.StringAttr(operation.attributes["sym_name"]).value
                if name in outer.symbol_table:
                    operation.erase()
        name = self._mlir.merge_mlir_modules(
            outer.module, "tensorflow_main", inner, dst_symtab=outer.symbol_table
        )
        call = self._func.CallOp(types, ir.FlatSymbolRefAttr.get(name), list(arguments))
        return call.results

    def _abstract(self, type_: Any) -> Any:
        ranked = self._mlir.ir.RankedTensorType(type_)
        text = str(ranked.element_type)
        if text not in _TYPES:
            raise RefusedError(f"A TPU has no values of type {text}.")
        if not ranked.has_static_shape:
            raise RefusedError(f"The shape {ranked} is known only at run time.")
        dtype = self._jax.numpy.dtype(_TYPES[text])
        return self._jax.core.ShapedArray(tuple(ranked.shape), dtype)

    def _read(self, text: bytes, change: Callable[[Any], None]) -> _Program:
        """Read a module of StableHLO, and change it."""
        mlir = self._mlir
        with mlir.make_ir_context():
            module = mlir.ir.Module.parse(text)
            change(module)
            signature = self._main(module).type
            return _Program(
                module=mlir.module_to_bytecode(module),
                inputs=tuple(map(self._abstract, signature.inputs)),
                results=tuple(map(self._abstract, signature.results)),
            )

    def _strip(self, module: Any) -> None:
        """Remove what jax says of arguments: it comes with the job."""
        attributes = self._main(module).attributes
        for name in ("arg_attrs", "res_attrs"):
            if name in attributes:
                del attributes[name]

    def _translate(self, module: Any) -> None:
        """Fix what TensorFlow writes and jax or a TPU's plugin doesn't know."""
        operations: list[Any] = []

        def collect(operation: Any) -> Any:
            operations.append(operation)
            return self._mlir.ir.WalkResult.ADVANCE

        # The walk must be over before an operation is erased.
        module.operation.walk(collect)
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
        ``donated`` (parameters whose memory holds a result), ``host_parameters`` and
        ``host_results`` (those in the host's memory), ``effort``, ``flags`` (options of the
        compiler, where some are set), ``folder`` (where libtpu writes what it makes), and
        ``form``: of ``stablehlo``, a text that jax divides over the mesh, or ``hlo``, a serialised
        ``HloModuleProto`` of one replica.
        """
        from jax.sharding import Mesh, NamedSharding, PartitionSpec

        jax = self._jax
        replicas = job["replicas"]
        # A program of one replica is compiled for one device, whatever the target has.
        axes, sizes = zip(*job["mesh"], strict=True)
        devices = self._np.array(self._devices(job)[:replicas])
        mesh = Mesh(devices.reshape(sizes), axes)
        specs = []
        for dimensions in job["shardings"]:
            specs.append(PartitionSpec(*(tuple(axes) or None for axes in dimensions)))

        if job["form"] == "hlo":
            read = self._read(self._to_stablehlo(program), self._translate)
        else:
            read = self._read(program, self._strip)

        def run(*arguments: Any) -> Any:  # its name is the program's
            return self._module.bind(*arguments, module=read.module, results=read.results)

        # TensorFlow's program is that of one replica: all of them together take longer arguments.
        is_one_of_several = job["form"] == "hlo" and replicas > 1
        if is_one_of_several:
            replicated = [PartitionSpec()] * len(read.results)
            run = jax.shard_map(
                run, mesh=mesh, in_specs=tuple(specs), out_specs=replicated, check_vma=False
            )
        arguments = []
        for value, dimensions, spec in zip(read.inputs, job["shardings"], specs, strict=True):
            shape = value.shape
            if is_one_of_several and dimensions:
                shape = (shape[0] * replicas, *shape[1:])
            sharding = NamedSharding(mesh, spec)
            if len(arguments) in job["host_parameters"]:
                sharding = sharding.with_memory_kind("pinned_host")
            arguments.append(jax.ShapeDtypeStruct(shape, value.dtype, sharding=sharding))

        # The text comes from a file: see `answer`.
        options = dict(job.get("flags", {}))
        options |= {"xla_dump_to": job["folder"], "xla_dump_hlo_as_text": True}
        if job["effort"] == "least":
            options["optimization_level"] = 9
        placements = {"donate_argnums": tuple(job["donated"])}
        if job["host_results"]:
            # Where each device has all of it: how a result is divided, the program doesn't tell.
            on_host = NamedSharding(mesh, PartitionSpec()).with_memory_kind("pinned_host")
            shardings = [None] * len(read.results)
            for position in job["host_results"]:
                shardings[position] = on_host
            placements["out_shardings"] = shardings
        jitted = jax.jit(run, keep_unused=True, **placements)
        return jitted.lower(*arguments).compile(compiler_options=options)

    def _devices(self, job: dict[str, Any]) -> list[Any]:
        """Describe the devices of a target, which needn't be here."""
        options = {}
        if "chip" in job:
            options["chip_config_name"] = job["chip"]
        devices = self._topology(job["topology"], "tpu", **options).devices
        if len(devices) != job["devices"]:
            raise RuntimeError(f"libtpu lists {len(devices)} devices, not {job['devices']}")
        return devices

    def answer(self, job: dict[str, Any], program: bytes) -> processes.Answer:
        """Compile and measure; give a report, and the program's compressed text."""
        start = time.monotonic()
        try:
            compiled = self.compile(job, program)
        except (RefusedError, self._jax.errors.JaxRuntimeError) as error:
            message = str(error)
            verdict = "refused"
            if message.startswith("RESOURCE_EXHAUSTED"):
                verdict = "out of memory"
            return {"verdict": verdict, "message": message}, b""
        finally:
            self._jax.clear_caches()
        seconds = time.monotonic() - start
        cost = compiled.cost_analysis() or {}
        memory = compiled.memory_analysis()
        report = {
            "verdict": "compiles",
            "message": "",
            "seconds": seconds,
            "flops": cost.get("flops", 0.0),
            "bytes_accessed": cost.get("bytes accessed", 0.0),
            "argument_bytes": memory.argument_size_in_bytes,
            "output_bytes": memory.output_size_in_bytes,
            "shared_bytes": memory.alias_size_in_bytes,
            "temporary_bytes": memory.temp_size_in_bytes,
            "host_bytes": memory.host_temp_size_in_bytes,
            "peak_bytes": memory.peak_memory_in_bytes,
        }
        # As libtpu wrote it: jaxlib 0.10.2 can't read back what libtpu 0.0.51 makes for v5p, v6e
        # and TPU7x, where the SparseCore gathers rows meanwhile (2026-11).
        texts = [*pathlib.Path(job["folder"]).glob("*.after_codegen.txt")]
        if texts:
            text = max(texts, key=os.path.getsize).read_bytes()
        else:
            # Where nothing is left to compute, as of a result that no argument changes, libtpu
            # generates no code. jaxlib can read what it makes then.
            text = compiled.as_text().encode()
        return report, gzip.compress(text, 1, mtime=0)


def main() -> None:
    """Serve the process that started this one."""
    compiler = functools.cache(Compiler)  # made with the first job, as its imports take seconds

    def answer(
        job: dict[str, Any], program: bytes, tell: Callable[[str], None]
    ) -> processes.Answer:
        try:
            tell("starting")
            ready = compiler()
            tell("compiling")
            return ready.answer(job, program)
        except MemoryError:
            os._exit(1)
        except Exception as error:  # not Google's verdict: this jax is not the one we know
            return {"verdict": "error", "message": f"{type(error).__name__}: {error}"}, b""

    processes.serve(answer)


if __name__ == "__main__":
    main()
