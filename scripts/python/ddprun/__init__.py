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
    #: Seconds that a rank may show no sign of life before it counts as lost; 0: the default, 5 s; negative: no limit.
    freeze_bound: float = 0
