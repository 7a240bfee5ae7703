"""Files that take the places of the last run's together: failures at every step, kills, other runs."""

import errno
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from jaxtape import output_folder
from jaxtape.output_folder import AtomicOutput, local_path, mismatched_files

NAMES = ("a.csv", "b.json", "c.html")
OPTIONAL = "errors.txt"
RENAMES = len(NAMES) + 2  # and those of the manifest


def write(folder, run, *, names=NAMES):
    with AtomicOutput(folder, f"jaxtape {run}", (OPTIONAL,)).written() as staging:
        for name in names:
            (staging / name).write_text(f"{name} of {run}")


def contents(folder):
    """The text of each file but the manifest, hidden ones included."""
    return {path.name: path.read_text() for path in folder.iterdir() if path.name != "run.json"}


def manifest(folder):
    return json.loads((folder / "run.json").read_text())


def told_apart(folder):
    """Whether the manifest says which of the files are of the run that it names."""
    run = manifest(folder)["command"].removeprefix("jaxtape ")
    old = [name for name in NAMES if contents(folder).get(name) != f"{name} of {run}"]
    return mismatched_files(folder) == old and manifest(folder)["complete"] == (not old)


@pytest.fixture
def old(tmp_path):
    """A folder with the files of a run, one of them optional, and one of the user's own."""
    folder = tmp_path / "new" / "out"
    write(folder, "old", names=(*NAMES, OPTIONAL))
    (folder / "mine.txt").write_text("mine")
    return folder


def failing(at, error):
    """A function that raises at its call number `at`, and otherwise does what `inner` does."""
    calls = []

    def wrap(inner):
        def outer(*arguments, **settings):
            calls.append(arguments)
            if len(calls) - 1 == at:
                raise error
            return inner(*arguments, **settings)

        return outer

    return wrap


def test_a_run_replaces_the_files_of_the_last_and_says_what_it_was(old):
    assert set(manifest(old)["files"]) == {*NAMES, OPTIONAL}
    write(old, "new --out 'x y'")
    assert contents(old) == {name: f"{name} of new --out 'x y'" for name in NAMES} | {
        "mine.txt": "mine"
    }
    assert manifest(old)["command"] == "jaxtape new --out 'x y'" and manifest(old)["complete"]
    assert set(manifest(old)["files"]) == set(NAMES) and not mismatched_files(old)
    (old / NAMES[1]).write_text("b.json of mew --out 'x y'")
    (old / NAMES[2]).unlink()
    assert mismatched_files(old) == [*NAMES[1:]]


DEEP = "[" * 100_000
OF_OTHERS = [
    *("[]", '{"solver": "DeepBSDE"}', "{", DEEP, '{"files": {"a.csv": 3}, "command": "x"}'),
    *('{"files": {"../a": {"sha256": ""}}, "command": "x"}', '{"files": ["a.csv"]}'),
]


@pytest.mark.parametrize("text", OF_OTHERS, ids=range(len(OF_OTHERS)))
def test_a_label_of_something_else_is_told(old, text):
    (old / "run.json").write_text(text)
    with pytest.raises(ValueError, match=r"is not the manifest of a run|property name|deeply"):
        mismatched_files(old)
    with pytest.raises(FileExistsError, match="no earlier run of jaxtape wrote it"):
        write(old, "new")
    assert (old / "run.json").read_text() == text and contents(old)[NAMES[0]] == "a.csv of old"


@pytest.mark.parametrize("name", [OPTIONAL, NAMES[1]])
def test_a_file_that_no_run_has_written_stays(tmp_path, name):
    """At once where its name is known by then, and where it came while the run was at work."""
    (tmp_path / name).write_text("mine")
    with pytest.raises(FileExistsError, match="no earlier run of jaxtape wrote it") as raised:
        write(tmp_path, "new", names=(*NAMES, OPTIONAL))
    assert raised.value.filename == str(tmp_path / name)
    assert contents(tmp_path) == {name: "mine"} and not (tmp_path / "run.json").exists()
    (tmp_path / name).unlink()
    with pytest.raises(FileExistsError), AtomicOutput(tmp_path, "jaxtape new").written() as staging:
        (staging / name).write_text("ours")
        (tmp_path / name).symlink_to("nowhere")
    assert (tmp_path / name).is_symlink() and not (tmp_path / "run.json").exists()


def test_an_optional_file_of_the_user_is_not_removed(old):
    write(old, "second")
    (old / OPTIONAL).write_text("mine")
    with pytest.raises(FileExistsError, match="no earlier run"):
        write(old, "third")
    assert contents(old)[OPTIONAL] == "mine" and manifest(old)["command"] == "jaxtape second"


