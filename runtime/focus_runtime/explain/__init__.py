"""Why Focus predicts a token worse: dropped links, and what changes of the mask would do."""
