"""The parts of tools/kernel_instructions: disassembly, loops, names of kernels."""
