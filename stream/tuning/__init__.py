"""The largest privacy that reaches a utility: candidates, runs, and how sure the answer is."""
