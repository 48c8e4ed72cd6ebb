"""What must hold in a cluster over ZooKeeper beside `checks`: a deposed controller changes nothing, neither there nor
at a broker; one controller acts in an epoch; a broker that began anew is not taken for the one before.

Told of every transaction of ZooKeeper, and of what brokers answer to each other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from odradek_controller.zookeeper import paths
from odradek_controller.zookeeper.client import Create, Delete, Op, Set
from odradek_controller.zookeeper.znodes import PartitionState, decode_number
from simulation.checks import Checks


class ZooKeeperChecks:
    def __init__(self, checks: Checks) -> None:
        self._checks = checks
        self._epoch = 0
        self._elected: dict[int, int] = {}
        """The session by controller epoch."""
        self._acting: dict[int, int] = {}
        """The broker by controller epoch."""
        self._heeded: dict[tuple[int, int], int] = defaultdict(int)
        """The latest controller epoch by broker and its registration."""
        self._states: dict[str, PartitionState] = {}

    def state(self, topic: str, index: int) -> PartitionState | None:
        """What is stored about a partition."""
        return self._states.get(paths.state(topic, index))

    def in_sync_on(self, broker: int) -> list[tuple[str, int]]:
        """The partitions that a broker is in sync with, by what is stored."""
        places = []
        for path, state in self._states.items():
            if broker in state.isr:
                topic, _, index, _ = path.removeprefix(paths.TOPICS + "/").split("/")
                places.append((topic, int(index)))
        return places

    # -- transactions -------------------------------------------------------------------------------------------------

    def committed(self, session: int, ops: Sequence[Op]) -> None:
        for op in ops:
            if op.path == paths.CONTROLLER_EPOCH and isinstance(op, Set) and op.data is not None:
                self._was_elected(session, decode_number(op.path, op.data))
            elif op.path.startswith(paths.TOPICS + "/") and isinstance(op, Create | Set | Delete):
                self._wrote(session, op)

    def _was_elected(self, session: int, epoch: int) -> None:
        if epoch <= self._epoch:
            self._checks.fail(f"controller epoch {epoch} is given to session {session:x} after {self._epoch}")
        self._epoch = epoch
        self._elected[epoch] = session

    def _wrote(self, session: int, op: Create | Set | Delete) -> None:
        if session != self._elected.get(self._epoch):
            self._checks.fail(
                f"a deposed controller changes {op.path}: session {session:x} in epoch {self._epoch}, which is of "
                f"{self._elected.get(self._epoch, 0):x}"
            )
        if not op.path.endswith("/state"):
            return
        before = self._states.pop(op.path, None)
        if isinstance(op, Delete):
            return
        state = self._states[op.path] = PartitionState.decode(op.path, op.data or b"")
        if state.controller_epoch != self._epoch:
            self._checks.fail(f"{op.path} is written in epoch {self._epoch}: {state}")
        if not state.isr or (state.leader >= 0 and state.leader not in state.isr):
            self._checks.fail(f"{op.path}: who leads is not in sync: {state}")
        if before is not None and state.leader_epoch < before.leader_epoch:
            self._checks.fail(f"{op.path}: the leader epoch goes back: {before}, {state}")
        if before is not None and state.leader_epoch == before.leader_epoch and state.leader != before.leader:
            self._checks.fail(f"{op.path}: two leaders in one epoch: {before}, {state}")

    # -- requests -----------------------------------------------------------------------------------------------------

    def heeded(
        self, broker: int, registered: int, what: str, controller: int, controller_epoch: int, broker_epoch: int
    ) -> None:
        """A broker that knows its registration as `registered` has done what a controller said."""
        if broker_epoch != -1 and broker_epoch < registered:
            self._checks.fail(
                f"broker {broker}, registered as {registered}, heeds {what} to its registration {broker_epoch}"
            )
        acting = self._acting.setdefault(controller_epoch, controller)
        if acting != controller:
            self._checks.fail(f"brokers {acting} and {controller} are both the controller in epoch {controller_epoch}")
        latest = self._heeded[broker, registered]
        if controller_epoch < latest:
            self._checks.fail(
                f"broker {broker} heeds {what} of a deposed controller: {controller} in epoch {controller_epoch}, "
                f"after one in {latest}"
            )
        self._heeded[broker, registered] = controller_epoch

    def took(self, what: str, broker: int, broker_epoch: int, registered: int) -> None:
        """A controller that knows a broker as registered in this epoch has done what a broker asked for."""
        if broker_epoch != -1 and broker_epoch < registered:
            self._checks.fail(
                f"the controller takes {what} of broker {broker} in its registration {broker_epoch}, which is over: "
                f"it is in {registered}"
            )
