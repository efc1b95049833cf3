"""A mixture of texts in several languages and kinds, made from packages of a Debian and a PyPI mirror and novels."""
