"""Where the ranks of one group find each other."""

import secrets

from torch.distributed import PrefixStore, TCPStore

from ddprun import capi
from ddprun.python_backend.errors import checked


class StoreServer:
    """On this host alone."""

    def __init__(self):
        self._library = capi.functions()
        self._server = None
        self._server = checked(self._library.store_serve, b"127.0.0.1", 0)

    def __del__(self):
        if self._server:
            self._library.store_free(self._server)

    def port(self):
        return self._library.store_port(self._server)


class MeetingPoint:
    def __init__(self, host, port, prefix="", server=None):
        """prefix: of the group's keys."""
        self.host = host
        self.port = port
        self.prefix = prefix
        self.server = server


def random_token():
    return secrets.token_hex(16)


def without_prefixes(store):
    while isinstance(store, PrefixStore):
        store = store.underlying_store
    return store


def tcp_meeting_point(store):
    """The server of a TCPStore alone, for ranks that agree on a prefix by themselves."""
    plain = without_prefixes(store)
    if not isinstance(plain, TCPStore):
        raise ValueError("ddprun: reconfigure() needs a TCPStore (init_method env:// or tcp://)")
    return MeetingPoint(plain.host, plain.port)


def meet(store, rank):
    """The server of a TCPStore, to which each rank opens connections of its own: calls of PyTorch's client would wait
    for one another. For other stores rank 0 serves one and says where. Rank 0 also chooses the keys' prefix, as PyTorch
    uses the same names again for the next group in a process."""
    plain = without_prefixes(store)
    tcp = isinstance(plain, TCPStore)
    key = f"ddprun/group_{store.add(f'ddprun/groups_of_rank_{rank}', 1)}"
    server = StoreServer() if rank == 0 and not tcp else None
    if rank == 0:
        store.set(key, f"{random_token()} {server.port() if server else 0}")
    token, port = store.get(key).decode().split(" ")
    host, port = (plain.host, plain.port) if tcp else ("127.0.0.1", int(port))
    return MeetingPoint(host, port, f"ddprun/{token}/", server)
