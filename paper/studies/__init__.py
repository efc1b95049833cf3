"""Studies of centroid training: what keeps hard groups balanced, and what each setting does."""
