"""Training that goes on while ddprun replaces the ranks that are lost: the others keep their processes.

For scripts that `ddprun --max_restarts=N` starts; docs/pytorch.md says how to use it.
"""

import ctypes
import dataclasses
import os
from datetime import timedelta

import torch.distributed as dist

from ddprun import Options, capi, selection
from ddprun.group.errors import checked, exception_of
from ddprun.group.store_access import MILLISECOND


@dataclasses.dataclass
class FormedGroup(Options):
    """The options of a process group that the library has formed already."""

    formed: int = 0  # its handle


class Recovery:
    """This process's membership of a job that loses and regains ranks.

    state: what a rank that joins gets from another one: objects with state_dict() and load_state_dict(), such as the
    model and the optimizer, the same at all ranks. timeout: of one operation. join_timeout: the time in which all ranks
    of a new process group have to join. ValueError: no rank of the job is replaced alone."""

    def __init__(self, state, options=None, timeout=timedelta(minutes=5), join_timeout=timedelta(seconds=60)):
        self._state = list(state)
        self._options = options or Options()
        self._timeout = timeout
        self._library = capi.functions()
        self._copy_error = None
        selection.load(speaks=os.environ.get("RANK") == "0")  # the first process compiles, which takes long
        settings = capi.GroupOptions(
            backend=self._options.transport.encode(), network_interface=self._options.network_interface.encode(),
            timeout_ms=timeout // MILLISECOND, freeze_bound_ms=int(self._options.freeze_bound * 1000))
        self._recovery = checked(self._library.recovery_begin, ctypes.byref(settings), join_timeout // MILLISECOND)

    def run(self, train, step=0):
        """Calls train(step) in a process group of all ranks: dist's default group. When a rank is lost, train() gets an
        error from the group, and is called again in the next one, in which all ranks have the state after the step that
        it is given. step: that which the state is after when the job begins, as that of a checkpoint.

        Returns whether train() has returned here: not in a process that came when the others were done. Call it once."""
        try:
            return self._run(train, step)
        finally:
            self._leave()
            recovery, self._recovery = self._recovery, None
            self._library.recovery_free(recovery)

    def on_applied(self, step):
        """To be called by train() after each step of the optimizer, with the step's number: 1, 2, ..."""
        self._library.recovery_on_applied(self._recovery, step)

    def _run(self, train, step):
        reason = "it joins"
        joins = self._library.recovery_is_replacement(self._recovery)
        if not joins:
            self._enter(checked(self._library.recovery_form_first, self._recovery))
            self.on_applied(step)
        checked(self._library.recovery_announce, self._recovery)
        while True:
            if not dist.is_initialized():
                step = self._recover(reason)
                if step is None:  # the others are done
                    return False
            try:
                train(step)
                break
            except RuntimeError as error:  # by DistributedDataParallel it may be no DistBackendError
                if not self._has_lost_rank():
                    raise
                reason = str(error)
            self._leave()
        self._library.recovery_finish(self._recovery)
        return True

    def _recover(self, reason):
        """Forms the next group, and returns the step after which its ranks have the state."""
        self._copy_error = None
        step, error = ctypes.c_int64(), capi.Error()
        copy = capi.COPY_STATE(self._copy)
        group = self._library.recovery_recover(self._recovery, reason.encode(), copy, None, step, error)
        if error.code:
            raise self._copy_error if error.code == capi.INTERNAL and self._copy_error else exception_of(error)
        if group is None:
            return None
        if not dist.is_initialized():
            self._enter(group)
        return step.value

    def _copy(self, _, group, step, source, receives):
        """Called by the library: see ddprun_copy_state."""
        try:
            self._enter(group)
            state = [[each.state_dict() for each in self._state] if dist.get_rank() == source else None]
            dist.broadcast_object_list(state, source)
            if receives:
                for each, copied in zip(self._state, state[0]):
                    each.load_state_dict(copied)
            return capi.OK
        except BaseException as error:
            self._copy_error = error
            self._leave()
            return capi.INTERNAL

    def _enter(self, group):
        """Makes a group of the library dist's default group."""
        self._group = group
        settings = FormedGroup(**dataclasses.asdict(self._options), formed=group)
        # PyTorch wants a store, also for the groups that the script forms of some ranks.
        store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
        generation = self._library.recovery_generation(self._recovery)
        prefix = f"ddprun/recovery/{os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}/{generation}"
        dist.init_process_group("ddprun", store=dist.PrefixStore(prefix, store), timeout=self._timeout,
                                rank=self._library.group_rank(group), world_size=self._library.group_size(group),
                                pg_options=settings)

    def _leave(self):
        if dist.is_initialized():
            dist.destroy_process_group()

    def _has_lost_rank(self):
        failure = self._library.group_failure(self._group, capi.Error())
        return self._library.is_consequence(failure)
