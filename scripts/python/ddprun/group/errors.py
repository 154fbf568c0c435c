"""The library's errors as exceptions."""

import ctypes

from torch.distributed import DistBackendError

from ddprun import capi

KINDS = {capi.USAGE: ValueError, capi.WRONG_TYPE: TypeError, capi.UNSUPPORTED: NotImplementedError}


def exception_of(error):
    """ValueError, TypeError, NotImplementedError, else torch.distributed.DistBackendError. Scripts look for the word
    "timeout", which Gloo's messages have."""
    prefix = "ddprun: timeout of the operation: " if error.code == capi.TIMEOUT else "ddprun: "
    return KINDS.get(error.code, DistBackendError)(prefix + error.message.decode(errors="replace"))


def checked(function, *arguments):
    """Calls a function whose last parameter is an error, and returns its result."""
    error = capi.Error()
    result = function(*arguments, ctypes.byref(error))
    if error.code:
        raise exception_of(error)
    return result
