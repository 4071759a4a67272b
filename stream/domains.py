"""Domain separation: every constant in keys, hashes, signatures, draws and states.

Two values that are computed under the same key must differ in such a constant, so that neither can stand for the other.
A constant is part of what was released, signed or stored: changing one changes released values, or makes stored states
and ledgers unreadable. Names in the code may change, the strings may not.
"""

from __future__ import annotations

from enum import Enum, StrEnum, unique


@unique
class Domain(bytes, Enum):
    """The first bytes of what is hashed, signed or used as a key; none is the beginning of another one."""

    RATCHET = b"tacet ratchet v1"
    """SHA-256: the next day's key from that of the day before."""
    SUBKEY = b"tacet purpose v1 "
    """HMAC under any key: the subkey of a purpose, which follows (``Purpose``)."""
    PSEUDONYM = b"tacet pseudonym v1 "
    """HMAC under the pseudonym key: the key of an epoch, whose mode (``Epoch``) and number follow."""
    LOGIN = b"tacet login v1 "
    """HMAC under the pseudonym key: the key of an epoch for logins, whose mode (``Epoch``) and number follow."""
    OPT_OUT = b"tacet opt-out v1 "
    """HMAC under the opt-out key: the digest of a device that is left out; its address follows."""
    OPT_OUT_LOGIN = b"tacet opt-out login v1 "
    """HMAC under the opt-out key: the digest of a login that is left out; its text follows."""
    OPT_OUT_KEY = b"tacet opt-out key v1"
    """HMAC under the opt-out key: the id of that key, by which a list shows under which key it was written."""
    FINGERPRINT = b"tacet fingerprint v1 "
    """HMAC under the audit key: the fingerprint of a key file; the ledger's id follows."""
    MESSAGE = b"tacet message v1 "
    """HMAC under the audit key: the mark of the last message that was read; offset, key and value follow."""
    LEDGER_BEGINS = b"tacet ledger begins v1 "
    """HMAC under the audit key: where a ledger begins that continues another one."""
    DECISIONS = b"tacet decisions v1 "
    """HMAC under the audit key: an entry of the ledger of ``decide``; its hash follows."""
    QUARANTINE = b"quarantine "
    """HMAC under the audit key: the key of a day's digests in quarantine; the day's number follows."""
    AUDIT_HEAD = b"tacet audit head 1\n"
    """Ed25519 and SHA-256: a signed head of the audit chains."""
    WORDS = b"tacet.words.1"
    """SHAKE-256 under a noise key: the first digits of a draw; length-prefixed, as are key and label."""
    DIGITS = b"tacet.digits.1"
    """SHAKE-256 under a noise key: further digits of a draw."""
    DEVICE_ID = b"tacet device id"
    """BLAKE2b, as personalisation: an address in place of a device id in a recording."""
    EVALUATED_DECISIONS = b"tacet evaluate decisions "
    """SHA-256: the noise key of ``evaluate decisions``; the seed follows."""
    ATTACK = b"tacet attack "
    """SHA-256: the root key of a laboratory's attack; seed and name follow."""
    ATTACK_AUDIT = b"audit"
    """SHA-256: the audit key of the same; the root follows."""


@unique
class Purpose(StrEnum):
    """The purpose of a subkey. If text follows it, a separator comes first that no other purpose has there."""

    NOISE = "noise"
    """From a day's noise key: the noise of counts and threshold decisions."""
    COMMITMENT = "commitment"
    """From a day's noise key: commitments of ledger entries to what was read."""
    COINS = "coins"
    """From a day's noise key: the coins that release or withhold attributes."""
    TUNE = "tune"
    """From a laboratory's noise key: the noise of ``tune``; for a run's key ``/`` and its number follow."""
    DECIDE = "decide"
    """From a laboratory's noise key: the noise of ``decide``."""
    DECIDE_COMMITMENT = "decide commitment"
    """From a laboratory's noise key: commitments in the ledger of ``decide``."""
    DECIDE_LABEL = "label"
    """From the key of ``decide``: the noise of one answer; a space and its label follow."""
    DAY = "day"
    """From a laboratory's root: a day's noise key; a space and the day's number follow."""
    DATA_KEY_ID = "data key id"
    """From a day's data key: the identifier that is stored in clear."""
    DATA_ENCRYPTION = "data encryption"
    """From a day's data key: the key of the cipher."""


