// The page: draws the newest frame of all panes, shows figures, and sends knobs and keys.
import { World, drawCurve, readFrame } from "./draw.js";

// The panes in the order of frames. A name is that of the figures.
const PANES = [
  { title: "The server", note: "as it is", kind: "server" },
  { title: "Thesis: snapshots", note: "10 a second, 100 ms later", kind: "thesis", name: "thesis, snapshots" },
  { title: "Slipgate: snapshots", note: "adaptive delay", kind: "ours", name: "slipgate-sync, snapshots" },
  { title: "Slipgate: own cube", note: "moves at once", kind: "own", name: "slipgate-sync, own cube predicted" },
  { title: "Thesis: states", note: "20 in a message", kind: "thesis", name: "thesis, states" },
  { title: "Slipgate: states", note: "simulated with the keys", kind: "ours", name: "slipgate-sync, states" },
];
const COLOURS = { ours: "#5ad1a4", thesis: "#f0a06a", own: "#4da3ff" };
const FIGURES = [["error p99", "error"], ["p50", "p50"], ["jump p99", "jump"], ["behind", "delay"], ["starved", "starved"], ["kbit/s", "rate"]];
const UNITS = { loss: " %", runs: " ms", latency: " ms", jitter: " ms" };
const KEYS = { KeyW: 1, ArrowUp: 1, KeyS: 2, ArrowDown: 2, KeyA: 4, ArrowLeft: 4, KeyD: 8, ArrowRight: 8, KeyG: 16, KeyH: 32 };
const CURVE_SECONDS = 60;

const status = document.getElementById("status"), form = document.getElementById("knobs");

function element(tag, content, attributes = {}) {
  const made = Object.assign(document.createElement(tag), attributes);
  made.append(...[content].flat());
  return made;
}

function makePane(pane, index) {
  const world = element("canvas", [], { className: "world" });
  const head = element("header", [element("h2", pane.title), element("span", pane.note)]);
  const article = element("article", [head, world], { className: pane.kind });
  pane.world = new World(world);
  pane.points = [];
  if (pane.name) {
    const terms = FIGURES.map(([term]) => element("dt", term));
    const values = FIGURES.map(([, figure]) => element("dd", "–", { id: `${figure}-${index}` }));
    pane.curve = element("canvas", [], { className: "curve" });
    article.append(element("dl", [...terms, ...values]), pane.curve);
  } else {
    const keys = ["W", "A", "S", "D"].flatMap(key => [element("kbd", key), " "]);
    article.append(element("div", [
      element("span", [...keys, "move the blue cube, ", element("kbd", "G"), " attracts others, ", element("kbd", "H"), " repels them"]),
      element("span", ["right", element("i", []), "wrong by 50 cm"]),
      element("span", "Without keys it moves at random, as the three other players do."),
    ], { className: "legend" }));
  }
  document.getElementById("panes").append(article);
}
PANES.forEach(makePane);

// Frames: one request after the other, at most one for each frame of the screen.
let focus = [0, 0], frames = 0, isSlow = false;
async function drawFrames() {
  for (;;) {
    try {
      const response = await fetch("frame");
      const panes = readFrame(await response.arrayBuffer());
      const [own] = panes[0] || [];
      if (own) focus = [own.x, own.z].map((place, i) => focus[i] + (place * 0.3 - focus[i]) * 0.04);
      panes.forEach((cubes, index) => PANES[index].world.draw(cubes, focus));
      frames += 1;
      status.classList.toggle("bad", isSlow);
    } catch {
      status.textContent = "the demo has ended";
      status.classList.add("bad");
      await new Promise(resolve => setTimeout(resolve, 500));
    }
    await new Promise(requestAnimationFrame);
  }
}

function centimetres(length) {
  return length >= 1000 ? `${(length / 100).toFixed(0)} m` : length >= 100 ? `${(length / 100).toFixed(1)} m`
    : length >= 1 ? `${length.toFixed(1)} cm` : `${(length * 10).toFixed(1)} mm`;
}

