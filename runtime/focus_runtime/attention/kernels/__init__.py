"""Attention kernels of torch and of packages that return logsumexp, with the hazards of each handled in one place."""
