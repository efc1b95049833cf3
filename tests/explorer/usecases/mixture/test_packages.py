"""Packages by apt and pip, which are small scripts here: no test needs a network."""

from __future__ import annotations

import os
import sys
from pathlib import PurePosixPath

import pytest

from focus_explorer.errors import InputError
from focus_explorer.usecases.mixture import build
from focus_explorer.usecases.mixture.build import Package, fetch_debian, fetch_pypi

MIRROR = {"alpha": "1.0-1", "beta": "1:2.0"}
APT_CACHE = "import sys\nfor name in sys.argv[2:]:\n    if name in MIRROR: print('Package: ' + name)\n"
APT_GET = """import sys, pathlib
names = sys.argv[3:]
for name in names:
    if name in BROKEN:
        print('W: a warning\\nE: Failed to fetch ' + name, file=sys.stderr)
        sys.exit(100)
for name in names:
    pathlib.Path(name + '_' + MIRROR[name].replace(':', '%3a') + '_all.deb').write_text(name)
"""
DPKG_DEB = """import sys, pathlib
name = pathlib.Path(sys.argv[2]).read_text()
if sys.argv[1] == '-f':
    print(MIRROR[name])
else:
    folder = pathlib.Path(sys.argv[3], 'usr/share')
    folder.mkdir(parents=True)
    (folder / 'text.txt').write_text('of ' + name)
"""


@pytest.fixture
def tools(tmp_path, monkeypatch):
    """Put scripts named like the tools first on the path; called with the packages that cannot be downloaded."""

    def make(broken=(), scripts=None):
        folder = tmp_path / "bin"
        folder.mkdir()
        for name, code in (scripts or {"apt-cache": APT_CACHE, "apt-get": APT_GET, "dpkg-deb": DPKG_DEB}).items():
            path = folder / name
            path.write_text(f"#!{sys.executable}\nMIRROR = {MIRROR!r}\nBROKEN = {list(broken)!r}\n{code}")
            path.chmod(0o755)
        monkeypatch.setenv("PATH", str(folder))

    return make


def silent(stage, fraction):
    assert 0 <= fraction <= 1


def test_what_the_mirror_has_is_unpacked_and_the_rest_named(tools, tmp_path):
    tools()
    found = fetch_debian(["alpha", "beta", "gamma"], tmp_path / "debs", silent)
    assert (found["alpha"].version, found["beta"].version) == ("1.0-1", "1:2.0")
    assert found["gamma"] == "this mirror has no such package"
    assert found["beta"].files(["*.txt"]) == {PurePosixPath("usr/share/text.txt"): b"of beta"}


def test_one_download_that_fails_leaves_the_others(tools, tmp_path):
    tools(broken=["beta"])
    found = fetch_debian(["alpha", "beta"], tmp_path / "debs", silent)
    assert isinstance(found["alpha"], Package)
    assert found["beta"] == "not downloaded: Failed to fetch beta"


def test_no_mirror_is_one_message(tools, tmp_path):
    tools(broken=MIRROR)
    with pytest.raises(InputError, match=r"no package can be downloaded: Failed to fetch .*; expected a reachable"):
        fetch_debian(["alpha", "beta"], tmp_path / "debs", silent)


def test_empty_lists_are_one_message(tools, tmp_path):
    tools()
    with pytest.raises(InputError, match=r"apt knows none of the 1 packages; .*apt-get update"):
        fetch_debian(["gamma"], tmp_path / "debs", silent)


def test_no_apt_is_one_message(tools, tmp_path):
    tools(scripts={"apt-cache": APT_CACHE, "dpkg-deb": DPKG_DEB})
    with pytest.raises(InputError, match="this machine has no apt-get; expected a Debian machine"):
        fetch_debian(["alpha"], tmp_path / "debs", silent)
    assert not (tmp_path / "debs").exists()


def test_a_package_that_cannot_be_unpacked_is_named(tools, tmp_path):
    tools(scripts={"apt-cache": APT_CACHE, "apt-get": APT_GET, "dpkg-deb": "raise SystemExit('E: not an archive')"})
    assert fetch_debian(["alpha"], tmp_path / "debs", silent) == {"alpha": "cannot be unpacked: not an archive"}


@pytest.mark.slow
def test_a_tool_that_does_not_answer_is_named(tools, tmp_path, monkeypatch):
    monkeypatch.setattr(build, "TIMEOUT", 0.5)
    slow = "import time\ntime.sleep(60)\n"
    tools(scripts={"apt-cache": APT_CACHE, "apt-get": slow, "dpkg-deb": DPKG_DEB})
    with pytest.raises(InputError, match="no answer within"):
        fetch_debian(["alpha"], tmp_path / "debs", silent)


def test_wheels_are_unpacked_and_what_fails_is_named(tmp_path, monkeypatch):
    pip = tmp_path / "python"
    pip.write_text(
        f"#!{sys.executable}\n"
        "import sys, zipfile\n"
        "if 'alpha==1.0' in sys.argv:\n"
        "    with zipfile.ZipFile('alpha-1.0-py3-none-any.whl', 'w') as wheel:\n"
        "        wheel.writestr('alpha/__init__.py', 'a = 1')\n"
        "elif 'beta==2.0' in sys.argv:\n"
        "    open('beta-2.0-py3-none-any.whl', 'w').write('no archive')\n"
        "else:\n"
        "    sys.exit('ERROR: No matching distribution')\n"
    )
    pip.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(pip))
    found = fetch_pypi(["alpha==1.0", "beta==2.0", "gamma==3.0"], tmp_path / "pypi", silent)
    assert found["alpha==1.0"].files(["*.py"]) == {PurePosixPath("alpha/__init__.py"): b"a = 1"}
    assert (found["alpha==1.0"].name, found["alpha==1.0"].version) == ("alpha", "1.0")
    assert found["beta==2.0"].startswith("cannot be unpacked")
    assert found["gamma==3.0"] == "not downloaded: No matching distribution"


def test_the_order_of_files_follows_from_their_paths(tmp_path):
    for name in ("b/z.py", "a/y.py", "c.py", "a/no.txt", "a/tests/t.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    os.symlink(tmp_path / "c.py", tmp_path / "link.py")
    package = Package("p", "1", tmp_path)
    assert [str(p) for p in package.files(["*.py"], ["*/tests/*"])] == ["a/y.py", "b/z.py", "c.py"]
    mixed = [str(p) for p in package.files(["*.py"], ["*/tests/*"], mixed=True)]
    assert sorted(mixed) == ["a/y.py", "b/z.py", "c.py"]
    assert mixed == [str(p) for p in package.files(["*.py"], ["*/tests/*"], mixed=True)]
