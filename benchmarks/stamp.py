"""Mark pages of tables whose numbers are of earlier code, and take the mark off the others.

    python benchmarks/stamp.py

Pages that are made again, by the commands that they name, carry no mark.
"""

from __future__ import annotations

from pathlib import Path

from flipproof.files import write_text
from flipproof.studies.provenance import marked

PAGES = Path(__file__).parents[1] / "docs" / "benchmarks"


def main() -> None:
    for path in sorted(PAGES.glob("*.md")):
        page = path.read_text(encoding="utf-8")
        if marked(page) != page:
            write_text(path, marked(page))
            print(f"{path.name}: marked as of {'earlier' if len(marked(page)) > len(page) else 'this'} code")


if __name__ == "__main__":
    main()
