"""Drafts for those who answer for the processing: facts of policy, account and installation in a template's words."""
