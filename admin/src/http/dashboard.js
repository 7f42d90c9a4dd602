"use strict";
// Draws the values that /events sends each second. A chart has one or two lines and keeps two minutes.
const SECONDS = 120;
const CHARTS = [
  { id: "clients", title: "Clients", lines: [["connected", v => v.clients], ["pending", v => v.pending]], unit: "" },
  { id: "datagrams", title: "Datagrams per second", rate: true, unit: "/s",
    lines: [["received", v => v.datagrams_received], ["sent", v => v.datagrams_sent]] },
  { id: "bytes", title: "Bytes per second", rate: true, unit: "B/s",
    lines: [["received", v => v.bytes_received], ["sent", v => v.bytes_sent]] },
  { id: "turn", title: "Time of a turn", unit: "ms", lines: [["mean", v => v.turn_mean], ["99 in 100", v => v.turn_p99]] },
  { id: "turns", title: "Turns per second", rate: true, unit: "/s", lines: [["turns", v => v.turns]] },
  { id: "dropped", title: "Dropped datagrams per second", rate: true, unit: "/s",
    lines: [["by the server", v => v.dropped], ["over budget", v => v.over_budget]] },
];
const DISTRIBUTIONS = [
  { id: "round_trip", title: "Round trip", label: bound => `${+(bound * 1000).toFixed(1)} ms` },
  { id: "loss", title: "Loss", label: bound => `${+(bound * 100).toFixed(2)} %` },
  { id: "queued", title: "Queued messages of a client", label: bound => `${bound}` },
];

const element = id => document.getElementById(id);
const color = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function add(parent, name, text, className) {
  const child = document.createElement(name);
  if (text !== undefined) child.textContent = text;
  if (className) child.className = className;
  parent.append(child);
  return child;
}

function short(value) {
  if (!Number.isFinite(value)) return "–";
  for (const [size, letter] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (Math.abs(value) >= size) return (value / size).toPrecision(3) + " " + letter;
  }
  return value === 0 || Number.isInteger(value) ? `${value} ` : value.toPrecision(3) + " ";
}

function card(parent, id, title) {
  const article = add(parent, "article");
  add(article, "h2", title);
  const legend = add(article, "p");
  const canvas = add(article, "canvas");
  canvas.id = `${id}-canvas`;
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", title);
  return { legend, canvas };
}

/// Returns a context in CSS pixels of a cleared canvas.
function context(canvas) {
  const { clientWidth: width, clientHeight: height } = canvas;
  const scale = window.devicePixelRatio || 1;
  canvas.width = width * scale;
  canvas.height = height * scale;
  const drawing = canvas.getContext("2d");
  drawing.scale(scale, scale);
  drawing.font = "11px system-ui, sans-serif";
  return { drawing, width, height };
}

function draw(chart) {
  const { drawing, width, height } = context(chart.canvas);
  const values = chart.values.flat().filter(Number.isFinite);
  const top = Math.max(...values, chart.unit === "ms" ? 0.1 : 1) * 1.1;
  drawing.strokeStyle = color("--rule");
  drawing.fillStyle = color("--soft");
  drawing.strokeRect(0.5, 0.5, width - 1, height - 1);
  drawing.fillText(short(top) + chart.unit, 4, 13);
  chart.values.forEach((line, number) => {
    drawing.strokeStyle = color(number ? "--other" : "--line");
    drawing.lineWidth = 1.5;
    // Both lines stay visible where they are equal.
    drawing.setLineDash(number ? [5, 4] : []);
    drawing.beginPath();
    line.forEach((value, index) => {
      const x = (SECONDS - line.length + index + 1) * width / SECONDS;
      drawing.lineTo(x, height - 1 - Math.max(value, 0) / top * (height - 3));
    });
    drawing.stroke();
  });
}

function drawDistribution(distribution, buckets) {
  const { drawing, width, height } = context(distribution.canvas);
  const sum = buckets.reduce((sum, [, count]) => sum + count, 0);
  distribution.legend.textContent = sum ? `${short(sum)}measurements` : "no measurements";
  if (!sum) return;
  const top = Math.max(...buckets.map(([, count]) => count));
  const step = width / buckets.length;
  drawing.fillStyle = color("--line");
  buckets.forEach(([, count], index) => {
    const bar = count / top * (height - 18);
    drawing.fillRect(index * step + 1, height - 15 - bar, step - 2, bar);
  });
  drawing.fillStyle = color("--soft");
  buckets.forEach(([bound], index) => {
    const text = bound === null ? "more" : distribution.label(bound);
    if (index % 4 === 0) drawing.fillText(text, index * step + 1, height - 3);
  });
}

for (const chart of CHARTS) {
  Object.assign(chart, card(element("charts"), chart.id, chart.title));
  chart.values = chart.lines.map(() => []);
  chart.shown = chart.lines.map(([name], number) => {
    const shown = add(chart.legend, "strong", "–", number ? "second" : "first");
    shown.id = `${chart.id}-${number}`;
    add(chart.legend, "span", ` ${name}  `);
    return shown;
  });
}
for (const distribution of DISTRIBUTIONS) {
  Object.assign(distribution, card(element("distributions"), distribution.id, distribution.title));
}

let last;

function show(values) {
  const state = element("state");
  state.textContent = values.not_ready || "ready";
  state.className = values.not_ready ? "badge bad" : "badge ok";
  element("uptime").textContent = `for ${Math.floor(values.uptime)} s, ${values.slots} slots`;
  const seconds = last ? values.uptime - last.uptime : 0;
  for (const chart of CHARTS) {
    chart.lines.forEach(([, value], number) => {
      let now = value(values);
      if (chart.rate) now = seconds > 0 ? Math.max(now - value(last), 0) / seconds : NaN;
      if (!Number.isFinite(now)) return;
      chart.shown[number].textContent = short(chart.rate ? Math.round(now) : now) + chart.unit;
      chart.values[number].push(now);
      chart.values[number].splice(0, chart.values[number].length - SECONDS);
    });
    draw(chart);
  }
  DISTRIBUTIONS.forEach(distribution => drawDistribution(distribution, values[distribution.id]));
  last = values;
}

document.addEventListener("securitypolicyviolation", event => {
  element("problem").textContent = `The browser has blocked ${event.violatedDirective}.`;
});
const events = new EventSource("/events");
events.onmessage = event => show(JSON.parse(event.data));
// The server ends each stream after ten seconds, and the browser opens the next one.
let silent;
events.onerror = () => {
  // Each failed retry reports an error: only the first one starts the time.
  silent ??= setTimeout(() => {
    element("state").textContent = "no connection";
    element("state").className = "badge bad";
  }, 3000);
};
events.addEventListener("message", () => {
  clearTimeout(silent);
  silent = undefined;
});
