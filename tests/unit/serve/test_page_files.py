"""The page's files: what they weigh, where they come from, and that nothing in them needs a looser policy than ours."""

from __future__ import annotations

import gzip
import hashlib
import itertools
import math
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import connectors.serve

STATIC = Path(connectors.serve.__file__).parent / "static"
VENDOR = STATIC / "vendor"
OWN = sorted(path for path in STATIC.rglob("*") if path.is_file() and VENDOR not in path.parents)
TEXTS = [path for path in OWN if path.suffix in {".js", ".css", ".html", ".svg"}]
MOST = 150_000
"""Bytes that a first visit to every page may take, compressed."""


LANGUAGES = sorted(STATIC.glob("strings.*.js"))


def name(path: Path) -> str:
    return path.relative_to(STATIC).as_posix()


def test_all_page_files_have_at_most_150_kb_compressed() -> None:
    fetched = [path for path in STATIC.rglob("*") if path.suffix in {".js", ".css", ".html", ".svg"}]
    assert fetched
    assert sum(len(gzip.compress(path.read_bytes(), 6)) for path in fetched) < MOST


def test_vendored_files_are_those_that_vendor_md_names() -> None:
    listed = dict(
        re.findall(r"^\| `([^`]+)` \| `([0-9a-f]{64})` \|$", (VENDOR / "VENDOR.md").read_text(), re.MULTILINE)
    )
    there = {
        path.relative_to(VENDOR).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in VENDOR.rglob("*")
        if path.is_file() and path.name != "VENDOR.md"
    }
    assert there == listed


def test_every_vendored_folder_has_its_licence() -> None:
    folders = [path for path in VENDOR.iterdir() if path.is_dir()]
    assert folders
    for folder in folders:
        assert "Permission is hereby granted" in (folder / "LICENSE").read_text(), folder


@pytest.mark.parametrize("path", TEXTS, ids=name)
def test_nothing_is_loaded_from_another_origin(path: Path) -> None:
    text = path.read_text().replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"(?:https?:)?//[a-z0-9-]+\.[a-z]", text, re.IGNORECASE), path


def test_the_document_holds_no_code_and_no_style() -> None:
    html = (STATIC / "index.html").read_text()
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\son\w+=|\sstyle=|javascript:", html)


@pytest.mark.parametrize("path", [path for path in OWN if path.suffix == ".js"], ids=name)
def test_no_text_becomes_markup_or_code(path: Path) -> None:
    unsafe = (
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|setAttribute\(\"style|srcdoc"
    )
    assert not re.search(unsafe, path.read_text()), path


def imported(path: Path) -> Iterator[Path]:
    for found in re.findall(r"(?:from|import\()\s*\"(\.[^\"]+)\"", path.read_text()):
        yield (path.parent / found).resolve()


def test_every_module_is_reached_from_a_document_and_every_import_is_there() -> None:
    begin = [
        STATIC / found.removeprefix("static/")
        for document in ("index.html", "room.html")
        for found in re.findall(r"src=\"([^\"]+\.js)\"", (STATIC / document).read_text())
    ]
    seen: set[Path] = set()
    waiting = list(begin)
    while waiting:
        path = waiting.pop()
        assert path.is_file(), path
        if path not in seen:
            seen.add(path)
            waiting.extend(imported(path))
    assert sorted(seen) == [path for path in OWN if path.suffix == ".js"]


def words_used(path: Path) -> Iterator[str]:
    """Yield the dotted names that a module asks of the strings, as far as they are written out."""
    text = path.read_text()
    aliases = {"strings": ""} | dict(re.findall(r"const (\w+) = strings\.([\w.]+);", text))
    for alias, prefix in aliases.items():
        for found in re.findall(rf"(?<![\w./\"]){alias}\.(\w+)\b(?!\s*=[^=>])", text):
            yield f"{prefix}.{found}".lstrip(".")


STRINGS = (STATIC / "strings.en.js").read_text()


@pytest.mark.parametrize(
    "path", [path for path in OWN if path.suffix == ".js" and "strings." not in path.name], ids=name
)
def test_every_text_that_a_module_asks_for_is_there(path: Path) -> None:
    for words in words_used(path):
        for part in words.split("."):
            assert re.search(rf"\b{part}: ", STRINGS), f"{path.name}: {words}"


# --- colours ---------------------------------------------------------------------------------------------------------

COLOURS = {
    found[0]: (found[1], found[2])
    for found in re.findall(
        r"--([a-z0-9-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)", (STATIC / "theme.css").read_text()
    )
}
VISION = {
    "usual": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "without red": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "without green": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "without blue": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}
"""What eyes that lack one kind of cone have of linear light: Machado, Oliveira and Fernandes 2009, severity 1."""


def linear(colour: str) -> tuple[float, float, float]:
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return tuple(c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (red, green, blue))  # type: ignore[return-value]


def luminance(colour: str) -> float:
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear(colour), strict=True))


