"""Where the ranks of one group find each other."""

import ctypes
import os
import secrets
import typing
from datetime import timedelta

from torch.distributed import DistBackendError, DistStoreError, PrefixStore, TCPStore

from ddprun import capi
from ddprun.group.errors import checked

MILLISECOND = timedelta(milliseconds=1)


class StoreServer:
    def __init__(self, host):
        """host: "" for all addresses."""
        self._library = capi.functions()
        self._process = os.getpid()
        self._server = None
        self._server = checked(self._library.store_serve, host, 0)

    def __del__(self):
        # A child that was forked has no server.
        if self._server and os.getpid() == self._process:
            self._library.store_free(self._server)

    def port(self):
        return self._library.store_port(self._server)

    def announce_end(self, at_most):
        """Returns once all ranks of the group know that it may close."""
        self._library.store_announce_end(self._server, at_most // MILLISECOND)

    def unused(self, at_most=timedelta(0)):
        """Whether no rank is connected any longer, or is within that time. After announce_end()."""
        return self._library.store_drain(self._server, at_most // MILLISECOND) == 1


class MeetingPoint(typing.NamedTuple):
    host: str
    port: int
    prefix: str  # of the group's keys
    server: StoreServer | None
    server_rank: int  # of the group, whose process has the server; -1: the launcher


def random_token():
    return secrets.token_hex(16)


def without_prefixes(store):
    while isinstance(store, PrefixStore):
        store = store.underlying_store
    return store


def launcher_has_store():
    """PyTorch's TCPStore is in the launcher, which outlives the ranks."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def address_for_ranks_of(store):
    """Where the ranks of a TCPStore reach this process; empty: on that store's host."""
    text = ctypes.create_string_buffer(64)
    checked(capi.functions().address_towards, store.host.encode(), store.port, text, len(text))
    return text.value.decode()


def key_of_next_group(store, rank):
    """Where a group says how it meets. PyTorch uses the same prefix of the store again for the next group in a process."""
    return f"ddprun/group_{store.add(f'ddprun/groups_of_rank_{rank}', 1)}"


def value_from_rank_0(store, key, timeout):
    try:
        store.wait([key], timeout)
    except DistStoreError as error:
        raise DistBackendError(f"ddprun: rank 0 did not join the group within {timeout.total_seconds():g} s: {error}") \
            from None
    return store.get(key).decode()


def meet(store, rank, key, timeout):
    """The launcher's store, to which each rank opens connections of its own: calls of PyTorch's client would wait for one
    another. Any other store ends with a process that may leave the group before the others do: the group's rank 0 serves
    one that ends in order, and says where, under this key. It also chooses the prefix of the group's keys."""
    plain = without_prefixes(store)
    tcp = isinstance(plain, TCPStore)
    serve = not tcp or not launcher_has_store()
    server = None
    if rank == 0:
        if serve:
            server = StoreServer(b"" if tcp else b"127.0.0.1")
        port = server.port() if server else plain.port
        store.set(key, f"{random_token()} {port} {address_for_ranks_of(plain) if serve and tcp else ''}")
    token, port, address = value_from_rank_0(store, key, timeout).split(" ")
    host = address or (plain.host if tcp else "127.0.0.1")
    return MeetingPoint(host, int(port), f"ddprun/{token}/", server, 0 if serve else -1)
