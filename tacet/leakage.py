"""The questions of ``tacet leakage`` and ``tacet optimise`` as functions.

Each function takes the fields of one JSON model and the verb's options as keywords, and returns what ``--json`` prints
(infinity is a float here). A malformed model raises ``UsageError``, which names the entry.
"""

from __future__ import annotations

from stream.accounting.leakage.queries import Answer, compose, gaussian, optimise, osdp, prior, temporal
from stream.decisions.min_entropy import min_entropy

__all__ = ["Answer", "compose", "gaussian", "min_entropy", "optimise", "osdp", "prior", "temporal"]
