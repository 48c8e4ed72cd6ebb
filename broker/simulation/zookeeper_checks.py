"""The rules for a cluster over ZooKeeper beside `checks`: a deposed controller changes neither znodes nor brokers, each
controller epoch has one controller, and requests that name an old broker epoch have no effect.

The ZooKeeper double reports each transaction, and the brokers report the requests between them.
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
        """The session of the controller by controller epoch."""
        self._acting: dict[int, int] = {}
        """The broker that is the controller by controller epoch."""
        self._accepted: dict[tuple[int, int], int] = defaultdict(int)
        """The latest accepted controller epoch by broker and broker epoch."""
        self._states: dict[str, PartitionState] = {}

    def state(self, topic: str, index: int) -> PartitionState | None:
        """Return the partition state that ZooKeeper stores."""
        return self._states.get(paths.state(topic, index))

    def in_sync_on(self, broker: int) -> list[tuple[str, int]]:
        """Return the partitions with the broker in the stored ISR."""
        topic_partitions = []
        for path, state in self._states.items():
            if broker in state.isr:
                topic, _, index, _ = path.removeprefix(paths.TOPICS + "/").split("/")
                topic_partitions.append((topic, int(index)))
        return topic_partitions

    # -- transactions -------------------------------------------------------------------------------------------------

    def committed(self, session: int, ops: Sequence[Op]) -> None:
        for op in ops:
            if op.path == paths.CONTROLLER_EPOCH and isinstance(op, Set) and op.data is not None:
                self._was_elected(session, decode_number(op.path, op.data))
            elif op.path.startswith(paths.TOPICS + "/") and isinstance(op, Create | Set | Delete):
                self._wrote(session, op)

    def _was_elected(self, session: int, epoch: int) -> None:
        if epoch <= self._epoch:
            self._checks.fail(f"session {session:x} is elected with controller epoch {epoch} after epoch {self._epoch}")
        self._epoch = epoch
        self._elected[epoch] = session

    def _wrote(self, session: int, op: Create | Set | Delete) -> None:
        if session != self._elected.get(self._epoch):
            self._checks.fail(
                f"a deposed controller changes {op.path}: session {session:x} in controller epoch {self._epoch}, which "
                f"belongs to session {self._elected.get(self._epoch, 0):x}"
            )
        if not op.path.endswith("/state"):
            return
        before = self._states.pop(op.path, None)
        if isinstance(op, Delete):
            return
        state = self._states[op.path] = PartitionState.decode(op.path, op.data or b"")
        if state.controller_epoch != self._epoch:
            self._checks.fail(f"{op.path} is written in controller epoch {self._epoch}: {state}")
        if not state.isr or (state.leader >= 0 and state.leader not in state.isr):
            self._checks.fail(f"{op.path}: the leader is not in the ISR: {state}")
        if before is not None and state.leader_epoch < before.leader_epoch:
            self._checks.fail(f"{op.path}: the leader epoch goes back: {before}, {state}")
        if before is not None and state.leader_epoch == before.leader_epoch and state.leader != before.leader:
            self._checks.fail(f"{op.path}: two leaders in one leader epoch: {before}, {state}")

    # -- requests -----------------------------------------------------------------------------------------------------

    def controller_request_accepted(
        self, broker: int, registered: int, what: str, controller: int, controller_epoch: int, broker_epoch: int
    ) -> None:
        """Record a controller's request that a broker has carried out; `registered` is the broker epoch that the broker
        knows."""
        if broker_epoch != -1 and broker_epoch < registered:
            self._checks.fail(
                f"broker {broker}, in broker epoch {registered}, accepts {what} for broker epoch {broker_epoch}"
            )
        acting = self._acting.setdefault(controller_epoch, controller)
        if acting != controller:
            self._checks.fail(
                f"brokers {acting} and {controller} are both the controller in controller epoch {controller_epoch}"
            )
        latest = self._accepted[broker, registered]
        if controller_epoch < latest:
            self._checks.fail(
                f"broker {broker} accepts {what} of a deposed controller: broker {controller} in controller epoch "
                f"{controller_epoch}, after epoch {latest}"
            )
        self._accepted[broker, registered] = controller_epoch

    def broker_request_accepted(self, what: str, broker: int, broker_epoch: int, registered: int) -> None:
        """Record a broker's request that the controller has carried out; `registered` is the broker epoch that the
        controller knows."""
        if broker_epoch != -1 and broker_epoch < registered:
            self._checks.fail(
                f"the controller accepts {what} of broker {broker} in broker epoch {broker_epoch}; the broker is "
                f"registered in epoch {registered}"
            )
