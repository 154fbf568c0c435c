"""ddprun's launcher and collectives for PyTorch; docs/pytorch.md says how to use them.

Imported with torch: it must stay small.
"""

import dataclasses

__version__ = "0.1.0"


@dataclasses.dataclass
class Options:
    """What init_process_group(backend="ddprun", pg_options=...) takes. The same at all ranks."""

    #: How ranks communicate: shm (one host), hierarchical, gloo, or auto, which chooses.
    transport: str = "auto"
    #: Addresses or network interfaces on which peers reach this process. Empty: GLOO_SOCKET_IFNAME, else the interface
    #: that routes to the store.
    network_interface: str = ""
    #: Seconds that a rank, or the store, may show no sign of life before it counts as lost; negative: no limit. One that
    #: dies is noticed at once in any case. PyTorch's store looks up the names of its clients, and is silent meanwhile.
    freeze_bound: float = 20
