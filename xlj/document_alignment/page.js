
"use strict";
const AT_ONCE = 50;
const items = JSON.parse(document.getElementById("data").textContent);
const element = id => document.getElementById(id);
const isGap = item => !item[1].length || !item[2].length;
const orders = {
  doubt: (a, b) => isGap(items[a]) - isGap(items[b]) || items[a][0] - items[b][0] || a - b,
  gaps: (a, b) => isGap(items[b]) - isGap(items[a]) || a - b,
  file: (a, b) => a - b,
};

function append(parent, tag, attributes, text) {
  const child = document.createElement(tag);
  for (const name in attributes) child.setAttribute(name, attributes[name]);
  if (text !== undefined) child.textContent = text;
  parent.append(child);
  return child;
}

// An item is [confidence, source, target, number of the documents]; a side is a list of
// [number, text, id].
function draw(place) {
  const [confidence, source, target] = items[place];
  const gap = isGap(items[place]);
  const kind = gap ? "no counterpart" : `${source.length}-${target.length}, ${confidence}`;
  const row = append(element("pairs"), "section", {class: gap ? "pair gap" : "pair"});
  append(row, "p", {class: "kind"}, `${place + 1}: ${kind}`);
  if (!gap) {
    const width = Math.max(2, Math.round(100 * confidence));
    append(append(row, "div", {class: "bar"}), "div", {}).style.width = width + "%";
  }
  for (const side of [source, target]) {
    const cell = append(row, "div", {class: "side", dir: "auto"});
    for (const [number, text, id] of side) {
      const line = append(cell, "p", {dir: "auto"});
      append(line, "span", {class: "number"}, id ? `${number} ${id}` : number);
      line.append(text);
    }
  }
}

let sorted = [], start = 0;
function show(from) {
  const last = Math.floor(Math.max(0, sorted.length - 1) / AT_ONCE) * AT_ONCE;
  start = Math.max(0, Math.min(from, last));
  element("pairs").replaceChildren();
  sorted.slice(start, start + AT_ONCE).forEach(draw);
  const end = Math.min(start + AT_ONCE, sorted.length);
  element("status").textContent = sorted.length ? `${start + 1} to ${end} of ${sorted.length}`
    : "no pairs";
  element("back").disabled = start === 0;
  element("next").disabled = end === sorted.length;
}
function sort() {
  const chosen = element("document") ? element("document").value : "";
  sorted = items.map((_, place) => place)
    .filter(place => chosen === "" || items[place][3] === Number(chosen))
    .sort(orders[element("order").value]);
  show(0);
}
const turn = pages => { show(start + pages * AT_ONCE); window.scrollTo(0, 0); };
element("back").addEventListener("click", () => turn(-1));
element("next").addEventListener("click", () => turn(1));
element("order").addEventListener("change", sort);
if (element("document")) element("document").addEventListener("change", sort);
element("number").addEventListener("change", () => {
  const place = sorted.indexOf(element("number").valueAsNumber - 1);
  if (place < 0) return;
  show(Math.floor(place / AT_ONCE) * AT_ONCE);
  element("pairs").children[place - start].scrollIntoView();
});
sort();
