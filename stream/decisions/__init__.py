"""Threshold decisions with guarantees, and what they leave unsaid of where somebody is."""
