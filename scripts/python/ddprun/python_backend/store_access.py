"""Where the ranks of one group find each other."""

import ctypes
import os
import secrets

from torch.distributed import PrefixStore, TCPStore

from ddprun import capi
from ddprun.python_backend.errors import checked


class StoreServer:
    def __init__(self, host):
        """host: "" for all addresses."""
        self._library = capi.functions()
        self._server = None
        self._server = checked(self._library.store_serve, host, 0)

    def __del__(self):
        if self._server:
            self._library.store_free(self._server)

    def port(self):
        return self._library.store_port(self._server)


class MeetingPoint:
    def __init__(self, host, port, prefix="", server=None, server_rank=-1):
        """prefix: of the group's keys. server_rank: of the group, whose process has the server; -1: the launcher, or not
        known."""
        self.host = host
        self.port = port
        self.prefix = prefix
        self.server = server
        self.server_rank = server_rank


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


def rank_with_tcp_store(global_ranks):
    """Which rank of a group has PyTorch's TCPStore in its process: that of rank 0 of all ranks, if it is in the group; -1
    if the launcher has it."""
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        return -1
    if not global_ranks:
        return 0
    return global_ranks.index(0) if 0 in global_ranks else None


def address_for_ranks_of(store):
    """Where the ranks of a TCPStore reach this process; empty: on that store's host."""
    text = ctypes.create_string_buffer(64)
    checked(capi.functions().address_towards, store.host.encode(), store.port, text, len(text))
    return text.value.decode()


def meet(store, rank, server_rank):
    """The server of a TCPStore, to which each rank opens connections of its own: calls of PyTorch's client would wait
    for one another. server_rank: of the group, whose process has that server; -1: the launcher; None: another process,
    which may end before the group does. Then, and for other stores, the group's rank 0 serves one and says where. It also
    chooses the keys' prefix, as PyTorch uses the same names again for the next group in a process."""
    plain = without_prefixes(store)
    tcp = isinstance(plain, TCPStore)
    serve = not tcp or server_rank is None
    key = f"ddprun/group_{store.add(f'ddprun/groups_of_rank_{rank}', 1)}"
    server = None
    if rank == 0:
        if serve:
            server = StoreServer(b"" if tcp else b"127.0.0.1")
        port = server.port() if server else plain.port
        store.set(key, f"{random_token()} {port} {address_for_ranks_of(plain) if serve and tcp else ''}")
    token, port, address = store.get(key).decode().split(" ")
    host = address or (plain.host if tcp else "127.0.0.1")
    return MeetingPoint(host, int(port), f"ddprun/{token}/", server, 0 if serve else server_rank)
