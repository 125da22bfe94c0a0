"""The state machine of one consumer of generation 1: it registers, claims partitions, and rebalances.

`Membership` returns one action at a time; the caller performs it and passes the result to `done`. Events during an
action are recorded (`tree_changed`, `session_lost`, `close`) and handled when it is done.

| action | what it does | then |
|---|---|---|
| Register | creates the consumer's node, sets watches | Release |
| Release | stops fetchers, commits offsets, deletes claims | ReadTree |
| ReadTree | reads the group and its topics | Claim; without brokers: *owning* nothing |
| Claim | creates the claims | Start |
| Start | starts fetchers at the committed offsets | *owning*, until the tree changes: Release |
| Wait | waits for `rebalance.backoff.ms` | the next attempt: Release, or Register |
| Abandon | stops fetchers, commits nothing: the session is lost | Register |
| Leave | deletes the consumer's node | *closed* |

An attempt fails if an action fails or a claim exists; then Release and Wait follow in state *backing off*, which is
*failed* from attempt `rebalance.max.retries` on. A consumer that closes performs Release and Leave.
"""

from enum import StrEnum

from msgspec import Struct

from odradek.assignors import Assignor
from odradek.clients.zookeeper_consumer.machine.view import GroupView, Ownership, decide
from odradek.model import OdradekError


class State(StrEnum):
    """The state of a consumer."""

    DOWN = "down"
    REBALANCING = "rebalancing"
    OWNING = "owning"
    BACKING_OFF = "backing off"
    FAILED = "failed"
    CLOSED = "closed"


class RebalanceFailedError(OdradekError):
    """All `rebalance.max.retries` attempts of a rebalance failed, and the consumer owns no partition.

    If `start` raises this error, the consumer has left the group; later it is only logged, and the consumer retries.
    """


class Register(Struct, frozen=True):
    """Create the consumer's ephemeral node, and set watches."""


class Release(Struct, frozen=True):
    """Stop the fetchers, commit offsets, and delete the claims in `owned`."""

    owned: Ownership


class ReadTree(Struct, frozen=True):
    """Read the group and its topics; the result is a `GroupView`."""


class Claim(Struct, frozen=True):
    """Create the claims in `wanted`, all or none; the result is False if one exists already."""

    wanted: Ownership


class Start(Struct, frozen=True):
    """Start fetchers at the committed offsets; the caller may stop early if `Membership.is_outdated`."""

    owned: Ownership


class Wait(Struct, frozen=True):
    """Wait before the next attempt."""

    ms: int


class Abandon(Struct, frozen=True):
    """Stop the fetchers without a commit: the session and its claims are gone."""


class Leave(Struct, frozen=True):
    """Delete the consumer's node."""


Action = Register | Release | ReadTree | Claim | Start | Wait | Abandon | Leave


class MembershipSettings(Struct, frozen=True, kw_only=True):
    """The consumer's `rebalance.*` settings, and whether filters exclude internal topics."""

    max_retries: int = 4
    backoff_ms: int = 2_000
    exclude_internal: bool = True


