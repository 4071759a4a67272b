"""Puts a known fault back into the product's code as it is imported, to see within how many runs it is found."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import ModuleType

from tests.mutants.catalogue import locate, mutated, read_catalogue

TREE = Path(__file__).parents[2]


class _Loader(SourceFileLoader):
    """Loads a module from another text than its file's; nothing is cached."""

    def __init__(self, name: str, path: str, text: str) -> None:
        super().__init__(name, path)
        self._text = text

    def get_data(self, path: str | bytes) -> bytes:
        if str(path) != self.path:
            raise FileNotFoundError(path)
        return self._text.encode()

    def set_data(self, path: str, data: object, *, _mode: int = 0o666) -> None:
        """Write no cache."""


class _Finder(MetaPathFinder):
    def __init__(self, name: str, path: Path, text: str) -> None:
        self._name, self._path, self._text = name, path, text

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        loader = _Loader(fullname, str(self._path), self._text)
        return importlib.util.spec_from_file_location(fullname, self._path, loader=loader)


def put_back(name: str) -> None:
    """Let the module of a mutant of the catalogue be imported with the fault; call this before it is imported."""
    mutant = next(each for each in read_catalogue() if each.name == name)
    place = locate(mutant, TREE)
    path = TREE / place.file
    module = ".".join(place.file.with_suffix("").parts).removesuffix(".__init__")
    assert module not in sys.modules, f"{module} has been imported already"
    sys.meta_path.insert(0, _Finder(module, path, mutated(mutant, path.read_text(), place)))
