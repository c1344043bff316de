"""Commands in processes of their own that can be killed, without the second that each would need to import everything.

A server of ``multiprocessing`` imports the command line once and forks itself for every command. What runs is the same
``main()`` in a process that knows nothing of the tests' fixtures.
"""

import fcntl
import importlib
import multiprocessing
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from flipproof.cli import main
from flipproof.defences import defence_classes

_FORKING = multiprocessing.get_context("forkserver")
_COMMANDS = ["pytest", "pyarrow.parquet", "flipproof.cli.certify_command", "flipproof.cli.run_commands"]
_FORKING.set_forkserver_preload([*_COMMANDS, *(kind.__module__ for kind in defence_classes())])

_SAID = "stdout.txt", "stderr.txt"


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit code, what it said, and how long it took."""

    code: int | None
    out: str
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
        killed_after: float | Callable[[], bool] | None = None,
        by: signal.Signals = signal.SIGKILL,
        file_limit: int | None = None,
        **environment: object,
    ) -> Ended:
        """Run a command.

        Args:
            arguments: What is typed after ``flipproof``.
            killed_after: Send its process a signal so many seconds after its start, or as soon as this is true.
            by: The signal.
            file_limit: No file may grow beyond so many bytes, as on a full disk.
            **environment: Variables of its environment.
        """
        words, variables = list(map(str, arguments)), {name: str(value) for name, value in environment.items()}
        command = _FORKING.Process(target=_run, args=(self.folder, self._modules, words, variables, file_limit))
        begun = time.monotonic()
        command.start()
        if callable(killed_after):
            while command.is_alive() and not killed_after():
                time.sleep(0.002)
        else:
            command.join(killed_after)
        if command.is_alive():
            os.kill(command.pid or 0, by)
        command.join()
        said = ((self.folder / name).read_text() for name in _SAID)
        return Ended(command.exitcode, *said, time.monotonic() - begun)

    def wait(self) -> None:
        """Wait until the workers of the last command have noticed its end."""
        with (self.folder / _SAID[1]).open() as errors:
            fcntl.flock(errors, fcntl.LOCK_SH)


def _run(
    folder: Path, modules: tuple[str, ...], words: list[str], variables: dict[str, str], file_limit: int | None
) -> None:
    os.chdir(folder)
    os.environ.update(variables)
    for stream, name in enumerate((os.devnull, *_SAID)):
        os.dup2(os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC), stream)
    fcntl.flock(2, fcntl.LOCK_EX)  # its workers hold it, too
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a test run in the background ignores it
    for name in modules:
        importlib.import_module(name)
    if file_limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_limit, file_limit))
    sys.argv = ["flipproof", *words]
    main()
