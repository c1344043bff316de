"""Commands in processes of their own that can be killed, without the second that each would need to import everything.

A server of ``multiprocessing`` imports the command line once and forks itself for every command. What runs is the same
``main()`` in a process that knows nothing of the tests' fixtures.
"""

import importlib
import multiprocessing
import os
import resource
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from flipproof.cli import main
from flipproof.defences import defence_classes

_FORKING = multiprocessing.get_context("forkserver")
_COMMANDS = ["pytest", "pyarrow.parquet", "flipproof.cli.certify_command", "flipproof.cli.run_commands"]
_FORKING.set_forkserver_preload([*_COMMANDS, *(kind.__module__ for kind in defence_classes())])


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit code, what it said on stderr, and how long it took."""

    code: int | None
    err: str
    seconds: float

    @property
    def killed(self) -> bool:
        return self.code == -signal.SIGKILL


class Server:
    """Runs commands in a folder, in processes of their own, with more modules imported."""

    def __init__(self, folder: Path, *modules: str) -> None:
        self.folder, self._modules = folder, modules

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
        words, variables = list(map(str, arguments)), {name: str(value) for name, value in environment.items()}
        command = _FORKING.Process(target=_run, args=(self.folder, self._modules, words, variables, file_limit))
        begun = time.monotonic()
        command.start()
        command.join(killed_after)
        command.kill()  # if it still runs
        command.join()
        return Ended(command.exitcode, (self.folder / "stderr.txt").read_text(), time.monotonic() - begun)


def _run(
    folder: Path, modules: tuple[str, ...], words: list[str], variables: dict[str, str], file_limit: int | None
) -> None:
    os.chdir(folder)
    os.environ.update(variables)
    null, errors = os.open(os.devnull, os.O_RDWR), os.open("stderr.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for ours, theirs in ((null, 0), (null, 1), (errors, 2)):
        os.dup2(ours, theirs)
    for name in modules:
        importlib.import_module(name)
    if file_limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_limit, file_limit))
    sys.argv = ["flipproof", *words]
    main()
