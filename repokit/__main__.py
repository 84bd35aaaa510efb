"""`python -m repokit` and the `repokit` command."""

from __future__ import annotations


def main() -> None:
    """Runs the command line and ends the process with its exit code."""
    from repokit.cli import run

    raise SystemExit(run())


if __name__ == "__main__":
    main()