def test_runs_of_several_commands_take_turns_in_a_folder(tmp_path):
    """What one has written stays known as such, and is replaced when its turn comes."""
    write(tmp_path, "first", names=(*NAMES, OPTIONAL))
    write(tmp_path, "second", names=["d.csv"])
    assert manifest(tmp_path)["earlier"] == [*NAMES] and not (tmp_path / OPTIONAL).exists()
    assert list(manifest(tmp_path)["files"]) == ["d.csv"]
    (tmp_path / NAMES[0]).unlink()
    (tmp_path / NAMES[0]).write_text("of the first, and named still")
    write(tmp_path, "third")
    assert contents(tmp_path)[NAMES[0]] == "a.csv of third"
    assert manifest(tmp_path)["earlier"] == ["d.csv"]


@pytest.mark.parametrize("link", [os.link, os.symlink, lambda file, place: file.rename(place)])
def test_an_input_stays_even_where_a_run_has_written_it(old, tmp_path, link):
    file = tmp_path / "input.csv"
    file.write_text("an input")
    (old / NAMES[0]).unlink()
    link(file, old / NAMES[0])
    given = file if file.exists() else old / NAMES[0]
    with pytest.raises(FileExistsError, match="it is an input of this command"):
        AtomicOutput(old, "jaxtape new", NAMES, inputs=[None, given])
    assert given.read_text() == "an input"


def test_a_folder_of_the_user_that_is_hidden_stays(tmp_path):
    for name in (".jaxtape-settings", ".jaxtape-staging-old", ".jaxtape-staging-x"):
        (tmp_path / name).mkdir()
    before = set(tmp_path.iterdir())
    write(tmp_path, "new")
    assert before < set(tmp_path.iterdir())


@pytest.mark.parametrize("text", ["gs://bucket/out", "s3://b/o", "file:///tmp/out", "gs:/bucket"])
def test_a_url_is_no_path(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for given in (text, Path(text)):
        with pytest.raises(ValueError, match="is a URL; give a local path"):
            local_path(given)
    with pytest.raises(ValueError, match="is a URL"):
        AtomicOutput(Path("file:///tmp/out"))
    assert not list(tmp_path.iterdir())
    assert local_path("C:/out") == Path("C:/out") and local_path("a/b:c/") == Path("a/b:c")


def test_a_pipe_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "run.json")
    with pytest.raises(OSError, match="it is a pipe, a socket or a device"):
        mismatched_files(tmp_path)


def test_files_without_a_command_have_no_label(tmp_path):
    with AtomicOutput(tmp_path).written() as staging:
        (staging / "table.json").write_text("[]")
    assert contents(tmp_path) == {"table.json": "[]"} and not (tmp_path / "run.json").exists()


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), KeyboardInterrupt()])
@pytest.mark.parametrize("at", range(len(NAMES) + 2))
def test_a_write_that_fails_leaves_the_last_run_whole(old, monkeypatch, at, error):
    """At each file, and at each of both labels."""
    before, run = contents(old), manifest(old)
    monkeypatch.setattr(Path, "write_text", failing(at, error)(Path.write_text))
    with pytest.raises(type(error)):
        write(old, "new")
    assert contents(old) == before and manifest(old) == run and not mismatched_files(old)


@pytest.mark.parametrize("error", [OSError(errno.EIO, "broken"), KeyboardInterrupt()])
@pytest.mark.parametrize("at", range(len(NAMES) + 2))
def test_a_disk_that_does_not_keep_a_file_leaves_the_last_run_whole(old, monkeypatch, at, error):
    before, run = contents(old), manifest(old)
    monkeypatch.setattr(os, "fsync", failing(at, error)(os.fsync))
    with pytest.raises(type(error)):
        write(old, "new")
    assert contents(old) == before and manifest(old) == run and not mismatched_files(old)


@pytest.mark.parametrize("error", [OSError(errno.EACCES, "open elsewhere"), KeyboardInterrupt()])
@pytest.mark.parametrize("at", range(RENAMES))
def test_a_rename_that_fails_leaves_files_that_are_told_apart(old, monkeypatch, at, error):
    before = contents(old)
    monkeypatch.setattr(Path, "replace", failing(at, error)(Path.replace))
    with pytest.raises(type(error)):
        write(old, "new")
    monkeypatch.undo()
    assert not list(old.glob(".*"))
    if at == 0:
        assert contents(old) == before and manifest(old)["complete"]
    elif at == RENAMES - 1:  # the files are there, and the manifest does not know it yet
        assert not mismatched_files(old) and not manifest(old)["complete"]
    else:
        assert mismatched_files(old) == [*NAMES[at - 1 :]] and told_apart(old)
    write(old, "newer")
    assert told_apart(old) and manifest(old)["complete"]


