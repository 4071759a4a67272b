"""Names that documents, mails and pages must show as text: markup, formulas, marks of templates, what is not seen."""

from __future__ import annotations

SCRIPT = "<script>alert(1)</script>"
HOSTILE_NAMES = (
    SCRIPT, "<img src=x onerror=alert(1)>", "!figure days", "** !figure week **", "[x](javascript:alert(1))", "a | b",
    "<!-- rooms.size/b -->", "&lt;b&gt;", "=cmd|' /C calc'!A0", "@SUM(1)", "{site} {0} {{ 7*7 }}", "⟦me⟧", "# head",
    "a\x00b", "a\r\nBcc: thief@example.org", "a\u2028b", "\u202egnp.exe\u202c", "\u200fx", "\x1b[2Jx", "x\ud800y",
)  # fmt: skip


def as_shown(name: str) -> str:
    """Return a name as documents and mails show it: in one line, without what cannot be printed."""
    return " ".join("".join(sign if sign.isprintable() else " " for sign in name).split())
