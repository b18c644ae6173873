#!/usr/bin/env python3
"""kernel_instructions counts what it says, and fails where it must. The disassembly is written here: a stand-in for objdump
prints it, so that the test runs on any machine."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(__file__).resolve().parent.parent / "kernel_instructions"

SPACE = "isthmus::(anonymous namespace)::"
Q4_0 = "isthmus::PanelLayout{4, 0, 3, 1, false, (isthmus::ScaleKind)0, (isthmus::CodeTable)0, 2}"
MXFP4_UNPACKED = "isthmus::PanelLayout{8, 0, 4, 1, false, (isthmus::ScaleKind)5, (isthmus::CodeTable)0, 1, 28}"
GCC = "GCC: (Debian 12.2.0-14+deb12u1) 12.2.0"


def dot(vec, layout, compute, tokens):
    return f"void {SPACE}dot_units<{SPACE}{vec}, {layout}, (isthmus::Compute){compute}, {tokens}>(std::byte const*)"


def attention(kernel, arguments):
    return f"void {SPACE}{kernel}<{SPACE}{arguments}>(void const*)"


def function(name, *lines):
    """As objdump prints it, 16 bytes an instruction from address 0."""
    code = "".join(f"{16 * index:8x}:\t{line}\n" for index, line in enumerate(lines))
    return f"0000000000000000 <{name}>:\n{code}\n"


def object_file(name, *parts, kind="elf64-x86-64"):
    return f"\n{name}:     file format {kind}\n\n\nDisassembly of section .text:\n\n" + "".join(parts)


def comment(text):
    """The section .comment as objdump -s prints it."""
    data = b"\0" + text.encode() + b"\0"
    rows = [data[at:at + 16] for at in range(0, len(data), 16)]
    lines = [" ".join(row[at:at + 4].hex() for at in range(0, len(row), 4)) for row in rows]
    return "Contents of section .comment:\n" + "".join(f" {16 * n:04x} {line:<35}  ....\n" for n, line in enumerate(lines))


# A loop of 8 instructions around two vpdpbusd; the jump out of line and the filler are no detour for it.
DOT_LOOP = [
    "test   %rsi,%rsi",  # 0
    "je     b0 <there>",
    "vpbroadcastd (%rdx),%zmm4",  # 20: here the loop begins
    "vpdpbusd %zmm4,%zmm3,%zmm1",
    "vpdpbusd 0x4(%rdx){1to16},%zmm3,%zmm1",
    "vfmadd132ps %zmm3,%zmm0,%zmm1",
    "test   %r9,%r9",
    "jne    c0 <there>",
    "cmp    %rsi,%r11",  # 80
    "jne    20 <there>",
    "nop",
    "ret",  # b0
    "prefetcht0 (%rcx)",  # c0
    "jmp    80 <there>",
]


class KernelInstructionsTest(unittest.TestCase):

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = pathlib.Path(self.folder.name)
        self.record = self.root / "record.txt"
        objdump = self.root / "objdump"
        objdump.write_text('#!/bin/sh\nfolder=$(dirname "$0")\ncat "$folder/listing$1"\n')
        objdump.chmod(0o755)
        self.compiler(GCC)
        self.listing(object_file("linear_avx512.cc.o", function(dot("Avx512Vec", Q4_0, 0, 1), *DOT_LOOP)))

    def compiler(self, name):
        (self.root / "listing-s").write_text(comment(name))

    def listing(self, *parts):
        (self.root / "listing-d").write_text("".join(parts))

    def run_tool(self, *arguments, library=None):
        env = {**os.environ, "OBJDUMP": str(self.root / "objdump")}
        command = [sys.executable, TOOL, "--file", self.record, *arguments, library or self.record.parent]
        done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              env=env, check=False)
        return done.returncode, done.stdout

    def table(self, *parts):
        self.listing(*parts)
        code, out = self.run_tool()
        self.assertEqual(code, 0, out)
        return out.splitlines()

    def recorded(self, line):
        self.record.write_text(f"# compiler: g++ 12.2 (Debian)\n{line}\n")

    def assert_check(self, status, *sentences):
        code, out = self.run_tool("--check")
        self.assertEqual(code, status, out)
        for sentence in sentences:
            self.assertIn(sentence, out)

    def test_loop_with_code_out_of_line(self):
        # 10 instructions, the out-of-line two among them, for 2 * 64.
        self.assertEqual(self.run_tool(), (0, "avx512 dot_units Q4_0 Int8 1 0.0781\n"))

    def test_two_planes_of_bytes_are_one_product(self):
        found = self.table(object_file("linear_avx512.cc.o", function(dot("Avx512Vec", Q4_0, 1, 1), *DOT_LOOP)))
        self.assertEqual(found, ["avx512 dot_units Q4_0 Int16 1 0.1562"])

    def test_widening_is_no_product(self):
        body = ["vpmaddubsw (%rdx),%ymm1,%ymm2", "vpmaddwd %ymm3,%ymm2,%ymm2", "vpaddd %ymm2,%ymm4,%ymm4", "jne 0 <x>", "ret"]
        found = self.table(object_file("linear_avx2.cc.o", function(dot("Avx2Vec", Q4_0, 0, 2), *body)))
        self.assertEqual(found, ["avx2 dot_units Q4_0 Int8 2 0.1250"])
        found = self.table(object_file("linear_avx2.cc.o", function(dot("Avx2Vec", Q4_0, 1, 2), *body[1:])))
        self.assertEqual(found, ["avx2 dot_units Q4_0 Int16 2 0.1875"])

    def test_without_a_loop_the_function_counts(self):
        body = ["vpdpbusd %zmm4,%zmm3,%zmm1", "nopw   0x0(%rax,%rax,1)", "vzeroupper", "ret"]
        found = self.table(object_file("linear_avx512.cc.o", function(dot("Avx512Vec", Q4_0, 0, 8), *body)))
        self.assertEqual(found, ["avx512 dot_units Q4_0 Int8 8 0.0469"])

    def test_loops_behind_a_jump_table(self):
        body = ["jmp    *%rax", "vfmadd231ps %zmm1,%zmm2,%zmm3", "jne 10 <x>", "ret",
                "vfmadd231ps %zmm1,%zmm2,%zmm3", "vfmadd231ps %zmm1,%zmm2,%zmm4", "jne 40 <x>", "ret"]
        found = self.table(object_file("float_attention_avx512.cc.o", function(attention("scores", "LoadF16"), *body)))
        self.assertEqual(found, ["avx512 scores F16 F32 tile1 0.1250", "avx512 scores F16 F32 tile2 0.0938"])

    def test_of_two_loops_the_one_with_more_products(self):
        body = ["vfmadd231ps %ymm1,%ymm2,%ymm3", "add $1,%rax", "jne 0 <x>", "vfmadd231ps %ymm1,%ymm2,%ymm3",
                "vfmadd231ps (%rax),%ymm2,%ymm4", "jne 30 <x>", "jmp 0 <x>"]
        found = self.table(object_file("float_attention_avx2.cc.o", function(attention("sum_rows", "LoadQ8, 3ul"), *body)))
        self.assertEqual(found, ["avx2 sum_rows Q8 F32 3 0.1875"])

    def test_equal_functions_that_the_compiler_joined(self):
        first = function(dot("Avx512Vec", Q4_0, 0, 1), *DOT_LOOP)
        twin = function(dot("Avx512Vec", MXFP4_UNPACKED, 0, 1), f"jmp    0 <{dot('Avx512Vec', Q4_0, 0, 1)}>")
        found = self.table(object_file("linear_avx512.cc.o", twin, first))
        self.assertEqual(found, ["avx512 dot_units MXFP4:unpacked Int8 1 0.0781", "avx512 dot_units Q4_0 Int8 1 0.0781"])

    def test_tiles(self):
        step = ["tdpbsud %tmm4,%tmm2,%tmm0", "tdpbsud %tmm4,%tmm3,%tmm1"]
        body = [*step, "vfmadd231ps %zmm18,%zmm1,%zmm17", *step, "jne 20 <x>", "ret"]  # the loop: 4 instructions
        coarse = MXFP4_UNPACKED
        fine = "isthmus::PanelLayout{8, 0, 5, 2, false, (isthmus::ScaleKind)5, (isthmus::CodeTable)0, 1, 63}"
        names = [f"{SPACE}IntProduct<{SPACE}HardwareTiles, {layout}, (isthmus::Compute)1>::run(void)" for layout in (coarse, fine)]
        parts = [function(name, *body) for name in names]
        parts.append(function(f"void {SPACE}multiply_bf16<{SPACE}HardwareTiles, 2, 1>(void)",
                              "tdpbf16ps %tmm6,%tmm4,%tmm0", "tdpbf16ps %tmm7,%tmm4,%tmm2", "jne 0 <x>", "ret"))
        found = self.table(object_file("linear_amx.cc.o", *parts), object_file("linear_amx_model.cc.o", parts[0]))
        self.assertEqual(found, ["amx tiles 32-rows Bf16 16 0.0002", "amx tiles MXFP4:unpacked Int16 16 0.0005",
                                 "amx tiles Q6_K:unpacked Int16 16 0.0010"])

    def test_other_functions_and_sets_are_left_out(self):
        self.assertEqual(self.table(object_file("linear_scalar.cc.o", function(dot("ScalarVec", Q4_0, 0, 1), *DOT_LOOP)),
                                    object_file("isa_avx2.cc.o", function("isthmus::isa()", *DOT_LOOP))), [])

    def test_record_then_check(self):
        code, out = self.run_tool("--record")
        self.assertEqual(code, 0, out)
        self.assertIn("# compiler: g++ 12.2 (Debian)\navx512 dot_units Q4_0 Int8 1 0.0781\n", self.record.read_text())
        self.assert_check(0, "no problem")

    def test_five_percent(self):
        self.recorded("avx512 dot_units Q4_0 Int8 1 0.0745")
        self.assert_check(0, "no problem")
        self.recorded("avx512 dot_units Q4_0 Int8 1 0.0743")
        self.assert_check(1, "Q4_0 Int8 1: 0.0743 -> 0.0781 instructions per MAC, 5.1 % more", "--record")

    def test_an_instruction_more(self):
        self.run_tool("--record")
        longer = [*DOT_LOOP[:5], DOT_LOOP[5] + "\n      58:\tvpaddd %zmm1,%zmm2,%zmm1", *DOT_LOOP[6:]]
        self.listing(object_file("linear_avx512.cc.o", function(dot("Avx512Vec", Q4_0, 0, 1), *longer)))
        self.assert_check(1, "0.0781 -> 0.0859")

    def test_new_and_gone(self):
        self.recorded("avx512 dot_units Q4_1 Int8 1 0.0781")
        self.assert_check(1, "avx512 dot_units Q4_1 Int8 1: is gone", "avx512 dot_units Q4_0 Int8 1: is new", "2 problem(s)")

    def test_better_is_said(self):
        self.recorded("avx512 dot_units Q4_0 Int8 1 0.2000")
        self.assert_check(0, "1 kernel(s) are more than 5 % better than recorded")

    def test_another_compiler_is_not_compared(self):
        self.recorded("avx512 dot_units Q4_0 Int8 1 0.0100")
        self.assert_check(1, "more")
        for name in ("GCC: (Debian 13.1.0-1) 13.1.0", "Debian clang version 14.0.6"):
            self.compiler(name)
            self.assert_check(0, "not compared: built by")

    def test_another_machine_is_not_compared(self):
        self.recorded("avx512 dot_units Q4_0 Int8 1 0.0100")
        self.listing(object_file("linear_neon.cc.o", function("x", "ret"), kind="elf64-littleaarch64"))
        self.assert_check(0, "not compared: no x86-64 kernels")

    def test_no_library(self):
        code, out = self.run_tool("--check", library=self.root / "none.a")
        self.assertEqual(code, 1)
        self.assertIn("is not there", out)


if __name__ == "__main__":
    unittest.main()
