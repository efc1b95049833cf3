"""What kernels in Triton share: whether they run here, and how they are launched. Torch is loaded, Triton is not."""
