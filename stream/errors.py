"""The tree of errors, by whose fault they are.

TacetError
├── UsageError(ValueError)      the caller's: an argument, a setting, a key file, a policy
│   ├── PolicyError             the policy file: where, which rule, which value
│   ├── AuditError              the books handed in: an entry is missing, altered, or fits no record
│   └── KeyFileError            a key file that is missing, open to others, or of the wrong kind
│       └── GoneKeyError        it has let go of the day that is asked for
├── DataError(ValueError)       the data's: field and place are named, the value never
│   └── LaterVersionError       a later version of this program wrote it: that one can read it
└── FinalityError               a released window would be released differently: the site stops
"""


class TacetError(Exception):
    """Root of everything this project raises on purpose."""


class UsageError(TacetError, ValueError):
    """An argument or setting broke a rule; the message names it, the rule and the value."""


class PolicyError(UsageError):
    """The policy file broke a rule; the message gives file, key, rule and value."""


class KeyFileError(UsageError):
    """A key file is missing, readable by others, of the wrong kind, or no longer holds the day asked for."""


class GoneKeyError(KeyFileError):
    """A key was destroyed with its day; what was encrypted under it is unreadable for ever."""


class AuditError(UsageError):
    """Books are not whole: the message names site and entry; nothing is done with them."""


class DataError(TacetError, ValueError):
    """Data from outside broke a rule; the message names field and place, never the value."""


class LaterVersionError(DataError):
    """A later version of this program wrote it; nothing of it is passed over, so that version can go on with it."""


class FinalityError(TacetError):
    """A released window would be released again with other bytes; nothing may be published."""
