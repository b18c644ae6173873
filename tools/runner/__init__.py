"""The parts of tools/test: running programs, counting, stages."""
