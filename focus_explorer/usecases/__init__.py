"""What page, command line and API offer, a function each.

Every one raises an `InputError` for what a user can put right, before the costly part of the work where it can.
"""
