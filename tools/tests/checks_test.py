#!/usr/bin/env python3
"""The checks fail where they must: each rule is broken in a small repository of its own."""

import pathlib
import subprocess
import tempfile
import unittest

TOOLS = pathlib.Path(__file__).resolve().parent.parent

ARCHITECTURE = """
| layer | holds | may include |
| --- | --- | --- |
| `base` | basics | |
| `os` | system | `base` |
| `tensor` | types | `base` |
| `kernels` | kernels | `tensor` |
| `net` | sockets | `os` |
"""


class ChecksTest(unittest.TestCase):

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = pathlib.Path(self.folder.name)
        subprocess.run(["git", "init", "-q", str(self.root)], check=True)
        self.write("docs/architecture.md", ARCHITECTURE)

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def run_check(self, tool):
        done = subprocess.run([str(TOOLS / tool), str(self.root)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, check=False)
        return done.returncode, done.stdout

    def assert_clean(self, tool):
        code, out = self.run_check(tool)
        self.assertEqual(code, 0, out)

    def assert_problem(self, tool, sentence):
        code, out = self.run_check(tool)
        self.assertEqual(code, 1, out)
        self.assertIn(sentence, out)

    def test_arrows_down_are_fine(self):
        self.write("src/kernels/a.cc", '#include "kernels/a.h"\n#include "tensor/b.h"\n#include "base/status.h"\n')
        self.write("apps/x/main.cc", '#include "kernels/a.h"\n')
        self.assert_clean("check_includes")

    def test_arrow_up(self):
        self.write("src/base/a.cc", '#include "tensor/b.h"\n')
        self.assert_problem("check_includes", "src/base/a.cc:1: <tensor/b.h>: base/ may not include tensor/")

    def test_arrow_aside(self):
        self.write("src/tensor/a_test.cc", '\n  #  include "os/file.h"\n')
        self.assert_problem("check_includes", "src/tensor/a_test.cc:2: <os/file.h>: tensor/ may not include os/")

    def test_link_up(self):
        self.write("src/base/CMakeLists.txt", "isthmus_layer(base DEPS os LIBS fmt::fmt)\n")
        self.assert_problem("check_includes", "base/ may not link os/")

    def test_link_libraries_are_no_layers(self):
        self.write("src/os/CMakeLists.txt", "isthmus_layer(os DEPS base LIBS net fmt::fmt)\n")
        self.assert_clean("check_includes")

    def test_unknown_folder(self):
        self.write("src/magic/a.h", '#include "base/status.h"\n')
        self.assert_problem("check_includes", "src/magic is not in the table")

    def test_app_in_a_layer(self):
        self.write("src/os/a.cc", '#include "apps/isthmus/cli.h"\n')
        self.assert_problem("check_includes", "os/ may not include an app")

    def test_public_header(self):
        self.write("include/isthmus/isthmus.h", '#include "base/status.h"\n')
        self.assert_problem("check_includes", "a public header includes")

    def test_system_call(self):
        for header in ("unistd.h", "sys/mman.h", "fcntl.h", "linux/futex.h"):
            self.write("src/tensor/a.cc", f"#include <{header}>\n")
            self.assert_problem("check_includes", "only os/ makes system calls")
        self.write("src/tensor/a.cc", "")
        self.write("src/os/a.cc", "#include <unistd.h>\n")
        self.write("src/tensor/guard_test.cc", "#include <sys/mman.h>\n")
        self.assert_clean("check_includes")

    def test_socket(self):
        for header in ("sys/socket.h", "netinet/in.h", "curl/curl.h", "boost/asio.hpp", "boost/asio/ip/tcp.hpp"):
            self.write("src/os/a.cc", f"#include <{header}>\n")
            self.assert_problem("check_includes", "only net/ opens sockets")
        self.write("src/os/a.cc", "")
        self.write("src/net/a.cc", '#include <curl/curl.h>\n#include "net/url.h"\n')
        self.assert_clean("check_includes")

    def test_intrinsics(self):
        for header in ("immintrin.h", "arm_neon.h", "emmintrin.h", "cpuid.h"):
            self.write("src/kernels/generic/a.h", f"#include <{header}>\n")
            self.assert_problem("check_includes", "only kernels/<isa>/ includes intrinsics")
        self.write("src/kernels/generic/a.h", "")
        self.write("src/kernels/avx2/a.cc", "#include <immintrin.h>\n")
        self.write("src/kernels/isa.cc", "#include <cpuid.h>\n#include <sys/auxv.h>\n#include <asm/hwcap.h>\n")
        self.assert_clean("check_includes")

    def test_circle(self):
        self.write("docs/architecture.md", "| `a` | x | `b` |\n| `b` | x | `a` |\n")
        self.assert_problem("check_includes", "circle")

    def test_no_table(self):
        self.write("docs/architecture.md", "nothing\n")
        self.assert_problem("check_includes", "no table")

    def test_long_files(self):
        self.write("src/base/a.cc", "\n" * 600)
        self.write("src/base/a_test.cc", "\n" * 800)
        self.assert_clean("check_sizes")
        self.write("src/base/a.cc", "\n" * 601)
        self.assert_problem("check_sizes", "src/base/a.cc: 601 lines")
        self.write("src/base/a.cc", "")
        self.write("src/base/a_test.cc", "\n" * 801)
        self.assert_problem("check_sizes", "src/base/a_test.cc: 801 lines")

    def test_generated_files(self):
        table = "// Generated by tools/make_table.py from facts.\n" + "\n" * 700
        self.write("src/base/table.h", table)
        self.assert_problem("check_sizes", "src/base/table.h: 701 lines")
        self.write("tools/make_table.py", "print()\n")
        self.assert_clean("check_sizes")

    def test_large_data(self):
        self.write("tests/big.bin", "\0" * ((1 << 20) + 1))
        self.assert_problem("check_sizes", "tests/big.bin")
        (self.root / "tests/big.bin").unlink()
        for i in range(6):
            self.write(f"tests/{i}.bin", "\0" * (1 << 20))
        self.assert_problem("check_sizes", "test data")

    def test_text(self):
        lines = {
            "a path of one machine": "see /ro" + "ot/x",
            "a registry's host name": "https://py" + "pi.org/simple",
            "unfinished work": "// TO" + "DO: later",
            "a test that is switched off": "TEST(A, DISA" + "BLED_b)",
            "blanks at the end": "int a; ",
        }
        self.write("src/base/a.cc", "int a;\n")
        self.assert_clean("check_text")
        for name, line in lines.items():
            self.write("src/base/a.cc", "int a;\n" + line + "\n")
            self.assert_problem("check_text", f"src/base/a.cc:2: {name}")

    def test_package_without_reason(self):
        self.write("tools/packages.txt", "# comment\nbuild libgood-dev\nbuild libbad-dev\n")
        self.write("docs/dependencies.md", "| `libgood-dev` | good |\n")
        self.assert_problem("check_text", "no reason for the package libbad-dev")

    def test_command_without_page(self):
        self.write("apps/isthmus/cmd_eat.cc", "int a;\n")
        self.assert_problem("check_text", "the command 'eat' has no page")


if __name__ == "__main__":
    unittest.main()
