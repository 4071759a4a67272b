"""Documents on paper and on a phone: the report takes two sheets, and nothing is wider than the screen."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from connectors.documents.month import Month, MonthReader
from connectors.documents.page import printable
from connectors.documents.report import MOST_ROOMS, month_report, report_languages
from connectors.operations.dossier.facts import Installation, dossier_template, facts
from connectors.storage.site_metadata import SiteMetadata, ZoneEntry
from stream.release.validation import load_policy
from tests.acceptance.page.test_page_looks import serious
from tests.support.released_months import SITE, bodies
from tests.support.small_building import ATTRIBUTES, COUNTS, policy_text

MARCH = Month(2026, 3)
QUIET, BUSY = ([f"{kind}{number}" for number in range(MOST_ROOMS + 1)] for kind in "qb")
"""More rooms of either kind than a report lists."""


def long_report(language: str) -> str:
    """Return a report whose lists are full."""
    zones: list[ZoneEntry] = [
        {"zone": zone, "floor": "1", "kind": "room", "capacity": 60, "metadata": {"name": f"{zone} Seminar room"}}
        for zone in (*QUIET, *BUSY)
    ]
    site: SiteMetadata = {
        **SITE, "name": "Library of economics, law and history", "zones": zones, "tick_seconds": 7200,
    }  # fmt: skip
    truth = dict.fromkeys(QUIET, lambda _: 2) | dict.fromkeys(BUSY, lambda _: 90)
    reader = MonthReader(site, MARCH)
    for month in (MARCH.before, MARCH):
        for body in bodies(month, truth, site=site):
            reader.add(body)
    report = month_report(reader, "facilities", language=language)
    assert report.markdown.count("Seminar room") == 2 * MOST_ROOMS
    return report.page


def dossier(language: str) -> str:
    template, policy = dossier_template(language), load_policy(policy_text(COUNTS + ATTRIBUTES))
    return printable(template.fill(facts(policy, Installation(kafka=True))), template.head)


@pytest.mark.parametrize("language", report_languages())
def test_a_report_with_full_lists_prints_to_two_sheets(browser: Browser, tmp_path: Path, language: str) -> None:
    (tmp_path / "report.html").write_text(long_report(language))
    page = browser.new_page()
    page.goto((tmp_path / "report.html").as_uri())
    printed = page.pdf(prefer_css_page_size=True)
    page.close()
    assert len(re.findall(rb"/Type /Page\b", printed)) == 2


@pytest.mark.parametrize("language", report_languages())
def test_a_dossier_fits_a_phone_and_keeps_nobody_out(browser: Browser, tmp_path: Path, language: str) -> None:
    (tmp_path / "dossier.html").write_text(dossier(language))
    page = browser.new_page(viewport={"width": 390, "height": 800}, bypass_csp=True)
    page.goto((tmp_path / "dossier.html").as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert serious(page) == []
    page.close()
