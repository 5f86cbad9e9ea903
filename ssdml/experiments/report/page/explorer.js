// The maps and the gallery of a report; needs samples.js and panel.js.
//
// An element .explorer contains its data as JSON, a .map per method with a static picture as
// fallback, a .card that describes the selected sample, and a .gallery.
"use strict";

const QUERIES = window.matchMedia("(max-width: 34rem)").matches ? 3 : 6; // per page of the gallery

// A fixed random order.
function shuffled(n) {
  const order = Array.from({ length: n }, (_, i) => i);
  let state = 1;
  for (let i = n - 1; i > 0; i--) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    const j = Math.floor((state / 2 ** 32) * (i + 1));
    [order[i], order[j]] = [order[j], order[i]];
  }
  return order;
}

class Explorer {
  constructor(root) {
    this.root = root;
    this.samples = new Samples(JSON.parse(root.querySelector("script").textContent));
    this.row = NONE;
    this.colorBy = "class";
    this.only = NONE; // the class shown alone
    this.wanted = "";
    this.first = 0;
    this.pinned = NONE;
    this.order = shuffled(this.samples.nTest);
    const boxes = [...root.querySelectorAll(".map")];
    this.panels = boxes.map((box, i) => new Panel(box, this.samples, this.samples.methods[i], this));
    this.listen();
    this.press("color", "class");
    this.ask(this.firstQueries());
    this.describe();
    root.classList.add("ready");
  }

  listen() {
    this.root.addEventListener("click", (event) => {
      const { color, zoom, only, queries } = event.target.closest("button")?.dataset ?? {};
      if (color) this.press("color", color);
      if (only) this.press("only", Number(only) === this.only ? NONE : Number(only));
      if (zoom) this.panels.forEach((panel) => panel.zoom(Number(zoom)));
      if (queries) this.ask(queries);
    });
    const choice = this.root.querySelector("select[data-only]");
    choice?.addEventListener("change", () => this.press("only", Number(choice.value)));
    const dark = window.matchMedia("(prefers-color-scheme: dark)");
    dark.addEventListener("change", () => this.draw());
  }

  press(kind, value) {
    if (kind === "color") this.colorBy = value;
    else this.only = value;
    for (const button of this.root.querySelectorAll(`button[data-${kind}]`)) {
      button.setAttribute("aria-pressed", String(button.dataset[kind] === String(value)));
    }
    for (const legend of this.root.querySelectorAll("[data-legend]")) {
      legend.hidden = legend.dataset.legend !== this.colorBy;
    }
    this.draw();
  }

  draw() {
    this.panels.forEach((panel) => panel.draw());
  }

  // The class shown alone: the chosen one, or that of the sample pointed at if classes share colors.
  get shownClass() {
    const { samples, row } = this;
    if (this.only !== NONE || row === NONE || !samples.sharesColors) return this.only;
    return samples.classes[row];
  }

  // Colors, the color of each sample, and layers of test samples, the last on top.
  paints(method) {
    const { samples } = this;
    const faint = rgb(mixed(themed("--paper"), themed("--muted"), 0.35));
    const of = new Uint8Array(samples.n);
    const test = Array.from({ length: samples.nTest }, (_, row) => row);
    let colors = [faint];
    let above = () => false;
    if (this.colorBy === "class") {
      const n = 1 + Math.max(...samples.colors);
      colors = [faint, ...Array.from({ length: n }, (_, color) => rgb(themed(`--class-${color}`)))];
      const only = this.shownClass;
      samples.classes.forEach((c, row) => {
        of[row] = c < 0 || (only !== NONE && c !== only) ? 0 : 1 + samples.colors[c];
      });
      above = (row) => of[row] > 0;
    } else {
      const values = this.colorBy === "errors" ? method.predicted : method.confidence;
      const [low, high] = [themed("--bad"), themed("--accent")];
      if (this.colorBy === "errors") {
        colors.push(rgb(low));
        above = (row) => values !== null && values[row] !== samples.classes[row] && samples.classes[row] >= 0;
        test.forEach((row) => (of[row] = above(row) ? 1 : 0));
      } else {
        for (let step = 0; step <= 8; step++) colors.push(rgb(mixed(low, high, step / 8)));
        if (values) test.forEach((row) => (of[row] = 1 + Math.round((8 * values[row]) / 254)));
        above = (row) => values !== null && values[row] < 127;
      }
    }
    return { colors, of, layers: [test.filter((row) => !above(row)), test.filter(above)] };
  }

