r"""Tables in LaTeX, in the style of the booktabs package."""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["latex_table", "latex_text", "share_in_text"]

Cell = str | tuple[str, str]

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    **{character: "\\" + character for character in "&%$#_{}"},
}


def latex_text(text: str) -> str:
    r"""A user's text, shown as it is.

    >>> print(latex_text("keep_0.9 & 5%"))
    keep\_0.9 \& 5\%
    """
    return re.sub(r"\s+", " ", "".join(_SPECIAL.get(character, character) for character in text))


def share_in_text(share: float, low: float, high: float) -> str:
    r"""A share in per cent with its interval, within a sentence.

    >>> print(share_in_text(0.9, 0.782, 0.967))
    90.0 [78.2, 96.7]
    """
    return f"{100 * share:.1f} [{100 * low:.1f}, {100 * high:.1f}]"


def latex_table(
    head: Sequence[str], groups: Sequence[Sequence[Sequence[Cell]]], *, caption: str, label: str, texts: int = 1
) -> str:
    r"""A floating table with rules above, between and below its groups of rows; cells and caption are LaTeX already.

    The first ``texts`` columns are set flush left, the others flush right. A cell may be a value and its interval, which stands
    below it: side by side, seven columns would not fit on a page. It needs ``\usepackage{booktabs}``.

    >>> rows = [["smoothing", ("90.0", "[78.2, 96.7]")]]
    >>> print(latex_table(["defence", "$r=0$"], [rows], caption="Accuracy.", label="tab:a"))
    \begin{table}
      \centering
      \caption{Accuracy.}
      \label{tab:a}
      \small
      \setlength{\tabcolsep}{3pt}
      \begin{tabular}{lr}
        \toprule
        defence & $r=0$ \\
        \midrule
        smoothing & 90.0 \\
         & {\scriptsize [78.2, 96.7]} \\
        \bottomrule
      \end{tabular}
    \end{table}
    """
    body = [r"    \midrule"]
    for place, group in enumerate(groups):
        body += [r"    \midrule"] * (place > 0) + [
            f"    {' & '.join(line)} \\\\" for row in group for line in _lines(row)
        ]
    return "\n".join(
        [
            r"\begin{table}",
            r"  \centering",
            rf"  \caption{{{caption}}}",
            rf"  \label{{{label}}}",
            r"  \small",
            r"  \setlength{\tabcolsep}{3pt}",
            rf"  \begin{{tabular}}{{{'l' * texts}{'r' * (len(head) - texts)}}}",
            r"    \toprule",
            f"    {' & '.join(head)} \\\\",
            *body,
            r"    \bottomrule",
            r"  \end{tabular}",
            r"\end{table}",
        ]
    )


def _lines(row: Sequence[Cell]) -> list[list[str]]:
    """The values of a row and, if there are any, their intervals below."""
    values = [cell if isinstance(cell, str) else cell[0] for cell in row]
    intervals = ["" if isinstance(cell, str) else rf"{{\scriptsize {cell[1]}}}" for cell in row]
    return [values, intervals] if any(intervals) else [values]