def contrast(one: str, other: str) -> float:
    """Return the ratio of WCAG 2, in [1, 21]."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def lab(colour: str, vision: str) -> tuple[float, float, float]:
    """Return CIE Lab of what an eye with this vision sees."""
    seen = [
        min(1.0, max(0.0, sum(a * b for a, b in zip(line, linear(colour), strict=True)))) for line in VISION[vision]
    ]
    white = ((0.4124, 0.3576, 0.1805, 0.9505), (0.2126, 0.7152, 0.0722, 1.0), (0.0193, 0.1192, 0.9505, 1.089))
    scaled = [sum(w * c for w, c in zip(line[:3], seen, strict=True)) / line[3] for line in white]
    x, y, z = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in scaled)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def apart(one: str, other: str, vision: str) -> float:
    """Return the distance of two colours in CIE Lab: 2.3 is just noticeable."""
    return math.dist(lab(one, vision), lab(other, vision))


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("step", [f"{scale}{i}" for scale in "dq" for i in range(10)])
def test_text_on_every_step_can_be_read(step: str, theme: int) -> None:
    assert contrast(COLOURS[step][theme], COLOURS[f"{step}-ink"][theme]) >= 4.5


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("ink", ["ink", "soft", "accent", "good", "warn", "bad", "usual-line"])
def test_text_on_cards_and_paper_can_be_read(ink: str, theme: int) -> None:
    least = 3 if ink == "usual-line" else 4.5
    assert (
        min(contrast(COLOURS[ink][theme], COLOURS[scenario][theme]) for scenario in ("card", "paper", "sunken"))
        >= least
    )


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("vision", VISION)
def test_the_steps_around_usual_differ_for_every_kind_of_colour_vision(vision: str, theme: int) -> None:
    steps = [COLOURS[f"d{i}"][theme] for i in range(10)]
    assert min(apart(a, b, vision) for a, b in itertools.combinations(steps, 2)) >= 12


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("vision", VISION)
def test_the_steps_from_none_to_much_only_grow_darker_or_only_lighter(vision: str, theme: int) -> None:
    lights = [lab(COLOURS[f"q{i}"][theme], vision)[0] for i in range(10)]
    steps = [b - a for a, b in itertools.pairwise(lights)]
    assert all(step > 2.3 for step in steps) or all(step < -2.3 for step in steps)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_compared_series_stand_out_from_the_card(theme: int) -> None:
    assert min(contrast(COLOURS[f"c{i}"][theme], COLOURS["card"][theme]) for i in range(6)) >= 4.5


def refusals() -> set[int]:
    """Return the statuses with which the service refuses a request."""
    package = STATIC.parent.parent
    code = "".join(path.read_text() for part in ("serve", "http") for path in sorted((package / part).rglob("*.py")))
    return {int(status) for status in re.findall(r"RefusalError\(\s*(\d{3})", code)}


@pytest.mark.parametrize("path", LANGUAGES, ids=name)
def test_every_refusal_has_a_sentence_in_each_language_and_no_sentence_is_left_over(path: Path) -> None:
    table = re.search(r"^  refusals: \{\n(.*?)^  \},", path.read_text(), re.MULTILINE | re.DOTALL)
    assert table is not None
    assert {int(status) for status in re.findall(r"^    (\d+): ", table[1], re.MULTILINE)} == {0, *refusals()}
