"""What has to happen before the interpreter ends.

Imported with torch, so that its turn comes after that of the program's own handlers, which may still communicate.
"""

import atexit

_functions = []


def call_at_exit(function):
    _functions.append(function)


@atexit.register
def _call_all():
    for function in _functions:
        function()
