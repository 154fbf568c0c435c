"""The back end in Python, over the same C library and with the same behaviour as the compiled one in csrc.

For machines without a compiler. Files of the same name have the same subject as in csrc.
"""

OLDEST_TORCH = (2, 15)  # the first whose class Backend can have subclasses in Python


def load():
    """The module with the back end's classes."""
    from ddprun.python_backend import backend, torch_classes

    torch_classes.complete()
    return backend
