"""The tree of errors, ordered by cause.

TacetError
├── UsageError(ValueError)      caused by the caller: an argument, a setting, a key file, a policy
│   ├── PolicyError             the policy file: where, which rule, which value
│   ├── AuditError              the ledger and audit log given: an entry is missing, altered, or matches no record
│   └── KeyFileError            a key file that is missing, readable by others, or of the wrong kind
│       └── DestroyedKeyError   the key of the requested day has been destroyed
├── DataError(ValueError)       caused by data: the message names field and place, never the value
│   └── LaterVersionError       a later version of this program wrote the data and can read it
└── FinalityError               a released window would be released differently: the site stops
"""

OPTIONAL = "'deploy/install ENVIRONMENT --extras', run in the checkout, installs the optional libraries"
"""The advice for a missing optional library. This project is on no package index, so none is named."""


class TacetError(Exception):
    """Root of everything this project raises on purpose."""


class UsageError(TacetError, ValueError):
    """An argument or setting broke a rule; the message names it, the rule and the value."""


class PolicyError(UsageError):
    """The policy file broke a rule; the message gives file, key, rule and value."""


class KeyFileError(UsageError):
    """A key file is missing, readable by others, of the wrong kind, or no longer has the requested day."""


class DestroyedKeyError(KeyFileError):
    """A key was destroyed with its day; data encrypted under it can never be read again."""


class AuditError(UsageError):
    """A ledger or audit log is incomplete or altered; the message names site and entry. Nothing is done with it."""


class DataError(TacetError, ValueError):
    """Data from outside broke a rule; the message names field and place, never the value."""


class LaterVersionError(DataError):
    """A later version of this program wrote the data; nothing is skipped, so that version can continue with it."""


class FinalityError(TacetError):
    """A released window would be released again with other bytes; nothing may be published."""
