"""Files and folders of one owner: whoever else could read one makes it refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from connectors.secrets.private_files import check_private_folder, read_private, read_secret
from stream.errors import KeyFileError, UsageError


@pytest.mark.parametrize("mode", [0o640, 0o620, 0o610, 0o604, 0o602, 0o601])
def test_a_file_that_others_can_use_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "secret"
    path.write_text("secret\n")
    path.chmod(0o600)
    assert (read_private(path, "keys"), read_secret(path)) == (b"secret\n", "secret")
    path.chmod(mode)
    with pytest.raises(KeyFileError, match=f"only \\(chmod 600\\), has mode {mode:04o}"):
        read_private(path, "keys")
    with pytest.raises(KeyFileError, match="must be readable by its owner only"):
        read_secret(path)


@pytest.mark.parametrize("mode", [0o750, 0o720, 0o710, 0o704, 0o701])
def test_a_folder_that_others_can_enter_is_refused(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "store"
    folder.mkdir(mode=0o700)
    check_private_folder(folder)
    folder.chmod(mode)
    with pytest.raises(UsageError, match="only its owner can enter"):
        check_private_folder(folder)
