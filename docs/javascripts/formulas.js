// Typesets the formulas of a page with KaTeX, which comes with the site: nothing is fetched from elsewhere. A page without
// formulas loads nothing. Without JavaScript the source of a formula is shown.
(() => {
  const formulas = document.querySelectorAll(".arithmatex");
  if (!formulas.length) return;
  const home = document.currentScript.src.replace(/javascripts\/formulas\.js.*$/, "katex/");
  const style = document.createElement("link");
  Object.assign(style, { rel: "stylesheet", href: `${home}katex.min.css` });
  const script = document.createElement("script");
  script.src = `${home}katex.min.js`;
  script.addEventListener("load", () => {
    for (const formula of formulas) {
      const source = formula.textContent.trim().replace(/^\\[([]|\\[)\]]$/g, "");
      window.katex.render(source, formula, { displayMode: formula.tagName === "DIV", throwOnError: false });
    }
    document.body.getBoundingClientRect();  // asks for the fonts, without which the widths are not the final ones
    document.fonts.ready.then(() => {
      for (const formula of formulas) {
        const fit = formula.clientWidth / formula.scrollWidth;
        if (formula.tagName === "DIV" && fit < 1) formula.style.fontSize = `${Math.max(0.6, 0.96 * fit)}em`;  // a phone; what is wider scrolls
      }
    });
  });
  document.head.append(style, script);
})();
