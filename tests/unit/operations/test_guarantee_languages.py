"""The guarantees in another language: every sentence has a translation with the same fields, else it stays English."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from string import Formatter
from types import ModuleType

import pytest
from babel.messages.pofile import read_po

from connectors.cli.options import read_policy
from connectors.operations.policy import guarantees
from connectors.operations.policy.guarantees import (
    COUNTED,
    LANGUAGES,
    NOT_PROTECTED,
    UNITS,
    describe_unit,
    guarantee_lines,
    not_protected,
    of_logins,
    wording,
)
from stream.policy.document import audiences_of
from stream.release import threshold_guarantees
from stream.release.validation import Policy, load_policy
from tests.support.forecasts import with_forecast
from tests.support.small_building import ATTRIBUTES, COUNTS, policy_text
from tests.unit.operations.test_units_of_logins import DEVICES, LOGINS
from tests.unit.operations.test_units_of_logins import policy as with_site

EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "thresholds.toml"
POLICIES = {
    "logins": with_site(LOGINS), "devices": with_site(DEVICES), "thresholds": read_policy(EXAMPLE),
    "forecast": with_forecast(), "attributes": load_policy(policy_text(COUNTS + ATTRIBUTES)),
}  # fmt: skip
OTHERS = [language for language in LANGUAGES if language != "en"]


def texts(value: object) -> Iterator[str]:
    """Yield the strings of a template or of a table of templates."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from texts(each)


def said_in(module: ModuleType) -> Iterator[str]:
    """Yield the templates that a module names where it says a sentence."""
    for call in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "say":
            for name in ast.walk(call.args[0]):
                if isinstance(name, ast.Name):
                    yield from texts(vars(module).get(name.id))


TEMPLATES = {
    *said_in(guarantees), *said_in(threshold_guarantees), *NOT_PROTECTED,
    *UNITS.values(), *COUNTED.values(), *map(of_logins, UNITS.values()),
}  # fmt: skip


def translations(language: str) -> dict[str, str]:
    with (Path(guarantees.__file__).parent / f"guarantees.{language}.po").open("rb") as file:
        return {str(each.id): str(each.string) for each in read_po(file) if each.id}


def fields(template: str) -> set[tuple[str | None, str | None]]:
    return {(name, form) for _, name, form, _ in Formatter().parse(template) if name is not None}


@pytest.mark.parametrize("language", OTHERS)
def test_every_sentence_has_a_translation_and_no_translation_is_without_a_sentence(language: str) -> None:
    translated = translations(language)
    assert sorted(TEMPLATES - translated.keys()) == []
    assert sorted(translated.keys() - TEMPLATES) == []
    assert all(translated.values())


@pytest.mark.parametrize("language", OTHERS)
def test_a_translation_has_the_fields_of_its_sentence(language: str) -> None:
    for template, translated in translations(language).items():
        assert fields(translated) == fields(template), template
        assert translated[:1].isspace() == template[:1].isspace(), template


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_what_is_said_of_a_policy_is_translated_whole(policy: Policy) -> None:
    said = set[str]()

    def recording(template: str, /, **values: object) -> str:
        said.add(template)
        return template.format(**values)

    for audience in {name for release in policy.release for name in audiences_of(release)}:
        english = [*guarantee_lines(policy, audience), *not_protected(policy, audience)]
        assert [*guarantee_lines(policy, audience, recording), *not_protected(policy, audience, recording)] == english
        german = [*guarantee_lines(policy, audience, wording("de")), *not_protected(policy, audience, wording("de"))]
        assert len(german) == len(english)
        assert not set(german) & set(english)
        assert not [line for line in german if re.search(r"\b(the|of|and|with|costs)\b", line)]
    assert said <= TEMPLATES


def test_numbers_have_the_signs_of_the_language() -> None:
    german = wording("de")
    assert german("{devices:,} {epsilon:.3g}", devices=1000, epsilon=0.25) == "1.000 0,25"
    assert german("{release}", release="floor.1") == "floor.1", "a name stays as it is"


def test_a_sentence_without_translation_stays_english() -> None:
    assert wording("de")("{n} new words", n=0.5) == "0,5 new words"
    assert describe_unit("device_day", say=wording("de")) == "ein Gerät, ein Tag"
    assert describe_unit("device_day", logins=True, say=wording("de")) == "ein Anmeldename, ein Tag"
    assert describe_unit("later_unit", say=wording("de")) == "later unit"


def test_a_site_with_people_counters_knows_no_devices() -> None:
    assert describe_unit("device_day", counted=True) == "one person, one day"
    assert describe_unit("device_day", counted=False) == "one device, one day"


def test_english_is_what_the_templates_are_written_in() -> None:
    assert "en" in LANGUAGES
    assert wording("en")("{n} new words", n=0.5) == "0.5 new words"
    for name, policy in POLICIES.items():
        for audience in audiences_of(policy.release[0]):
            assert guarantee_lines(policy, audience, wording("en")) == guarantee_lines(policy, audience), name
