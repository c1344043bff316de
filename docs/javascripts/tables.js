// Numbers in tables, short code, names of options and drawn lines stay in one piece; a table that is wider than the page says so.
(() => {
  const number = /^[-+−<≥≤~]?\d[\d.,]*( ?[%±×–-] ?[\d.,]*)*( [a-zA-Z]{1,3})?$/;
  for (const cell of document.querySelectorAll(".md-typeset :is(td, th)")) {
    const text = cell.textContent.trim();
    if (number.test(text) || text.length <= (cell.cellIndex === 0 ? 22 : 8)) cell.classList.add("number");
    if (text.length > 80) cell.classList.add("long");
  }
  for (const code of document.querySelectorAll(".md-typeset :is(p, li, td) > code")) {
    if (/^.{1,18}$/.test(code.textContent)) code.style.whiteSpace = "nowrap";
  }
  for (const code of document.querySelectorAll(".md-typeset code")) {
    const walker = document.createTreeWalker(code, NodeFilter.SHOW_TEXT);
    const texts = [];
    while (walker.nextNode()) texts.push(walker.currentNode);
    for (const text of texts) {
      const parts = text.data.split(/((?<![\w-])--?[a-z][a-z-]*|^.*[\u2500-\u257f].*$)/m).map((part, index) => {
        if (index % 2 === 0) return part;
        const whole = document.createElement("span");
        whole.textContent = part;
        whole.style.whiteSpace = "pre";
        return whole;
      });
      if (parts.length > 1) text.replaceWith(...parts);
    }
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
