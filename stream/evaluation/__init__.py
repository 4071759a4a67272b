"""How well a question about a building is answered from released values: the same for people and for mechanisms."""
