"""``python -m flipproof``: the command line."""

from flipproof.cli import main

if __name__ == "__main__":
    main()
