"""The file of SNMPv3 users, and the file of what a receiver must not forget."""

import sqlite3
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from connectors.sources.ingest.source_filter import AllowList
from connectors.sources.snmp.authentication import TrapAuthenticator
from connectors.sources.snmp.communities import CommunityAuth
from connectors.sources.snmp.usm.engines import LAST_BOOTS, WINDOW
from connectors.sources.snmp.usm.messages import secured
from connectors.sources.snmp.usm.protocols import is_genuine
from connectors.sources.snmp.usm.receiver import V3, EngineFile, V3Files, listening, without_storage
from connectors.sources.snmp.usm.users import UserFile
from connectors.sources.snmp.usm.verifier import RejectedMessage, VerifiedMessage
from stream.errors import KeyFileError
from stream.records import SECOND
from tests.unit.snmp.test_v3_verifier import outcome
from tests.unit.snmp.v3_controller import (
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
    informing,
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
        users = UserFile(file)
        assert outcome(gate(users), Controller(users=users).trap(NOON)) == "heard"
        assert users.knows(HOST, ENGINE)
        assert not users.knows(HOST, OTHER_ENGINE)
        assert not users.knows(STRANGER, ENGINE)

    def test_a_source_of_the_file_must_use_v3_unless_it_is_being_changed_over(self, file: Path) -> None:
        assert UserFile(file).requires_v3(HOST)
        assert not UserFile(file).requires_v3(STRANGER)
        file.write_text(USER + SOURCE + "also_v2c = true\n")
        assert not UserFile(file).requires_v3(HOST)

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
            (USER * 3, "user.name: must be given at most 2 time(s), got 'tacet' more often"),
            (USER + USER + 'level = "authNoPriv"\n', "user.level: must be the same both times"),
            (USER + SOURCE + SOURCE, "source.address: must be given at most 1 time(s)"),
            (USER + SOURCE.replace(ENGINE.hex().upper(), "8000"), "must be an engine ID of 5 to 32 octets"),
            (USER + SOURCE.replace(HOST, "controller"), "must be addresses or CIDR blocks"),
            (SOURCE, "user: "),
            ("", "user: "),
            (USER + "x = ", "must be TOML, is not at end of document"),
            (f"name = {AUTH}", "must be TOML, is not at line 1"),
        ],
    )
    def test_an_invalid_file_is_refused_and_no_password_shown(self, file: Path, text: str, rule: str) -> None:
        file.write_text(text)
        with pytest.raises(KeyFileError) as reported:
            UserFile(file)
        assert rule in str(reported.value)
        assert str(file) in str(reported.value)
        assert not any(secret in str(reported.value) for secret in (AUTH, PRIVACY, "seven77", "canary"))


OLD = USER.replace(AUTH, "the-one-before").replace(PRIVACY, "the-other-before")


def rewritten(path: Path, text: str, mode: int = 0o600) -> None:
    new = path.with_name("new")
    new.write_text(text)
    new.chmod(mode)
    new.replace(path)


class TestWhileItIsChanged:
    """Of the same user the new passwords and the old ones count while both stand in the file; nothing is restarted."""

    def controllers(self, folder: Path) -> tuple[Controller, Controller]:
        """Return one that has the new passwords, and one that has the old ones."""
        made = []
        for name, text in (("new.toml", USER), ("old.toml", OLD)):
            rewritten(folder / name, text + SOURCE)
            made.append(Controller(users=UserFile(folder / name)))
        return made[0], made[1]

    def test_both_passwords_count_while_both_are_there(self, file: Path) -> None:
        new, old = self.controllers(file.parent)
        rewritten(file, USER + OLD + SOURCE)
        can_receive = gate(UserFile(file))
        assert [outcome(can_receive, each.trap(NOON, number)) for number, each in enumerate((new, old), 1)] == [
            "heard"
        ] * 2

    def test_an_inform_is_answered_under_the_key_that_it_came_by(self, file: Path) -> None:
        _, old = self.controllers(file.parent)
        rewritten(file, USER + OLD + SOURCE)
        can_receive, sender = gate(UserFile(file)), informing(users=old.users)
        received = can_receive.open(sender.inform(NOON), HOST, NOON)
        assert isinstance(received, VerifiedMessage)
        answer = can_receive.respond(received, NOON)
        assert is_genuine(sender.keys(), answer, secured(answer))

    async def test_a_new_password_is_accepted_at_once_and_the_old_one_until_it_is_removed(self, file: Path) -> None:
        new, old = self.controllers(file.parent)
        rewritten(file, OLD + SOURCE)
        can_receive = TrapAuthenticator(
            CommunityAuth(AllowList([HOST]), (), or_v3=True),
            V3(gate(UserFile(file)), EngineFile(file.with_name("state"))),
        )

        def heard(sender: Controller) -> str:
            output = can_receive.read(sender.trap(NOON), HOST, NOON)
            return output.reason if isinstance(output, RejectedMessage) else "heard"

        assert [heard(new), heard(old)] == ["wrong_tag", "heard"]
        rewritten(file, USER + OLD + SOURCE)
        assert [heard(new), heard(old)] == ["heard", "heard"]
        rewritten(file, USER + SOURCE)
        can_receive.renew()
        assert [heard(new), heard(old)] == ["heard", "wrong_tag"]

    @pytest.mark.parametrize(("text", "mode"), [("", 0o600), (USER + SOURCE, 0o644), (USER + "x = ", 0o600)])
    def test_while_it_is_wrong_those_that_were_there_count(self, file: Path, text: str, mode: int) -> None:
        users = UserFile(file)
        rewritten(file, text, mode)
        with capture_logs() as lines:
            assert not users.renew()
            assert not users.renew()
        assert [line["log_level"] for line in lines] == ["warning"]
        assert AUTH not in str(lines)
        assert users.file.refusals == 1
        assert outcome(gate(users), Controller().trap(NOON)) == "heard"

    def test_a_removed_user_has_no_keys(self, file: Path) -> None:
        """Who is asked by such a user is silent, and nothing fails."""
        users = UserFile(file)
        rewritten(file, USER.replace("tacet", "other") + SOURCE)
        assert users.renew()
        assert users.all_keys(b"tacet", ENGINE) == ()
        assert users.least(b"tacet") is None


