"""What the CUDA driver says of the devices, without any library but its own."""

import ctypes

NAME_LENGTH = 256
CAPABILITY_MAJOR, CAPABILITY_MINOR, MULTIPROCESSORS = 75, 76, 16  # CUdevice_attribute


def facts(load=lambda: ctypes.CDLL("libcuda.so.1")):
    """{"count": devices, "driver": its CUDA version, "devices": [...]}, or {"count": 0, "reason": ...}."""
    try:
        driver = load()
    except OSError as error:
        return {"count": 0, "reason": f"there is no CUDA driver: {error}"}
    code = driver.cuInit(0)
    if code != 0:
        return {"count": 0, "reason": f"cuInit returned {code}"}
    count, version = ctypes.c_int(), ctypes.c_int()
    driver.cuDeviceGetCount(ctypes.byref(count))
    driver.cuDriverGetVersion(ctypes.byref(version))
    return {
        "count": count.value,
        "cuda_of_driver": f"{version.value // 1000}.{version.value % 1000 // 10}",
        "devices": [device_facts(driver, ordinal) for ordinal in range(count.value)],
    }


def device_facts(driver, ordinal):
    device, bytes_of_memory = ctypes.c_int(), ctypes.c_size_t()
    driver.cuDeviceGet(ctypes.byref(device), ordinal)
    name = ctypes.create_string_buffer(NAME_LENGTH)
    driver.cuDeviceGetName(name, NAME_LENGTH, device)
    driver.cuDeviceTotalMem_v2(ctypes.byref(bytes_of_memory), device)

    def attribute(which):
        value = ctypes.c_int()
        driver.cuDeviceGetAttribute(ctypes.byref(value), which, device)
        return value.value

    return {
        "name": name.value.decode(errors="replace"),
        "bytes": bytes_of_memory.value,
        "compute_capability": f"{attribute(CAPABILITY_MAJOR)}.{attribute(CAPABILITY_MINOR)}",
        "multiprocessors": attribute(MULTIPROCESSORS),
    }
