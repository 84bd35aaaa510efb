"""`python -m repokit` and the `repokit` command."""

from __future__ import annotations


def main() -> None:
    """Runs the command line and ends the process with its exit code."""
    import gc
    import signal

    from repokit.cli import run

    # By default Python looks for cycles after every 700 new objects; in 60,000 tensors that finds none and takes a
    # seventh of the time of a lint (measured, tests/bench/lint.py).
    gc.set_threshold(1_000_000)

    # A job scheduler, a container that is stopped and a terminal that is closed end a command as Ctrl-C does: with a
    # word of how to go on, and without what would be left behind. One that was told to ignore them (nohup) still does.
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)

    raise SystemExit(run())


if __name__ == "__main__":
    main()
