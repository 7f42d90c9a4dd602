// Draws cubes in perspective on a canvas, and curves of errors. No libraries: three visible faces for each cube, from
// the farthest cube to the nearest one.

const CAMERA = [0, 19, 24];
const TARGET = [0, 0, 2.4];
const LIGHT = unit([0.45, 1, 0.6]);
const COLOURS = [[77, 163, 255], [255, 176, 59], [98, 214, 122], [196, 140, 255]];
const SMALL = [195, 204, 216], RESTING = [128, 139, 154], WRONG = [255, 74, 61];
// The error in metres at which a cube is as red as it gets.
const WRONG_METRES = 0.5;

function unit(v) { const l = Math.hypot(...v); return v.map(p => p / l); }
function cross(a, b) { return [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]; }

const FORWARD = unit(TARGET.map((p, i) => p - CAMERA[i]));
const RIGHT = unit(cross(FORWARD, [0, 1, 0]));
const UP = cross(RIGHT, FORWARD);

// Reads the panes of a frame: for each cube its position, its rotation, and how wrong it is.
export function readFrame(buffer) {
  const view = new DataView(buffer), panes = [];
  let at = 0;
  while (at < view.byteLength) {
    const count = view.getUint16(at, true), cubes = new Array(count);
    at += 2;
    for (let i = 0; i < count; i++, at += 12) {
      const part = offset => (view.getUint16(at + offset, true) / 65535 * 2 - 1) * 16;
      cubes[i] = {
        x: part(0), y: part(2), z: part(4), axes: axes(view.getUint32(at + 6, true)),
        isAwake: view.getUint8(at + 10) === 1, error: view.getUint8(at + 11) / 200,
      };
    }
    panes.push(cubes);
  }
  return panes;
}

// Returns the three axes of a rotation: the index of its largest component, and the other three in 10 bits each.
function axes(word) {
  const q = [0, 0, 0, 0], largest = word & 3;
  let rest = 1;
  for (let i = 0, place = 2; i < 4; i++) {
    if (i === largest) continue;
    q[i] = ((word >>> place & 1023) / 1023 * 2 - 1) * Math.SQRT1_2;
    rest -= q[i] * q[i];
    place += 10;
  }
  q[largest] = Math.sqrt(Math.max(0, rest));
  const [x, y, z, w] = q;
  return [
    [1 - 2 * (y * y + z * z), 2 * (x * y + z * w), 2 * (x * z - y * w)],
    [2 * (x * y - z * w), 1 - 2 * (x * x + z * z), 2 * (y * z + x * w)],
    [2 * (x * z + y * w), 2 * (y * z - x * w), 1 - 2 * (x * x + y * y)],
  ];
}

const shades = new Map();
function shade(base, wrong, light) {
  const key = base[0] << 16 ^ base[1] << 8 ^ base[2] ^ Math.round(wrong * 15) << 24 ^ Math.round(light * 31) << 28;
  const id = key + light.toFixed(2);
  let colour = shades.get(id);
  if (!colour) {
    const parts = base.map((p, i) => Math.round((p + (WRONG[i] - p) * wrong) * light));
    shades.set(id, colour = `rgb(${parts.join(" ")})`);
  }
  return colour;
}

// Fits a canvas to its size on the screen. Returns its context and its size in pixels.
function fit(canvas) {
  const scale = Math.min(2, window.devicePixelRatio || 1);
  const width = Math.round(canvas.clientWidth * scale), height = Math.round(canvas.clientHeight * scale);
  if (canvas.width !== width || canvas.height !== height) [canvas.width, canvas.height] = [width, height];
  return [canvas.getContext("2d"), width, height, scale];
}

export class World {
  constructor(canvas) { this.canvas = canvas; this.focus = [0, 0]; }

  // Returns the place of a point on the canvas, and its distance from the camera.
  project(x, y, z) {
    const dx = x - CAMERA[0] - this.focus[0], dy = y - CAMERA[1], dz = z - CAMERA[2] - this.focus[1];
    const depth = dx * FORWARD[0] + dy * FORWARD[1] + dz * FORWARD[2];
    const f = this.lens / depth;
    return [
      this.width / 2 + (dx * RIGHT[0] + dy * RIGHT[1] + dz * RIGHT[2]) * f,
      this.height / 2 - (dx * UP[0] + dy * UP[1] + dz * UP[2]) * f, depth,
    ];
  }

  draw(cubes, focus) {
    [this.context, this.width, this.height] = fit(this.canvas);
    this.lens = this.width * 0.76;
    this.focus = focus;
    this.floor();
    for (const [id, cube] of cubes.entries()) this.shadow(cube, id);
    const order = cubes.map((cube, id) => [this.project(cube.x, cube.y, cube.z)[2], id]).sort((a, b) => b[0] - a[0]);
    for (const [, id] of order) this.cube(cubes[id], id);
  }

