"""What page, command line and API offer, a function each; every one raises an `InputError` for what a user can put right,
where it can before the costly part of the work."""
