"""A service in a separate process, for measurements and attacks."""

import signal
import subprocess
import sys
import time
from pathlib import Path

from calibration.app.serve.client import RiskClient

_MAIN = "from jaxtape.cli.main import main; main()"


class Served:
    """`jaxtape serve` on a free port of this machine; its log is in the folder `state`, as `log.jsonl`."""

    def __init__(self, market: Path, state: Path, *options: str):
        self.state, self.market, self.options = state, market, options
        state.mkdir(parents=True, exist_ok=True)
        self.seconds = self._start()

    def _start(self) -> float:
        """Start the service, and return the seconds until it is ready."""
        words = ["serve", "--market", str(self.market), "--state", str(self.state), "--port", "0"]
        start = time.perf_counter()
        with (self.state / "log.jsonl").open("a", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _MAIN, *words, *self.options],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self.process.stdout is not None
        said = self.process.stdout.readline()
        if not said:
            raise RuntimeError(f"the service did not start: see {self.state / 'log.jsonl'}")
        self.url = said.split()[2].rstrip(",")
        self.token = (self.state / "token").read_text(encoding="utf-8").strip()
        with self.client() as client:
            client.wait()
        return time.perf_counter() - start

    def client(self, *, retries: int = 5) -> RiskClient:
        """Return a client that may write."""
        return RiskClient(self.url, token=self.token, retries=retries)

    def restarted(self) -> float:
        """Restart the service after it has ended, and return the seconds until it is ready."""
        self.seconds = self._start()
        return self.seconds

    def killed(self) -> None:
        """Kill the service without warning, like a crash."""
        self.process.kill()
        self._ended()

    def stopped(self) -> int:
        """Ask the service to stop, and return its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self._ended()

    def _ended(self) -> int:
        """Wait for the service to end, and return its exit status."""
        status = self.process.wait(timeout=60)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return status

    def __enter__(self) -> "Served":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self._ended()


def refused_to_start(served: Served, *options: str) -> tuple[int, str]:
    """Return the exit status and the message of a service in the same market that cannot start."""
    folder = str(served.state.with_name("another"))
    words = ["serve", "--market", str(served.market), "--state", folder, *options]
    command = [sys.executable, "-c", _MAIN, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr
