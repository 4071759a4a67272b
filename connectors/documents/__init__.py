"""Documents for people: Markdown from a template of one language, and printable pages."""
