"""What Focus does to a model: benchmarks, and the doctor that checks that a model computes what it should."""