class Membership:
    """One consumer. If the next action is None, the caller waits for an event and then calls `woken`."""

    def __init__(self, consumer_id: str, assignor: Assignor, settings: MembershipSettings) -> None:
        self.state = State.DOWN
        self.rebalances = 0
        """The number of rebalances begun, without their further attempts."""
        self.attempts = 0
        """The number of failed attempts of this rebalance."""
        self.reason = ""
        """Why the last failed attempt failed."""
        self.error: RebalanceFailedError | None = None
        """The last failure, from attempt `rebalance.max.retries` on until an attempt succeeds."""
        self._consumer_id = consumer_id
        self._assignor = assignor
        self._settings = settings
        self._is_registered = False
        self._claimed: Ownership = {}
        """Claims that may exist: set by Claim unless it found one, cleared by a Release that succeeds."""
        self._has_changed = False
        self._has_lost_session = False
        self._is_closing = False

    # -- what happens at any time --------------------------------------------------------------------------------------

    def tree_changed(self) -> None:
        """Record that a watched node changed."""
        self._has_changed = True

    def session_lost(self) -> None:
        """Record that the session expired, with the registration and all claims, and a new session began."""
        self._has_lost_session = True

    def close(self) -> None:
        self._is_closing = True

    @property
    def owned(self) -> Ownership:
        """Return the partitions that the consumer has claimed and reads."""
        return self._claimed if self.state is State.OWNING and not self._has_lost_session else {}

    @property
    def is_closed(self) -> bool:
        """Return whether the consumer has left or is leaving."""
        return self.state is State.CLOSED

    @property
    def is_interrupted(self) -> bool:
        """Return whether the consumer closes or lost its session; then Wait may end early."""
        return self._is_closing or self._has_lost_session

    @property
    def is_outdated(self) -> bool:
        """Return whether Release or Abandon follows this attempt, whatever its result."""
        return self._has_changed or self.is_interrupted

    # -- actions -------------------------------------------------------------------------------------------------------

    def woken(self) -> Action | None:
        """Return the first action, or the action after an event; None if there is nothing to do."""
        if self.is_interrupted:
            return self._interrupt(None)
        if self._has_changed or self.state is State.DOWN:
            return self._rebalance()
        return None

    def done(self, action: Action, result: object = None) -> Action | None:
        """Return the action after `action`; None to wait for an event. `result` is an exception if `action` failed."""
        has_failed = isinstance(result, Exception)
        if isinstance(action, Register):
            self._is_registered = not has_failed
        elif isinstance(action, Release) and not has_failed:
            self._claimed = {}
        elif isinstance(action, Claim) and result is not False:
            self._claimed = action.wanted  # also after an error: the store may have created the claims
        if self.is_interrupted:
            return self._interrupt(action)
        if isinstance(action, Release) and self.state in {State.BACKING_OFF, State.FAILED}:
            return Wait(self._settings.backoff_ms)  # the next attempt repeats a Release that failed
        if has_failed:
            return self._retry(str(result))
        return self._follow(action, result)

    def _follow(self, action: Action, result: object) -> Action | None:
        match action:
            case Register():
                return Release(self._claimed)
            case Release():
                return ReadTree()
            case ReadTree():
                assert isinstance(result, GroupView)
                return self._decide(result)
            case Claim():
                return Start(action.wanted) if result else self._retry("another consumer has claimed a partition")
            case Start():
                return self._own()
            case Wait():
                return self._attempt()
            case _:  # Abandon
                return self._rebalance()

    def _interrupt(self, action: Action | None) -> Action | None:
        if self._has_lost_session:
            self._has_lost_session = self._is_registered = False
            self.state = State.REBALANCING
            return Abandon()
        if self.state is not State.CLOSED:
            self.state = State.CLOSED
            return Release(self._claimed)
        return Leave() if isinstance(action, Release) and self._is_registered else None

    def _rebalance(self) -> Action:
        self.rebalances += 1
        self.attempts = 0
        return self._attempt()

    def _attempt(self) -> Action:
        self.state = State.REBALANCING
        self._has_changed = False
        return Release(self._claimed) if self._is_registered else Register()

    def _decide(self, view: GroupView) -> Action | None:
        if not view.has_brokers:
            return self._own()
        if self._consumer_id not in view.consumers:
            self._is_registered = False
            return self._retry("the consumer's own node is not in the tree")
        try:
            wanted = decide(view, self._consumer_id, self._assignor, exclude_internal=self._settings.exclude_internal)
        except ValueError as error:
            return self._retry(str(error))
        return Claim(wanted)

    def _own(self) -> Action | None:
        self.state = State.OWNING
        self.error = None
        return self.woken()

    def _retry(self, reason: str) -> Action:
        self.attempts += 1
        self.reason = reason
        self.state = State.BACKING_OFF
        if self.attempts >= self._settings.max_retries:
            self.state = State.FAILED
            self.error = RebalanceFailedError(
                f"{self._consumer_id} can't rebalance after {self.attempts} retries (rebalance.max.retries): {reason}"
            )
        return Release(self._claimed)
