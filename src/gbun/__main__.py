"""`python -m gbun` is the command `gbun`."""

from gbun.cli import main

if __name__ == "__main__":
    main()
