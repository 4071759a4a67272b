"""Logins: which texts name a person, and in which form they are compared.

A user name is a network access identifier, ``user@realm`` (RFC 7542), or ``DOMAIN\\user``, or decorated,
``home!user@proxy`` (RFC 7542, section 3.3.1). It is compared without case, as ``user@realm``; in a realm of one's own
(``home_realms``) and without one it is ``user``. A Chargeable-User-Identity (RFC 4372) is opaque, and compared octet by
octet.

These name no person:

- an empty user part, or a realm alone; ``anonymous`` and ``anon``, which the outer method of EAP sends;
- a machine: ``host/...``, a name that ends with ``$``, a radio address (MAC authentication bypass);
- an identity of EAP-SIM, EAP-AKA or EAP-AKA' (RFC 4186, 4187, 9048): any in a realm of 3gppnetwork.org (3GPP TS 23.003,
  clause 19.3), and a digit from 0 to 8 with the digits of an IMSI in any realm. The device changes the others;
- listed ``shared_logins``.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from connectors.sources.ingest.addresses import address_of
from stream.domains import Domain
from stream.policy.document import PolicyDocument
from stream.policy.sites import Site
from stream.pseudonyms.derivation import Pseudonyms

LONGEST_LOGIN = 253
"""Octets of a RADIUS attribute's content."""
_ANONYMOUS = frozenset({"", "anonymous", "anon"})
_IMSI = re.compile(r"[0-8][0-9]{14,15}")
"""The first digit tells the method and the kind of the identity."""
_OPERATORS = "3gppnetwork.org"


class UserName(NamedTuple):
    """A user name in parts, in the form in which it is compared; its repr hides it."""

    user: str
    realm: str
    """Empty if it names none."""

    def __repr__(self) -> str:
        """Show nothing."""
        return "UserName()"

    @property
    def text(self) -> str:
        """The name as one text."""
        return f"{self.user}@{self.realm}" if self.realm else self.user


def parse_user_name(content: bytes) -> UserName | None:
    """Return the user name in a text, or None if that names no person, whatever is listed."""
    text = _text_of(content)
    if text is None or text.startswith("host/"):
        return None
    domain, _, name = text.rpartition("\\")
    user, _, realm = name.rpartition("@") if "@" in name else (name, "", domain)
    route, _, user = user.rpartition("!")
    realm = (route.rpartition("!")[2] or realm).strip(".")
    is_machine = user.startswith("host/") or user.endswith("$") or address_of(user) is not None
    of_operator = realm == _OPERATORS or realm.endswith(f".{_OPERATORS}") or _IMSI.fullmatch(user) is not None
    return None if user.partition("@")[0] in _ANONYMOUS or is_machine or of_operator else UserName(user, realm)


def _text_of(content: bytes) -> str | None:
    """Return a text of printable characters, without surrounding blanks, in one case; None for anything else."""
    if not 0 < len(content) <= LONGEST_LOGIN:
        return None
    try:
        text = content.decode().strip("\x00 ")
    except UnicodeDecodeError:
        return None
    return unicodedata.normalize("NFKC", text).casefold() if text.isprintable() else None


class LoginRules:
    """Which logins a site knows."""

    def __init__(self, site: Site) -> None:
        """Set the rules of a site that counts logins."""
        self._opaque = site.login_attribute == "chargeable_user_identity"
        self._home = {realm.casefold().strip(".") for realm in site.home_realms}
        self._shared = set(map(self._compared, map(str.encode, site.shared_logins)))

    def login(self, user_name: bytes, cui: bytes) -> bytes | None:
        """Return the login that a message bears, in the form in which it is compared; None if it bears none."""
        content = cui if self._opaque else user_name
        login = self._compared(content) if content else None
        return None if login in self._shared else login

    def spellings(self, login: bytes) -> Iterator[bytes]:
        """Yield a login as somebody may have written it who does not know ``home_realms``."""
        yield login
        if not self._opaque and b"@" not in login:
            yield from (login + b"@" + realm.encode() for realm in sorted(self._home))

    def _compared(self, content: bytes) -> bytes | None:
        name = parse_user_name(content)
        if self._opaque:
            return None if not content.strip(b"\x00") or (name is None and _text_of(content)) else content
        if name is None or (not name.realm and name.user in self._home):
            return None
        is_home = name.realm in self._home and "@" not in name.user  # a user with a realm of its own is another name
        return (name.user if is_home else name.text).encode()


def written_logins(text: str) -> set[bytes]:
    """Return the forms in which a login that somebody has written may be compared; empty if it names no person."""
    content = text.strip().encode()
    name = parse_user_name(content)
    return set() if name is None or len(content) > LONGEST_LOGIN else {content, name.text.encode()}


class LoginNames(NamedTuple):
    """The logins of one site: which it knows, and their pseudonyms."""

    rules: LoginRules
    names: Pseudonyms
    terms: str
    """``Site.login_terms``."""

    @classmethod
    def of_site(cls, site: Site, name: str, key: bytes) -> LoginNames | None:
        """Return the logins of a policy's site; None if it counts devices."""
        if site.login_terms is None or site.privacy_days is None:
            return None
        names = Pseudonyms.by_privacy_day(key, name, site.privacy_days, Domain.LOGIN)
        return cls(LoginRules(site), names, site.login_terms)


def login_attributes(policy: PolicyDocument) -> frozenset[str]:
    """Return the attributes that name a login at some site; no other text that names a person is read."""
    return frozenset(site.login_attribute for site in _sites_with_logins(policy))


def _sites_with_logins(policy: PolicyDocument) -> Iterable[Site]:
    return (site for site in policy.site.values() if site.counts_logins)
