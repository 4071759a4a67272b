"""Drafts for those who answer for the processing: facts in a template's words."""
