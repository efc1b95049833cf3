"""Files made for a person at the page, and the address they are fetched from."""