function showFigures(pane, index, { figures, traffic }, now) {
  // A figure is null as long as nothing was measured.
  const text = (figure, write) => figure === null ? "–" : write(figure);
  const texts = {
    error: text(figures.error_p99, centimetres), p50: text(figures.error_p50, centimetres),
    jump: text(figures.jump_p99, centimetres),
    delay: text(figures.delay, delay => `${delay < 0 ? "−" : ""}${Math.abs(delay).toFixed(0)} ms`),
    starved: text(figures.starved, starved => `${starved.toFixed(1)} %`), rate: traffic.kilobits.toFixed(0),
  };
  for (const [figure, text] of Object.entries(texts)) {
    document.getElementById(`${figure}-${index}`).textContent = text;
  }
  if (figures.error_p99 !== null) pane.points.push([now, figures.error_p99]);
  while (pane.points.length && now - pane.points[0][0] > CURVE_SECONDS) pane.points.shift();
  drawCurve(pane.curve, pane.points, now, COLOURS[pane.kind]);
}

async function pollFigures() {
  const changes = knobChanges, isChanging = pendingChanges > 0;
  try {
    const { knobs, panes, frames_per_second } = await (await fetch("figures")).json(), now = performance.now() / 1000;
    const isUsed = form.contains(document.activeElement) && document.activeElement.tagName !== "BUTTON";
    // A response from before a change would turn the knobs back.
    if (!isUsed && !isChanging && changes === knobChanges) showKnobs(knobs);
    PANES.forEach((pane, index) => pane.name && showFigures(pane, index, panes[pane.name], now));
    // Each pane simulates 60 ticks a second, and has a frame for each one.
    isSlow = frames_per_second !== null && frames_per_second < 54;
    status.textContent = isSlow
      ? `this machine is too slow: ${frames_per_second.toFixed(0)} of 60 ticks a second; choose fewer cubes`
      : `live, ${frames * 4} frames a second`;
    frames = 0;
  } catch { /* The status says so already. */ }
  setTimeout(pollFigures, 250);
}

function showKnobs(knobs) {
  for (const [name, value] of Object.entries(knobs)) {
    const knob = form.elements[name];
    if (knob.options && ![...knob.options].some(option => option.text === `${value}`)) knob.append(element("option", `${value}`));
    knob.value = value;
  }
  showTexts();
}

function showTexts() {
  const knobs = readKnobs();
  for (const [name, unit] of Object.entries(UNITS)) {
    form.elements[name].parentElement.querySelector("output").textContent
      = name === "runs" && knobs.runs === 0 ? "single ones" : `${knobs[name]}${unit}`;
  }
  for (const button of document.querySelectorAll("#presets button")) {
    const isOn = Object.entries(JSON.parse(button.value)).every(([name, value]) => knobs[name] === value);
    button.classList.toggle("on", isOn);
  }
}

function readKnobs() {
  return Object.fromEntries([...new FormData(form)].map(([name, value]) => [name, Number(value)]));
}

function post(path, value) {
  return fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(value) });
}

let knobChanges = 0, pendingChanges = 0;
async function postKnobs() {
  knobChanges += 1;
  pendingChanges += 1;
  try {
    await post("knobs", readKnobs());
  } finally {
    pendingChanges -= 1;
  }
}

form.addEventListener("input", showTexts);
form.addEventListener("change", event => {
  postKnobs();
  event.target.blur();
});
document.getElementById("presets").addEventListener("click", event => {
  if (!event.target.value) return;
  showKnobs({ ...readKnobs(), ...JSON.parse(event.target.value) });
  postKnobs();
  event.target.blur();
});

// Keys: sent when they change, and repeated while one is pressed.
const pressed = new Set();
const keys = () => [...pressed].reduce((bits, code) => bits | KEYS[code], 0);
for (const type of ["keydown", "keyup"]) {
  addEventListener(type, event => {
    if (!(event.code in KEYS) || event.ctrlKey || event.metaKey || event.target.closest?.("select, input")) return;
    event.preventDefault();
    const before = keys();
    if (type === "keydown") pressed.add(event.code); else pressed.delete(event.code);
    if (keys() !== before) post("keys", keys());
  });
}
addEventListener("blur", () => { if (pressed.size) { pressed.clear(); post("keys", 0); } });
setInterval(() => { if (pressed.size) post("keys", keys()); }, 300);

drawFrames();
pollFigures();
