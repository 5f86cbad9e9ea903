"""``python -m ssdml`` is the command line, of the very Python that is asked."""

from ssdml.cli.app import main

if __name__ == "__main__":
    main()
