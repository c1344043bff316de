r"""Tables in LaTeX, in the style of the booktabs package."""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["latex_table", "latex_text", "share_cell"]

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


def share_cell(share: float, low: float, high: float) -> str:
    r"""A share in per cent with its interval.

    >>> print(share_cell(0.9, 0.782, 0.967))
    90.0 {\scriptsize [78.2, 96.7]}
    """
    return rf"{100 * share:.1f} {{\scriptsize [{100 * low:.1f}, {100 * high:.1f}]}}"


def latex_table(
    head: Sequence[str], groups: Sequence[Sequence[Sequence[str]]], *, caption: str, label: str, texts: int = 1
) -> str:
    r"""A floating table with rules above, between and below its groups of rows; cells and caption are LaTeX already.

    The first ``texts`` columns are set flush left, the others flush right. It needs ``\usepackage{booktabs}``.

    >>> print(latex_table(["defence", "$r=0$"], [[["smoothing", "90.0"]]], caption="Accuracy.", label="tab:a"))
    \begin{table}
      \centering
      \caption{Accuracy.}
      \label{tab:a}
      \begin{tabular}{lr}
        \toprule
        defence & $r=0$ \\
        \midrule
        smoothing & 90.0 \\
        \bottomrule
      \end{tabular}
    \end{table}
    """
    body = [r"    \midrule"]
    for place, group in enumerate(groups):
        body += [r"    \midrule"] * (place > 0) + [f"    {' & '.join(row)} \\\\" for row in group]
    return "\n".join(
        [
            r"\begin{table}",
            r"  \centering",
            rf"  \caption{{{caption}}}",
            rf"  \label{{{label}}}",
            rf"  \begin{{tabular}}{{{'l' * texts}{'r' * (len(head) - texts)}}}",
            r"    \toprule",
            f"    {' & '.join(head)} \\\\",
            *body,
            r"    \bottomrule",
            r"  \end{tabular}",
            r"\end{table}",
        ]
    )