@unique
class Epoch(bytes, Enum):
    """How pseudonyms change; a space and the epoch follow."""

    UTC_DAY = b"day"
    """At each UTC midnight; the date follows."""
    TTL = b"ttl"
    """After a fixed time; that time and the number of the salt follow."""
    PRIVACY_DAY = b"privacy day"
    """At the start of a site's privacy day; site and date follow."""


@unique
class Label(StrEnum):
    """The first field of a label of draws."""

    COUNT = "count"
    """Draws of count releases and threshold decisions: a site, release, window, attempt and ``Draw`` follow."""
    RECORD = "record"
    """The coin of an attribute: site, zone, attribute and day follow."""


@unique
class Draw(StrEnum):
    """The purpose of a draw within a release and window; it has no ``/``, with which a suffix begins."""

    CHAIN = "chain"
    """Laplace noise of the finest epsilon."""
    CHAIN_KEEP = "chain-keep"
    """Whether a coarser epsilon keeps the noise of the next finer one."""
    CHAIN_ADD = "chain-add"
    """Laplace noise that a coarser epsilon adds."""
    GAUSSIAN = "gaussian"
    """Gaussian noise of the finest variance."""
    GAUSSIAN_ADD = "gaussian-add"
    """Gaussian noise that a coarser variance adds."""
    CHANGES = "changes"
    """Noise on a day's changes, of the finest variance; the number of its place follows the variance."""
    CHANGES_ADD = "changes-add"
    """Noise on changes that a coarser variance adds; likewise."""
    GROUPER_THRESHOLD = "grouper-threshold"
    """Noise of the threshold by which PeGaSus groups."""
    GROUPER_TEST = "grouper-test"
    """Noise of each test of a group."""
    PRUNE_TEST = "prune-test"
    """Noise of the test whether a node of a hierarchy is pruned."""
    W_EVENT_PUBLISH = "w-event-publish"
    """Noise of a publication of a w-event mechanism."""
    W_EVENT_TEST = "w-event-test"
    """Noise of its test whether counts have changed."""
    THRESHOLD_RUN = "threshold-run"
    """Noise of the threshold of a sparse-vector run."""
    THRESHOLD_QUERY = "threshold-query"
    """Noise of each of its queries."""


@unique
class Suffix(StrEnum):
    """The suffix of a draw's purpose, if it has one."""

    DAY = "/day"
    """A release paid by the day, or a day of threshold decisions: a space, the day's number and its terms follow."""
    DECIDE = "/decide"
    """Noise of the command ``decide``."""


@unique
class Magic(bytes, Enum):
    """The first bytes of stored forms that are not JSON; none is the beginning of another one."""

    ENVELOPE = b"\x89TACET"
    """An envelope; neither JSON nor parts begin with these bytes."""
    W_EVENT = b"WEV1"
    """State of a w-event mechanism."""
    QUERY = b"QRY1"
    """State of a query."""
    GROUPER = b"PGS1"
    """State of PeGaSus."""
    SPARSE_VECTOR = b"THR1"
    """State of sparse-vector runs."""
    ALARM = b"ALM1"
    """State of noisy alarms."""
    HEATMAP = b"HEA1"
    """State of a heat map."""
    FILTER = b"RSF1"
    """State of the regime-switching filter."""
    FILTER_LEARNING = b"NLF1"
    """State of the filter that learns at night."""
    CHANGE_SUMS = b"CHS1"
    """Exact counts of a day whose changes are measured."""
    CHANGES = b"CHM1"
    """State of the mechanism of changes: released values and its filter."""


@unique
class Part(StrEnum):
    """Names of the parts of a site's state in a snapshot."""

    SENSE = "sense"
    """Presence and open windows."""
    ATTRIBUTES = "attributes"
    """The current local day."""
    RELEASE = "release"
    """Ledger, charges and states of mechanisms."""
    ACCOUNT = "account"
    """The account."""
    RADIOS = "radios"
    """Radios of each zone; clear."""
    ABSENT = "away"
    """Present if the site is not in the policy."""
    CLOCK = "standing"
    """The clock of the sensing state, where the rest is encrypted."""
