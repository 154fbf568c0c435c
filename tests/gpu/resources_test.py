"""What scripts/cuda-resources makes of the output of nvcc and cuobjdump.

usage: resources_test.py TREE
"""

import importlib.machinery
import importlib.util
import pathlib
import sys
import types
import unittest

TREE = pathlib.Path(sys.argv.pop(1)).resolve()
sys.dont_write_bytecode = True
LOADER = importlib.machinery.SourceFileLoader("cuda_resources", str(TREE / "scripts/cuda-resources"))
cuda_resources = importlib.util.module_from_spec(importlib.util.spec_from_loader("cuda_resources", LOADER))
LOADER.exec_module(cuda_resources)
import cuda_kernels
from cuda_kernels import Use

Row = cuda_resources.Row

FLOAT = "_ZN6ddprun4cuda10add_kernelIfEEvPT_"
BFLOAT = "_ZN6ddprun4cuda10add_kernelINS_8BFloat16EEEvPT_"

PTXAS = f"""ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '{FLOAT}' for 'sm_90'
ptxas info    : Function properties for {FLOAT}
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 4096 bytes smem
ptxas info    : Compiling entry function '{BFLOAT}' for 'sm_90'
ptxas info    : Function properties for {BFLOAT}
    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 255 registers, used 0 barriers
"""

PTX = f""".visible .entry {FLOAT}(
	.param .u64 p
)
{{
	fma.rn.f32 	%f1, %f2, %f3, %f4;
}}
.visible .entry {BFLOAT}(
	.param .u64 p
)
{{
	wmma.load.a.sync.aligned.row.m16n16k16.shared.bf16 	{{%r1}}, [%rd1], %r2;
	wmma.mma.sync.aligned.row.col.m16n16k16.f32.bf16.bf16.f32 	{{%f1}}, {{%r1}}, {{%r2}}, {{%f1}};
	mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 	{{%f1}}, {{%r1}}, {{%r2}}, {{%f1}};
}}
"""

CUOBJDUMP = f"""
Fatbin elf code:
================
arch = sm_80
code version = [1,8]

Resource usage:
 Common:
  GLOBAL:0 CONSTANT[3]:8
 Function {FLOAT}:
  REG:38 STACK:0 SHARED:4096 LOCAL:0 CONSTANT[0]:568 TEXTURE:0 SURFACE:0 SAMPLER:0

Fatbin elf code:
================
arch = sm_90
code version = [1,8]

Resource usage:
 Function {FLOAT}:
  REG:40 STACK:0 SHARED:5120 LOCAL:0 CONSTANT[0]:568 TEXTURE:0 SURFACE:0 SAMPLER:0
 Function {BFLOAT}:
  REG:255 STACK:16 SHARED:0 LOCAL:0 CONSTANT[0]:568 TEXTURE:0 SURFACE:0 SAMPLER:0
"""


class ReportTest(unittest.TestCase):
    def test_resources_and_spills_of_ptxas(self):
        self.assertEqual(cuda_kernels.ptxas_uses(PTXAS), {FLOAT: Use(40, 0, 4096), BFLOAT: Use(255, 16, 0)})
        self.assertEqual(cuda_kernels.ptxas_spills(PTXAS), {BFLOAT: 20})

    def test_products_are_counted_and_loads_of_their_operands_are_not(self):
        self.assertEqual(cuda_kernels.tensor_core_products(PTX), {FLOAT: 0, BFLOAT: 2})

    def test_resources_of_cuobjdump_without_the_shared_memory_that_the_system_reserves(self):
        uses = cuda_kernels.cuobjdump_uses(CUOBJDUMP)
        self.assertEqual(uses["80"], [(FLOAT, Use(38, 0, 4096))])
        self.assertEqual(uses["90"], [(FLOAT, Use(40, 0, 4096)), (BFLOAT, Use(255, 16, 0))])

    def test_names(self):
        names = cuda_kernels.demangled([FLOAT, BFLOAT])
        self.assertEqual([cuda_kernels.short_name(name) for name in names.values()], ["add_kernel"] * 2)
        self.assertEqual([cuda_kernels.first_argument(name) for name in names.values()], ["float", "BFloat16"])

    def test_a_spill_is_refused_by_name_and_architecture(self):
        one = types.SimpleNamespace(source="add.cu", architecture="90", spills={BFLOAT: 20})
        with self.assertRaisesRegex(SystemExit, r"^add.cu: .*add_kernel<ddprun::BFloat16>.* spills 20 bytes .* sm_90$"):
            cuda_resources.refuse_spills([one])
        cuda_resources.refuse_spills([types.SimpleNamespace(source="add.cu", architecture="90", spills={})])


def table():
    architectures = cuda_resources.ARCHITECTURES
    return {
        ("add.cu", "add_kernel"): {a: Row(2, 30 + i, 0, 4096) for i, a in enumerate(architectures)},
        ("sum.cu", "sum_kernel"): {a: Row(1, 20, 8 if a == "75" else 0, 0) for a in architectures},
        ("new.cu", "new_kernel"): {a: Row(1, 20, 0, 0) for a in architectures if a != "75"},
    }


class PageTest(unittest.TestCase):
    def test_the_table_of_a_page_is_read_as_it_was_written(self):
        self.assertEqual(cuda_resources.read_table("\n".join(cuda_resources.table_text(table()))), table())

    def differences(self, change):
        found = table()
        change(found)
        return list(cuda_resources.differences(table(), found, ["80", "90"]))

    def test_what_a_build_has_and_the_page_has_not(self):
        self.assertEqual(self.differences(lambda found: None), [])
        self.assertEqual(
            self.differences(lambda found: found.pop(("add.cu", "add_kernel"))["80"]),
            [f"add.cu: add_kernel on sm_{a} is in the page, and not in the build" for a in ("80", "90")],
        )
        self.assertEqual(
            self.differences(lambda found: found.update({("add.cu", "mul_kernel"): {"90": Row(1, 9, 0, 0)}})),
            ["add.cu: mul_kernel on sm_90 is missing in the page"],
        )
        self.assertEqual(
            self.differences(lambda found: found["sum.cu", "sum_kernel"].update({"80": Row(1, 255, 64, 0)})),
            ["sum.cu: sum_kernel on sm_80: registers 255, in the page 20, stack 64, in the page 0"],
        )

    def test_a_module_has_code_for_each_architecture(self):
        whole = {"80": [("k", Use(1, 0, 0))] * 4, "90": [("k", Use(1, 0, 0))] * 4}
        self.assertEqual(list(cuda_resources.lacks(table(), whole, ["80", "90"])), [])
        self.assertEqual(
            list(cuda_resources.lacks(table(), whole, ["80", "90", "100"])),
            ["the module has 0 kernels for sm_100, in the page there are 4"],
        )
        self.assertEqual(
            list(cuda_resources.lacks(table(), whole, ["90"])),
            ["the module has code for sm_80, which the build is not configured for"],
        )
        self.assertEqual(
            list(cuda_resources.lacks(table(), {**whole, "90": whole["90"][1:]}, ["80", "90"])),
            ["the module has 3 kernels for sm_90, in the page there are 4"],
        )


if __name__ == "__main__":
    unittest.main()
