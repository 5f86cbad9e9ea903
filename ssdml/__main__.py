"""The command line: ``ssdml``, or ``python -m ssdml`` for this very Python."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C while it is imported ends it as at any other time."""
    try:
        from ssdml.cli.app import main as run

        run()
    except KeyboardInterrupt:  # the commands catch theirs
        sys.stderr.write("Interrupted.\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
