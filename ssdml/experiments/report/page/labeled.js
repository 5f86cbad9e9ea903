// The map of `ssdml label`; needs samples.js, panel.js and explorer.js.
//
// Rows are new labels first, then given ones, which are stars.
"use strict";

class LabeledMap extends Explorer {
  paints(method) {
    if (this.colorBy !== "suspects") return super.paints(method);
    const { samples } = this;
    const of = new Uint8Array(samples.n);
    samples.suspects.forEach((row) => (of[row] = 1));
    const test = Array.from({ length: samples.nTest }, (_, row) => row);
    const colors = [rgb(mixed(themed("--paper"), themed("--muted"), 0.35)), rgb(themed("--bad"))];
    return { colors, of, layers: [test, []] };
  }

  words(row) {
    const { samples } = this;
    const { confidence } = samples.methods[0];
    const kind = row < samples.nTest ? "new label" : "given label";
    const facts = [`${samples.ids[row]}`, `${kind}: ${samples.className(row)}`];
    if (confidence) facts.push(`confidence ${Math.round(confidence[row] / 2.54)}%`);
    if (samples.runnersUp[row] !== NONE) facts.push(`or else ${samples.names[samples.runnersUp[row]]}`);
    if (samples.suggested.includes(row)) facts.push("one of the rows to label next");
    if (samples.suspects.includes(row)) facts.push("suspected to be wrong");
    return element("ul", {}, ...facts.map((fact) => element("li", {}, ...breakable(fact))));
  }

  pin() {}

  ask() {}
}

whenNear(".labeled", (root) => {
  new LabeledMap(root);
  performance.mark("labeled-ready");
});
