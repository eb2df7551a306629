"use strict";
// Items of the page, and functions to draw them page by page.
const items = JSON.parse(document.getElementById("data").textContent);
const element = id => document.getElementById(id);

function append(parent, tag, attributes, text) {
  const svg = ["svg", "text", "path", "title"].includes(tag);
  const child = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag)
    : document.createElement(tag);
  for (const name in attributes) child.setAttribute(name, attributes[name]);
  if (text !== undefined) child.textContent = text;
  parent.append(child);
  return child;
}

// Draws `atOnce` items at a time, in the chosen order. `orders` has functions that compare the
// places of two items; `draw` draws the item at a place. With a `menu`, only the places that are
// chosen in it are drawn. Returns a function that draws the page again.
function paged(orders, atOnce, draw, menu, isChosen) {
  let sorted = [], start = 0;
  const pageOf = number => Math.floor(Math.max(0, number) / atOnce) * atOnce;
  function show(from) {
    start = Math.max(0, Math.min(from, pageOf(sorted.length - 1)));
    element("items").replaceChildren();
    sorted.slice(start, start + atOnce).forEach(draw);
    const end = Math.min(start + atOnce, sorted.length);
    element("status").textContent = sorted.length ? `${start + 1} to ${end} of ${sorted.length}`
      : "no pairs";
    element("back").disabled = start === 0;
    element("next").disabled = end === sorted.length;
  }
  function sort() {
    sorted = items.map((_, place) => place).sort(orders[element("order").value]);
    if (menu) sorted = sorted.filter(isChosen);
    show(0);
  }
  const turn = pages => { show(start + pages * atOnce); window.scrollTo(0, 0); };
  element("back").addEventListener("click", () => turn(-1));
  element("next").addEventListener("click", () => turn(1));
  element("order").addEventListener("change", sort);
  if (menu) menu.addEventListener("change", sort);
  element("number").addEventListener("change", () => {
    const place = sorted.indexOf(element("number").valueAsNumber - 1);
    if (place < 0) return;
    show(pageOf(place));
    element("items").children[place - start].scrollIntoView();
  });
  sort();
  return () => show(start);
}
