"""The dossier: its numbers are those of ``policy show``, every line that rests on the policy can be checked."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from connectors.cli.dossier import dossier
from connectors.documents.page import printable
from connectors.documents.template import as_text, outdated, places_to_fill, statements, unnamed
from connectors.operations.dossier.facts import Installation, dossier_languages, dossier_template, facts
from connectors.operations.policy.guarantee_figures import guarantee_figures
from stream.errors import DataError
from stream.release.validation import Policy, load_policy
from stream.settings import Settings
from tests.support.day_policies import change_release, day_release, day_site, visit_site
from tests.support.forecasts import with_forecast
from tests.support.hostile_names import HOSTILE_NAMES, as_shown
from tests.support.small_building import ATTRIBUTES, COUNTS, policy_text

TEXT = policy_text(COUNTS + ATTRIBUTES)


def made(text: str = TEXT, language: str = "en", account: Any = None, **installation: Any) -> str:
    policy = load_policy(text)
    return dossier_template(language).fill(facts(policy, Installation(**installation), account))


def numbers(policy: Policy) -> Iterator[str]:
    """Yield the numbers of every count and attribute that ``policy show`` prints of a reader."""
    for each in guarantee_figures(policy).to_json()["counts"]:
        yield from (each["epsilon"][unit] for unit in ("presence_tuple", "device_day", "person_day"))
    for each in guarantee_figures(policy).to_json()["attributes"]:
        yield from (each["epsilon"], f"{each['factor']:.4g}", f"{each['with_counts']:.4g}")


@pytest.mark.parametrize("epsilon", ["1", "0.5", "0.07"])
def test_every_number_of_a_guarantee_is_that_of_policy_show(epsilon: str) -> None:
    text = TEXT.replace('facilities = "0.5", board', f'facilities = "{epsilon}", board')
    document = unnamed(made(text)).replace("\\", "")
    for number in numbers(load_policy(text)):
        assert re.search(rf"(?<![\d.]){re.escape(number)}(?![\d.])", document), number


def test_a_changed_policy_changes_the_statements_and_check_names_them() -> None:
    before = made()
    after = made(TEXT.replace('facilities = "0.5", board', 'facilities = "0.25", board'))
    names = {each.name for each in outdated(before, after)}
    assert {"policy.version/policy", "window_counts.row/dbh/plain/facilities"} <= names
    assert not any("smooth" in name for name in names)
    assert outdated(before, made()) == []


def test_days_are_listed_with_their_delta() -> None:
    text = policy_text(day_release(), site=day_site())
    counts = guarantee_figures(load_policy(text)).to_json()["counts"]
    found = next(each for each in counts if each["reader"] == "facilities")
    document = made(text)
    row = statements(document)["day_counts.row/dbh/day/facilities"]
    for unit in ("device_day", "device_day_moved", "person_day"):
        assert f"{found['tight'][unit]['epsilon']:.3g}" in row
    assert "day_deltas.delta/dbh/day/facilities" in statements(document)


@pytest.mark.parametrize(
    ("text", "kind", "told"),
    [
        (policy_text(day_release(), site=day_site()), "bounded", "ticks each pseudonym has counted"),
        (policy_text(change_release(), site=visit_site()), "visited", "exact counts of all windows of that day"),
    ],
)
def test_what_is_remembered_of_a_day_is_named_with_its_end(text: str, kind: str, told: str) -> None:
    rows = statements(made(text))
    found = {name for name in rows if name.endswith((".remembered/dbh", ".kept/dbh"))} - {"events.kept/dbh"}
    assert found == {f"{kind}.remembered/dbh", f"{kind}.kept/dbh"}
    assert told in rows[f"{kind}.remembered/dbh"]
    assert "until the day ends at 04:00" in rows[f"{kind}.kept/dbh"]


def test_where_logins_count_sentences_and_the_account_say_login() -> None:
    site = day_site() + 'identity = "login"\nothers = "count"\n'
    text, units = policy_text(day_release(), site=site), {"device_day": "4", "person_day": "9", "device_total": "8"}
    last: dict[str, Any] = {
        "window_end": "2026-03-02T08:00:00Z",
        "audiences": {"facilities": units | {"tight": {}}},
        "coalition": None,
    }
    for language, day, each in (
        ("en", "one login, one day", "for each login"),
        ("de", "ein Anmeldename, ein Tag", "je Anmeldename"),
    ):
        said = statements(made(text, language, account={"sites": {"dbh": {"identity": "login", "last": last}}}))
        assert f"| {day} | " in said["account.row/dbh/device_day/facilities"]
        assert each in said["day_deltas.delta/dbh/day/facilities"]
        assert "Gerät" not in said["account.row/dbh/device_total/facilities"]
        heads = (
            said["whose.head/policy"],
            said["day_deltas.nist/dbh/day/facilities"],
            said["counts.product/dbh/day/all"],
        )
        assert not any(word in head for head in heads for word in ("device", "Gerät"))
    assert "for each device and day" in made(policy_text(day_release(), site=day_site()))


def test_tables_of_several_sites_name_all_that_counts_there() -> None:
    hall = '[{ id = "hall", capacity = 200, access_points = ["02:00:00:00:0f:01"] }]'
    logins = f'[site.hq]\nsources = ["10.9.0.1"]\nzones = {hall}\nidentity = "login"\n{day_site()}'
    both = made(policy_text(day_release(), site=day_site()) + logins)
    assert "| one device or one login, one tick |" in statements(both)["whose.head/policy"]
    assert "| one device, one tick |" in statements(made())["whose.head/policy"]


def test_odds_of_a_long_habit_are_no_powers_of_ten() -> None:
    rows = [row for name, row in statements(made(language="de")).items() if name.startswith("odds.row")]
    assert rows
    assert not any("e+" in row for row in rows)
    assert any("1 000 000 |" in row for row in rows)


def test_forecasts_of_the_policy_are_named_and_bookings_have_a_place() -> None:
    name = "forecasts.also/dbh/halls%2Dforecast/facilities"
    policy = with_forecast()
    for language, free in (("en", "This costs nothing."), ("de", "Das kostet nichts.")):
        document = dossier_template(language).fill(facts(policy, Installation(), None))
        assert free in statements(document)[name]
        assert not any(other.startswith("forecasts") for other in statements(made(language=language)))
        assert re.search(r"serve --bookings\S*: ⟦", document.replace("`)", ""))


def test_rooms_with_few_users_and_arrivals_are_flagged() -> None:
    assert "coming.flag/office%2Dday/arrival" in statements(made())
    for capacity, few in ((1, True), (4, True), (5, False), (40, False)):
        document = made(re.sub(r'(kind = "office"\ncapacity = )\d+', rf"\g<1>{capacity}", TEXT))
        assert ("few_users.flag/dbh/office%2Dday" in statements(document)) == few, capacity


def test_without_attributes_the_risk_is_said_to_be_absent() -> None:
    document = made(policy_text(COUNTS))
    assert "the policy publishes no attributes of rooms" in document
    assert "By how much the odds" not in document


@pytest.mark.parametrize(
    ("public", "says"),
    [(True, "is not available.**"), (False, "**Balancing test"), (None, "Is the controller a public authority")],
)
def test_the_balancing_test_is_for_private_bodies(public: bool | None, says: str) -> None:
    others = {"is not available.**", "**Balancing test", "Is the controller a public authority"} - {says}
    document = made(public_body=public)
    assert says in document
    assert not any(other in document for other in others)


def test_every_part_says_that_it_is_a_draft() -> None:
    for language in dossier_languages():
        template = dossier_template(language)
        parts = made(language=language).split("\n# ")
        assert len(parts) == 7
        assert all(template.head["notice"] in part for part in parts)


@pytest.mark.parametrize("language", dossier_languages())
def test_every_field_that_the_law_asks_for_has_its_place(language: str) -> None:
    document = made(language=language, store=True).replace("\xa0", " ")
    parts = document.split("\n# ")
    assessment, record, notice, requests, questions, appendix = parts[1:]
    for letter in "abcd":
        assert re.search(rf"35\(7\)\({letter}\)|35 Abs. 7 Buchst. {letter}\b", assessment), f"article 35(7)({letter})"
    for paragraph in (2, 9, 11):
        assert re.search(rf"35\({paragraph}\)|35 Abs. {paragraph}\b", assessment), f"article 35({paragraph})"
    assert re.search(r"\b36\b", assessment)
    for letter in "abcdefg":
        assert re.search(rf"^\| [^|]*\(?\b{letter}\)", record, re.MULTILINE), f"article 30(1)({letter})"
    assert {"store.observations", "store.state", "store.ledger", "store.beside"} <= {
        name.partition("/")[0] for name in statements(record)
    }
    assert notice.count("⟦") >= 8
    assert "11(2)" in requests or "11 Abs. 2" in requests
    for subject in ("2/2023", "25", "88", "87"):
        assert subject in questions
    for subject in ("NIST SP 800-226", "Differential Privacy Deployments Registry", "registry.opendp.org"):
        assert subject in appendix


def test_topics_are_listed_with_their_retention() -> None:
    rows = statements(made(kafka=True))
    assert rows["topics.kept/tacet.observations.v1"].endswith("| 1 d |")
    assert rows["topics.kept/tacet.private.public.grouped.v1"].endswith("| ∞ |")
    assert not any(name.startswith("topics") for name in statements(made(store=True)))
    assert all("topic" not in row.split("|")[2] for name, row in rows.items() if name.startswith("topics."))


def test_the_account_is_that_of_tacet_account() -> None:
    units = {"device_day": "29.2", "person_day": "87.6", "device_total": "58.4", "tight": {}}
    last = {"window_end": "2026-03-02T08:00:00Z", "audiences": {"public": units}, "coalition": None}
    rows = statements(made(account={"sites": {"dbh": {"last": last}}}))
    assert [rows[name] for name in rows if name.startswith("account")] == [
        f"| dbh | public | {unit} | {epsilon} | 2026-03-02T08:00:00Z |"
        for unit, epsilon in (("one device, one day", "29.2"), ("one person, one day", "87.6"),
                              ("one device, in all", "58.4"))
    ]  # fmt: skip


def test_what_a_policy_says_is_escaped() -> None:
    hostile = "<img src=x onerror=alert(1)> **x** | y"
    document = made(TEXT.replace("[site.dbh]\n", f"[site.dbh]\nname = '{hostile}'\n"))
    assert not re.search(r"(?<!\\)<img", document)
    assert r"\<img src=x onerror=alert\(1\)\> \*\*x\*\* \| y" in document


def test_no_name_or_description_is_markup_or_a_statement() -> None:
    """Name of the site, and description of an audience: of each the document has the same statements and parts."""
    plain = made()
    tags = re.compile(r"<(/?[a-z0-9]+)")
    for name in HOSTILE_NAMES[:-1]:  # the last one is no text of TOML
        text = TEXT.replace("[site.dbh]\n", f"[site.dbh]\nname = {json.dumps(name)}\n")
        document = made(text.replace("[[audience]]\n", f"[[audience]]\ndescription = {json.dumps(name)}\n", 1))
        assert statements(document).keys() == statements(plain).keys(), name
        assert places_to_fill(document) == places_to_fill(plain), name
        head = dossier_template("en").head
        assert tags.findall(printable(document, head)) == tags.findall(printable(plain, head)), name
        shown = as_shown(name).replace("⟦", "(").replace("⟧", ")")
        assert as_text(document).count(shown) >= 2, name


@pytest.mark.parametrize("language", [each for each in dossier_languages() if each != "en"])
def test_no_figure_differs_between_languages(language: str) -> None:
    def figures(document: str) -> dict[str, set[str]]:
        rows = statements(document).items()
        return {name: {*re.findall(r"\d+(?:\.\d+)?", row)} for name, row in rows if "_body" not in name}

    for text in (TEXT, policy_text(day_release(), site=day_site())):
        there = made(text, language, kafka=True)
        assert figures(re.sub(r"(?<=\d),(?=\d)", ".", there)) == figures(made(text, kafka=True))
        assert not re.search(r"ε \d+\.\d", there)


def test_the_command_writes_a_draft_once_and_checks_it(tmp_path: Path) -> None:
    policy, out = tmp_path / "policy.toml", tmp_path / "out"
    policy.write_text(TEXT)

    def run(*arguments: str) -> tuple[int, str]:
        done = CliRunner().invoke(dossier, ["--policy", str(policy), *arguments], obj=Settings())
        return done.exit_code, done.output

    assert run()[0] == 2
    assert run("--out", str(out))[0] == 0
    assert {path.name for path in out.iterdir()} == {"dossier.md", "dossier.html"}
    assert run("--out", str(out))[0] == 2
    assert run("--check", str(out / "dossier.md"))[0] == 0
    policy.write_text(TEXT.replace('facilities = "0.5", board', 'facilities = "0.25", board'))
    code, said = run("--check", str(out / "dossier.md"))
    assert code == 1
    assert "window_counts.row/dbh/plain/facilities\n  says   | plain, dbh | facilities | 0.5 |" in said
    assert "\n  today  | plain, dbh | facilities | 0.25 |" in said


def ran(policy: Path, *arguments: str | Path, **settings: Path) -> Result:
    words = ["--policy", str(policy), *map(str, arguments)]
    return CliRunner().invoke(dossier, words, obj=Settings(**settings))  # type: ignore[arg-type]


@pytest.fixture
def policy_file(tmp_path: Path) -> Path:
    (tmp_path / "policy.toml").write_text(TEXT)
    return tmp_path / "policy.toml"


@pytest.mark.parametrize(
    ("setting", "way"),
    [
        ("snmp_communities_file", "snmp"), ("snmp_users_file", "snmp3"), ("radius_clients_file", "radius"),
        ("hooks_file", "hooks"), ("polls_file", "polls"), (None, None),
    ],
)  # fmt: skip
def test_the_ways_in_which_messages_come_are_those_of_which_secrets_are_set(
    tmp_path: Path, policy_file: Path, setting: str | None, way: str | None
) -> None:
    settings = {} if setting is None else {setting: tmp_path / "secrets"}
    assert ran(policy_file, "--out", tmp_path / "out", **settings).exit_code == 0
    names = {name for name in statements((tmp_path / "out" / "dossier.md").read_text()) if name.startswith("by_")}
    assert {name.partition(".")[0] for name in names} == ({f"by_{way}"} if way else set())


def test_a_check_tells_what_the_document_lacks_and_what_no_longer_holds(tmp_path: Path, policy_file: Path) -> None:
    out = tmp_path / "out"
    assert ran(policy_file, "--out", out).exit_code == 0
    done = ran(policy_file, "--public-body", "--check", out / "dossier.md")
    assert done.exit_code == 1
    assert "\n  lacks this statement\n  today  " in done.output
    assert re.search(r"\n  says   .*\n  does not hold any more\n", done.output)


def test_a_file_that_is_no_dossier_is_named_and_not_compared(tmp_path: Path, policy_file: Path) -> None:
    (tmp_path / "notes.md").write_text("# Notes of somebody\n")
    done = ran(policy_file, "--check", tmp_path / "notes.md")
    assert isinstance(done.exception, DataError)
    assert str(done.exception).startswith(f"{tmp_path / 'notes.md'}: must be a Markdown document that this command")
    assert done.output == ""


def test_a_site_that_counts_logins_says_so() -> None:
    rows = statements(made(policy_text(day_release(), site=day_site() + 'identity = "login"\n')))
    for name in ("heard", "unit", "not_protected", "data", "notice"):
        assert f"logins.{name}/dbh" in rows
    assert not any(name.startswith("logins.") for name in statements(made()))
