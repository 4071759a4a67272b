"""Tables of counts and predicates: the files of ``decide`` and ``release``."""