KILLED = """
import importlib, os, signal, sys, types
from pathlib import Path

package = sys.modules["jaxtape"] = types.ModuleType("jaxtape")  # without JAX
package.__path__ = [os.path.dirname(sys.argv[1])]
output_folder = importlib.import_module("jaxtape.output_folder")
replace, calls = Path.replace, []

def killed(path, target):
    if len(calls) == at:
        os.kill(os.getpid(), signal.SIGKILL)
    calls.append(path)
    return replace(path, target)

for at, folder in enumerate(sys.argv[2:]):
    if (child := os.fork()) == 0:
        Path.replace = killed
        with output_folder.AtomicOutput(Path(folder), "jaxtape new", ("errors.txt",)).written() as staging:
            for name in ("a.csv", "b.json", "c.html"):
                (staging / name).write_text(f"{name} of new")
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
"""


@pytest.mark.repeat
@pytest.mark.skipif(not hasattr(os, "fork"), reason="a system that forks")
def test_a_process_killed_at_any_rename_leaves_files_that_are_told_apart(tmp_path):
    folders = [tmp_path / str(at) for at in range(RENAMES)]
    for folder in folders:
        write(folder, "old")
    command = [sys.executable, "-c", KILLED, output_folder.__file__, *folders]
    subprocess.run(command, check=True)
    for at, folder in enumerate(folders):
        (left,) = folder.glob(".jaxtape-*")
        assert manifest(folder)["complete"] == (at == 0)
        assert mismatched_files(folder) == [*NAMES[max(at - 1, 0) :] * (at > 0)]
        assert {name: (folder / name).read_text() for name in NAMES} == {
            name: f"{name} of {'new' if place < at - 1 else 'old'}"
            for place, name in enumerate(NAMES)
        }
        write(folder, "newer")
        assert not left.exists() and told_apart(folder) and manifest(folder)["complete"]


def test_a_folder_in_the_place_of_a_file_is_found_before_a_file_is_renamed(tmp_path):
    write(tmp_path, "old", names=NAMES[:2])
    (tmp_path / NAMES[2]).mkdir()
    with pytest.raises(IsADirectoryError) as raised:
        write(tmp_path, "new")
    assert raised.value.filename == str(tmp_path / NAMES[2])
    assert not mismatched_files(tmp_path) and manifest(tmp_path)["command"] == "jaxtape old"


def test_a_place_that_is_no_folder_or_cannot_be_written_is_refused_at_once(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "out"):
        with pytest.raises((FileExistsError, NotADirectoryError)):
            AtomicOutput(folder)
    refused = PermissionError(errno.EACCES, "read-only", str(tmp_path))
    monkeypatch.setattr(tempfile, "mkdtemp", failing(0, refused)(tempfile.mkdtemp))
    with pytest.raises(PermissionError):
        AtomicOutput(tmp_path)
    assert contents(tmp_path) == {"file": ""}


@pytest.mark.repeat
@pytest.mark.skipif(output_folder.fcntl is None, reason="a system with locks")
def test_runs_into_one_folder_come_one_after_the_other(tmp_path):
    """The one that waits neither mixes its files with the other's nor clears them away."""
    write(tmp_path, "old")
    waits = (
        "import sys; from pathlib import Path; from jaxtape.output_folder import AtomicOutput\n"
        "files = AtomicOutput(Path(sys.argv[1]), 'jaxtape second')\n"
        "print('here', flush=True)\n"
        "with files.written() as staging:\n"
        f"    [(staging / name).write_text(f'{{name}} of second') for name in {NAMES}]\n"
    )
    with AtomicOutput(tmp_path, "jaxtape first").written() as staging:
        second = subprocess.Popen(
            [sys.executable, "-c", waits, str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        assert second.stdout.readline() == "here\n"
        with pytest.raises(subprocess.TimeoutExpired):
            second.wait(0.5)
        for name in NAMES:
            (staging / name).write_text(f"{name} of first")
    second.communicate(timeout=60)
    assert second.returncode == 0
    assert manifest(tmp_path)["command"] == "jaxtape second" and told_apart(tmp_path)