def test_a_file_of_users_that_others_can_read_is_refused(file: Path) -> None:
    file.chmod(0o640)
    with pytest.raises(KeyFileError, match="readable by its owner only"):
        UserFile(file)


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

    def test_stored_messages_are_known_after_a_crash(self, tmp_path: Path) -> None:
        file, sender = EngineFile(tmp_path / "state"), Controller()
        at = gate(engines=file.engines())
        datagrams = [sender.trap(NOON + n * SECOND) for n in range(5)]
        assert [outcome(at, datagram, NOON + 5 * SECOND) for datagram in datagrams] == ["heard"] * 5
        file.keep(at.engines)
        assert at.engines.fresh == []
        secrets = (CLIENT, PERSON, AUTH.encode(), PRIVACY.encode(), Controller().keys().tag)
        stored = b"".join(part.read_bytes() for part in tmp_path.iterdir())
        assert ENGINE in stored
        assert not [secret for secret in secrets if secret in stored or secret.hex().encode() in stored]
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
            [(stored,)] = database.execute("SELECT count(*) FROM taken")
        database.close()
        assert WINDOW <= stored <= WINDOW + 10

    def test_a_file_of_another_format_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "state"
        path.write_bytes(b"canary" * 100)
        path.chmod(0o600)
        with pytest.raises(KeyFileError, match="must be the complete state of an SNMPv3 receiver") as reported:
            EngineFile(path)
        assert "canary" not in str(reported.value)
        with pytest.raises(KeyFileError, match="must be a file that can be written"):
            EngineFile(tmp_path / "missing" / "state")

    def test_a_receiver_that_listens_again_has_its_engine_and_knows_what_it_accepted(
        self, tmp_path: Path, file: Path
    ) -> None:
        files, datagram, engines = V3Files(UserFile(file), tmp_path / "state"), Controller().trap(NOON), set()
        for expected in ("heard", "replayed"):
            with listening(files, NOON) as receiver:
                assert outcome(receiver.verifier, datagram) == expected
                engines.add(receiver.verifier.own.engine)
                receiver.keep()
        [own] = engines
        assert (own[:5].hex(), len(own)) == ("8000000005", 17)

    def test_without_storage_a_verifier_has_another_engine_each_time_and_nothing_gathers(self, file: Path) -> None:
        one, other = (without_storage(UserFile(file), NOON) for _ in range(2))
        assert one.verifier.own.engine[:5] == other.verifier.own.engine[:5] == bytes.fromhex("8000000005")
        assert one.verifier.own.engine != other.verifier.own.engine
        assert outcome(one.verifier, Controller().trap(NOON)) == "heard"
        one.keep()
        assert one.verifier.engines.fresh == []

    def test_an_own_engine_that_started_too_often_starts_no_more(self, tmp_path: Path) -> None:
        file = EngineFile(tmp_path / "state")
        file.start(OWN)
        file._file.database.execute("UPDATE own SET boots = ?", (LAST_BOOTS - 1,))
        with pytest.raises(KeyFileError, match="reached the largest number of starts"):
            file.start(OWN)
        file.close()
