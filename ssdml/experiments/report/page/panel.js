// One map of a report: drawing, pointing, zooming and moving.
"use strict";

const REACH = 14; // pixels between the pointer and a dot
const MARGIN = 10; // pixels around the dots
const MAX_SCALE = 32;
const MOST_LETTERS = 24; // of a class name on a map
const SQUARE = 6; // pixels
const MOST_COVERED = 3; // samples below a name, if there are many names
// From the middle of a class to that of its name, in half widths and heights of it.
const STEPS = [-2, -1.2, 0, 1.2, 2].flatMap((down) => [0, -0.6, 0.6, -1.2, 1.2].map((right) => [right, down]));

// Color of a CSS variable as [red, green, blue].
function themed(name) {
  const hex = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  return [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
}

const rgb = (parts) => `rgb(${parts.map(Math.round).join(" ")})`;
const mixed = (from, to, share) => from.map((part, i) => part + share * (to[i] - part));

class Panel {
  constructor(box, samples, method, explorer) {
    Object.assign(this, { box, samples, method, explorer, scale: 1, x: 0, y: 0 });
    this.canvas = element("canvas", { tabIndex: 0 });
    this.canvas.setAttribute("role", "application"); // receives key events
    const described = box.querySelector("svg").getAttribute("aria-label");
    this.canvas.setAttribute("aria-label", `${described}. Arrow keys move between samples.`);
    this.marks = element("canvas", { className: "marks" });
    box.replaceChildren(this.canvas, this.marks);
    this.listen();
    new ResizeObserver(() => this.box.clientWidth !== this.side && this.draw()).observe(box);
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
    canvas.addEventListener("pointerleave", (event) => {
      from = null;
      if (event.pointerType === "mouse") this.explorer.point(NONE); // touch leaves after each tap
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
      if (moved) return;
      const row = this.at(...place(event));
      this.explorer.point(row);
      this.explorer.pin(row);
    });
    canvas.addEventListener("dblclick", (event) => this.zoom(2, ...place(event)));
    canvas.addEventListener(
      "wheel",
      (event) => {
        if (!event.ctrlKey) return; // the wheel alone scrolls the page
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
    if (event.key in steps) {
      const row = this.beside(this.explorer.row, ...steps[event.key]);
      this.show(row);
      this.explorer.point(row);
    }
    else if (event.key === "Enter") this.explorer.pin(this.explorer.row);
    else if (event.key === "Escape") this.explorer.point(NONE);
    else if (event.key === "+") this.zoom(2);
    else if (event.key === "-") this.zoom(0.5);
    else return;
    event.preventDefault();
  }

  // Position of a sample on the canvas, in CSS pixels.
  position(row) {
    const { points } = this.method;
    const u = (points[2 * row] / 65535) * this.scale + this.x;
    const v = (points[2 * row + 1] / 65535) * this.scale + this.y;
    return [MARGIN + this.inner * u, MARGIN + this.inner * v];
  }

  at(x, y) {
    let [nearest, least] = [NONE, REACH ** 2];
    for (let row = 0; row < this.samples.n; row++) {
      const [left, top] = this.position(row);
      const distance = (left - x) ** 2 + (top - y) ** 2;
      if (distance < least) [nearest, least] = [row, distance];
    }
    return nearest;
  }

  // The nearest sample in a direction, or that nearest to the middle.
  beside(row, right, down) {
    const [x, y] = row === NONE ? [this.side / 2, this.side / 2] : this.position(row);
    let [nearest, least] = [row, Infinity];
    for (let other = 0; other < this.samples.n; other++) {
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
    const scale = Math.min(Math.max(this.scale * factor, 1), MAX_SCALE);
    const change = scale / this.scale;
    const [u, v] = [(x - MARGIN) / this.inner, (y - MARGIN) / this.inner];
    this.scale = scale;
    this.canvas.style.touchAction = scale > 1 ? "none" : ""; // touch moves the map, or the page
    this.move(u - (u - this.x) * change, v - (v - this.y) * change);
  }

  // Move the map if a sample is outside.
  show(row) {
    if (row === NONE) return;
    const [x, y] = this.position(row);
    if (Math.min(x, y) >= 0 && Math.max(x, y) <= this.side) return;
    this.move(this.x + 0.5 - (x - MARGIN) / this.inner, this.y + 0.5 - (y - MARGIN) / this.inner);
  }

  move(x, y) {
    this.x = Math.min(0, Math.max(1 - this.scale, x));
    this.y = Math.min(0, Math.max(1 - this.scale, y));
    this.draw();
  }

  context(canvas) {
    const ratio = pixelRatio();
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
    const { samples } = this;
    const radius = Math.min(6, (samples.n > 4000 ? 1.8 : 3) * Math.sqrt(this.scale));
    const paints = this.explorer.paints(this.method);
    const stamps = paints.colors.map((color) => stamp(color, radius));
    for (const layer of paints.layers) {
      for (const row of layer) {
        const [x, y] = this.position(row);
        if (x < -9 || y < -9 || x > this.side + 9 || y > this.side + 9) continue;
        const { image, size } = stamps[paints.of[row]];
        context.drawImage(image, snapped(x - size / 2), snapped(y - size / 2), size, size);
      }
    }
    context.strokeStyle = rgb(themed("--ink"));
    context.lineWidth = 0.6;
    const reach = samples.n - samples.nTest > 100 ? radius + 1 : radius + 2;
    for (let row = samples.nTest; row < samples.n; row++) {
      star(context, ...this.position(row), reach, paints.colors[paints.of[row]]);
    }
    context.lineWidth = 1.8;
    for (const row of samples.suggested) {
      context.beginPath();
      context.arc(...this.position(row), radius + 3.5, 0, 2 * Math.PI);
      context.stroke();
    }
    this.drawNames(context);
    this.drawMarks();
  }

  // Number of samples in squares of the canvas, to place names where they cover few.
  crowding() {
    const width = Math.ceil(this.side / SQUARE);
    const counts = new Uint16Array(width * width);
    for (let row = 0; row < this.samples.n; row++) {
      const [x, y] = this.position(row).map((place) => Math.floor(place / SQUARE));
      if (x >= 0 && y >= 0 && x < width && y < width) counts[y * width + x]++;
    }
    return ([left, top, right, bottom]) => {
      let n = 0;
      for (let y = Math.floor(top / SQUARE); y <= bottom / SQUARE; y++) {
        for (let x = Math.floor(left / SQUARE); x <= right / SQUARE; x++) n += counts[y * width + x] ?? 0;
      }
      return n;
    };
  }

  // Class names beside the middle of their samples, where they cover the fewest and no other name:
  // enlarged maps show more.
  drawNames(context) {
    const { samples, explorer } = this;
    const size = samples.names.length > 10 ? 11 : 13;
    context.font = `600 ${size}px system-ui, sans-serif`;
    Object.assign(context, { textAlign: "center", textBaseline: "middle", lineJoin: "round", lineWidth: 3 });
    context.strokeStyle = rgb(themed("--paper"));
    context.fillStyle = rgb(themed("--ink"));
    const taken = [];
    const covered = this.crowding();
    const only = explorer.shownClass;
    for (const [c, row] of this.method.centers) {
      if (only !== NONE && c !== only) continue;
      const name = samples.names[c];
      const text = name.length > MOST_LETTERS ? `${name.slice(0, MOST_LETTERS - 1)}…` : name;
      const half = context.measureText(text).width / 2 + 2;
      const [x, y] = this.position(row);
      if (x < 0 || y < 0 || x > this.side || y > this.side) continue;
      const within = (place, edge) => Math.min(Math.max(place, edge), this.side - edge);
      const boxes = STEPS.flatMap(([right, down]) => {
        const [middle, height] = [within(x + right * half, half), within(y + down * size, size * 0.7)];
        const box = [middle - half, height - size * 0.7, middle + half, height + size * 0.7];
        const n = covered(box);
        const isFree = !taken.some((other) => overlap(box, other)) && (size === 13 || n <= MOST_COVERED);
        return isFree ? [{ box, cost: n + Math.abs(down) + Math.abs(right) }] : [];
      });
      if (!boxes.length) continue;
      const { box } = boxes.reduce((best, other) => (other.cost < best.cost ? other : best));
      taken.push(box);
      const place = [(box[0] + box[2]) / 2, (box[1] + box[3]) / 2];
      context.strokeText(text, ...place);
      context.fillText(text, ...place);
    }
  }

  drawMarks() {
    if (!this.side) return;
    const context = this.context(this.marks);
    const { row } = this.explorer;
    if (row === NONE) return;
    const [x, y] = this.position(row);
    context.lineWidth = 1;
    if (row < this.samples.nTest) {
      for (const other of this.samples.neighbors(this.method, row)) {
        context.strokeStyle = rgb(themed(this.samples.hasSameClass(row, other) ? "--good" : "--bad"));
        context.setLineDash(this.samples.hasSameClass(row, other) ? [] : [4, 3]);
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

const overlap = (one, other) => one[0] < other[2] && other[0] < one[2] && one[1] < other[3] && other[1] < one[3];

const pixelRatio = () => window.devicePixelRatio || 1;
const snapped = (place) => Math.round(place * pixelRatio()) / pixelRatio(); // to a pixel of the screen

// A dot, drawn once and copied pixel by pixel.
function stamp(color, radius) {
  const ratio = pixelRatio();
  const pixels = Math.ceil((2 * radius + 2) * ratio);
  const size = pixels / ratio;
  const image = element("canvas", { width: pixels, height: pixels });
  const context = image.getContext("2d");
  context.scale(ratio, ratio);
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

