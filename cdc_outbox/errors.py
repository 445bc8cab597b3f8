"""The error tree: what went wrong, what it means for the relay, what the reader of the message can do.

CdcOutboxError
├── Refused            exit 2: a setting, grant, table or server that must be put right by a person
├── BinlogLost         exit 3: the binlog behind the checkpoint is gone and on_purged is "stop"
├── BinlogUnreadable   exit 5: the stream cannot be read on; `checkpoint set` steps over it
├── Hold               an outage: nothing is lost, nothing is retried, the relay waits and rebuilds
│   ├── Fenced         another relay raised the epoch
│   └── LeadershipLost the lease ran out or the lock is no longer ours
├── RecordRefused      one record that can never be sent as it is: a retry is spent
├── ApplicationError   raised into an application that uses this package
│   ├── EventRefused       an event that cannot be written as it is
│   ├── NotInTransaction   an event was to be written outside a transaction
│   ├── NoWorkerId         the lease of a Snowflake worker id cannot be had, or kept
│   └── EventBusy          another consumer holds the event; it must not be acknowledged and comes again
│       └── LeaseLost      the lease ended while the handler ran, and another consumer has the event now
└── Stopped            a stage was asked to stop while it waited
"""

from __future__ import annotations

EXIT_CLEAN = 0
EXIT_BUG = 1
EXIT_REFUSED = 2
EXIT_BINLOG_LOST = 3
EXIT_FORCED = 4
EXIT_UNREADABLE = 5


class CdcOutboxError(Exception):
    """Base of everything this package raises on purpose.

    message: what happened, naming the setting and what was found. hint: the exact SQL, YAML or command that helps.
    """

    exit_code = EXIT_BUG

    def __init__(self, message: str = "", *, hint: str | None = None) -> None:
        super().__init__(message or (self.__doc__ or "").strip())
        self.hint = hint

    @property
    def message(self) -> str:
        return str(self.args[0])


class Refused(CdcOutboxError):
    """The configuration or the server is not as it must be.

    reason: of the hold that it is to a relay which has led before.
    """

    exit_code = EXIT_REFUSED

    def __init__(self, message: str = "", *, hint: str | None = None, reason: str = "refused") -> None:
        super().__init__(message, hint=hint)
        self.reason = reason

    def as_hold(self) -> Hold:
        """What was good before: it heals, as it broke, without us."""
        return Hold(self.message, reason=self.reason, hint=self.hint)


class BinlogLost(CdcOutboxError):
    """The binlog that follows the checkpoint is no longer on the server."""

    exit_code = EXIT_BINLOG_LOST


class BinlogUnreadable(CdcOutboxError):
    """The binlog cannot be read on from here."""

    exit_code = EXIT_UNREADABLE


class Hold(CdcOutboxError):
    """Something this relay depends on is away; the relay waits and goes on by itself.

    reason: a short stable word for metrics, `mysql` or `kafka` for example. suspect: the error's name when it is none
    that an outage explains, so that the one record it was given for may be the reason.
    """

    def __init__(self, message: str = "", *, reason: str, hint: str | None = None, suspect: str = "") -> None:
        super().__init__(message, hint=hint)
        self.reason = reason
        self.suspect = suspect


class LeadershipLost(Hold):
    """This relay no longer holds the lock, or cannot know that it does."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message, reason="leadership")


class Fenced(LeadershipLost):
    """Another relay has taken over: the checkpoint row names its epoch."""


class RecordRefused(CdcOutboxError):
    """One record cannot be sent as it is. name: the broker's or our stable error name, `MESSAGE_TOO_LARGE`."""

    def __init__(self, name: str, message: str = "") -> None:
        super().__init__(message or name)
        self.name = name


class Stopped(CdcOutboxError):
    """The stage was asked to stop while it waited."""


class ApplicationError(CdcOutboxError):
    """Raised into an application. Its text has the hint in it: nobody else would print that."""

    def __str__(self) -> str:
        return f"{self.message}. {self.hint}" if self.hint else self.message


class EventRefused(ApplicationError, ValueError):
    """The event cannot be written as it is; nothing was written, and the transaction is still open."""


class NotInTransaction(ApplicationError):
    """The event was to be written outside a transaction."""


class NoWorkerId(ApplicationError):
    """No Snowflake id can be given: the lease of a worker id cannot be had, or kept."""


class EventBusy(ApplicationError):
    """The event is in another consumer's hands: do not acknowledge it, it must come again.

    retry_after: seconds until its lease ends, at the latest, by the database's clock.
    """

    def __init__(self, message: str = "", *, retry_after: float) -> None:
        super().__init__(message or "another consumer holds this event; do not acknowledge it, let it come again")
        self.retry_after = retry_after


class LeaseLost(EventBusy):
    """The lease ended before the handler did, and another consumer has taken the event."""
