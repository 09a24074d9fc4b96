// The three-dimensional picture by WebGL 2: solids, lines, aircraft. World axes: x east, y north, z up.

// Light and fog are computed at the vertices: a computer without a graphics processor is slow at every pixel.
const MESH_VERTEX = `#version 300 es
in vec3 position; in vec3 normal; in vec3 tint;
uniform mat4 place, seen; uniform mat3 turn; uniform vec4 colour; uniform vec3 eye, fog; uniform float far, flat_;
out vec4 lit;
void main() {
  vec3 w = (place * vec4(position, 1.0)).xyz, m = normalize(turn * normal), to = normalize(eye - w);
  float facing = dot(m, to);
  if (facing < 0.0) m = -m;
  float sun = max(dot(m, normalize(vec3(-0.45, -0.6, 0.72))), 0.0);
  float light = mix(0.50 + 0.16 * m.z + 0.42 * sun, 1.0, flat_);
  float rim = pow(1.0 - abs(facing), 2.0) * flat_;
  float d = clamp(length(eye - w) / far, 0.0, 1.0);
  lit = vec4(mix(colour.rgb * tint * light, fog, d * d * (1.0 - flat_)), clamp(colour.a + rim * 0.35, 0.0, 1.0));
  gl_Position = seen * vec4(w, 1.0);
}`;
const MESH_FRAGMENT = `#version 300 es
precision mediump float;
in vec4 lit; out vec4 shown;
void main() { shown = lit; }`;
// A segment from a to b as two triangles of constant width on the screen; `faded`: lines of the ground, fading with the distance.
const lineVertex = (faded) => `#version 300 es
in vec2 corner; in vec3 a; in vec3 b; in float along;
uniform mat4 seen; uniform vec2 screen; uniform float width; uniform mat4 place; uniform vec3 eye;
out float s; out float side; ${faded ? "uniform vec2 fade; uniform float size; out float strength;" : ""}
vec4 nearer(vec3 v) { return seen * vec4(mix((place * vec4(v, 1.0)).xyz, eye, 0.003), 1.0); }
void main() {
  vec4 p = nearer(a), q = nearer(b);
  float near = 0.02;
  if (p.w < near && q.w < near) { gl_Position = vec4(2.0, 2.0, 2.0, 1.0); return; }
  if (p.w < near) p = mix(p, q, (near - p.w) / (q.w - p.w));
  if (q.w < near) q = mix(q, p, (near - q.w) / (p.w - q.w));
  vec2 u = p.xy / p.w * screen, v = q.xy / q.w * screen, d = v - u;
  float l = length(d);
  d = l > 1e-4 ? d / l : vec2(1.0, 0.0);
  vec4 at = corner.x < 0.5 ? p : q;
  vec2 off = vec2(-d.y, d.x) * corner.y + d * (corner.x - 0.5) * 0.6;
  at.xy += off * (width + 1.0) / screen * at.w;
  s = along + distance(a, b) * corner.x; side = corner.y * (width + 1.0);
  ${faded ? "strength = 1.0 - smoothstep(fade.x, fade.y, length(corner.x < 0.5 ? a.xy : b.xy) / size);" : ""}
  gl_Position = at;
}`;
const lineFragment = (faded) => `#version 300 es
precision highp float;
in float s; in float side; ${faded ? "in float strength;" : ""}
uniform vec4 colour; uniform float width, dash;
out vec4 shown;
void main() {
  ${faded ? "" : "if (dash > 0.0 && fract(s / dash) > 0.55) discard;"}
  shown = vec4(colour.rgb, colour.a * clamp(width + 1.0 - abs(side), 0.0, 1.0)${faded ? " * strength" : ""});
}`;
const GROUND_VERTEX = `#version 300 es
in vec3 corner; uniform mat4 seen; uniform vec3 centre, ground, sky; uniform float size; out vec3 c;
void main() { c = mix(sky, ground, corner.z); gl_Position = seen * vec4(centre.xy + corner.xy * size, centre.z, 1.0); }`;
const GROUND_FRAGMENT = `#version 300 es
precision mediump float;
in vec3 c; out vec4 shown;
void main() { shown = vec4(c, 1.0); }`;
const GROUND_M = 60; // radius in which lines are drawn, with 1 m between them; farther away both are five times as much
const INDEX = [0, 1, 2, 2, 1, 3];

