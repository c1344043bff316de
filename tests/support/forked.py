"""Commands in processes of their own that can be killed, without the second that each would need to import everything.

A server process imports the command line once and forks itself for every command. What runs is the same ``main()`` in a process
that knows nothing of the tests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

_SERVER = """
import json, os, resource, signal, sys, time
import pyarrow.parquet
from flipproof.cli import app, certify_command, run_commands
from flipproof.certificates import sampled_votes
from flipproof.defences import defence_classes
for name in sys.argv[1:]:
    __import__(name)
defence_classes()
app.parser("certify")

def child(arguments, limit, answers):
    null, errors = os.open(os.devnull, os.O_RDWR), os.open(answers, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for ours, theirs in ((null, 0), (null, 1), (errors, 2)):
        os.dup2(ours, theirs)
    if limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    sys.argv, code = ["flipproof", *arguments], 1
    try:
        app.main()
    except SystemExit as ended:
        code = ended.code or 0
    finally:
        sys.stderr.flush()
        os._exit(code)

for line in sys.stdin:
    command = json.loads(line)
    begun, pid = time.monotonic(), os.fork()
    if not pid:
        os.environ.update(command["environment"])
        child(command["arguments"], command["limit"], command["answers"])
    killed, status = False, None
    while status is None:
        if command["moment"] is not None and time.monotonic() - begun >= command["moment"]:
            os.kill(pid, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)
            killed = os.WIFSIGNALED(status)
        else:
            ended, code = os.waitpid(pid, os.WNOHANG)
            status = code if ended else time.sleep(0.001)
    code = None if killed else os.waitstatus_to_exitcode(status)
    print(json.dumps({"code": code, "seconds": time.monotonic() - begun}), flush=True)
"""


def environment() -> dict[str, str]:
    """The environment of a process that finds ``support``, too."""
    here = str(Path(__file__).parents[1])
    return {**os.environ, "PYTHONPATH": os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])])}


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit code, ``None`` if it was killed, what it said on stderr, and how long it took."""

    code: int | None
    err: str
    seconds: float

    @property
    def killed(self) -> bool:
        return self.code is None


class Server:
    """Runs commands in a folder, in processes of their own, with more modules imported; a context manager."""

    def __init__(self, folder: Path, *modules: str) -> None:
        self.folder, self._modules = folder, modules

    def __enter__(self) -> Server:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SERVER, *self._modules],
            cwd=self.folder,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def __call__(
        self,
        *arguments: object,
        killed_after: float | None = None,
        file_limit: int | None = None,
        **environment: object,
    ) -> Ended:
        """Run a command.

        Args:
            arguments: What is typed after ``flipproof``.
            killed_after: Send SIGKILL to its process so many seconds after its start.
            file_limit: No file may grow beyond so many bytes, as on a full disk.
            **environment: Variables of its environment.
        """
        answers = self.folder / "stderr.txt"
        command: dict[str, Any] = {"arguments": list(map(str, arguments)), "moment": killed_after, "limit": file_limit}
        command["environment"] = {name: str(value) for name, value in environment.items()}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({**command, "answers": str(answers)}) + "\n")
        self._process.stdin.flush()
        ended = json.loads(self._process.stdout.readline())
        return Ended(ended["code"], answers.read_text(), ended["seconds"])
