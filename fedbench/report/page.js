"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const buttons = [["toImage", "zoom2d", "pan2d", "autoScale2d"]]; // none that would send anything anywhere
const config = { displaylogo: false, responsive: true, modeBarButtons: buttons };

// Sorting by a click on a title: numbers by size, words as people sort them, empty cells last in either direction.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  const all = [...table.tBodies[0].rows];
  heads.forEach((head, column) => {
    const text = (row) => row.cells[column].textContent.trim();
    const there = all.map(text).filter((value) => value !== "");
    const numbers = there.length > 0 && there.every((value) => Number.isFinite(Number(value)));
    if (numbers) for (const row of table.rows) row.cells[column].classList.add("number");
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
      const rows = [...table.tBodies[0].rows].map((row) => [text(row), row]);
      rows.sort(([a], [b]) => {
        if (a === "" || b === "") return (a === "") - (b === "");
        return sign * (numbers ? a - b : a.localeCompare(b, undefined, { numeric: true }));
      });
      table.tBodies[0].append(...rows.map(([, row]) => row));
    });
  });
}

const filter = document.getElementById("filter");
filter.addEventListener("input", () => {
  const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  const rows = [...document.getElementById("runs").tBodies[0].rows];
  for (const row of rows) {
    const text = row.textContent.toLowerCase();
    row.hidden = !words.every((word) => text.includes(word));
  }
  const kept = rows.filter((row) => !row.hidden).length;
  document.getElementById("kept").textContent = words.length ? `${kept} of ${rows.length}` : "";
});

// Curves: a setting is on where its box is ticked, in whichever column is drawn.
const boxes = [...document.querySelectorAll("input[data-curve]")];
const place = document.getElementById("curves");
const column = document.getElementById("column");
function draw() {
  const figure = data.curves[column.value];
  if (!figure) return place.remove();
  const on = new Set(boxes.filter((box) => box.checked).map((box) => box.dataset.curve));
  const traces = figure.data.map((trace) => ({ ...trace, visible: on.has(trace.legendgroup) || "legendonly" }));
  const showlegend = innerWidth > 700; // on a narrow screen the boxes alone have room
  return Plotly.react(place, traces, { ...figure.layout, showlegend, uirevision: column.value }, config);
}
function tick(wanted) {
  for (const box of boxes) box.checked = wanted(box.dataset.curve);
  draw();
}
const named = (event) => event.data[event.curveNumber].legendgroup;
if (Object.keys(data.curves).length) {
  draw();
  place.on("plotly_legendclick", (event) => {
    const box = boxes.find((one) => one.dataset.curve === named(event));
    box.checked = !box.checked;
    draw();
    return false;
  });
  place.on("plotly_legenddoubleclick", (event) => {
    tick((curve) => curve === named(event));
    return false;
  });
  column.addEventListener("change", draw);
} else {
  place.remove();
}
for (const box of boxes) box.addEventListener("change", draw);
const wishes = { all: () => true, none: () => false, best: (curve) => Number(curve.slice(1)) < 12 };
for (const button of document.querySelectorAll("button[data-show]")) {
  button.addEventListener("click", () => tick(wishes[button.dataset.show]));
}

// Heat maps are drawn when they come into view, since there may be many.
const seen = new IntersectionObserver((entries) => {
  for (const entry of entries.filter((one) => one.isIntersecting)) {
    seen.unobserve(entry.target);
    const figure = data.heat[entry.target.dataset.heat];
    Plotly.newPlot(entry.target, figure.data, figure.layout, config);
  }
}, { rootMargin: "800px" });
for (const one of document.querySelectorAll("[data-heat]")) seen.observe(one);
