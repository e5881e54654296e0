"""The command line (design section 6)."""


def main() -> None:
    """Run the command line."""
    raise SystemExit("trainwright: the command line is not there yet")
