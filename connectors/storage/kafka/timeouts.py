"""Time limits of processes that wait for brokers, and how one depends on the other.

Two waits are settings (``stream.settings``): ``session_timeout``, after which a silent worker loses its partitions, and
``open_timeout``, after which a worker ends if its partitions are not open. Pauses between attempts stand beside
their loops. A broker *hangs* if its connections stay open and it answers nothing; it is *away* if it refuses or cannot
be reached. The limits here follow from these rules:

1. A hanging broker is found out within half a session, so that the worker still has time to continue with another
   broker before it loses its partitions (``SESSION_PARTS``).
2. A commit is given up before the broker aborts the transaction: ``COMMIT_TIMEOUT`` < ``TRANSACTION_TIMEOUT``.
3. Starting outlives the restart of one broker of several: ``BROKER_PATIENCE`` is longer than a broker takes to start.
   If no broker answers a program's first request, it ends at once, and its supervisor starts it again.
4. A worker that is told to stop ends before a supervisor kills it, 30 s by default: ``CHECKPOINT_TIMEOUT``,
   ``LEAVE_TIMEOUT`` and ``CLOSE_TIMEOUT`` together are less.
5. A request of a producer outlives its transaction, so that the transaction's end decides what becomes of its records:
   ``PRODUCER_REQUEST_MS`` > ``TRANSACTION_TIMEOUT``.
6. Opening a partition waits for a broker four times in a row, to become its writer, for the snapshot, for audit
   entries, and for the bounds of its topic: four times ``BROKER_PATIENCE`` is less than the default of
   ``open_timeout``, and its least value is not less than ``BROKER_PATIENCE``.
"""

from __future__ import annotations

SESSION_PARTS = 4
"""A session timeout is divided into so many waits: two detect a hanging broker, two are left to continue elsewhere."""
FETCH_WAIT_MS = 100
"""Milliseconds for which a broker may delay the answer to a fetch if there is nothing new."""
BROKER_PATIENCE = 60.0
"""Seconds for which a broker may be away before a read or a start fails."""
PATIENCE_MS = int(BROKER_PATIENCE * 1000)
"""The same in milliseconds, the request timeout of clients that only read, and of administrators."""
READ_TIMEOUT = BROKER_PATIENCE / 3
"""Seconds after which one attempt of a read, or of becoming a partition's writer, is given up."""
COMMIT_TIMEOUT = 30.0
"""Seconds after which a transaction is given up that the broker has not ended; the partition is then reopened."""
TRANSACTION_TIMEOUT = 60.0
"""Seconds after which the broker ends a transaction by itself and fences its producer.

A writer that hangs and that no other writer fences may delay readers for so long."""
PRODUCER_REQUEST_MS = 120_000
"""Milliseconds for one request of a producer, and for its records to be sent."""
CHECKPOINT_TIMEOUT = 4.0
"""Seconds for the last snapshots of a worker that is told to stop."""
LEAVE_TIMEOUT = 4.0
"""Seconds for a worker to leave its consumer group; the process exits after that."""
CLOSE_TIMEOUT = 5.0
"""Seconds for a client to close its connections."""
