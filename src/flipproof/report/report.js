"use strict";
// Draws the report from the JSON in #content. Text from users is only ever set as text, never as HTML.
(() => {
  const content = JSON.parse(document.getElementById("content").textContent);
  const byId = (id) => document.getElementById(id);
  const { runs, graphs, data, top, noun } = content;
  const capital = noun[0].toUpperCase() + noun.slice(1);
  const several = runs.length > 1;
  // the same rounding as percent() in content.py
  const percent = (count, total) => {
    const share = (100 * count) / total;
    if (share === 0 || share === 100 || (share >= 1 && share <= 99)) return `${Math.floor(share + 0.5)}%`;
    return `${Math.min(99.9, Math.max(0.1, Math.floor(10 * share + 0.5) / 10)).toFixed(1)}%`;
  };
  // a share with its 95% interval, where one is known
  const between = (low, high) => `95% interval ${percent(low, 1).slice(0, -1)}–${percent(high, 1)}`;
  const share = (one, r) => `${percent(one.counts[r], one.total)} (${one.counts[r]} of ${one.total}${one.low ? `, ${between(one.low[r], one.high[r])}` : ""})`;
  const dash = (radius) => (radius < 0 ? "–" : String(radius));
  const flips = (number) => `${number} flip${number === 1 ? "" : "s"}`;
  const attackerWords = { radius: "flips", adds_radius: "additions", removes_radius: "removals" };

  function node(namespace, tag, attributes, children) {
    const made = namespace ? document.createElementNS(namespace, tag) : document.createElement(tag);
    for (const [key, value] of Object.entries(attributes || {})) {
      if (key === "on") for (const [event, listener] of Object.entries(value)) made.addEventListener(event, listener);
      else if (value === true) made.setAttribute(key, "");
      else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, value);
    }
    made.append(...children.flat().filter((child) => child !== null && child !== undefined));
    return made;
  }
  const h = (tag, attributes, ...children) => node(null, tag, attributes, children);
  const s = (tag, attributes, ...children) => node("http://www.w3.org/2000/svg", tag, attributes, children);

  const className = (graph, label) => (label === null ? "no label" : data[graph.data].classes[label]);
  const title = (graph) => graph.name || `${noun} ${graph.index}`;
  const state = (graph, run) => {
    const cell = graph.runs[run];
    if (!cell) return null;
    return cell.answer === null ? "abstained" : cell.answer === graph.label ? "right" : "wrong";
  };
  // flips of the smallest attack found; null where none was, or where none is needed because the answer is wrong already
  const smallestAttack = (cell) => {
    const found = cell.attacks.defended;
    return found && found.success && found.flips.length + found.changes.length ? found.size : null;
  };

  // ---- theme -----------------------------------------------------------------------------------------------------------
  const themeButton = byId("theme");
  const systemDark = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (document.documentElement.dataset.theme || (systemDark.matches ? "dark" : "light")) === "dark";
  function showTheme() {
    themeButton.textContent = dark() ? "Light" : "Dark";
    themeButton.setAttribute("aria-label", dark() ? "Change to light colours" : "Change to dark colours");
    themeButton.setAttribute("aria-pressed", String(dark()));
  }
  try {
    const kept = localStorage.getItem("flipproof-theme");
    if (kept) document.documentElement.dataset.theme = kept;
  } catch { /* a browser may keep nothing for local files */ }
  themeButton.addEventListener("click", () => {
    document.documentElement.dataset.theme = dark() ? "light" : "dark";
    try { localStorage.setItem("flipproof-theme", document.documentElement.dataset.theme); } catch { /* as above */ }
    showTheme();
  });
  systemDark.addEventListener("change", showTheme);
  showTheme();

  // ---- what is wider than the page says so ------------------------------------------------------------------------------
  const hints = new WeakMap();
  function cue() {
    for (const box of document.querySelectorAll(".scroll, .mini")) {
      const over = box.scrollWidth > box.clientWidth + 1;
      if (over && !hints.has(box)) {
        hints.set(box, h("p", { class: "hint", "aria-hidden": "true" }, "Scroll sideways for more →"));
        box.before(hints.get(box));
      }
      if (hints.has(box)) hints.get(box).hidden = !over;
      box.classList.toggle("more", over && box.scrollLeft + box.clientWidth < box.scrollWidth - 1);
      if (over && !box.hasAttribute("tabindex")) box.setAttribute("tabindex", "0");
    }
  }
  addEventListener("resize", cue);
  document.addEventListener("scroll", cue, { capture: true, passive: true });
  document.addEventListener("toggle", cue, { capture: true });

  // ---- drawing to the width that there is ------------------------------------------------------------------------------
  const drawings = new Map();
  const watch = new ResizeObserver((entries) => {
    for (const { target } of entries) redraw(target);
  });
  function redraw(box) {
    const width = Math.floor(box.clientWidth) - 20;
    const known = drawings.get(box);
    if (width >= 120 && known && known.width !== width) {
      known.width = width;
      box.replaceChildren(...[known.draw(width)].flat());
      cue();
    }
  }
  function drawn(box, draw) {
    drawings.set(box, { draw, width: 0 });
    watch.observe(box);
    redraw(box);
    return box;
  }
  function again(box) {
    drawings.get(box).width = 0;
    redraw(box);
  }
  const ticks = (count, most) => {
    const step = [1, 2, 4, 5, 8, 10, 20, 50].find((size) => count / size <= most) || 100;
    return Array.from({ length: Math.ceil(count / step) }, (_, place) => place * step);
  };

  // ---- keyboard, pointer and finger alike: one stop of the Tab key, arrows move among the marks, a line of text tells ---------
  function roving(svg, items, telling) {
    svg.setAttribute("role", "group");
    const told = h("p", { class: "told", "aria-live": "polite" }, telling);
    const centre = (item) => {
      const box = item.getBBox();
      return [box.x + box.width / 2, box.y + box.height / 2];
    };
    const visit = (item) => {
      for (const one of items) one.mark.setAttribute("tabindex", one === item ? "0" : "-1");
      told.textContent = item.words;
    };
    const nearest = (from, [dx, dy]) => {
      const [x, y] = centre(from.mark);
      const far = (item) => {
        const [u, v] = centre(item.mark);
        const along = (u - x) * dx + (v - y) * dy, aside = Math.abs((u - x) * dy) + Math.abs((v - y) * dx);
        return along > 0.5 ? along + 3 * aside : Infinity;
      };
      return items.reduce((best, item) => (far(item) < far(best) ? item : best), from);
    };
    items.forEach((item, place) => {
      const { mark, words, act } = item;
      for (const [name, value] of Object.entries({ tabindex: place ? "-1" : "0", role: act ? "button" : "img", "aria-label": words })) mark.setAttribute(name, value);
      mark.classList.add("mark");
      mark.append(s("title", {}, words));
      mark.addEventListener("focus", () => visit(item));
      mark.addEventListener("pointerenter", () => { told.textContent = words; });
      if (act) mark.addEventListener("click", act);
      mark.addEventListener("keydown", (event) => {
        const way = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[event.key];
        const ends = { Home: items[0], End: items[items.length - 1] }[event.key];
        if (act && (event.key === "Enter" || event.key === " ")) act();
        else if (way || ends) (ends || nearest(item, way)).mark.focus();
        else return;
        event.preventDefault();
        event.stopPropagation();
      });
    });
    return told;
  }

  // a sign for none stands at -1; where there is too little room beside it, 0 is left out
  const withNone = (found, room, most) => [-1, ...found.filter((tick) => tick > 0 || room >= most)];

  // ---- certified accuracy -----------------------------------------------------------------------------------------------
  const chart = byId("chart");
  const choice = { attacker: "radius", method: "own", band: true, hidden: new Set(), r: null };

  const shapes = [
    (x, y) => s("circle", { cx: x, cy: y, r: 4 }),
    (x, y) => s("rect", { x: x - 3.7, y: y - 3.7, width: 7.4, height: 7.4 }),
    (x, y) => s("path", { d: `M${x},${y - 4.8}l4.6,8h-9.2z` }),
    (x, y) => s("path", { d: `M${x},${y - 5}l5,5l-5,5l-5,-5z` }),
  ];

  function curves() {
    const found = [];
    runs.forEach((run, number) => {
      if (!several && choice.method === "all") {
        run.methods.forEach((method, place) => found.push(curve(run, method, method, place)));
      } else {
        const method = run.methods.includes(choice.method) ? choice.method : run.method;
        found.push(curve(run, method, several ? `${run.name} (${method})` : `certified (${method})`, number));
      }
    });
    runs.forEach((run, number) => {
      if (choice.attacker !== "radius") return;
      for (const [role, still] of Object.entries(run.underAttack)) {
        if (several && role !== "defended") continue;
        const style = { defended: several ? number : 1, base: 3, undefended: 4 }[role];
        const name = `${several ? `${run.name}: ` : ""}right after the attacks found on ${run.targets[role]} (${still.graphs} ${noun}s)`;
        found.push({ key: `${number}${role}`, name, style, attack: true, total: still.graphs, counts: still.n, low: still.low, high: still.high });
      }
      // attacks on a part of the graphs are another share than the certified one: its lower bound for the same part stands beside
      const part = run.certifiedOfAttacked;
      if (part) found.push({ key: `${number}part`, name: `${several ? `${run.name}: ` : ""}certified, of the ${part.graphs} ${noun}s attacked`, style: several ? number : 5, thin: true, total: part.graphs, counts: part.n, low: part.low, high: part.high });
    });
    return found;
  }
  function curve(run, method, name, style) {
    const stored = run.curves[choice.attacker][method];
    return { key: `${run.name}${method}`, name, style, total: run.graphs, counts: stored.n, low: stored.low, high: stored.high };
  }
  // where an edge-blind run is among the runs, its own curve is the line
  const lined = runs.filter((run) => run.line !== null && !runs.some((other) => other.edgeBlind && other.data === run.data));
  const lines = [...new Map(lined.map((run) => [`${run.data} ${run.line} ${run.graphs}`, run])).values()];
  const floors = lines.map((run) => ({ name: lines.length > 1 ? `edge-blind, ${run.name}` : "edge-blind", right: run.line, total: run.graphs }));

  function drawChart(width) {
    const height = Math.max(240, Math.min(380, width * 0.55));
    const left = 44, right = width - 12, up = 12, down = height - 40;
    const x = (r) => left + ((r + 0.5) * (right - left)) / (top + 1);
    const y = (share) => down - share * (down - up);
    const half = (right - left) / (top + 1) / 2;
    const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, height, "aria-hidden": "true" });
    for (const share of [0, 0.2, 0.4, 0.6, 0.8, 1]) {
      svg.append(s("line", { class: "grid", x1: left, x2: right, y1: y(share), y2: y(share) }));
      svg.append(s("text", { x: left - 8, y: y(share) + 4, "text-anchor": "end" }, `${Math.round(100 * share)}%`));
    }
    for (const r of ticks(top + 1, width / 45)) {
      svg.append(s("text", { x: x(r), y: down + 18, "text-anchor": "middle" }, String(r)));
    }
    svg.append(s("text", { x: (left + right) / 2, y: height - 5, "text-anchor": "middle" }, `${attackerWords[choice.attacker]} that the attacker may make`));
    const steps = (values) => values.map((share, r) => `${r ? "L" : "M"}${x(r) - half},${y(share)}H${x(r) + half}`).join("");
    for (const floor of floors) svg.append(s("line", { class: "floor", x1: left, x2: right, y1: y(floor.right / floor.total), y2: y(floor.right / floor.total) }));
    const shown = curves().filter((one) => !choice.hidden.has(one.key));
    for (const [place, one] of shown.entries()) {
      const shares = one.counts.slice(0, top + 1).map((count) => count / one.total);
      const colour = `run${one.style % 6}`;
      const low = one.low.slice(0, top + 1), high = one.high.slice(0, top + 1);
      if (choice.band && shown.length <= 2) {
        const back = low.map((share, r) => `L${x(r) + half},${y(share)}H${x(r) - half}`).reverse().join("");
        svg.append(s("path", { class: `band fill ${colour}`, d: `${steps(high)}${back}Z` }));
      } else if (choice.band) {
        // beside each other, so that those of several curves can be told apart
        const aside = ((place - (shown.length - 1) / 2) * Math.min(7, (1.2 * half) / shown.length));
        svg.append(s("path", { class: `whiskers ${colour}`, d: low.map((share, r) => `M${x(r) + aside},${y(share)}V${y(high[r])}`).join("") }));
      }
      svg.append(s("path", { class: `step ${colour} ${lineOf(one)}`, d: steps(shares) }));
      shares.forEach((share, r) => {
        if (one.attack || one.thin) return;
        const marker = shapes[one.style % 4](x(r), y(share));
        marker.setAttribute("class", `marker ${colour}`);
        svg.append(marker);
      });
    }
    if (choice.r !== null) svg.append(s("line", { class: "cursor", x1: x(choice.r), x2: x(choice.r), y1: up, y2: down }));
    svg.append(s("line", { class: "axis", x1: left, x2: right, y1: y(0), y2: y(0) }));
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      point(Math.round(((event.clientX - box.left) * (width / box.width) - left) / (2 * half) - 0.5));
    });
    return svg;
  }
  const lineOf = (one) => (one.attack ? "attack" : one.thin ? "thin" : `dash${one.style % 4}`);
  function point(r) {
    const kept = Math.max(0, Math.min(top, r));
    if (kept === choice.r) return;
    choice.r = kept;
    again(chart);
    read();
  }
  function read() {
    if (choice.r === null) {
      byId("readout").textContent = "";
      return;
    }
    const said = curves()
      .filter((one) => !choice.hidden.has(one.key) && choice.r < one.counts.length)
      .map((one) => `${one.name} ${share(one, choice.r)}`);
    said.push(...floors.map((floor) => `${floor.name} ${percent(floor.right, floor.total)} (${floor.right} of ${floor.total})`));
    const what = choice.attacker === "radius" ? flips(choice.r) : `${choice.r} ${attackerWords[choice.attacker]}`;
    byId("readout").textContent = `${choice.r ? `Against any ${what}` : "Without an attack"}: ${said.join(" · ")}`;
  }
  function showLegend() {
    const entries = curves().map((one) => {
      const line = s("path", { class: `step run${one.style % 6} ${lineOf(one)}`, d: "M0,6H30" });
      const sample = s("svg", { viewBox: "0 0 30 12", "aria-hidden": "true" }, line);
      if (!one.attack && !one.thin) {
        const marker = shapes[one.style % 4](15, 6);
        marker.setAttribute("class", `marker run${one.style % 6}`);
        sample.append(marker);
      }
      const button = h("button", { type: "button", "aria-pressed": String(!choice.hidden.has(one.key)) }, sample, h("span", {}, one.name));
      button.addEventListener("click", () => {
        if (!choice.hidden.delete(one.key)) choice.hidden.add(one.key);
        button.setAttribute("aria-pressed", String(!choice.hidden.has(one.key)));
        again(chart);
        read();
      });
      return button;
    });
    const tags = floors.map((floor) => {
      const sample = s("svg", { viewBox: "0 0 30 12", "aria-hidden": "true" }, s("line", { class: "floor", x1: 0, x2: 30, y1: 6, y2: 6 }));
      return h("span", { class: "tag", title: "a classifier that ignores edges: no flip can change it" }, sample, `${floor.name}: ${percent(floor.right, floor.total)}`);
    });
    byId("legend").replaceChildren(...entries, ...tags);
  }
  function fill(select, entries) {
    select.replaceChildren(...entries.map(([value, text]) => h("option", { value }, text)));
  }
  const asymmetric = runs.some((run) => !run.symmetric && !run.edgeBlind);
  fill(byId("attacker"), Object.entries(content.attackers));
  byId("attacker-control").hidden = !asymmetric;
  const methods = [...new Set(runs.flatMap((run) => run.methods))];
  const offered = [["own", several ? "each run's own" : `the run's own: ${runs[0].method}`]];
  if (!several) offered.push(["all", "all methods, same evidence"]);
  offered.push(...methods.filter((method) => several || method !== runs[0].method).map((method) => [method, method]));
  fill(byId("method"), offered);
  byId("method-control").hidden = methods.length < 2;
  byId("attacker").addEventListener("change", (event) => update({ attacker: event.target.value }));
  byId("method").addEventListener("change", (event) => update({ method: event.target.value }));
  byId("band").addEventListener("change", (event) => update({ band: event.target.checked }));
  function update(change) {
    Object.assign(choice, change);
    showLegend();
    again(chart);
    read();
  }
  chart.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (event.key === "Home") point(0);
    else if (event.key === "End") point(top);
    else if (step) point(choice.r === null ? 0 : choice.r + step);
    else return;
    event.preventDefault();
  });
  drawn(chart, drawChart);
  showLegend();
  point(Math.min(1, top));

  // ---- patterns: one panel per run ---------------------------------------------------------------------------------------
  function row(name, words, shown, draw) {
    if (!shown.length) return;
    const panels = shown.map((run) => {
      const box = h("div", { class: "pan" });
      const panel = h("div", { class: "panel" }, several ? h("h4", {}, run.name) : null, box);
      queueMicrotask(() => drawn(box, (width) => draw(run, runs.indexOf(run), width)));
      return panel;
    });
    byId("panels").append(
      h("div", { class: "row", id: `row-${name.toLowerCase().replaceAll(" ", "-")}` }, h("h3", {}, name), h("p", { class: "soft" }, words), h("div", { class: "side" }, panels)),
    );
  }

  // cells are never smaller than a number that can be read; a map that is wider than the page scrolls
  function heat(cells, total, width, words, across = "additions", up = "removals") {
    const size = [cells.length, Math.max(...cells.map((line) => line.length))];
    const left = 46, cell = Math.max(36, Math.min(72, (width - left - 8) / size[0])), tall = Math.max(28, Math.min(cell, 40));
    const height = tall * size[1] + 44, wide = Math.max(width, left + 8 + cell * size[0]);
    const svg = s("svg", { viewBox: `0 0 ${wide} ${height}`, width: wide, height, class: "fixed", "aria-label": words });
    const items = [];
    cells.forEach((line, adds) => line.forEach((count, removes) => {
      const x = left + adds * cell, y = (size[1] - 1 - removes) * tall + 4;
      const mark = s("rect", { class: "heat", x, y, width: cell, height: tall, rx: 3, "fill-opacity": Math.max(0.04, count / total) });
      items.push({ mark, words: `At most ${adds} ${across} and ${removes} ${up}: ${percent(count, total)} (${count} of ${total}).` });
      svg.append(mark);
      if (count > 0) svg.append(s("text", { class: "on", x: x + cell / 2, y: y + tall / 2 + 4, "text-anchor": "middle", "pointer-events": "none" }, percent(count, total).slice(0, -1)));
    }));
    for (const adds of ticks(size[0], 12)) svg.append(s("text", { x: left + (adds + 0.5) * cell, y: height - 24, "text-anchor": "middle" }, String(adds)));
    for (const removes of ticks(size[1], 12)) svg.append(s("text", { x: left - 8, y: (size[1] - 0.5 - removes) * tall + 8, "text-anchor": "end" }, String(removes)));
    svg.append(s("text", { x: left + (size[0] * cell) / 2, y: height - 6, "text-anchor": "middle" }, across));
    svg.append(s("text", { x: 0, y: 0, transform: `translate(12 ${(size[1] * tall) / 2 + 4}) rotate(-90)`, "text-anchor": "middle" }, up));
    return [h("div", { class: "scroll bare" }, svg), roving(svg, items, "Numbers are per cent. Arrow keys move among the cells.")];
  }
  const seeing = runs.filter((run) => !run.edgeBlind);
  row("Radii by class", `${capital}s of each true class by the number of flips that they withstand; ✗ means wrong or abstained.`, seeing, (run, number, width) => {
    const classes = data[run.data].classes.map((name, label) => {
      return [name, run.counted.classes[label] || [0]];
    }).filter(([, counts]) => counts.some((count) => count));
    const values = classes.map(([, counts]) => counts);
    const most = Math.max(1, ...values.flat());
    const lines = Math.ceil(classes.length / Math.max(1, Math.floor(width / 140)));
    const columns = Math.ceil(classes.length / lines);
    const wide = width / columns, tall = 104;
    const height = Math.ceil(classes.length / columns) * tall + 4;
    const svg = s("svg", { class: "bars", viewBox: `0 0 ${width} ${height}`, height, "aria-label": "histogram of radii for each class" });
    const items = [];
    classes.forEach(([name], place) => {
      const x0 = (place % columns) * wide, y0 = Math.floor(place / columns) * tall;
      const bar = (wide - 16) / (top + 1);
      svg.append(s("text", { class: "title", x: x0 + 4, y: y0 + 14 }, name.length > wide / 8 ? `…${name.slice(1 - Math.floor(wide / 8))}` : name));
      values[place].forEach((count, radius) => {
        const size = (56 * count) / most;
        if (!count) return;
        const mark = s("rect", { class: radius ? "" : "miss", x: x0 + 4 + radius * bar + 1, y: y0 + 80 - size, width: Math.max(1, bar - 2), height: size, rx: 2 });
        items.push({ mark, words: `${name}: ${count} ${radius ? `with radius ${radius - 1}${radius === top ? " or more" : ""}` : "wrong or abstained"}.` });
        svg.append(mark);
      });
      svg.append(s("line", { class: "grid", x1: x0 + 4, x2: x0 + wide - 12, y1: y0 + 80.5, y2: y0 + 80.5 }));
      for (const radius of withNone(ticks(top, Math.max(2, wide / 26)), bar, 14)) {
        svg.append(s("text", { x: x0 + 4 + (radius + 1.5) * bar, y: y0 + 95, "text-anchor": "middle" }, radius < 0 ? "✗" : String(radius)));
      }
    });
    return [svg, roving(svg, items, "Arrow keys move among the bars.")];
  });

  row("Additions and removals", `Percentage of ${noun}s that stay right under any attack with at most this many additions and removals.`, seeing.filter((run) => !run.symmetric),
    (run, number, width) => heat(run.cells, run.graphs, width, `share of ${noun}s certified for each number of additions and removals`));
  row("Changed features", `The share of ${noun}s that stay right under any flips together with any changes of node features.`, runs.filter((run) => run.features),
    (run, number, width) => heat(run.features[1], run.graphs, width, `share of ${noun}s certified for each number of flips and changed features`, "flips", `changed ${run.features[0]}`));

  function spots(points, width, marks) {
    // circles with as much ink as there are graphs; one that stands for graphs opens the first of them
    const left = marks.square ? 58 : 46, right = width - 14, up = 10, height = Math.min(300, width * 0.62) + 20, down = height - 38;
    const span = (axis) => points.reduce(([low, high], point) => [Math.min(low, point[axis]), Math.max(high, point[axis])], [points[0][axis], 1]);
    const [x0, x1] = marks.square ? [-1, Math.max(span("x")[1], span("y")[1])] : span("x");
    const [y0, y1] = marks.square ? [-1, x1] : [-1, span("y")[1]];
    const x = (value) => left + ((value - x0 + 0.5) * (right - left)) / (x1 - x0 + 1);
    const y = (value) => down - ((value - y0 + 0.5) * (down - up)) / (y1 - y0 + 1);
    const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, height, "aria-label": marks.words });
    const radiusText = (value) => (value < 0 ? marks.none : String(value));
    for (const tick of withNone(ticks(y1 + 1, 8), y(0) - y(1), 14)) {
      svg.append(s("line", { class: "grid", x1: left, x2: right, y1: y(tick), y2: y(tick) }));
      svg.append(s("text", { x: left - 8, y: y(tick) + 4, "text-anchor": "end" }, radiusText(tick)));
    }
    const across = marks.square ? withNone(ticks(x1 + 1, width / 50), x(1) - x(0), 30) : ticks(x1 + 1, ((width - 60) / 45) * ((x1 + 1) / (x1 - x0 + 1))).filter((tick) => tick >= x0);
    for (const tick of across) svg.append(s("text", { x: x(tick), y: down + 16, "text-anchor": "middle" }, marks.square ? radiusText(tick) : String(tick)));
    svg.append(s("text", { x: (left + right) / 2, y: height - 4, "text-anchor": "middle" }, marks.across));
    svg.append(s("text", { transform: `translate(12 ${(up + down) / 2}) rotate(-90)`, "text-anchor": "middle" }, marks.up));
    if (marks.square) svg.append(s("line", { class: "cursor", x1: x(x0), y1: y(y0), x2: x(x1), y2: y(y1) }));
    const scale = Math.min(1.5, 15.4 / Math.sqrt(Math.max(...points.map((point) => point.count)))); // the largest circle has a radius of 18 at most
    const items = points.map(({ x: across, y: radius, count: total, graphs: listed, off }) => {
      const mark = s("circle", { class: off ? "dot off" : "dot", cx: x(across), cy: y(radius), r: 2.6 + scale * Math.sqrt(total), "fill-opacity": 0.72 });
      const names = listed.map(title).join(", ");
      svg.append(mark);
      return { mark, act: () => listed.length && open(listed[0]), words: `${total.toLocaleString("en")} ${noun}${total === 1 ? "" : "s"}${names ? ": " : ""}${names}${total > listed.length ? ", …" : ""}.` };
    });
    return [svg, roving(svg, items, `A click or Enter opens a ${noun}; arrow keys move among the circles.`)];
  }
  const points = (run, key) => {
    const byIndex = new Map(graphs.filter((graph) => graph.data === run.data).map((graph) => [graph.index, graph]));
    return run.counted[key].map(([x, y, count, indices]) => ({ x, y, count, graphs: indices.map((index) => byIndex.get(index)).filter(Boolean) }));
  };
  row("Radius and size", `Larger circles are more ${noun}s; open circles are wrong or abstained.`, seeing, (run, number, width) =>
    spots(points(run, "sizes").map((point) => ({ ...point, off: point.y < 0 })), width,
      { across: "nodes", up: "certified radius", none: "✗", words: "certified radius against the number of nodes" }));
  row("What the method gains", "The same evidence read in two ways: above the line, the run's own method proves more than the other.",
    seeing.filter((run) => run.methods.length > 1), (run, number, width) => {
      const [first, second] = run.methods;
      return spots(points(run, "pairs"), width,
        { across: `radius by ${second}`, up: `radius by ${first}`, none: "none", square: true, words: `radius by ${first} against radius by ${second}` });
    });
  byId("panels").className = several ? "" : "two";
  byId("patterns").hidden = !seeing.length;

  // ---- the table -----------------------------------------------------------------------------------------------------------
  const PAGE = 50, MORE = 500;
  const table = { sort: null, down: false, most: PAGE, rows: graphs };
  const columns = [
    { name: capital, text: true, value: (graph) => graph.index, cell: (graph) => opener(graph) },
    ...(data.length > 1 ? [{ name: "Data", text: true, value: (graph) => data[graph.data].name }] : []),
    { name: "Class", text: true, wide: true, value: (graph) => className(graph, graph.label) },
    { name: "Nodes", number: true, wide: true, value: (graph) => graph.nodes },
    { name: "Edges", number: true, wide: true, value: (graph) => graph.count },
  ];
  const shared = columns.length;
  const groups = runs.map((run, number) => {
    const cell = (graph) => graph.runs[number];
    const from = (read) => (graph) => (cell(graph) ? read(cell(graph), graph) : null);
    const votes = (found) => found.counts.reduce((sum, count) => sum + count, 0);
    const added = [
      { name: "Answer", text: true, first: true, value: from((found, graph) => (found.answer === null ? "~" : className(graph, found.answer))), cell: (graph) => answer(graph, number) },
      { name: "Radius", number: true, value: from((found) => found.radius), cell: (graph) => withstood(graph, number) },
    ];
    if (!several && !run.symmetric && !run.edgeBlind) {
      added.push({ name: "Additions", number: true, value: from((found) => found.adds), format: dash }, { name: "Removals", number: true, value: from((found) => found.removes), format: dash });
    }
    if (!several && !run.edgeBlind) {
      if (graphs.some((graph) => cell(graph) && votes(cell(graph)) > 1)) added.push({ name: "Votes", number: true, wide: true, value: from((found) => Math.max(...found.counts) / votes(found)), cell: (graph) => percent(Math.max(...cell(graph).counts), votes(cell(graph))) });
      if (run.methods.length > 1) added.push({ name: `By ${run.methods[1]}`, number: true, wide: true, value: from((found) => found.by[run.methods[1]][1]), format: dash });
    }
    if (run.underAttack.defended) added.push({ name: "Attack", number: true, value: from(smallestAttack), cell: (graph) => attacked(graph, number), hint: "flips of the smallest attack found" });
    columns.push(...added);
    return added.length;
  });

  function opener(graph) {
    return h("button", { type: "button", class: "open", "aria-haspopup": "dialog" }, title(graph));
  }
  function answer(graph, number) {
    const found = state(graph, number);
    if (!found) return "";
    const mark = { right: "✓\u00a0", wrong: "✗\u00a0", abstained: "" }[found];
    const text = found === "abstained" ? "abstains" : className(graph, graph.runs[number].answer);
    return h("span", { class: found, title: found }, mark + text);
  }
  function withstood(graph, number) {
    const cell = graph.runs[number];
    if (!cell) return "";
    return runs[number].edgeBlind ? h("span", { title: `all ${cell.slots} node pairs` }, "any") : dash(cell.radius);
  }
  function attacked(graph, number) {
    const cell = graph.runs[number];
    const found = cell && cell.attacks.defended;
    if (!found) return "";
    const size = smallestAttack(cell);
    const words = `${size}${found.changes.length ? ` + ${found.changes.length} changed` : ""}`;
    if (size !== null) return found.broken ? h("span", { class: "wrong", title: "within the certified radius" }, `${words} !`) : words;
    return found.success ? h("span", { title: "not right without an attack either" }, "–") : h("span", { title: `no attack of up to ${flips(found.budget)} was found` }, "none");
  }
  function cellOf(column, graph) {
    if (column.cell) return column.cell(graph);
    const value = column.value(graph);
    return value === null ? "" : String(column.format ? column.format(value) : value);
  }
  function showHead() {
    const head = byId("table").tHead;
    byId("sort").value = table.sort === null ? "" : String(table.sort);
    byId("direction").textContent = table.down ? "↓" : "↑";
    byId("direction").disabled = table.sort === null;
    byId("direction").setAttribute("aria-label", table.down ? "Largest first; change to smallest first" : "Smallest first; change to largest first");
    const names = columns.map((column, place) => {
      const sorted = table.sort === place;
      const button = h("button", { type: "button", title: column.hint }, column.name, h("span", { "aria-hidden": "true" }, sorted ? (table.down ? " ↓" : " ↑") : ""));
      button.addEventListener("click", () => {
        sortBy(place, sorted ? !table.down : undefined);
        head.rows[head.rows.length - 1].cells[place].firstElementChild.focus();
      });
      return h("th", { scope: "col", class: classes(column), "aria-sort": sorted ? (table.down ? "descending" : "ascending") : null }, button);
    });
    const grouped = several
      ? [h("tr", {}, columns.slice(0, shared).map((column) => h("th", { class: column.wide ? "wide" : "" })), runs.map((run, number) => h("th", { class: "group", scope: "colgroup", colspan: groups[number] }, run.name)))]
      : [];
    head.replaceChildren(...grouped, h("tr", {}, names));
  }
  // radii and the like begin with the largest, facts about graphs with the smallest
  function sortBy(place, down = place !== null && Boolean(columns[place].number && place >= shared)) {
    Object.assign(table, { sort: place, down });
    showHead();
    showRows();
  }
  const classes = (column) => ["number", "wide", "first", "text"].filter((name) => column[name] && (name !== "first" || several)).join(" ");

  function filtered() {
    const words = byId("search").value.trim().toLowerCase();
    const set = byId("set").value, wanted = byId("class").value, run = Number(byId("run").value || 0), found = byId("answer").value;
    const least = byId("least").value === "" ? null : Number(byId("least").value);
    return graphs.filter((graph) =>
      (!words || title(graph).toLowerCase().includes(words) || String(graph.index) === words) &&
      (set === "" || graph.data === Number(set)) &&
      (wanted === "" || className(graph, graph.label) === wanted) &&
      (!found || state(graph, run) === found) &&
      (least === null || (graph.runs[run] && graph.runs[run].radius >= least)));
  }
  function compare(one, other) {
    if (one === null || other === null) return (one === null) - (other === null);
    if (typeof one === "string") return one.localeCompare(other, undefined, { numeric: true }) * (table.down ? -1 : 1);
    return (one - other) * (table.down ? -1 : 1);
  }
  function showRows() {
    table.rows = filtered();
    if (table.sort !== null) {
      const value = columns[table.sort].value;
      table.rows = [...table.rows].sort((one, other) => compare(value(one), value(other)));
    }
    const body = byId("table").tBodies[0];
    body.replaceChildren(...table.rows.slice(0, table.most).map((graph) => {
      const line = h("tr", {}, columns.map((column) => h("td", { class: classes(column) }, cellOf(column, graph))));
      line.addEventListener("click", () => open(graph));
      return line;
    }));
    const all = table.rows.length === graphs.length ? `${graphs.length} ${noun}s` : `${table.rows.length} of ${graphs.length} ${noun}s`;
    const most = Math.max(...runs.map((run, number) => (run.graphs > graphs.filter((graph) => graph.runs[number]).length ? run.graphs : 0)));
    byId("count").textContent = most ? `${all}, chosen from ${most.toLocaleString("en")}: some of every class and outcome` : all;
    byId("more").hidden = table.rows.length <= table.most;
    cue();
    byId("more").textContent = table.rows.length - table.most <= MORE ? `Show all ${table.rows.length}` : `Show ${MORE} more`;
  }
  byId("more").addEventListener("click", () => { table.most += MORE; showRows(); });
  addEventListener("beforeprint", () => { table.most = Math.max(table.most, 2000); showRows(); });
  const names = [...new Set(graphs.map((graph) => className(graph, graph.label)))].sort((one, other) => one.localeCompare(other, undefined, { numeric: true }));
  fill(byId("class"), [["", "any"], ...names.map((name) => [name, name])]);
  fill(byId("run"), runs.map((run, number) => [String(number), run.name]));
  byId("run-control").hidden = !several;
  const members = (number) => runs.filter((run) => run.data === number).map((run) => run.name).join(", ");
  fill(byId("set"), [["", "any"], ...data.map((set, number) => [String(number), `${set.name} (${members(number)})`])]);
  byId("set-control").hidden = data.length < 2;
  byId("filters").addEventListener("input", showRows);
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  byId("filters").addEventListener("reset", () => setTimeout(() => sortBy(null)));
  const owner = (place) => runs[groups.findIndex((_, number) => place < shared + groups.slice(0, number + 1).reduce((sum, count) => sum + count, 0))].name;
  fill(byId("sort"), [["", "order of the data"], ...columns.map((column, place) => [String(place), several && place >= shared ? `${owner(place)}: ${column.name}` : column.name])]);
  byId("sort").addEventListener("change", (event) => sortBy(event.target.value === "" ? null : Number(event.target.value)));
  byId("direction").addEventListener("click", () => sortBy(table.sort, !table.down));
  sortBy(null);

  // ---- one graph -----------------------------------------------------------------------------------------------------------
  const dialog = byId("detail");
  let shown = null, marked = null;

  function open(graph) {
    show(graph);
    if (!dialog.open) dialog.showModal();
    cue();
    dialog.scrollTop = 0;
  }
  function show(graph) {
    shown = graph;
    const options = attacksOn(graph);
    marked = options.length ? options[0].key : null;
    byId("detail-title").textContent = `${title(graph)}: ${className(graph, graph.label)}`;
    const place = table.rows.indexOf(graph);
    byId("previous").disabled = place <= 0;
    byId("next").disabled = place < 0 || place >= table.rows.length - 1;
    fillDetail();
  }
  function fillDetail() {
    const graph = shown;
    byId("detail-body").replaceChildren(h("div", {}, drawing(graph), marks(graph)), h("div", { class: "runs" }, runs.map((run, number) => about(graph, run, number))));
    cue();
  }
  const move = (step) => {
    const next = table.rows[table.rows.indexOf(shown) + step];
    if (next) show(next);
  };
  byId("previous").addEventListener("click", () => move(-1));
  byId("next").addEventListener("click", () => move(1));
  byId("close").addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  dialog.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step) { move(step); event.preventDefault(); }
  });

  // what can be marked: attacks found, and the worst flips that the evidence knows of
  function attacksOn(graph) {
    const explained = runs.some((run, number) => graph.runs[number] && graph.runs[number].weak);
    return runs.flatMap((run, number) => {
      const { attacks, weak } = graph.runs[number] || { attacks: {} };
      const prefix = several ? `${run.name}: ` : "";
      const options = Object.keys(run.targets).filter((role) => attacks[role]).map((role) => (
        { key: `${number}${role}`, name: `${prefix}${explained ? "attack found on " : ""}${run.targets[role]}`, found: attacks[role], number, weak: role === "defended" ? weak : null }));
      if (weak && (weak.weights || weak.flips.length)) options.push({ key: `${number}weak`, name: `${prefix}weak spots`, found: { ...weak, explains: true }, number, weak });
      return options;
    });
  }
  function marks(graph) {
    const options = attacksOn(graph);
    if (!options.length) return h("p", { class: "soft" }, `${graph.nodes} nodes, ${graph.count} edges.`);
    const buttons = [...options, { key: null, name: "none" }].map((option) => {
      const button = h("button", { type: "button", "aria-pressed": String(option.key === marked) }, option.name);
      button.addEventListener("click", () => {
        marked = option.key;
        fillDetail();
        byId("detail-body").querySelectorAll(".choices button").forEach((one) => { if (one.getAttribute("aria-pressed") === "true") one.focus(); });
      });
      return button;
    });
    const current = options.find((option) => option.key === marked);
    return h("div", {}, h("p", { class: "soft" }, `${graph.nodes} nodes, ${graph.count} edges. ${options.some((option) => option.weak) ? "Mark:" : "Mark the strongest attack found on:"}`), h("div", { class: "choices" }, buttons), current ? h("p", {}, current.found.explains ? weakWords(graph, current.found, current.number) : attackWords(graph, current.found)) : null);
  }
  function flipWords(graph, found, most = Infinity) {
    const present = new Set((graph.edges || []).map((pair) => pair.join("-")));
    const told = found.flips;
    const rest = told.length > most ? ` and ${told.length - most} more` : "";
    const words = told.slice(0, most).map(([u, v]) => `${!graph.edges ? "flip" : present.has(`${u}-${v}`) ? "remove" : "add"} ${u}–${v}`);
    return [...words, ...(found.changes || []).map(([node, column]) => `change feature ${column} of node ${node}`)].join(", ") + rest;
  }
  function weakWords(graph, weak, number) {
    const size = weak.flips.length, told = flipWords(graph, weak, 12), { radius } = graph.runs[number];
    if (!size) return radius >= graph.runs[number].slots ? `No ${flips(graph.runs[number].slots)} can change the answer.` : "No flips are known that bring the rival nearer.";
    if (!weak.succeeds) return `The worst ${size === 1 ? "flip" : flips(size)} found: ${told}. ${size > radius ? `${size === 1 ? "It is" : "They are"} not known to change the answer.` : "So few cannot change the answer."}`;
    const sharp = size === radius + 1 ? " No smaller attack exists." : ` Whether ${radius + 2 === size ? flips(radius + 1) : `${radius + 1} to ${flips(size - 1)}`} can is not known.`;
    return `${flips(size)} ${size === 1 ? "is" : "are"} known to change the answer: ${told}.${sharp}`;
  }
  function attackWords(graph, found) {
    const told = flipWords(graph, found);
    const { size } = found, changed = found.changes.length;
    const what = [size ? flips(size) : "", changed ? `${changed} changed node feature${changed === 1 ? "" : "s"}` : ""].filter(Boolean).join(" and ");
    if (found.success && !what) return `Its answer is not ${className(graph, found.label)}, even without an attack.`;
    if (found.success) return `${what} change${size + changed === 1 ? "s" : ""} the answer: ${told} (${found.attack}${found.confirmed ? ", confirmed" : ""}).`;
    return `No attack of up to ${flips(found.budget)} was found that changes the answer. The closest: ${told || "none"} (${found.attack}).`;
  }

  function about(graph, run, number) {
    const cell = graph.runs[number];
    const head = several ? h("h3", {}, run.name) : null;
    if (!cell) return h("div", { class: "card" }, head, h("p", { class: "soft" }, `This run does not include this ${noun}.`));
    const parts = [head, h("p", { class: "verdict" }, verdict(graph, run, cell, number))];
    const total = cell.counts.reduce((sum, count) => sum + count, 0);
    if (total > 1) parts.push(h("h4", {}, `${total.toLocaleString("en")} votes`), votesTable(graph, cell, total));
    if (cell.weak) parts.push(h("h4", {}, "Weak spots"), ...weakTable(graph, cell.weak));
    if (run.methods.length > 1) parts.push(h("h4", {}, "By method, from the same evidence"), methodTable(graph, run, cell));
    if (cell.grid.length) {
      const size = Math.max(...cell.grid);
      const cells = cell.grid.map((count) => Array.from({ length: size }, (_, removes) => (removes < count ? 1 : 0)));
      parts.push(h("h4", {}, "Additions and removals withstood together"), smallGrid(cells));
    }
    return h("div", { class: "card" }, parts);
  }
  function smallGrid(cells) {
    const rows = Math.min(13, cells[0].length), columns = Math.min(13, cells.length);
    const width = Math.max(110, columns * 20 + 40);
    const svg = s("svg", { viewBox: `0 0 ${width} ${rows * 20 + 34}`, width, height: rows * 20 + 34, role: "img", "aria-label": "which numbers of additions and removals are withstood" });
    for (let adds = 0; adds < columns; adds += 1) {
      for (let removes = 0; removes < rows; removes += 1) {
        svg.append(s("rect", { class: "heat", x: 34 + adds * 20, y: (rows - 1 - removes) * 20, width: 20, height: 20, rx: 3, "fill-opacity": cells[adds][removes] ? 1 : 0.08 }));
      }
      svg.append(s("text", { x: 44 + adds * 20, y: rows * 20 + 14, "text-anchor": "middle" }, String(adds)));
    }
    for (let removes = 0; removes < rows; removes += 1) svg.append(s("text", { x: 28, y: (rows - 0.5 - removes) * 20 + 4, "text-anchor": "end" }, String(removes)));
    svg.append(s("text", { x: 34, y: rows * 20 + 30 }, "additions"));
    svg.append(s("text", { transform: `translate(10 ${rows * 10}) rotate(-90)`, "text-anchor": "middle" }, "removals"));
    return h("div", { class: "mini" }, svg);
  }
  function verdict(graph, run, cell, number) {
    const found = state(graph, number);
    if (found === "abstained") return [h("span", { class: "abstained" }, "Abstains"), ": the evidence does not settle the answer."];
    const said = h("span", { class: found }, `${found === "right" ? "✓" : "✗"} ${className(graph, cell.answer)}`);
    const judged = graph.label === null ? "" : found === "right" ? ", which is right. " : ", which is wrong. ";
    if (run.edgeBlind) return ["Answers ", said, judged, `The model ignores edges: none of the ${cell.slots} node pairs matters.`];
    const sure = cell.radius === 0 ? "No flip is proven harmless." : cell.radius === 1 ? "No single edge flip can change this." : `No attack of up to ${cell.radius} edge flips can change this.`;
    const more = [];
    if (cell.adds > cell.radius) more.push(`${flips(cell.adds)} if edges can only be added`);
    if (cell.removes > cell.radius) more.push(`${flips(cell.removes)} if edges can only be removed`);
    return ["Answers ", said, judged, sure, more.length ? ` It withstands ${more.join(", and ")}.` : ""];
  }
  function votesTable(graph, cell, total) {
    const order = cell.counts.map((count, label) => [count, label]).filter(([count]) => count).sort((one, other) => other[0] - one[0]);
    const lines = order.slice(0, 8).map(([count, label]) => h("tr", {},
      h("td", { class: "name" }, className(graph, label)),
      h("td", { class: "track" }, s("svg", { viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" }, s("rect", { class: label === order[0][1] ? "top" : "", width: Math.max(0.8, (100 * count) / total), height: 8, rx: 1 }))),
      h("td", { class: "number" }, `${count.toLocaleString("en")} (${percent(count, total)})`)));
    const rest = order.slice(8).reduce((sum, [count]) => sum + count, 0);
    if (rest) lines.push(h("tr", {}, h("td", { class: "name" }, "others"), h("td", {}), h("td", {}, String(rest))));
    return h("table", { class: "votes" }, h("tbody", {}, lines));
  }
  const signed = (value) => `${value < 0 ? "−" : "+"}${Math.abs(value)}`;
  function weakTable(graph, weak) {
    const said = [`Nearest rival: ${className(graph, weak.rival)}.`];
    if (weak.weights) {
      const carried = Number(weak.weights.reduce((sum, weight) => sum + weight, 0).toPrecision(3));
      said.push(`Single nodes carry ${signed(carried)} of the lead over it; ${signed(weak.rest)} belongs to none of them.`);
    }
    const text = (cell) => (cell !== null && typeof cell === "object" ? className(graph, cell.label) : String(cell));
    const numeric = weak.columns.map((_, place) => weak.rows.every((line) => typeof line[place] === "number"));
    const head = h("tr", {}, weak.columns.map((name, place) => h("th", { scope: "col", class: numeric[place] ? "number" : null }, name)));
    const lines = weak.rows.map((line) => h("tr", {}, line.map((cell, place) => h("td", { class: numeric[place] ? "number" : null }, text(cell)))));
    const table = h("table", { class: "methods weak" }, h("caption", {}, weak.caption), h("thead", {}, head), h("tbody", {}, lines));
    return [h("p", {}, said.join(" ")), lines.length ? h("div", { class: "mini" }, table) : null];
  }
  function methodTable(graph, run, cell) {
    const wide = !run.symmetric;
    const head = ["Method", "Answer", "Radius", ...(wide ? ["Additions", "Removals"] : []), "Share at least"];
    const lines = run.methods.map((method) => {
      const [label, radius, adds, removes, share] = cell.by[method];
      const values = [method === run.method ? h("b", {}, `${method} (this run)`) : method, label === null ? "abstains" : className(graph, label), dash(radius), ...(wide ? [dash(adds), dash(removes)] : []), share === null ? "" : share.toFixed(4)];
      return h("tr", {}, values.map((value) => h("td", {}, value)));
    });
    return h("div", { class: "mini" }, h("table", { class: "methods" }, h("thead", {}, h("tr", {}, head.map((name) => h("th", { scope: "col" }, name)))), h("tbody", {}, lines)));
  }

  // ---- drawing a graph -------------------------------------------------------------------------------------------------------
  function drawing(graph) {
    if (!graph.edges) {
      const { nodes, edges, all } = content.limits;
      return h("p", { class: "note" }, `Not drawn: drawings are kept for graphs of up to ${nodes} nodes and ${edges.toLocaleString("en")} edges, and ${all.toLocaleString("en")} edges in all.`);
    }
    const { edges } = graph;
    const places = layout(graph.nodes, edges);
    const option = attacksOn(graph).find((one) => one.key === marked);
    const flipped = option ? option.found.flips : [];
    const touched = new Set(flipped.flat());
    const width = 420, height = 360, edge = 22;
    const at = (number) => [edge + places[number][0] * (width - 2 * edge), edge + places[number][1] * (height - 2 * edge)];
    const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, "aria-label": `drawing of ${title(graph)}: ${graph.nodes} nodes, ${graph.count} edges${flipped.length ? `, ${flips(flipped.length)} marked` : ""}` });
    const line = ([u, v], name) => {
      const [x1, y1] = at(u), [x2, y2] = at(v);
      return s("line", { class: name, x1, y1, x2, y2 });
    };
    const kept = new Map(edges.map((pair) => [pair.join("-"), pair]));
    const added = flipped.filter((pair) => !kept.delete(pair.join("-")));
    const removed = edges.filter((pair) => !kept.has(pair.join("-")));
    for (const pair of kept.values()) svg.append(line(pair, "edge"));
    for (const pair of removed) svg.append(line(pair, "edge removed"));
    for (const [u, v] of added) {
      // bent a little, so that it cannot hide edges that it runs along
      const [x1, y1] = at(u), [x2, y2] = at(v);
      const bend = 0.12 * ((x1 + x2 - width) * (y2 - y1) - (y1 + y2 - height) * (x2 - x1) > 0 ? -1 : 1);
      svg.append(s("path", { class: "edge added", d: `M${x1},${y1}Q${(x1 + x2) / 2 + bend * (y2 - y1)},${(y1 + y2) / 2 - bend * (x2 - x1)} ${x2},${y2}` }));
    }
    const size = graph.nodes > 100 ? 3 : graph.nodes > 40 ? 4.5 : 6.5;
    const weights = option && option.weak ? option.weak.weights : null;
    const heaviest = weights ? Math.max(...weights.map(Math.abs)) || 1 : 1;
    const degrees = Array(graph.nodes).fill(0);
    for (const pair of edges) for (const number of pair) degrees[number] += 1;
    const items = [];
    for (let number = 0; number < graph.nodes; number += 1) {
      const [cx, cy] = at(number);
      const circle = weights ? weighed(cx, cy, size, weights[number], heaviest) : s("circle", { class: touched.has(number) ? "node touched" : "node", cx, cy, r: touched.has(number) ? size + 1.5 : size });
      const edgeWords = `${degrees[number]} edge${degrees[number] === 1 ? "" : "s"}`;
      items.push({ mark: circle, words: `Node ${number}: ${edgeWords}${weights ? `, carries ${signed(weights[number])} of the lead` : ""}.` });
      if (weights && touched.has(number)) svg.append(s("circle", { class: "halo", cx, cy, r: Number(circle.getAttribute("r")) + 3.5 }));
      svg.append(circle);
    }
    const told = roving(svg, items, "Arrow keys move among the nodes.");
    if (weights) return h("div", { class: "drawing" }, svg, told, weightKey(graph, option, added.length, removed.length));
    const key = flipped.length ? h("p", { class: "soft" }, [added.length ? "Red: added. " : "", removed.length ? "Dashed: removed." : ""]) : null;
    return h("div", { class: "drawing" }, svg, told, key);
  }
  // the sign is told by a disc or a ring, the amount by its size: neither needs colour
  function weighed(cx, cy, size, weight, heaviest) {
    const r = size * (0.4 + 1.2 * Math.sqrt(Math.abs(weight) / heaviest));
    return s("circle", { class: `node ${weight < 0 ? "against" : "for"}`, cx, cy, r });
  }
  function weightKey(graph, option, added, removed) {
    const sample = (...drawn) => s("svg", { viewBox: "0 0 30 20", "aria-hidden": "true" }, drawn);
    const entry = (drawn, words) => h("li", {}, drawn, h("span", {}, words));
    const answer = className(graph, graph.runs[option.number].answer), rival = className(graph, option.weak.rival);
    const entries = [[1, answer], [-1, rival]]
      .filter(([sign]) => option.weak.weights.some((weight) => sign * weight > 0))
      .map(([sign, name]) => entry(sample(weighed(8, 10, 5, sign * 0.1, 1), weighed(21, 10, 5, sign, 1)), `speaks for ${name}`));
    if (added) entries.push(entry(sample(s("path", { class: "edge added", d: "M2,10H28" })), "added"));
    if (removed) entries.push(entry(sample(s("path", { class: "edge removed", d: "M2,10H28" })), "removed"));
    return h("ul", { class: "key weights" }, entries, h("li", { class: "soft" }, "Larger nodes carry more of the lead."));
  }

  // Stress majorisation from classical scaling: distances on paper near to distances in the graph. The same every time.
  function layout(count, edges) {
    if (count === 1) return [[0.5, 0.5]];
    const far = distances(count, edges);
    const angle = (number) => (2 * Math.PI * number) / count;
    const start = [0, 1].map((axis) => Float64Array.from({ length: count }, (_, number) => (axis ? Math.sin(angle(number)) : Math.cos(angle(number)))));
    const place = scaled(far, count, start);
    for (let round = 0; round < (count > 120 ? 40 : 120); round += 1) relax(place, far, count);
    return fitted(place, count);
  }
  function distances(count, edges) {
    const near = Array.from({ length: count }, () => []);
    for (const [u, v] of edges) { near[u].push(v); near[v].push(u); }
    const far = new Float64Array(count * count).fill(-1);
    let longest = 1;
    for (let from = 0; from < count; from += 1) {
      const queue = [from];
      far[from * count + from] = 0;
      for (const reached of queue) {
        for (const next of near[reached]) {
          if (far[from * count + next] < 0) {
            far[from * count + next] = far[from * count + reached] + 1;
            longest = Math.max(longest, far[from * count + next]);
            queue.push(next);
          }
        }
      }
    }
    return far.map((value) => (value < 0 ? Math.min(longest + 1, 1 + Math.sqrt(count)) : value));
  }
  function scaled(far, count, start) {
    const square = far.map((value) => -0.5 * value * value);
    const mean = Array.from({ length: count }, (_, line) => square.subarray(line * count, (line + 1) * count).reduce((sum, value) => sum + value, 0) / count);
    const whole = mean.reduce((sum, value) => sum + value, 0) / count;
    const found = [];
    for (const first of start) {
      let vector = first;
      let size = 1;
      for (let round = 0; round < 60; round += 1) {
        const next = new Float64Array(count);
        for (let i = 0; i < count; i += 1) for (let j = 0; j < count; j += 1) next[i] += (square[i * count + j] - mean[i] - mean[j] + whole) * vector[j];
        for (const { vector: other } of found) {
          const along = next.reduce((sum, value, i) => sum + value * other[i], 0);
          for (let i = 0; i < count; i += 1) next[i] -= along * other[i];
        }
        size = Math.hypot(...next) || 1;
        vector = next.map((value) => value / size);
      }
      found.push({ vector, size: Math.sqrt(size) });
    }
    return found.map(({ vector, size }, axis) => vector.map((value, number) => value * size + 0.05 * start[axis][number]));
  }
  function relax([xs, ys], far, count) {
    for (let i = 0; i < count; i += 1) {
      let x = 0, y = 0, weight = 0;
      for (let j = 0; j < count; j += 1) {
        if (i === j) continue;
        const wanted = far[i * count + j];
        const dx = xs[i] - xs[j], dy = ys[i] - ys[j];
        const is = Math.max(1e-6, Math.hypot(dx, dy));
        const share = 1 / (wanted * wanted);
        x += share * (xs[j] + (wanted * dx) / is);
        y += share * (ys[j] + (wanted * dy) / is);
        weight += share;
      }
      xs[i] = x / weight;
      ys[i] = y / weight;
    }
  }
  function fitted([xs, ys], count) {
    const low = [Math.min(...xs), Math.min(...ys)], high = [Math.max(...xs), Math.max(...ys)];
    const size = Math.max(high[0] - low[0], high[1] - low[1], 1e-9);
    const middle = [(low[0] + high[0]) / 2, (low[1] + high[1]) / 2];
    return Array.from({ length: count }, (_, i) => [0.5 + (xs[i] - middle[0]) / size, 0.5 + (ys[i] - middle[1]) / size]);
  }
})();
