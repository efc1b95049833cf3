"""The tabs of the page, one file each."""
