// Numbers in tables and short code in text stay in one piece, and a table that is wider than the page says so.
(() => {
  const number = /^[-+−<≥≤~]?\d[\d.,]*( ?[%±×–-] ?[\d.,]*)*( [a-zA-Z]{1,3})?$/;
  for (const cell of document.querySelectorAll(".md-typeset :is(td, th)")) {
    const text = cell.textContent.trim();
    if (number.test(text) || text.length <= (cell.cellIndex === 0 ? 22 : 8)) cell.classList.add("number");
    if (text.length > 80) cell.classList.add("long");
  }
  for (const code of document.querySelectorAll(".md-typeset :is(p, li, td) > code")) {
    if (/^\S{1,16}$/.test(code.textContent)) code.style.whiteSpace = "nowrap";  // "--out" is not broken after its first hyphens
  }
  const cues = new Map();
  const look = () => {
    for (const box of document.querySelectorAll(".md-typeset__scrollwrap")) {
      const over = box.scrollWidth > box.clientWidth + 1;
      if (over && !cues.has(box)) {
        const cue = Object.assign(document.createElement("span"), { className: "scroll-cue", textContent: "Scroll sideways for more →" });
        cues.set(box, cue);
        box.before(cue);
      }
      if (cues.has(box)) cues.get(box).hidden = !over;
    }
  };
  addEventListener("resize", look);
  addEventListener("load", look);
  // the theme wraps tables after the page has been read
  new MutationObserver(look).observe(document.body, { childList: true, subtree: true });
})();
