"""C++ functions of the CPU, compiled once with the machine's own compiler and called through ctypes."""
