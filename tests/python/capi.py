"""Whether ddprun.capi declares the constants, structures and functions of ddprun.h as the header does.

usage: capi.py ddprun.h
"""

import ctypes
import re
import sys

from ddprun import capi

TYPES = {
    "int32_t": ctypes.c_int32, "int64_t": ctypes.c_int64, "uint16_t": ctypes.c_uint16, "uint64_t": ctypes.c_uint64,
    "size_t": ctypes.c_size_t, "double": ctypes.c_double, "void*": ctypes.c_void_p, "char*": ctypes.c_char_p,
    "void": None, "size_t*": capi.COUNTS, "int64_t*": ctypes.POINTER(ctypes.c_int64), "ddprun_error*": capi.ERROR,
    "ddprun_span": capi.Span, "ddprun_span*": capi.SPANS, "ddprun_reduction": capi.Reduction,
    "ddprun_tensor*": capi.TENSORS, "ddprun_tensor_arguments*": ctypes.POINTER(capi.TensorArguments),
    "ddprun_group_options*": ctypes.POINTER(capi.GroupOptions), "ddprun_work**": ctypes.POINTER(capi.HANDLE),
    "ddprun_copy_state": capi.COPY_STATE,
    **{f"ddprun_{name}*": capi.HANDLE for name in ("group", "work", "memory", "recovery", "store_server")},
}
STRUCTURES = {"error": capi.Error, "reduction": capi.Reduction, "span": capi.Span, "group_options": capi.GroupOptions,
              "tensor": capi.Tensor, "tensor_arguments": capi.TensorArguments}


def type_and_name(declaration):
    """Of "const char* backend"."""
    words = re.sub(r"\s*\*", "* ", declaration.replace("const ", "")).split()
    stars = "".join(word for word in words[1:] if word == "*")
    names = [word for word in words[1:] if word != "*"]
    return TYPES[words[0] + stars], names[0] if names else None


def check_constants(text):
    for body in re.findall(r"enum \{(.*?)\}", text, re.S):
        for value, name in enumerate(re.findall(r"DDPRUN_(\w+)", body)):
            assert getattr(capi, name) == value, name
    version = re.search(r"#define DDPRUN_ABI_VERSION (\d+)", text)
    assert capi.ABI_VERSION == int(version[1])


def fields_of(body):
    for declaration in filter(None, map(str.strip, body.split(";"))):
        first, *more = declaration.split(",")
        array = re.fullmatch(r"char (\w+)\[(\d+)\]", first)
        if array:
            yield array[1], ctypes.c_char * int(array[2])
            continue
        kind, name = type_and_name(first)
        yield name, kind
        for other in more:
            yield other.strip(), kind


def check_structures(text):
    for body, name in re.findall(r"typedef struct \w+ \{(.*?)\} ddprun_(\w+);", text, re.S):
        assert list(fields_of(body)) == STRUCTURES.pop(name)._fields_, name
    assert not STRUCTURES, STRUCTURES


def check_functions(text):
    call = re.search(r"#define DDPRUN_CALL (.*)", text)[1]
    text = re.sub(r"#.*", "", text).replace("DDPRUN_CALL", call)
    found = {}
    for result, name, parameters in re.findall(r"^([\w ]+?\*?) ?ddprun_(\w+)\(([^)]*)\);", text, re.M):
        kinds = () if parameters == "void" else tuple(type_and_name(each)[0] for each in parameters.split(","))
        found[name] = (type_and_name(result + " _")[0], kinds)
    assert found.keys() == capi.FUNCTIONS.keys(), found.keys() ^ capi.FUNCTIONS.keys()
    for name, declared in found.items():
        assert capi.FUNCTIONS[name] == declared, (name, capi.FUNCTIONS[name], declared)


def main():
    text = re.sub(r"//.*", "", open(sys.argv[1]).read())
    check_constants(text)
    check_structures(text)
    check_functions(text)


if __name__ == "__main__":
    main()
