"""The file of SNMPv3 users, and the file of what a receiver must not forget."""

import sqlite3
from pathlib import Path

import pytest

from connectors.snmp.usm.engine_file import EngineFile
from connectors.snmp.usm.engines import LAST_BOOTS, WINDOW
from connectors.snmp.usm.users import read_users
from stream.errors import KeyFileError
from stream.records import SECOND
from tests.unit.snmp.test_v3_gate import outcome
from tests.unit.snmp.v3_ground import (
    AUTH,
    CLIENT,
    ENGINE,
    HOST,
    NOON,
    OTHER_ENGINE,
    OWN,
    PERSON,
    PRIVACY,
    STRANGER,
    Controller,
    gate,
)  # fmt: skip

USER = f'[[user]]\nname = "tacet"\nauth_password = "{AUTH}"\nprivacy_password = "{PRIVACY}"\n'
SOURCE = f'[[source]]\naddress = "{HOST}"\nengines = ["0x{ENGINE.hex().upper()}"]\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "users.toml"
    path.write_text(USER + SOURCE)
    path.chmod(0o600)
    return path


class TestUsers:
    def test_a_file_gives_users_and_the_engines_of_each_source(self, file: Path) -> None:
        users = read_users(file)
        assert outcome(gate(users), Controller(users=users).trap(NOON)) == "heard"
        assert users.knows(HOST, ENGINE)
        assert not users.knows(HOST, OTHER_ENGINE)
        assert not users.knows(STRANGER, ENGINE)

    def test_a_source_of_the_file_is_heard_over_v3_only_unless_it_is_being_changed_over(self, file: Path) -> None:
        assert read_users(file).demanded_of(HOST)
        assert not read_users(file).demanded_of(STRANGER)
        file.write_text(USER + SOURCE + "also_v2c = true\n")
        assert not read_users(file).demanded_of(HOST)

    @pytest.mark.parametrize(
        ("text", "rule"),
        [
            (USER.replace(AUTH, "seven77"), "user.1.auth_password: "),
            (USER.replace(f'privacy_password = "{PRIVACY}"\n', ""), "must be given for level 'authPriv'"),
            (USER + 'auth = "MD5"\n', "user.1.auth: "),
            (USER + 'privacy = "DES"\n', "user.1.privacy: "),
            (USER + 'level = "noAuthNoPriv"\n', "user.1.level: "),
            (USER + 'auth = "SHA-1"\nprivacy = "AES-256"\n', "must be 'AES-128' with auth 'SHA-1'"),
            (USER + 'password = "x"\n', "user.1.password: "),
            (USER + USER, "user.name: must be given once, got 'tacet' more than once"),
            (USER + SOURCE + SOURCE, "source.address: must be given once"),
            (USER + SOURCE.replace(ENGINE.hex().upper(), "8000"), "must be an engine ID of 5 to 32 octets"),
            (USER + SOURCE.replace(HOST, "controller"), "must be addresses or CIDR blocks"),
            (SOURCE, "user: "),
            ("", "user: "),
            (USER + "x = ", "must be TOML, is not at end of document"),
            (f"name = {AUTH}", "must be TOML, is not at line 1"),
        ],
    )
    def test_what_breaks_a_rule_is_refused_and_no_password_is_shown(self, file: Path, text: str, rule: str) -> None:
        file.write_text(text)
        with pytest.raises(KeyFileError) as told:
            read_users(file)
        assert rule in str(told.value)
        assert str(file) in str(told.value)
        assert not any(secret in str(told.value) for secret in (AUTH, PRIVACY, "seven77", "canary"))


def test_a_file_of_users_that_others_can_read_is_refused(file: Path) -> None:
    file.chmod(0o640)
    with pytest.raises(KeyFileError, match="readable by its owner only"):
        read_users(file)


class TestWhatIsKept:
    def test_the_own_engine_stays_and_every_start_counts(self, tmp_path: Path) -> None:
        for start in (1, 2, 3):
            file = EngineFile(tmp_path / "state")
            assert file.start(bytes([start]) * 5) == (b"\1\1\1\1\1", start)
            file.close()

    def test_it_is_its_owners_alone(self, tmp_path: Path) -> None:
        file = EngineFile(tmp_path / "state")
        file.start(OWN)
        assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}
        file.close()
        (tmp_path / "state").chmod(0o644)
        with pytest.raises(KeyFileError, match="readable by its owner only"):
            EngineFile(tmp_path / "state")

    def test_two_receivers_cannot_share_it(self, tmp_path: Path) -> None:
        file = EngineFile(tmp_path / "state")
        with pytest.raises(KeyFileError, match="held by one process only"):
            EngineFile(tmp_path / "state")
        file.close()

    def test_what_was_kept_is_known_after_a_crash(self, tmp_path: Path) -> None:
        file, sender = EngineFile(tmp_path / "state"), Controller()
        at = gate(engines=file.engines())
        datagrams = [sender.trap(NOON + n * SECOND) for n in range(5)]
        assert [outcome(at, datagram, NOON + 5 * SECOND) for datagram in datagrams] == ["heard"] * 5
        file.keep(at.engines)
        assert at.engines.fresh == []
        secrets = (CLIENT, PERSON, AUTH.encode(), PRIVACY.encode(), Controller().keys().tag)
        held = b"".join(part.read_bytes() for part in tmp_path.iterdir())
        assert ENGINE in held
        assert not [secret for secret in secrets if secret in held or secret.hex().encode() in held]
        for part in (tmp_path / "state", tmp_path / "state-wal"):  # as they are on the disk while the file is held
            (tmp_path / f"copy{part.name.removeprefix('state')}").write_bytes(part.read_bytes())
            (tmp_path / f"copy{part.name.removeprefix('state')}").chmod(0o600)
        file.close()
        again = gate(engines=EngineFile(tmp_path / "copy").engines())
        assert [outcome(again, datagram, NOON + 9 * SECOND) for datagram in datagrams] == ["replayed"] * 5
        assert outcome(again, sender.trap(NOON - 200 * SECOND), NOON) == "not_in_time_window"
        assert outcome(again, sender.trap(NOON + 9 * SECOND), NOON + 9 * SECOND) == "heard"

    def test_it_holds_the_window_and_no_more(self, tmp_path: Path) -> None:
        file, sender = EngineFile(tmp_path / "state"), Controller()
        at = gate(engines=file.engines())
        for second in range(400):
            assert outcome(at, sender.trap(NOON + second * SECOND), NOON + second * SECOND) == "heard"
            if second % 7 == 6:
                file.keep(at.engines)
        file.close()
        with sqlite3.connect(tmp_path / "state") as database:
            [(held,)] = database.execute("SELECT count(*) FROM taken")
        database.close()
        assert WINDOW <= held <= WINDOW + 10

    def test_what_is_no_such_file_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "state"
        path.write_bytes(b"canary" * 100)
        path.chmod(0o600)
        with pytest.raises(KeyFileError, match="must be the whole state of an SNMPv3 receiver") as told:
            EngineFile(path)
        assert "canary" not in str(told.value)
        with pytest.raises(KeyFileError, match="must be a file that can be written"):
            EngineFile(tmp_path / "missing" / "state")

    def test_an_own_engine_that_started_too_often_starts_no_more(self, tmp_path: Path) -> None:
        file = EngineFile(tmp_path / "state")
        file.start(OWN)
        file._file.database.execute("UPDATE own SET boots = ?", (LAST_BOOTS - 1,))
        with pytest.raises(KeyFileError, match="started as often as one may"):
            file.start(OWN)
        file.close()