  // Select a sample in all panels.
  point(row) {
    if (row === this.row) return;
    const before = this.shownClass;
    this.row = row;
    if (this.shownClass !== before && this.colorBy === "class") this.draw();
    else this.panels.forEach((panel) => panel.drawMarks());
    this.describe();
  }

  describe() {
    const { row } = this;
    const card = this.root.querySelector(".card");
    if (row === NONE) card.replaceChildren(element("p", { className: "note" }, card.dataset.hint));
    else card.replaceChildren(this.samples.thumbnail(row, 72), this.words(row));
  }

  words(row) {
    const { samples } = this;
    const list = element("ul", {}, element("li", {}, ...breakable(`${samples.title(row)}: ${samples.className(row)}`)));
    if (row >= samples.nTest) list.append(element("li", {}, "Labeled training sample; neighbors are shown for test samples."));
    else {
      for (const method of samples.methods) {
        const facts = [`${samples.nSameClass(method, row)} of ${method.width} neighbors of its class`];
        if (method.predicted) {
          const isRight = method.predicted[row] === samples.classes[row];
          const confidence = method.confidence ? `, confidence ${Math.round(method.confidence[row] / 2.54)}%` : "";
          facts.unshift(`predicted ${samples.names[method.predicted[row]]} ${isRight ? "✓" : "✗"}${confidence}`);
        }
        list.append(element("li", {}, element("strong", {}, method.name), ` ${facts.join("; ")}`));
      }
    }
    return list;
  }

  pin(row) {
    if (row === NONE || row >= this.samples.nTest) return;
    this.pinned = row;
    this.fillGallery();
  }

  ask(queries) {
    if (queries === "next") this.first += QUERIES;
    else {
      [this.wanted, this.first] = [queries, 0];
      for (const button of this.root.querySelectorAll("button[data-queries]")) {
        button.setAttribute("aria-pressed", String(button.dataset.queries === queries));
      }
    }
    this.pinned = NONE;
    this.fillGallery();
  }

  // The gallery opens on samples about which the maps disagree, if there are any.
  firstQueries() {
    const buttons = [...this.root.querySelectorAll("button[data-queries]")];
    const names = buttons.map((button) => button.dataset.queries).filter((name) => name !== "next");
    return names.find((name) => this.order.some((row) => this.isWanted(row, name))) ?? "any";
  }

  isWanted(row, wanted = this.wanted) {
    const [before, after] = this.samples.methods;
    if (wanted === "any") return true;
    const [one, other] = wanted === "gained" ? [before, after] : [after, before];
    return !this.samples.findsSameClass(one, row) && this.samples.findsSameClass(other, row);
  }

  fillGallery() {
    const wanted = this.order.filter((row) => this.isWanted(row));
    if (this.first >= wanted.length) this.first = 0;
    const shown = wanted.slice(this.first, this.first + QUERIES);
    if (this.pinned !== NONE) shown.unshift(this.pinned);
    const gallery = this.root.querySelector(".gallery");
    gallery.replaceChildren(...shown.map((row) => this.query(row)));
    const range = this.root.querySelector(".shown");
    range.textContent = wanted.length
      ? `${counted(this.first + 1)} to ${counted(Math.min(this.first + QUERIES, wanted.length))} of ${counted(wanted.length)}`
      : "none";
    this.root.querySelector("button[data-queries=next]").disabled = wanted.length <= QUERIES;
  }

  query(row) {
    const { samples } = this;
    const asked = element("div", { className: "asked" }, samples.thumbnail(row, 64), element("span", { className: "note" }, ...breakable(samples.className(row))));
    const found = samples.methods.map((method) => {
      const faces = [...samples.neighbors(method, row)].map((other) => {
        const isRight = samples.hasSameClass(row, other);
        const mark = element("span", { className: "verdict" }, ...breakable(isRight ? "✓" : `✗ ${samples.className(other)}`));
        return element("li", { className: isRight ? "right" : "wrong" }, samples.thumbnail(other, 48), mark);
      });
      return element("div", {}, element("h3", {}, method.name), element("ol", { tabIndex: 0 }, ...faces));
    });
    return element("div", { className: "query" }, asked, element("div", { className: "found" }, ...found));
  }
}

// A section is drawn when it comes near the screen.
function whenNear(selector, make) {
  const watcher = new IntersectionObserver(
    (entries) => {
      for (const { isIntersecting, target } of entries) {
        if (!isIntersecting) continue;
        watcher.unobserve(target);
        make(target);
      }
    },
    { rootMargin: "400px" },
  );
  document.querySelectorAll(selector).forEach((root) => watcher.observe(root));
}

whenNear(".explorer", (root) => {
  new Explorer(root);
  performance.mark("explorer-ready");
});
