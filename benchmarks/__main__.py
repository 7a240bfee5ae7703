"""Every benchmark, each in a process of its own: `python -m benchmarks [--quick]`."""

import argparse
import subprocess
import sys

QUICK = {
    "pareto": ("--steps", "64", "--paths", "1024", "--repeat", "3"),
    "floors": ("--steps", "64", "--paths", "1024", "--slots", "8", "16", "--repeat", "3"),
    "noise": ("--rows", "64", "--columns", "32768", "--repeat", "3"),
    "heston_gradient": ("--steps", "64", "--paths", "8192", "--repeat", "3"),
    "edits": ("--repeat", "20"),
    "estimators": ("--paths", "20000", "--repeat", "1"),
    "equal_accuracy": ("--target", "0.02", "--repeat", "2"),
    "large_book": ("--trades", "200", "--repeat", "1"),
    "early_exercise": ("--paths", "8192", "--repeat", "1"),
    "bermudan": ("--repeat", "2", "--bumps", "2"),
    "deep_bsde": ("--iterations", "200", "--seeds", "1"),
    "portfolio_fbsde": ("--contracts", "50", "--paths", "4096", "--repeat", "1"),
    "one_step_malliavin": ("--dim", "10", "--iterations", "20", "--seeds", "1"),
    "malliavin_networks": ("--dim", "4", "--iterations", "20", "--seeds", "2"),
    "malliavin_floor": ("--dim", "10", "--iterations", "20"),
    "two_rates": ("--seeds", "1"),
    "exercise_rule": ("--blocks", "4"),
    "quantlib_peer": ("--quick",),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller problems, fewer repeats")
    quick = parser.parse_args().quick
    codes = []
    for name, shorter in QUICK.items():
        command = [sys.executable, "-m", f"benchmarks.{name}", *(shorter if quick else ())]
        print(f"\n== python -m benchmarks.{name}", *command[3:], flush=True)
        codes.append(subprocess.run(command, check=False).returncode)
    return max(codes, key=abs)


if __name__ == "__main__":
    sys.exit(main())
