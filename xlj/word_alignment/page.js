
const AT_ONCE = 25, GAP = 14, TOP = 18, BOTTOM = 104, HEIGHT = 116, BAND = 150;
const key = link => link[0] + "-" + link[1];

// Classifies the links of each pair and counts wrong and missed ones.
let low = Infinity, high = -Infinity;
for (const pair of items) for (const link of pair[2]) {
  low = Math.min(low, link[2]);
  high = Math.max(high, link[2]);
}
function classify([source, target, links, sure, possible]) {
  const keys = new Set(links.map(key));
  const predicted = links.map(link => ({link, kind: "predicted"}));
  if (!sure) return predicted;
  const gold = new Set([...sure, ...possible].map(key));
  for (const item of predicted) item.kind = gold.has(key(item.link)) ? "correct" : "wrong";
  return predicted.concat(
    sure.filter(link => !keys.has(key(link))).map(link => ({link, kind: "missed"})));
}
const facts = items.map(pair => {
  const counts = {correct: 0, wrong: 0, missed: 0, predicted: 0};
  for (const {kind} of classify(pair)) counts[kind]++;
  const sum = pair[2].reduce((total, link) => total + link[2], 0);
  const errors = counts.wrong + counts.missed;
  return {counts, errors, doubt: pair[2].length ? sum / pair[2].length : 0};
});
const orders = {
  file: (a, b) => a - b,
  errors: (a, b) => facts[b].errors - facts[a].errors || a - b,
  doubt: (a, b) => facts[a].doubt - facts[b].doubt || a - b,
};

// Splits the words of one sentence into `count` rows of similar width; returns word indices.
function rows(lengths, count) {
  const total = lengths.reduce((sum, length) => sum + length + GAP, 0);
  const result = Array.from({length: count}, () => []);
  let before = 0;
  lengths.forEach((length, k) => {
    result[Math.floor((before + length / 2) / (total || 1) * count)].push(k);
    before += length + GAP;
  });
  return result;
}
// Returns the number of bands that a pair needs to fit the page. A band has one row per sentence.
function bands(sides, room) {
  const wide = (lengths, count) => rows(lengths, count).some(row => row.length > 1
    && row.reduce((sum, k) => sum + lengths[k] + GAP, 1) > room);
  let count = 1;
  while (room > 0 && sides.some(lengths => wide(lengths, count))) count++;
  return count;
}

function draw(place) {
  const {counts} = facts[place];
  const pair = items[place], figure = append(element("items"), "figure", {class: "pair"});
  const caption = pair[3]
    ? `${counts.correct} correct, ${counts.wrong} wrong, ${counts.missed} missed`
    : `${counts.predicted} links`;
  append(figure, "figcaption", {}, `${place + 1}: ${caption}`);
  const svg = append(append(figure, "div", {class: "wide"}), "svg", {height: HEIGHT});
  const words = [0, 1].map(side => pair[side].map(word => append(svg, "text", {}, word)));
  const lengths = words.map(line => line.map(word => word.getComputedTextLength()));
  const count = bands(lengths, figure.querySelector(".wide").clientWidth);
  let width = 0;
  const places = words.map((line, side) => rows(lengths[side], count).flatMap((row, band) => {
    let x = 1;
    return row.map(k => {
      const middle = x + lengths[side][k] / 2, y = band * BAND + (side ? BOTTOM + 6 : TOP - 4);
      line[k].setAttribute("x", x);
      line[k].setAttribute("y", y);
      x += lengths[side][k] + GAP;
      width = Math.max(width, x);
      return {x: middle, y: side ? y - 16 : y + 6};
    });
  }));
  svg.style.width = width + "px";
  svg.style.height = (count - 1) * BAND + HEIGHT + "px";
  const touching = words.map(line => line.map(() => []));
  for (const {link: [i, j, confidence], kind} of classify(pair)) {
    const from = places[0][i], to = places[1][j];
    if (from === undefined || to === undefined) continue;  // a gold link outside its sentence
    const bend = (from.y + to.y) / 2;
    const strength = confidence === undefined ? .3
      : high > low ? (confidence - low) / (high - low) : 1;
    const path = append(svg, "path", {class: kind,
      d: `M${from.x},${from.y} C${from.x},${bend} ${to.x},${bend} ${to.x},${to.y}`,
      "stroke-width": 1 + 2.5 * strength, "stroke-opacity": .45 + .55 * strength});
    const number = confidence === undefined ? "" : " " + confidence;
    append(path, "title", {}, `${pair[0][i]} – ${pair[1][j]}: ${kind}${number}`);
    touching[0][i].push(path);
    touching[1][j].push(path);
  }
  words.forEach((line, side) => line.forEach((word, k) => {
    const light = on => () => {
      svg.classList.toggle("lit", on);
      for (const path of touching[side][k]) path.classList.toggle("lit", on);
    };
    word.addEventListener("mouseenter", light(true));
    word.addEventListener("mouseleave", light(false));
  }));
}

const redraw = paged(orders, AT_ONCE, draw);
let width = element("items").clientWidth;
window.addEventListener("resize", () => {
  if (element("items").clientWidth === width) return;  // only the height changed, as on phones
  width = element("items").clientWidth;
  redraw();
});
