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
      const displayMode = formula.tagName === "DIV";
      window.katex.render(source, formula, { displayMode, throwOnError: false });
      const fit = formula.clientWidth / formula.scrollWidth;
      if (displayMode && fit < 1) formula.style.fontSize = `${Math.max(0.6, fit)}em`;  // on a phone; what is wider still scrolls
    }
  });
  document.head.append(style, script);
})();
