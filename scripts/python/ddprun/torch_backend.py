"""The back end "ddprun" of torch.distributed, for tensors on the CPU.

PyTorch finds it by entry points: a script needs no import of ddprun.
"""

import functools
import os

from ddprun import at_exit  # early


def register():
    """Called by torch.distributed when a script first names the back end."""
    from torch.distributed import Backend

    Backend.register_backend("ddprun", create, extended_api=True, devices=["cpu"])


def autoload():
    """Called by `import torch`. With DDPRUN_TORCH_BACKEND=1 scripts that ask for gloo get ddprun."""
    if os.environ.get("DDPRUN_TORCH_BACKEND") != "1":
        return
    from torch import distributed

    if distributed.is_available():
        create_as_gloo = functools.partial(create, name="gloo")
        distributed.Backend.register_backend("gloo", create_as_gloo, extended_api=True, devices=["cpu"])


def create(group, options, name="ddprun"):
    """A back end for a process group: group is c10d's DistributedBackendOptions.

    name: under which it is registered, with which the events of profiles begin."""
    from ddprun import Options, selection

    if not isinstance(options, Options):
        options = Options()
    share_gradient_buckets()
    at_exit.cover_child()
    world = not group.global_ranks_in_group
    form = selection.load(speaks=world and group.group_rank == 0)

    from ddprun.group import membership

    settings = membership.Settings(
        name=name,
        backend=options.transport,
        network_interface=options.network_interface or os.environ.get("GLOO_SOCKET_IFNAME", ""),
        freeze_bound_ms=int(options.freeze_bound * 1000),
    )
    own_options = membership.options_of(group.timeout, group.global_ranks_in_group,
                                        getattr(group, "enable_reconfigure", False))
    return membership.make_backend(form, group.store, group.group_rank, group.group_size, own_options, settings,
                                   formed=getattr(options, "formed", None))


def share_gradient_buckets():
    """DDP then allocates its buckets from the back end, and the ranks reduce them in place. In PyTorch this is off until
    NCCL's pool of memory is proven, so it stays off where DDP may run over NCCL."""
    from torch import cuda

    if cuda.device_count() == 0:
        os.environ.setdefault("DDP_DISABLE_COMM_MEM", "0")
