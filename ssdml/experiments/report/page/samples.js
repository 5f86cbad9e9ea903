// The samples on the maps of a report: classes, positions, predictions, thumbnails.
//
// Rows are indices from 0: test samples first, then labeled training samples.
"use strict";

const NONE = -1;

const decoded = (text) => Uint8Array.fromBase64?.(text) ?? Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
const unpacked = (text, Kind) => (text === null ? null : new Kind(decoded(text).buffer));

function element(tag, properties = {}, ...children) {
  const { style, ...others } = properties;
  const made = Object.assign(document.createElement(tag), others);
  if (style) for (const [name, value] of Object.entries(style)) made.style.setProperty(name, value);
  made.append(...children);
  return made;
}

// A name whose line may break after underscores, slashes and dots.
function breakable(name) {
  const parts = name.split(/(?<=[_/.\\])(?=\w)/);
  return parts.flatMap((part, i) => (i ? [element("wbr"), part] : [part]));
}

const counted = (n) => n.toLocaleString("en-US");

class Samples {
  constructor(data) {
    this.n = data.n;
    this.nTest = data.nTest;
    this.names = data.names;
    this.colors = data.colors; // of each class, the number of a color of the page
    this.sharesColors = new Set(data.colors).size < data.names.length;
    this.rows = unpacked(data.rows, Int32Array);
    this.classes = unpacked(data.classes, Int32Array);
    this.thumbnails = data.thumbnails;
    this.ids = data.ids ?? []; // these four only for `ssdml label`
    this.runnersUp = data.runnersUp ? unpacked(data.runnersUp, Int32Array) : null;
    this.suspects = data.suspects ?? [];
    this.suggested = data.suggested ?? [];
    if (this.thumbnails?.sheet) {
      this.places = unpacked(this.thumbnails.places, Int32Array);
      const sheet = new Blob([decoded(this.thumbnails.sheet)], { type: "image/webp" });
      this.sheet = `url(${URL.createObjectURL(sheet)})`;
    }
    this.methods = data.methods.map((method) => ({
      name: method.name,
      points: unpacked(method.points, Uint16Array),
      neighbors: unpacked(method.neighbors, data.n < 2 ** 16 ? Uint16Array : Int32Array),
      width: method.width,
      centers: method.centers, // of classes: [class, sample in the middle]
      predicted: unpacked(method.predicted, Int32Array),
      confidence: unpacked(method.confidence, Uint8Array),
    }));
  }

  className(row) {
    return this.classes[row] < 0 ? "no class" : this.names[this.classes[row]];
  }

  title(row) {
    return `sample ${this.rows[row]}${row < this.nTest ? "" : ", labeled"}`;
  }

  neighbors(method, row) {
    return method.neighbors.subarray(row * method.width, (row + 1) * method.width);
  }

  hasSameClass(one, other) {
    return this.classes[one] >= 0 && this.classes[one] === this.classes[other];
  }

  nSameClass(method, row) {
    return [...this.neighbors(method, row)].filter((other) => this.hasSameClass(row, other)).length;
  }

  findsSameClass(method, row) {
    return this.hasSameClass(row, this.neighbors(method, row)[0]);
  }

  // The thumbnail of a sample: its image, its text or, without either, its class.
  thumbnail(row, side) {
    const label = `${this.title(row)}, class ${this.className(row)}`;
    if (this.sheet) {
      const { width, height, columns, n } = this.thumbnails;
      const scale = side / Math.max(width, height);
      const place = this.places[row];
      const [x, y] = [place % columns, Math.floor(place / columns)];
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
    const text = this.thumbnails?.texts ? this.thumbnails.texts[row] : this.className(row);
    return element("span", { className: this.thumbnails?.texts ? "text" : "text short", title: label }, ...breakable(text));
  }
}

