"""Focus composed onto a frozen Hugging Face model. Not `compose`: that name is the public function."""
