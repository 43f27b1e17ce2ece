"""Only its owner can write to a state folder, whatever the umask and its earlier permissions."""

import errno
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from penstock.app.broker import installation
from penstock.app.cli.main import app
from penstock.app.cli.terminal import BACKEND
from penstock.app.common.atomic_file import write_atomic
from penstock.app.host.settings import load
from penstock.app.host.tracebacks import to_the_user
from penstock.app.server.services import services
from penstock.base.errors import BackendError, UsageError
from typer.testing import CliRunner

SOMEBODY = 12345
IN_CONTAINER = """
import os, sys
from penstock.app.host.settings import load
settings = load(home=sys.argv[1])
os.setgid(int(sys.argv[2]))
os.setuid(int(sys.argv[2]))
print(settings.close_home())
"""
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def settings(tmp_path):
    return load(home=tmp_path / "home")


@pytest.fixture
def no_umask():
    before = os.umask(0)
    yield
    os.umask(before)


def found(settings):
    from penstock.extensions.doctor import doctor

    [finding] = doctor._home(settings)
    return finding


def test_a_new_folder_is_private_whatever_the_umask(settings, no_umask):
    settings.ensure_home()
    assert {mode(path) for path in (settings.home, settings.run, settings.logs)} == {0o700}


def test_a_folder_that_down_makes_is_private(settings, no_umask):
    assert services.take_down(settings) == []
    assert {mode(path) for path in (settings.home, settings.run)} == {0o700}


def test_what_others_could_write_to_they_cannot_any_more_and_it_is_said(settings, no_umask, caplog):
    for path in (settings.run, settings.logs, settings.home / "checkpoints" / "deep"):
        path.mkdir(parents=True)
    report = settings.home / "checkpoints" / "deep" / "a"
    report.write_text("x")
    report.chmod(0o646)
    settings.home.chmod(0o777)
    settings.ensure_home()
    [said] = [record.getMessage() for record in caplog.records]
    assert said.startswith(f"others could write to {settings.home} (mode 0777)")
    assert mode(settings.home) == 0o755
    assert {mode(settings.run), mode(settings.logs)} == {0o700}
    assert mode(settings.home / "checkpoints") == 0o700
    assert mode(settings.home / "checkpoints" / "deep") == 0o755
    assert mode(report) == 0o644
    settings.ensure_home()
    assert len(caplog.records) == 1, "once"


def test_a_folder_within_that_others_can_write_to_is_found(settings, caplog):
    settings.ensure_home()
    (settings.home / "reports").mkdir()
    (settings.home / "reports").chmod(0o777)
    settings.ensure_home()
    assert mode(settings.home / "reports") == 0o700
    assert "reports (mode 0777)" in caplog.text


@pytest.mark.parametrize("given", [0o777, 0o666, 0o640])
def test_what_is_ours_is_its_owners_alone_and_that_a_secret_may_be_known_is_said(settings, given):
    settings.ensure_home()
    key = installation.installation_key(settings)
    names = ("key", "flower.password", "ledger.db", "ledger.db-wal")
    own = [settings.home / name for name in names]
    for path in own:
        path.touch()
        path.chmod(given)
    (settings.home / "backups").mkdir(mode=0o755)
    said = settings.close_home()
    assert {mode(path) for path in own} == {0o600}
    assert mode(settings.home / "backups") == 0o700
    assert f"{settings.home / 'key'} was open to others (mode {given:04o}) and may be known" in said
    assert "penstock:installation" in said
    assert "flower.password was open" in said
    assert installation.installation_key(settings) == key
    assert settings.close_home() is None, "once"


def test_what_others_may_read_and_is_no_secret_is_closed_without_a_word(settings):
    settings.ensure_home()
    (settings.home / "ledger.db").touch(mode=0o644)
    assert settings.close_home() is None
    assert mode(settings.home / "ledger.db") == 0o600


@pytest.mark.extension("doctor")
def test_doctor_says_what_it_found_once(settings):
    settings.ensure_home()
    settings.home.chmod(0o777)
    finding = found(settings)
    assert finding.grade == "warn"
    assert "others could write" in finding.what
    assert found(settings).grade == "ok"


def test_a_link_in_the_folder_is_not_followed(settings, tmp_path):
    settings.ensure_home()
    outside = tmp_path / "outside"
    outside.mkdir()
    outside.chmod(0o777)
    (settings.home / "link").symlink_to(outside)
    settings.home.chmod(0o777)
    settings.ensure_home()
    assert mode(outside) == 0o777


@pytest.mark.parametrize(
    "place",
    ["ledger.db", "ledger.db-wal", "key", "run", "logs", "logs/scheduler.log", "broker/a/b"],
)
def test_a_link_in_a_folder_that_is_new_is_refused_and_nothing_written_there(
    settings, tmp_path, place
):
    outside = tmp_path / "outside"
    outside.mkdir()
    link = settings.home / place
    link.parent.mkdir(parents=True)
    link.symlink_to(outside / "file" if "." in place else outside)
    for begin in (settings.ensure_home, settings.close_home):
        with pytest.raises(UsageError, match=rf"PENSTOCK_HOME.*{place} is a link to {outside}"):
            begin()
    assert list(outside.iterdir()) == []
    link.unlink()
    settings.ensure_home()


