"""Without the libraries of sinks and frames the project works, and says what to install where one is asked for."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from stream.errors import OPTIONAL
from tests.support.documents import ROOT
from tests.support.released_store import count, give

MISSING = ("pandas", "httpx", "aiomqtt", "paho", "standardwebhooks", "prometheus_client")
WITHOUT = f"import sys; sys.modules.update(dict.fromkeys({MISSING}, None)); "
MAIN = WITHOUT + "from connectors.cli.main import main; main()"
EACH = (
    WITHOUT
    + """
import json
from connectors.cli.main import main
for sys.argv[1:] in json.loads(sys.argv[1]):
    try:
        main()
    except SystemExit as end:
        print(end.code)
"""
)
LOADED = """
import sys
sys.modules.update(httpx=None, matplotlib=None)
import connectors.lab.attacks.report
import connectors.lab.experiments.decision_report
import connectors.sources.cloud.event_stream
"""
VERBS = [
    ("sink mqtt", ["--cursor", "c", "--broker", "127.0.0.1:1"]),
    ("sink webhook", ["--cursor", "c", "--to", "https://example.org", "--secret-file", "secret"]),
    ("export prometheus", ["--listen", "127.0.0.1:0"]),
]


def python(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], cwd=folder, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )


def test_modules_that_draw_or_follow_streams_are_loaded_without_their_libraries(tmp_path: Path) -> None:
    done = python(tmp_path, "-c", LOADED)
    assert done.returncode == 0, done.stderr


def test_a_verb_says_what_to_install(tmp_path: Path) -> None:
    give(tmp_path / "store", [count(1, {"a": 1})])
    (tmp_path / "secret").write_text("x")
    (tmp_path / "secret").chmod(0o600)
    runs = [[*verb.split(), "--store", "store", "--audience", "public", *options] for verb, options in VERBS]
    done = python(tmp_path, "-c", EACH, json.dumps(runs))
    assert done.stdout.split() == ["2"] * len(VERBS)
    assert done.stderr == "".join(f"tacet: {verb}: needs the libraries of sinks; {OPTIONAL}\n" for verb, _ in VERBS)


def test_what_needs_none_of_them_works(tmp_path: Path) -> None:
    give(tmp_path / "store", [count(1, {"a": 1})])
    read = ["--store", "store", "--audience", "public", "--from-start", "--until-end", "--json"]
    assert python(tmp_path, "-c", MAIN, "subscribe", *read).stdout.count("\n") == 1
    assert python(tmp_path, "-c", WITHOUT + "import tacet; print(tacet.frame)").returncode == 0
