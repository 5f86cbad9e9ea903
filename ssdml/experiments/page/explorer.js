// The maps and the gallery of a report. Everything shown comes from the page itself.
//
// An element .explorer holds its data as JSON, a .map for each method (with a still picture inside,
// which stays where there is no script), a .card that tells of the row pointed at, and a .gallery.
// Rows are numbered from 0; the test rows come first, the labelled ones that were learned from last.
"use strict";

const NONE = -1;
const QUERIES = 6; // shown at a time
const REACH = 14; // pixels between the pointer and a row it points at
const MARGIN = 10; // pixels around the rows

function decoded(text) {
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return bytes;
}

const unpacked = (text, Kind) => (text === null ? null : new Kind(decoded(text).buffer));

function element(tag, properties = {}, ...children) {
  const { style, ...others } = properties;
  const made = Object.assign(document.createElement(tag), others);
  if (style) for (const [name, value] of Object.entries(style)) made.style.setProperty(name, value);
  made.append(...children);
  return made;
}

// A colour of the page, by the name of its variable, as [red, green, blue].
function themed(name) {
  const hex = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  return [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
}

const rgb = (parts) => `rgb(${parts.map(Math.round).join(" ")})`;
const mixed = (from, to, share) => from.map((part, i) => part + share * (to[i] - part));

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

class Items {
  constructor(data) {
    this.n = data.n;
    this.nTest = data.nTest;
    this.names = data.names;
    this.colors = data.colors;
    this.rows = unpacked(data.rows, Int32Array);
    this.classes = unpacked(data.classes, Int16Array);
    this.cards = data.cards;
    if (this.cards?.sheet) {
      const sheet = new Blob([decoded(this.cards.sheet)], { type: "image/webp" });
      this.sheet = `url(${URL.createObjectURL(sheet)})`;
    }
    this.methods = data.methods.map((method) => ({
      name: method.name,
      points: unpacked(method.points, Uint16Array),
      neighbors: unpacked(method.neighbors, Int32Array),
      width: method.width,
      predicted: unpacked(method.predicted, Int16Array),
      confidence: unpacked(method.confidence, Uint8Array),
    }));
  }

  className(row) {
    return this.classes[row] < 0 ? "no class" : this.names[this.classes[row]];
  }

  title(row) {
    return row < this.nTest ? `row ${this.rows[row]}` : "a labelled row";
  }

  neighbors(method, row) {
    return method.neighbors.subarray(row * method.width, (row + 1) * method.width);
  }

  isAlike(one, other) {
    return this.classes[one] >= 0 && this.classes[one] === this.classes[other];
  }

  nAlike(method, row) {
    return [...this.neighbors(method, row)].filter((other) => this.isAlike(row, other)).length;
  }

  finds(method, row) {
    return this.isAlike(row, this.neighbors(method, row)[0]);
  }

  // What the item looks like: its picture, its text, or where neither is there, its class.
  face(row, side) {
    const label = `${this.title(row)}, class ${this.className(row)}`;
    if (this.sheet) {
      const { width, height, columns, n } = this.cards;
      const scale = side / Math.max(width, height);
      const [x, y] = [row % columns, Math.floor(row / columns)];
      const style = {
        width: `${width * scale}px`,
        height: `${height * scale}px`,
        "background-image": this.sheet,
        "background-size": `${columns * width * scale}px ${Math.ceil(n / columns) * height * scale}px`,
        "background-position": `${-x * width * scale}px ${-y * height * scale}px`,
      };
      const picture = element("span", { className: "picture", style, title: label });
      picture.setAttribute("role", "img");
      picture.setAttribute("aria-label", label);
      return picture;
    }
    const text = this.cards?.texts ? this.cards.texts[row] : this.className(row);
    return element("span", { className: this.cards?.texts ? "text" : "text short", title: label }, text);
  }
}

class Panel {
  constructor(box, items, method, explorer) {
    Object.assign(this, { box, items, method, explorer, scale: 1, x: 0, y: 0 });
    this.canvas = element("canvas", { tabIndex: 0 });
    this.canvas.setAttribute("role", "img");
    const described = box.querySelector("svg").getAttribute("aria-label");
    this.canvas.setAttribute("aria-label", `${described}. Arrow keys go from row to row.`);
    this.marks = element("canvas", { className: "marks" });
    box.replaceChildren(this.canvas, this.marks);
    this.listen();
    new ResizeObserver(() => this.draw()).observe(box);
  }

  listen() {
    const { canvas } = this;
    let from = null;
    let moved = false;
    const place = (event) => {
      const frame = canvas.getBoundingClientRect();
      return [event.clientX - frame.left, event.clientY - frame.top];
    };
    canvas.addEventListener("pointerdown", (event) => {
      [from, moved] = [place(event), false];
    });
    canvas.addEventListener("pointerup", () => {
      from = null;
    });
    canvas.addEventListener("pointerleave", () => {
      from = null;
      this.explorer.point(NONE);
    });
    canvas.addEventListener("pointermove", (event) => {
      const [x, y] = place(event);
      if (from && this.scale > 1 && event.buttons) {
        moved ||= Math.hypot(x - from[0], y - from[1]) > 3;
        this.move(this.x + (x - from[0]) / this.inner, this.y + (y - from[1]) / this.inner);
        from = [x, y];
      } else {
        this.explorer.point(this.at(x, y));
      }
    });
    canvas.addEventListener("click", (event) => {
      if (!moved) this.explorer.pin(this.at(...place(event)));
    });
    canvas.addEventListener("dblclick", (event) => this.zoom(2, ...place(event)));
    canvas.addEventListener(
      "wheel",
      (event) => {
        if (!event.ctrlKey) return; // a wheel alone scrolls the page; with Ctrl, or two fingers, zooms
        event.preventDefault();
        this.zoom(Math.exp(-event.deltaY / 200), ...place(event));
      },
      { passive: false },
    );
    canvas.addEventListener("keydown", (event) => this.key(event));
    canvas.addEventListener("blur", () => this.explorer.point(NONE));
  }

  key(event) {
    const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    if (event.key in steps) this.explorer.point(this.beside(this.explorer.row, ...steps[event.key]));
    else if (event.key === "Enter") this.explorer.pin(this.explorer.row);
    else if (event.key === "Escape") this.explorer.point(NONE);
    else if (event.key === "+") this.zoom(2);
    else if (event.key === "-") this.zoom(0.5);
    else return;
    event.preventDefault();
  }

  // Where a row is on the canvas, in pixels of the page.
  position(row) {
    const { points } = this.method;
    const u = (points[2 * row] / 65535) * this.scale + this.x;
    const v = (points[2 * row + 1] / 65535) * this.scale + this.y;
    return [MARGIN + this.inner * u, MARGIN + this.inner * v];
  }

  at(x, y) {
    let [nearest, least] = [NONE, REACH ** 2];
    for (let row = 0; row < this.items.n; row++) {
      const [left, top] = this.position(row);
      const distance = (left - x) ** 2 + (top - y) ** 2;
      if (distance < least) [nearest, least] = [row, distance];
    }
    return nearest;
  }

  // The nearest row in a direction; without one to begin with, that in the middle.
  beside(row, right, down) {
    const [x, y] = row === NONE ? [this.side / 2, this.side / 2] : this.position(row);
    let [nearest, least] = [row, Infinity];
    for (let other = 0; other < this.items.n; other++) {
      const [left, top] = this.position(other);
      const along = (left - x) * right + (top - y) * down;
      const across = Math.abs((left - x) * down) + Math.abs((top - y) * right);
      const distance = row === NONE ? Math.hypot(left - x, top - y) : along + 2 * across;
      if (other !== row && (row === NONE || along > 0) && distance < least) {
        [nearest, least] = [other, distance];
      }
    }
    return nearest;
  }

  zoom(factor, x = this.side / 2, y = this.side / 2) {
    const scale = Math.min(Math.max(this.scale * factor, 1), 32);
    const change = scale / this.scale;
    const [u, v] = [(x - MARGIN) / this.inner, (y - MARGIN) / this.inner];
    this.scale = scale;
    this.move(u - (u - this.x) * change, v - (v - this.y) * change);
  }

  move(x, y) {
    this.x = Math.min(0, Math.max(1 - this.scale, x));
    this.y = Math.min(0, Math.max(1 - this.scale, y));
    this.draw();
  }

  context(canvas) {
    const ratio = window.devicePixelRatio || 1;
    const pixels = Math.round(this.side * ratio);
    if (canvas.width !== pixels) canvas.width = canvas.height = pixels;
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, this.side, this.side);
    return context;
  }

  draw() {
    this.side = this.box.clientWidth;
    if (!this.side) return;
    this.inner = this.side - 2 * MARGIN;
    const context = this.context(this.canvas);
    const { items } = this;
    const radius = Math.min(6, (items.n > 4000 ? 1.8 : 3) * Math.sqrt(this.scale));
    const paints = this.explorer.paints(this.method);
    const stamps = paints.colors.map((color) => stamp(color, radius));
    for (const layer of paints.layers) {
      for (const row of layer) {
        const [x, y] = this.position(row);
        if (x < -9 || y < -9 || x > this.side + 9 || y > this.side + 9) continue;
        const { image, size } = stamps[paints.of[row]];
        context.drawImage(image, x - size / 2, y - size / 2, size, size);
      }
    }
    context.strokeStyle = rgb(themed("--ink"));
    for (let row = items.nTest; row < items.n; row++) star(context, ...this.position(row), radius + 3.5, paints.colors[paints.of[row]]);
    this.drawMarks();
  }

  drawMarks() {
    if (!this.side) return;
    const context = this.context(this.marks);
    const { row } = this.explorer;
    if (row === NONE) return;
    const [x, y] = this.position(row);
    if (row < this.items.nTest) {
      for (const other of this.items.neighbors(this.method, row)) {
        context.strokeStyle = rgb(themed(this.items.isAlike(row, other) ? "--good" : "--bad"));
        context.setLineDash(this.items.isAlike(row, other) ? [] : [4, 3]);
        context.beginPath();
        context.moveTo(x, y);
        context.lineTo(...this.position(other));
        context.stroke();
      }
    }
    context.setLineDash([]);
    context.lineWidth = 2.5;
    context.strokeStyle = rgb(themed("--ink"));
    context.beginPath();
    context.arc(x, y, 7, 0, 2 * Math.PI);
    context.stroke();
  }
}

// A dot drawn once, to be copied many times.
function stamp(color, radius) {
  const ratio = 2;
  const size = 2 * radius + 2;
  const image = element("canvas", { width: Math.ceil(size * ratio), height: Math.ceil(size * ratio) });
  const context = image.getContext("2d");
  context.scale(ratio, ratio);
  context.globalAlpha = 0.85;
  context.fillStyle = color;
  context.beginPath();
  context.arc(size / 2, size / 2, radius, 0, 2 * Math.PI);
  context.fill();
  return { image, size };
}

function star(context, x, y, radius, color) {
  context.beginPath();
  for (let i = 0; i < 10; i++) {
    const [angle, length] = [(Math.PI * i) / 5, i % 2 ? 0.45 * radius : radius];
    context.lineTo(x + length * Math.sin(angle), y - length * Math.cos(angle));
  }
  context.closePath();
  context.fillStyle = color;
  context.fill();
  context.stroke();
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

  // Colours, which of them each row has, and the test rows in layers, the last on top.
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
    if (row < items.nTest) {
      for (const method of items.methods) {
        const told = [`${items.nAlike(method, row)} of ${method.width} neighbours of its class`];
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
