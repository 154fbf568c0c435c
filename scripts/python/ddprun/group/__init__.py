"""What the compiled back end (csrc) and the one in Python (python_backend) share: all that is off the path of a call.

Each of the two provides a class Slot, for the handle of the group, and a class Backend(membership), with the calls.
"""
