"""The parts of tools/gpu-check."""