def test_links_of_its_owner_in_a_folder_that_is_used_and_others_in_a_new_one_stay(
    settings, tmp_path
):
    settings.home.mkdir()
    (settings.home / "notes").symlink_to(tmp_path)
    settings.ensure_home()
    (settings.home / "checkpoints").symlink_to(tmp_path)
    settings.ensure_home()


@as_root
@pytest.mark.parametrize("part", ["home", "run", "logs"])
def test_another_users_folder_is_refused_also_to_root(settings, part):
    settings.ensure_home()
    os.chown(getattr(settings, part), SOMEBODY, -1)
    with pytest.raises(UsageError, match=f"PENSTOCK_HOME.*belongs to user {SOMEBODY}"):
        settings.ensure_home()


@as_root
@pytest.mark.parametrize("command", ["ls", "status", "up", "down", "backup"])
def test_nothing_is_read_from_or_put_into_another_users_folder(settings, command, monkeypatch):
    settings.home.mkdir()
    os.chown(settings.home, SOMEBODY, -1)
    monkeypatch.setenv("PENSTOCK_HOME", str(settings.home))
    with pytest.raises(UsageError, match=f"PENSTOCK_HOME.*belongs to user {SOMEBODY}"):
        settings.ensure_home()
    result = CliRunner().invoke(app, [command])
    assert result.exit_code == 2, result.output
    assert f"belongs to user {SOMEBODY}" in result.output
    assert list(settings.home.iterdir()) == []


@as_root
def test_a_link_of_another_user_is_refused_and_our_own_is_fine(settings, tmp_path):
    settings.ensure_home()
    link = tmp_path / "link"
    link.symlink_to(settings.home)
    load(home=link).ensure_home()
    os.lchown(link, SOMEBODY, -1)
    with pytest.raises(UsageError, match=f"link belongs to user {SOMEBODY}"):
        load(home=link / "within").ensure_home()


@as_root
@pytest.mark.parametrize(("given", "warned"), [(0o2770, False), (0o2777, True)])
def test_a_volume_of_a_container_is_taken(given, warned):
    """It is root's, and its group's, who is the container's user."""
    folder = Path(tempfile.mkdtemp())  # pytest's own folders are closed to others
    try:
        folder.chmod(0o755)
        home = folder / "state"
        home.mkdir()
        os.chown(home, 0, SOMEBODY)
        home.chmod(given)
        done = subprocess.run(
            [sys.executable, "-c", IN_CONTAINER, str(home), str(SOMEBODY)],
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        shutil.rmtree(folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert ("others can write" in done.stdout) is warned


@pytest.mark.parametrize("file", ["run/up.json", "run/services.lock", "logs/broker.log"])
def test_a_file_of_ours_that_is_something_else_is_named(settings, file, monkeypatch):
    settings.ensure_home()
    (settings.home / file / "x").mkdir(parents=True)
    words = f"{settings.home / file} cannot be used: Is a directory"
    done = CliRunner(env={"PENSTOCK_HOME": str(settings.home)}).invoke(app, ["up"])
    assert (done.exit_code, words in done.output) == (BACKEND, True)
    monkeypatch.setenv("PENSTOCK_HOME", str(settings.home))
    with pytest.raises(BackendError, match=words):
        to_the_user(services.ensure_up)(settings)


def test_a_file_of_somebody_elses_is_not_ours_to_speak_of(settings, monkeypatch, tmp_path):
    monkeypatch.setenv("PENSTOCK_HOME", str(settings.home))
    with pytest.raises(FileNotFoundError):
        to_the_user(Path.read_text)(tmp_path / "home-made")
    with pytest.raises(BrokenPipeError):
        to_the_user(os.write)(closed_pipe(), b"x")


def test_a_full_disk_is_not_a_file_out_of_place(settings):
    full = OSError(errno.ENOSPC, "No space left on device", str(settings.run / "up.json"))
    assert str(settings.unusable(full)).endswith(
        "up.json cannot be written: the disk is full. Make room"
    )
    assert settings.unusable(OSError(errno.EBADF, "Bad file descriptor", 7)) is None


def closed_pipe():
    reader, writer = os.pipe()
    os.close(reader)
    return writer


def test_files_of_a_process_without_umask_are_not_for_others_to_write(tmp_path, no_umask):
    write_atomic(tmp_path / "a", "x", "report")
    assert mode(tmp_path / "a") == 0o644
    program = (
        "import pathlib\nfrom penstock.app.cli.main import main\n"
        "try: main()\nexcept SystemExit: pathlib.Path('b').touch()"
    )
    subprocess.run([sys.executable, "-c", program, "--help"], cwd=tmp_path, check=True, stdout=-3)
    assert mode(tmp_path / "b") == 0o644
