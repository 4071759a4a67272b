"""Printable HTML pages: one file each, without scripts and without anything from elsewhere."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping

from markdown_it import MarkdownIt

from connectors.documents.template import CLOSE, OPEN, unnamed

_FIGURE = re.compile(r"<p>!figure ([a-z_0-9]+)</p>")
_SCROLLED = 'class="scroll" tabindex="0"'
"""Of what may be wider than a phone; with the focus it is scrolled by keys."""
_PAGE = """\
<!DOCTYPE html>
<html lang="{language}">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
{style}
@page {{ @bottom-left {{ content: {notice_css}; font: 8pt system-ui, sans-serif; color: #555 }} \
@bottom-right {{ content: counter(page) " / " counter(pages); font: 8pt system-ui, sans-serif; color: #555 }} }}
</style>
</head>
<body>
<p class="notice">{notice}</p>
<main>
{body}</main>
</body>
</html>
"""
STYLE = """\
:root { color-scheme: light }
* { box-sizing: border-box }
body { margin: 0; background: #fff; color: #1a1d21; font: 16px/1.5 system-ui, "Segoe UI", Roboto, sans-serif }
main { max-width: 46rem; margin: 0 auto; padding: 0 1rem 4rem; overflow-wrap: anywhere; hyphens: auto }
.notice { position: sticky; top: 0; margin: 0; padding: .4rem 1rem; background: #fff3cd; color: #4d3800;
  font-size: .85rem; text-align: center; border-bottom: 1px solid #e0c878 }
h1 { font-size: clamp(1.3rem, 6vw, 1.7rem); line-height: 1.2; margin: 3rem 0 .5rem }
h2 { font-size: 1.2rem; line-height: 1.3; margin: 2rem 0 .4rem }
h3 { font-size: 1rem; margin: 1.4rem 0 .3rem }
p, ul, ol { margin: .5rem 0 }
li { margin: .2rem 0 }
.scroll, figure { overflow-x: auto }
table { border-collapse: collapse; width: 100%; margin: .8rem 0; font-size: .88rem }
th, td { text-align: left; vertical-align: top; padding: .3rem .6rem; border-bottom: 1px solid #d5d9de;
  overflow-wrap: normal }
th { border-bottom: 2px solid #8a929b }
mark { background: #ffe9a8; color: #3d2c00; padding: 0 .2em; border-radius: 3px }
figure { margin: 1rem 0 }
svg { max-width: 100%; height: auto; display: block }
@media screen and (max-width: 40rem) { svg { min-width: 38rem } }
hr { border: 0; border-top: 1px solid #d5d9de; margin: 2rem 0 }
@page { size: A4; margin: 18mm 18mm 20mm }
@media print {
  .notice { display: none }
  main { max-width: none; padding: 0 }
  body { font-size: 10pt }
  .scroll, figure { overflow: visible }
  table { font-size: 8.5pt }
  h1 { break-before: page; margin-top: 0 }
  main > h1:first-child { break-before: auto }
  h1, h2, h3 { break-after: avoid }
  tr, li, figure { break-inside: avoid }
  mark { -webkit-print-color-adjust: exact; print-color-adjust: exact }
}
"""


def printable(
    markdown: str, head: Mapping[str, str], figures: Mapping[str, str] | None = None, style: str = ""
) -> str:  # fmt: skip
    """Return a document as one HTML page, whose head and every printed sheet carry the notice.

    Args:
        markdown: the document; HTML in it is shown, not used.
        head: ``language``, ``title`` and ``notice`` of its template.
        figures: SVG by name, for paragraphs ``!figure name``.
        style: rules besides those of all documents.
    """
    rendered = MarkdownIt("commonmark", {"html": False}).enable("table").render(unnamed(markdown))
    body = rendered.replace(OPEN, "<mark>").replace(CLOSE, "</mark>")
    body = body.replace("<table>", f"<div {_SCROLLED}><table>").replace("</table>", "</table></div>")
    drawn = figures or {}
    body = _FIGURE.sub(lambda found: f'<figure tabindex="0">{drawn[found[1]]}</figure>', body)
    quoted = head["notice"].replace("\\", "\\\\").replace('"', '\\"')
    return _PAGE.format(
        language=html.escape(head["language"]), title=html.escape(head["title"]), notice=html.escape(head["notice"]),
        notice_css=f'"{quoted}"', style=STYLE + style, body=body,
    )  # fmt: skip