  floor() {
    const { context: c, width, height } = this;
    const sky = c.createLinearGradient(0, 0, 0, height);
    sky.addColorStop(0, "#0e141d");
    sky.addColorStop(1, "#1a222e");
    c.fillStyle = sky;
    c.fillRect(0, 0, width, height);
    this.polygon([[-16, 0, -16], [16, 0, -16], [16, 0, 16], [-16, 0, 16]], "#222c3a");
    c.strokeStyle = "#2c3849";
    c.lineWidth = 1;
    c.beginPath();
    for (let i = -16; i <= 16; i += 4) {
      for (const [from, to] of [[[i, -16], [i, 16]], [[-16, i], [16, i]]]) {
        c.moveTo(...this.project(from[0], 0, from[1]));
        c.lineTo(...this.project(to[0], 0, to[1]));
      }
    }
    c.stroke();
  }

  polygon(points, colour) {
    const c = this.context;
    c.fillStyle = colour;
    c.beginPath();
    for (const point of points) {
      const [x, y] = this.project(...point);
      c.lineTo(x, y);
    }
    c.closePath();
    c.fill();
  }

  shadow(cube, id) {
    const [x, y, depth] = this.project(cube.x, 0, cube.z), c = this.context;
    const size = this.lens / depth * (id < 4 ? 0.95 : 0.78), height = Math.max(0, cube.y - 0.45);
    c.fillStyle = `rgb(4 7 12 / ${(0.5 / (1 + height)).toFixed(2)})`;
    c.beginPath();
    c.ellipse(x, y, size * (1 + height * 0.1), size * 0.62 * (1 + height * 0.1), 0, 0, 7);
    c.fill();
    if (id === 0) {
      c.strokeStyle = "#4da3ff";
      c.lineWidth = Math.max(1.5, size * 0.08);
      c.beginPath();
      c.ellipse(x, y, size * 1.35, size * 0.84, 0, 0, 7);
      c.stroke();
    }
  }

  cube(cube, id) {
    const half = (id < 4 ? 1.1 : 0.9) / 2, { x, y, z } = cube, [u, v, w] = cube.axes;
    const base = COLOURS[id] || (cube.isAwake ? SMALL : RESTING);
    const wrong = Math.min(1, cube.error / WRONG_METRES) ** 0.6;
    const eye = [CAMERA[0] + this.focus[0] - x, CAMERA[1] - y, CAMERA[2] + this.focus[1] - z];
    for (const [normal, side, other] of [[u, v, w], [v, w, u], [w, u, v]]) {
      const seen = normal[0] * eye[0] + normal[1] * eye[1] + normal[2] * eye[2];
      if (Math.abs(seen) <= half) continue;
      const sign = seen > 0 ? half : -half, lit = (seen > 0 ? 1 : -1) * (normal[0] * LIGHT[0] + normal[1] * LIGHT[1] + normal[2] * LIGHT[2]);
      const corner = (a, b) => [0, 1, 2].map(i => [x, y, z][i] + normal[i] * sign + (side[i] * a + other[i] * b) * half);
      const corners = [corner(-1, -1), corner(1, -1), corner(1, 1), corner(-1, 1)];
      const light = Math.round((0.52 + 0.5 * Math.max(-0.35, lit)) * 32) / 32;
      this.polygon(corners, shade(base, wrong, light));
      this.context.strokeStyle = "rgb(8 11 16 / .35)";
      this.context.lineWidth = 1;
      this.context.stroke();
    }
  }
}

// The range of the curve, in centimetres: logarithmic.
const LOW = 0.05, HIGH = 500, SECONDS = 60;

// Draws the errors of the last minute: points of time in seconds and error in centimetres.
export function drawCurve(canvas, points, now, colour) {
  const [c, width, height, scale] = fit(canvas);
  const y = error => height - 3 * scale
    - Math.log(Math.max(LOW, error) / LOW) / Math.log(HIGH / LOW) * (height - 6 * scale);
  c.clearRect(0, 0, width, height);
  c.font = `${9 * scale}px system-ui`;
  for (const [error, text] of [[0.1, "1 mm"], [1, "1 cm"], [10, "10 cm"], [100, "1 m"]]) {
    c.fillStyle = "#222b37";
    c.fillRect(0, y(error), width, 1);
    c.fillStyle = "#66748a";
    c.fillText(text, 4 * scale, y(error) - 2 * scale);
  }
  c.strokeStyle = colour;
  c.lineWidth = 1.6 * scale;
  c.beginPath();
  for (const [time, error] of points) c.lineTo(width * (1 - (now - time) / SECONDS), y(error));
  c.stroke();
}
