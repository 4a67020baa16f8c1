"""Files are replaced at once: whoever writes, whatever lies in the folder, whatever fails."""

import os
import secrets
import stat
import threading

import pytest

from leansvm import _atomic
from leansvm._atomic import replacing, write_atomically


def test_two_writers_of_one_file_never_show_a_damaged_one(tmp_path):
    path, contents = tmp_path / "file", [bytes([value]) * 200_000 for value in (1, 2)]
    write_atomically(path, contents[0])
    stop, failures, written = threading.Event(), [], [0, 0]

    def write(number):
        while not stop.is_set():
            try:
                write_atomically(path, contents[number])
                written[number] += 1
            except OSError as error:
                failures.append(error)

    writers = [threading.Thread(target=write, args=(number,)) for number in (0, 1)]
    for writer in writers:
        writer.start()
    damaged = reads = 0
    while reads < 10_000 or min(written) < 100:
        damaged, reads = damaged + (path.read_bytes() not in contents), reads + 1
    stop.set()
    for writer in writers:
        writer.join()
    assert damaged == 0 and not failures
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_a_planted_link_is_not_followed(tmp_path, monkeypatch):
    victim, path = tmp_path / "victim", tmp_path / "file"
    victim.write_bytes(b"precious")
    monkeypatch.setattr(secrets, "token_hex", lambda size: "guessed")
    (tmp_path / ".file.guessed.partial").symlink_to(victim)
    with pytest.raises(FileExistsError) as caught:
        write_atomically(path, b"new")
    assert caught.value.filename == str(path)
    assert victim.read_bytes() == b"precious" and not path.exists()


def test_errors_name_the_file_once(tmp_path, monkeypatch):
    path = tmp_path / "none" / "file"
    with pytest.raises(FileNotFoundError) as caught:
        write_atomically(path, b"new")
    assert str(caught.value).endswith(f"No such file or directory: {str(path)!r}")

    def refused(self, other):
        raise PermissionError(13, "refused", str(self), None, str(other))

    monkeypatch.setattr(type(path), "replace", refused)
    with pytest.raises(PermissionError) as caught:
        write_atomically(tmp_path / "file", b"new")
    assert str(caught.value) == f"[Errno 13] refused: {str(tmp_path / 'file')!r}"


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664])
def test_permissions_are_kept(tmp_path, mode):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(mode)
    write_atomically(path, b"new")
    assert stat.S_IMODE(path.stat().st_mode) == mode and path.read_bytes() == b"new"


def test_a_new_file_gets_the_permissions_that_the_user_chose(tmp_path):
    before = os.umask(0o027)
    try:
        write_atomically(tmp_path / "file", b"new")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640


def test_an_error_in_the_middle_keeps_the_old_file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt), replacing(path) as file:
        file.write(b"half")
        raise KeyboardInterrupt
    assert path.read_bytes() == b"old"
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_content_and_name_are_on_the_disk_before_the_call_returns(tmp_path, monkeypatch):
    synced, fsync = [], os.fsync

    def record(descriptor):
        synced.append(stat.S_ISDIR(os.fstat(descriptor).st_mode))
        fsync(descriptor)

    monkeypatch.setattr(_atomic.os, "fsync", record)
    write_atomically(tmp_path / "file", b"new")
    assert synced == [False, True]  # the file, then its folder


def test_long_names_and_devices(tmp_path):
    path = tmp_path / ("n" * 250)
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_atomically(tmp_path / "pipe", b"new")
    assert os.read(reader, 10) == b"new"
    os.close(reader)
