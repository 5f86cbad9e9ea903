// The maps and the gallery of a report, after items.js and panel.js. Everything shown comes from the
// page itself.
//
// An element .explorer holds its data as JSON, a .map for each method (with a still picture inside,
// which stays where there is no script), a .card that tells of the row pointed at, and a .gallery.
"use strict";

const QUERIES = 6; // shown at a time

// The same order of the rows each time the page is opened.
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
    this.items = new Items(JSON.parse(root.querySelector("script").textContent));
    this.row = NONE;
    this.colorBy = "class";
    this.only = NONE; // the class that is shown alone
    this.wanted = "any";
    this.first = 0;
    this.pinned = NONE;
    this.order = shuffled(this.items.nTest);
    const boxes = [...root.querySelectorAll(".map")];
    this.panels = boxes.map((box, i) => new Panel(box, this.items, this.items.methods[i], this));
    this.listen();
    this.press("color", "class");
    this.fillGallery();
    this.tell();
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

  // Colors, which of them each row has, and the test rows in layers, the last on top.
  paints(method) {
    const { items } = this;
    const faint = rgb(mixed(themed("--paper"), themed("--muted"), 0.35));
    const of = new Uint8Array(items.n);
    const test = Array.from({ length: items.nTest }, (_, row) => row);
    let colors = [faint];
    let above = () => false;
    if (this.colorBy === "class") {
      colors = [faint, ...items.colors];
      items.classes.forEach((c, row) => {
        of[row] = c < 0 || (this.only !== NONE && c !== this.only) ? 0 : 1 + (c % items.colors.length);
      });
      above = (row) => of[row] > 0;
    } else {
      const told = this.colorBy === "errors" ? method.predicted : method.confidence;
      const [low, high] = [themed("--bad"), themed("--accent")];
      if (this.colorBy === "errors") {
        colors.push(rgb(low));
        above = (row) => told !== null && told[row] !== items.classes[row] && items.classes[row] >= 0;
        test.forEach((row) => (of[row] = above(row) ? 1 : 0));
      } else {
        for (let step = 0; step <= 8; step++) colors.push(rgb(mixed(low, high, step / 8)));
        if (told) test.forEach((row) => (of[row] = 1 + Math.round((8 * told[row]) / 254)));
        above = (row) => told !== null && told[row] < 127;
      }
    }
    return { colors, of, layers: [test.filter((row) => !above(row)), test.filter(above)] };
  }

  // A row is pointed at in all panels at once, and told in words.
  point(row) {
    if (row === this.row) return;
    this.row = row;
    this.panels.forEach((panel) => panel.drawMarks());
    this.tell();
  }

  tell() {
    const { row } = this;
    const card = this.root.querySelector(".card");
    if (row === NONE) card.replaceChildren(element("p", { className: "note" }, card.dataset.hint));
    else card.replaceChildren(this.items.face(row, 72), this.words(row));
  }

  words(row) {
    const { items } = this;
    const list = element("ul", {}, element("li", {}, `${items.title(row)}: ${items.className(row)}`));
    if (row >= items.nTest) list.append(element("li", {}, "Learned from; only test rows have neighbors here."));
    else {
      for (const method of items.methods) {
        const told = [`${items.nAlike(method, row)} of ${method.width} neighbors of its class`];
        if (method.predicted) {
          const isRight = method.predicted[row] === items.classes[row];
          const sure = method.confidence ? `, ${Math.round(method.confidence[row] / 2.54)} % sure` : "";
          told.unshift(`taken for ${items.names[method.predicted[row]]} ${isRight ? "✓" : "✗"}${sure}`);
        }
        list.append(element("li", {}, element("strong", {}, method.name), ` ${told.join("; ")}`));
      }
    }
    return list;
  }

  pin(row) {
    if (row === NONE || row >= this.items.nTest) return;
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

  isWanted(row) {
    const [before, after] = this.items.methods;
    if (this.wanted === "any") return true;
    const [one, other] = this.wanted === "gained" ? [before, after] : [after, before];
    return !this.items.finds(one, row) && this.items.finds(other, row);
  }

  fillGallery() {
    const wanted = this.order.filter((row) => this.isWanted(row));
    if (this.first >= wanted.length) this.first = 0;
    const shown = wanted.slice(this.first, this.first + QUERIES);
    if (this.pinned !== NONE) shown.unshift(this.pinned);
    const gallery = this.root.querySelector(".gallery");
    gallery.replaceChildren(...shown.map((row) => this.query(row)));
    const told = this.root.querySelector(".told");
    told.textContent = wanted.length
      ? `${this.first + 1} to ${Math.min(this.first + QUERIES, wanted.length)} of ${wanted.length}`
      : "There is none.";
  }

  query(row) {
    const { items } = this;
    const asked = element("div", { className: "asked" }, items.face(row, 64), element("span", { className: "note" }, items.className(row)));
    const found = items.methods.map((method) => {
      const faces = [...items.neighbors(method, row)].map((other) => {
        const isRight = items.isAlike(row, other);
        const mark = element("span", { className: "verdict" }, isRight ? "✓" : `✗ ${items.className(other)}`);
        return element("li", { className: isRight ? "right" : "wrong" }, items.face(other, 48), mark);
      });
      return element("div", {}, element("h4", {}, method.name), element("ol", {}, ...faces));
    });
    return element("div", { className: "query" }, asked, element("div", { className: "found" }, ...found));
  }
}

document.querySelectorAll(".explorer").forEach((root) => new Explorer(root));
performance.mark("explorer-ready");
