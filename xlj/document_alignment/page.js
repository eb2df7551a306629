
const AT_ONCE = 50;
const isGap = item => !item[1].length || !item[2].length;
const orders = {
  doubt: (a, b) => isGap(items[a]) - isGap(items[b]) || items[a][0] - items[b][0] || a - b,
  gaps: (a, b) => isGap(items[b]) - isGap(items[a]) || a - b,
  file: (a, b) => a - b,
};

// An item is [confidence, source, target, number of the documents]; a side is a list of
// [number, text, id].
function draw(place) {
  const [confidence, source, target] = items[place];
  const gap = isGap(items[place]);
  const kind = gap ? "no counterpart" : `${source.length}-${target.length}, ${confidence}`;
  const row = append(element("items"), "section", {class: gap ? "pair gap" : "pair"});
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

const menu = element("document");  // a page of one pair of documents has none
paged(orders, AT_ONCE, draw, menu,
  place => menu.value === "" || items[place][3] === Number(menu.value));