// --- small linear algebra: 4x4 matrices by columns, as WebGL takes them ---

// Functions with `m` write into it; without, into a new array.
export const m4 = {
  multiply(a, b, m = new Float32Array(16)) {
    for (let c = 0; c < 4; c++) for (let r = 0; r < 4; r++) {
      m[4 * c + r] = a[r] * b[4 * c] + a[4 + r] * b[4 * c + 1] + a[8 + r] * b[4 * c + 2] + a[12 + r] * b[4 * c + 3];
    }
    return m;
  },
  perspective(fov, aspect, near, far, m = new Float32Array(16)) {
    const f = 1 / Math.tan(fov / 2);
    m[0] = f / aspect; m[5] = f; m[10] = (far + near) / (near - far); m[11] = -1; m[14] = 2 * far * near / (near - far);
    return m;
  },
  look(eye, target, m = new Float32Array(16)) {
    const z = unit(sub(eye, target)), x = unit(cross([0, 0, 1], z)), y = cross(z, x);
    for (let i = 0; i < 3; i++) { m[4 * i] = x[i]; m[4 * i + 1] = y[i]; m[4 * i + 2] = z[i]; }
    m[12] = -dot(x, eye); m[13] = -dot(y, eye); m[14] = -dot(z, eye); m[15] = 1;
    return m;
  },
  // Columns of R scaled by s, placed at p.
  place(p, R = IDENTITY, s = ONES, m = new Float32Array(16)) {
    for (let c = 0; c < 3; c++) for (let r = 0; r < 3; r++) m[4 * c + r] = R[r][c] * s[c];
    m[12] = p[0]; m[13] = p[1]; m[14] = p[2]; m[15] = 1;
    return m;
  },
};
const ONES = [1, 1, 1];
const IDENTITY = [[1, 0, 0], [0, 1, 0], [0, 0, 1]];
export const sub = (a, b) => [a[0] - b[0], a[1] - b[1], a[2] - b[2]];
export const add = (a, b) => [a[0] + b[0], a[1] + b[1], a[2] + b[2]];
export const scaled = (a, s) => [a[0] * s, a[1] * s, a[2] * s];
export const dot = (a, b) => a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
export const cross = (a, b) => [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];
export const unit = (a) => scaled(a, 1 / (Math.hypot(...a) || 1));
export function rotation([w, x, y, z]) {
  return [
    [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
    [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
    [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
  ];
}
export const turned = (R, v) => R.map((row) => dot(row, v));
export const times = (A, B) => A.map((row) => [0, 1, 2].map((c) => row[0] * B[0][c] + row[1] * B[1][c] + row[2] * B[2][c]));
// Lower triangle L with L Lᵀ = P: maps the unit sphere to the ellipsoid of one standard deviation.
export function cholesky(xx, xy, xz, yy, yz, zz) {
  const a = Math.sqrt(Math.max(xx, 1e-9)), b = xy / a, c = xz / a, d = Math.sqrt(Math.max(yy - b * b, 1e-9));
  const e = (yz - b * c) / d, f = Math.sqrt(Math.max(zz - c * c - e * e, 1e-9));
  return [[a, 0, 0], [b, d, 0], [c, e, f]];
}
export function rgb(hex, alpha = 1) {
  return [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16) / 255).concat(alpha);
}

// --- shapes: triangles with normals and tints, flat per face ---

export class Shape {
  constructor() { this.data = []; }
  triangle(a, b, c, tint = [1, 1, 1], normals = null) {
    const n = unit(cross(sub(b, a), sub(c, a)));
    [a, b, c].forEach((p, i) => this.data.push(...p, ...(normals ? normals[i] : n), ...tint));
    return this;
  }
  quad(a, b, c, d, tint) { return this.triangle(a, b, c, tint).triangle(a, c, d, tint); }
  box(p, s, R = IDENTITY, tint) {
    const at = (x, y, z) => add(p, turned(R, [x * s[0] / 2, y * s[1] / 2, z * s[2] / 2]));
    for (const [u, v, w] of [[0, 1, 2], [1, 2, 0], [2, 0, 1]]) for (const side of [-1, 1]) {
      const corner = (i, j) => { const c = [0, 0, 0]; c[u] = i; c[v] = j * side; c[w] = side; return at(...c); };
      this.quad(corner(-1, -1), corner(1, -1), corner(1, 1), corner(-1, 1), tint);
    }
    return this;
  }
  // A cylinder or cone along z from z0 to z1.
  turned(p, r0, r1, z0, z1, tint, sides = 24, R = IDENTITY) {
    const at = (i, r, z) => add(p, turned(R, [r * Math.cos(2 * Math.PI * i / sides), r * Math.sin(2 * Math.PI * i / sides), z]));
    for (let i = 0; i < sides; i++) {
      if (r0) this.triangle(at(i, r0, z0), at(i + 1, r0, z0), at(i + 1, r1, z1), tint);
      if (r1) this.triangle(at(i, r0, z0), at(i + 1, r1, z1), at(i, r1, z1), tint);
      if (r0) this.triangle(at(0, 0, z0), at(i + 1, r0, z0), at(i, r0, z0), tint);
      if (r1) this.triangle(at(0, 0, z1), at(i, r1, z1), at(i + 1, r1, z1), tint);
    }
    return this;
  }
  sphere(p, r, tint, rows = 18, sides = 28) {
    const n = (i, j) => {
      const e = Math.PI * (i / rows - 0.5), a = 2 * Math.PI * j / sides;
      return [Math.cos(e) * Math.cos(a), Math.cos(e) * Math.sin(a), Math.sin(e)];
    };
    const at = (m) => [p[0] + r[0] * m[0], p[1] + r[1] * m[1], p[2] + r[2] * m[2]];
    for (let i = 0; i < rows; i++) for (let j = 0; j < sides; j++) {
      const [a, b, c, d] = [n(i, j), n(i, j + 1), n(i + 1, j + 1), n(i + 1, j)];
      this.triangle(at(a), at(b), at(c), tint, [a, b, c]);
      this.triangle(at(a), at(c), at(d), tint, [a, c, d]);
    }
    return this;
  }
}

// The aircraft in its own axes (x forward, y left, z up): body, arms, motors, legs; the forward arms are of another colour.
export function aircraft(rotors, arm) {
  const shape = new Shape(), dark = [0.20, 0.23, 0.27], grey = [0.42, 0.46, 0.50], bright = [0.86, 0.89, 0.92], nose = [1.0, 0.55, 0.25];
  const places = [];
  shape.sphere([0, 0, 0.02 * arm], [0.40 * arm, 0.32 * arm, 0.15 * arm], bright, 8, 16);
  shape.sphere([0.04 * arm, 0, 0.12 * arm], [0.24 * arm, 0.19 * arm, 0.09 * arm], dark, 6, 12);
  const coaxial = rotors === 8 ? false : rotors;
  const count = coaxial === false ? 8 : rotors;
  for (let i = 0; i < count; i++) {
    const angle = 2 * Math.PI * (i + 0.5) / count, x = Math.cos(angle), y = Math.sin(angle), R = [[x, -y, 0], [y, x, 0], [0, 0, 1]];
    shape.box([0.58 * arm * x, 0.58 * arm * y, 0.01 * arm], [0.84 * arm, 0.075 * arm, 0.06 * arm], R, x > 0.3 ? nose : grey);
    shape.turned([arm * x, arm * y, 0], 0.09 * arm, 0.08 * arm, -0.02 * arm, 0.13 * arm, dark, 10);
    places.push([arm * x, arm * y, 0.15 * arm]);
  }
  for (const side of [-1, 1]) {
    shape.box([0, 0.36 * arm * side, -0.46 * arm], [0.86 * arm, 0.045 * arm, 0.045 * arm], IDENTITY, dark);
    for (const x of [-0.22, 0.22]) {
      const c = Math.cos(0.36 * side), s = Math.sin(0.36 * side);
      shape.box([x * arm, 0.28 * arm * side, -0.25 * arm], [0.04 * arm, 0.04 * arm, 0.46 * arm], [[1, 0, 0], [0, c, -s], [0, s, c]], dark);
    }
  }
  shape.box([0.42 * arm, 0, -0.05 * arm], [0.14 * arm, 0.12 * arm, 0.12 * arm], IDENTITY, dark);
  const radius = Math.min(0.62 * arm, 0.94 * arm * Math.sin(Math.PI / count));
  const blades = new Shape();
  for (const side of [0, Math.PI]) {
    const c = Math.cos(side), s = Math.sin(side), R = [[c, -s, 0], [s, c, 0], [0, 0, 1]];
    blades.box(turned(R, [radius / 2, 0, 0]), [radius, 0.07 * arm, 0.012 * arm], R, [0.78, 0.82, 0.86]);
  }
  const discs = new Shape();
  for (const place of places) discs.turned(place, radius, radius, -0.004 * arm, 0.004 * arm, [1, 1, 1], 24);
  return { shape, places, blades, discs };
}

// --- drawing ---

export class Renderer {
  constructor(canvas) {
    this.canvas = canvas;
    // Without a graphics processor smooth edges cost more than all the rest.
    this.software = isSoftware();
    const gl = this.gl = canvas.getContext("webgl2", { alpha: false, antialias: !this.software, powerPreference: "low-power" });
    if (!gl) throw new Error("this browser has no WebGL 2");
    this.detail = 1;
    this.background = rgb("#161d25");
    this.meshProgram = program(gl, MESH_VERTEX, MESH_FRAGMENT, ["position", "normal", "tint"]);
    this.lineProgram = program(gl, lineVertex(false), lineFragment(false), ["corner", "a", "b", "along"]);
    this.gridProgram = program(gl, lineVertex(true), lineFragment(true), ["corner", "a", "b", "along"]);
    this.groundProgram = program(gl, GROUND_VERTEX, GROUND_FRAGMENT, ["corner"]);
    this.seen = new Float32Array(16); this.lens = new Float32Array(16); this.look = new Float32Array(16);
    this.origin = m4.place([0, 0, 0]); this.turn = new Float32Array(9); this.scratch = new Float32Array(16);
    this.screen = [1, 1]; this.eye = [0, 0, 0];
    this.ground = this.disc();
    this.minor = this.lattice(27, 1, 5, 14);
    this.major = this.lattice(GROUND_M, 5, 0, 15);
    gl.enable(gl.DEPTH_TEST);
    gl.blendFunc(gl.SRC_ALPHA, gl.ONE_MINUS_SRC_ALPHA);
    gl.clearColor(...this.background);
  }
  // The ground: rings of a disc with the strength of its colour, 1 in the middle and 0 at the rim.
  disc(sides = 40) {
    const gl = this.gl, rings = [[0, 1], [0.25, 1], [0.45, 0.82], [0.65, 0.46], [0.82, 0.16], [1, 0]], rows = [];
    for (let k = 0; k + 1 < rings.length; k++) for (let i = 0; i < sides; i++) {
      const at = ([r, f], j) => [r * Math.cos(2 * Math.PI * j / sides), r * Math.sin(2 * Math.PI * j / sides), f];
      const [a, b, c, d] = [at(rings[k], i), at(rings[k + 1], i), at(rings[k + 1], i + 1), at(rings[k], i + 1)];
      rows.push(...a, ...b, ...c, ...(k ? [...a, ...c, ...d] : []));
    }
    const vertices = gl.createVertexArray(), held = buffer(gl, new Float32Array(rows));
    gl.bindVertexArray(vertices);
    gl.bindBuffer(gl.ARRAY_BUFFER, held);
    gl.enableVertexAttribArray(0);
    gl.vertexAttribPointer(0, 3, gl.FLOAT, false, 0, 0);
    gl.bindVertexArray(null);
    return { vertices, held, count: rows.length / 3 };
  }
  // Lines of a square lattice within a radius, in pieces; without every `but`th.
  lattice(radius, step, but, piece) {
    const points = [];
    for (let i = -Math.floor(radius / step); i <= radius / step; i++) {
      if (but && i % but === 0) continue;
      const at = i * step, reach = Math.sqrt(radius * radius - at * at), n = Math.max(1, Math.ceil(2 * reach / piece));
      for (let k = 0; k < n; k++) {
        const from = reach * (2 * k / n - 1), to = reach * (2 * (k + 1) / n - 1);
        points.push([at, from, 0], [at, to, 0], [from, at, 0], [to, at, 0]);
      }
    }
    return this.line(points, true);
  }
  // Fewer pixels on a computer that cannot draw 24 pictures a second, more again when it can draw 50 (28 where no more are drawn).
  adapt(fps) {
    if (this.fixed || document.hidden) return;
    if (fps < 24) this.detail = Math.max(0.4, this.detail * 0.8);
    else if (fps > (this.software ? 28 : 50)) this.detail = Math.min(1, this.detail * 1.15);
  }
  mesh(shape) {
    const gl = this.gl, data = new Float32Array(shape.data), vertices = gl.createVertexArray(), held = buffer(gl, data);
    gl.bindVertexArray(vertices);
    gl.bindBuffer(gl.ARRAY_BUFFER, held);
    for (let i = 0; i < 3; i++) { gl.enableVertexAttribArray(i); gl.vertexAttribPointer(i, 3, gl.FLOAT, false, 36, 12 * i); }
    gl.bindVertexArray(null);
    return { vertices, held, count: data.length / 9 };
  }
  // A line through points; pairs: separate segments.
  line(points, pairs = false) {
    const step = pairs ? 2 : 1, n = Math.max(0, pairs ? points.length >> 1 : points.length - 1), rows = new Float32Array(7 * n);
    let along = 0;
    for (let i = 0; i < n; i++) {
      const a = points[i * step], b = points[i * step + 1];
      rows.set(a, 7 * i);
      rows.set(b, 7 * i + 3);
      if (pairs) continue;
      rows[7 * i + 6] = along;
      along += Math.hypot(b[0] - a[0], b[1] - a[1], b[2] - a[2]);
    }
    return this.segments(rows, n);
  }
  // Four corners for each segment: a software renderer is slow with instances.
  segments(rows, n, usage = this.gl.STATIC_DRAW) {
    const gl = this.gl, corners = new Float32Array(36 * n), index = new Uint32Array(6 * n);
    for (let i = 0; i < n; i++) for (let k = 0; k < 6; k++) index[6 * i + k] = 4 * i + INDEX[k];
    spread(rows, corners, n);
    const vertices = gl.createVertexArray(), held = buffer(gl, corners, usage), order = gl.createBuffer();
    gl.bindVertexArray(vertices);
    gl.bindBuffer(gl.ELEMENT_ARRAY_BUFFER, order);
    gl.bufferData(gl.ELEMENT_ARRAY_BUFFER, index, gl.STATIC_DRAW);
    gl.bindBuffer(gl.ARRAY_BUFFER, held);
    for (const [i, size, at] of [[0, 2, 0], [1, 3, 8], [2, 3, 20], [3, 1, 32]]) {
      gl.enableVertexAttribArray(i);
      gl.vertexAttribPointer(i, size, gl.FLOAT, false, 36, at);
    }
    gl.bindVertexArray(null);
    return { vertices, held, order, count: n };
  }
  // A line of at most n segments that changes with every picture: fill `rows` (a, b, along of each), then `moved`.
  changing(n) {
    const rows = new Float32Array(7 * n);
    return Object.assign(this.segments(rows, n, this.gl.DYNAMIC_DRAW), { rows, corners: new Float32Array(36 * n), count: 0 });
  }
  moved(line, n) {
    const gl = this.gl;
    spread(line.rows, line.corners, n);
    gl.bindBuffer(gl.ARRAY_BUFFER, line.held);
    gl.bufferSubData(gl.ARRAY_BUFFER, 0, line.corners, 0, 36 * n);
    line.count = n;
  }
  forget(thing) {
    if (!thing) return;
    this.gl.deleteVertexArray(thing.vertices);
    for (const held of [thing.held, thing.order]) if (held) this.gl.deleteBuffer(held);
  }
  begin(camera) {
    const gl = this.gl, ratio = this.detail * Math.min(window.devicePixelRatio || 1, 2);
    this.left = this.canvas.offsetLeft; this.width = this.canvas.clientWidth; this.height = this.canvas.clientHeight; // once a picture: they cost a layout
    const width = Math.max(1, Math.round(this.width * ratio)), height = Math.max(1, Math.round(this.height * ratio));
    if (this.canvas.width !== width || this.canvas.height !== height) { this.canvas.width = width; this.canvas.height = height; }
    this.ratio = ratio;
    gl.viewport(0, 0, width, height);
    gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT);
    const far = Math.max(400, 6 * camera.distance);
    this.eye = camera.eye();
    this.far = far;
    m4.multiply(m4.perspective(0.75, width / height, 0.05, far, this.lens), m4.look(this.eye, camera.target, this.look), this.seen);
    this.screen[0] = width / 2; this.screen[1] = height / 2;
    this.used = null;
    for (const p of [this.meshProgram, this.lineProgram, this.gridProgram, this.groundProgram]) p.fresh = false;
  }
  // Choose a program; what is the same for the whole picture is set once.
  use(p) {
    if (this.used === p) return;
    const gl = this.gl;
    this.used = p;
    gl.useProgram(p.program);
    if (p.fresh) return;
    p.fresh = true;
    gl.uniformMatrix4fv(p.at("seen"), false, this.seen);
    if (p !== this.groundProgram) gl.uniform3f(p.at("eye"), this.eye[0], this.eye[1], this.eye[2]);
    if (p === this.meshProgram) {
      gl.uniform3f(p.at("fog"), this.background[0], this.background[1], this.background[2]);
      gl.uniform1f(p.at("far"), Math.min(this.far, 260));
    } else if (p !== this.groundProgram) gl.uniform2f(p.at("screen"), this.screen[0], this.screen[1]);
  }
  grid(centre, z, size) {
    const gl = this.gl;
    gl.disable(gl.BLEND);
    gl.depthMask(false);
    this.use(this.groundProgram);
    const g = this.groundProgram;
    gl.uniform3f(g.at("centre"), centre[0], centre[1], z);
    gl.uniform1f(g.at("size"), size);
    gl.uniform3f(g.at("ground"), 0.115, 0.145, 0.165);
    gl.uniform3f(g.at("sky"), this.background[0], this.background[1], this.background[2]);
    gl.bindVertexArray(this.ground.vertices);
    gl.drawArrays(gl.TRIANGLES, 0, this.ground.count);
    const k = 5 ** Math.max(0, Math.ceil(Math.log(size / GROUND_M / 2.5) / Math.log(5))), step = 5 * k, p = this.gridProgram;
    const at = [Math.round(centre[0] / step) * step, Math.round(centre[1] / step) * step, z];
    this.use(p);
    gl.enable(gl.BLEND);
    gl.uniformMatrix4fv(p.at("place"), false, m4.place(at, IDENTITY, [k, k, 1], this.scratch));
    gl.uniform1f(p.at("size"), GROUND_M);
    gl.uniform1f(p.at("width"), 0.0);
    for (const [lines, alpha, from, to] of [[this.minor, 0.16, 0.05, 0.45], [this.major, 0.32, 0.25, 1.0]]) {
      gl.uniform4f(p.at("colour"), 0.55, 0.62, 0.68, alpha);
      gl.uniform2f(p.at("fade"), from, to);
      gl.bindVertexArray(lines.vertices);
      gl.drawElements(gl.TRIANGLES, 6 * lines.count, gl.UNSIGNED_INT, 0);
    }
    gl.depthMask(true);
  }
  draw(mesh, place, colour, flat = 0) {
    const gl = this.gl, p = this.meshProgram, clear = colour[3] < 1;
    this.use(p);
    gl.uniformMatrix4fv(p.at("place"), false, place);
    gl.uniformMatrix3fv(p.at("turn"), false, normals(place, this.turn));
    gl.uniform4f(p.at("colour"), colour[0], colour[1], colour[2], colour[3]);
    gl.uniform1f(p.at("flat_"), flat);
    gl.bindVertexArray(mesh.vertices);
    if (clear) gl.enable(gl.BLEND); else gl.disable(gl.BLEND);
    if (colour[3] < 1) gl.depthMask(false);
    gl.drawArrays(gl.TRIANGLES, 0, mesh.count);
    gl.depthMask(true);
  }
  stroke(line, colour, width, { dash = 0, from = 0, count = line.count - from, place = this.origin } = {}) {
    const gl = this.gl, p = this.lineProgram;
    if (count <= 0) return;
    this.use(p);
    gl.uniformMatrix4fv(p.at("place"), false, place);
    gl.uniform1f(p.at("width"), width * this.ratio / 2);
    gl.uniform1f(p.at("dash"), dash);
    gl.uniform4f(p.at("colour"), colour[0], colour[1], colour[2], colour[3]);
    gl.bindVertexArray(line.vertices);
    gl.enable(gl.BLEND);
    gl.depthMask(false);
    gl.drawElements(gl.TRIANGLES, 6 * count, gl.UNSIGNED_INT, 24 * from);
    gl.depthMask(true);
  }
  // Place on the page [CSS pixels] of a world point; null behind the eye.
  project(p) {
    const m = this.seen, w = m[3] * p[0] + m[7] * p[1] + m[11] * p[2] + m[15];
    if (w < 0.05) return null;
    const x = (m[0] * p[0] + m[4] * p[1] + m[8] * p[2] + m[12]) / w, y = (m[1] * p[0] + m[5] * p[1] + m[9] * p[2] + m[13]) / w;
    return [(x + 1) / 2 * this.width, (1 - y) / 2 * this.height, w];
  }
}

function isSoftware() {
  const gl = document.createElement("canvas").getContext("webgl2"), info = gl && gl.getExtension("WEBGL_debug_renderer_info");
  return Boolean(info) && /swiftshader|llvmpipe|software/i.test(gl.getParameter(info.UNMASKED_RENDERER_WEBGL));
}
// Cofactors of the upper 3x3: right for scaled places too, up to a factor that the shader removes.
function normals(m, n) {
  for (let c = 0; c < 3; c++) {
    const a = 4 * ((c + 1) % 3), b = 4 * ((c + 2) % 3);
    n[3 * c] = m[a + 1] * m[b + 2] - m[a + 2] * m[b + 1];
    n[3 * c + 1] = m[a + 2] * m[b] - m[a] * m[b + 2];
    n[3 * c + 2] = m[a] * m[b + 1] - m[a + 1] * m[b];
  }
  return n;
}
// Rows a, b, along of n segments to their four corners.
function spread(rows, corners, n) {
  for (let i = 0; i < n; i++) for (let c = 0; c < 4; c++) {
    const at = 36 * i + 9 * c;
    corners[at] = c & 1;
    corners[at + 1] = c & 2 ? 1 : -1;
    for (let k = 0; k < 7; k++) corners[at + 2 + k] = rows[7 * i + k];
  }
}
function buffer(gl, data, usage = gl.STATIC_DRAW) {
  const held = gl.createBuffer();
  gl.bindBuffer(gl.ARRAY_BUFFER, held);
  gl.bufferData(gl.ARRAY_BUFFER, data, usage);
  return held;
}
function program(gl, vertex, fragment, attributes) {
  const made = gl.createProgram();
  for (const [kind, text] of [[gl.VERTEX_SHADER, vertex], [gl.FRAGMENT_SHADER, fragment]]) {
    const shader = gl.createShader(kind);
    gl.shaderSource(shader, text);
    gl.compileShader(shader);
    if (!gl.getShaderParameter(shader, gl.COMPILE_STATUS)) throw new Error(gl.getShaderInfoLog(shader));
    gl.attachShader(made, shader);
  }
  attributes.forEach((name, i) => gl.bindAttribLocation(made, i, name));
  gl.linkProgram(made);
  if (!gl.getProgramParameter(made, gl.LINK_STATUS)) throw new Error(gl.getProgramInfoLog(made));
  const places = new Map();
  return { program: made, fresh: false, at(name) { if (!places.has(name)) places.set(name, gl.getUniformLocation(made, name)); return places.get(name); } };
}

// --- the eye: orbits a target ---

export class Camera {
  constructor() { this.target = [0, 0, 2]; this.distance = 5.5; this.azimuth = -2.6; this.elevation = 0.30; }
  eye() {
    const c = Math.cos(this.elevation);
    return add(this.target, scaled([c * Math.cos(this.azimuth), c * Math.sin(this.azimuth), Math.sin(this.elevation)], this.distance));
  }
  orbit(dx, dy) {
    this.azimuth -= dx * 0.006;
    this.elevation = Math.min(1.55, Math.max(-0.35, this.elevation + dy * 0.006));
  }
  zoom(factor) { this.distance = Math.min(300, Math.max(0.6, this.distance * factor)); }
  pan(dx, dy) {
    const z = unit(sub(this.eye(), this.target)), x = unit(cross([0, 0, 1], z)), y = cross(z, x), s = this.distance * 0.0012;
    this.target = add(this.target, add(scaled(x, -dx * s), scaled(y, dy * s)));
  }
}
