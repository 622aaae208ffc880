"""Marks for tests of what only some systems have: each is skipped elsewhere, with its reason. See CONTRIBUTING.md."""

from __future__ import annotations

import shutil
import sys

import pytest

windows = sys.platform == "win32"

signals = pytest.mark.skipif(windows, reason="SIGKILL and SIGINT to another process")
pipes = pytest.mark.skipif(windows, reason="named pipes")
links = pytest.mark.skipif(windows, reason="links, which take a right of their own to make")
forks = pytest.mark.skipif(windows, reason="forks of a process")
memory = pytest.mark.skipif(windows, reason="the module resource, which knows the peak of a process")
any_name = pytest.mark.skipif(sys.platform != "linux", reason="file names of any bytes")
permissions = pytest.mark.skipif(windows, reason="permissions of files by chmod")
bash = pytest.mark.skipif(shutil.which("bash") is None, reason="a script of bash")
