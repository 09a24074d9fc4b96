// The page: connects, builds the scene, and draws it at a moment of the time line.
import { Data } from "./data.js";
import { add, aircraft, Camera, cholesky, cross, dot, m4, Renderer, rgb, rotation, scaled, Shape, sub, times, turned, unit } from "./scene.js";
import { CameraPanel, Charts, clock, COLOURS, Commands, Messages, Status, TimeLine } from "./panels.js";

const $ = (id) => document.getElementById(id);
const PROTOCOL = 1;
const LAYERS = [
  ["estimate", "estimate ± 1σ", COLOURS.estimate], ["truth", "truth", COLOURS.truth], ["path", "path", COLOURS.estimate],
  ["reference", "reference and horizon", COLOURS.reference], ["disturbance", "disturbance", COLOURS.amber], ["bundles", "bundles", COLOURS.truth],
  ["plan", "plan", COLOURS.plan], ["photographs", "photographs", COLOURS.photo], ["fence", "fence", COLOURS.red],
  ["structure", "structure", "#9aa7b3"], ["labels", "labels", "#e4eaf0"], ["follow", "follow", "#e4eaf0"],
];
const DISTURBANCE_M = 1.0; // length of the arrow for 1 m/s²
const PATH_STEP_M = 0.03, PATH_MAX = 2500; // a longer path is drawn from fewer points

class World {
  constructor(renderer, scene) {
    this.renderer = renderer;
    this.scene = scene;
    this.rotors = 0;
    this.angle = 0;
    this.paths = { state: { line: null, times: [], n: 0 }, truth: { line: null, times: [], n: 0 } };
    this.reference = { key: null, line: null, points: [] };
    const sphere = new Shape().sphere([0, 0, 0], [1, 1, 1]);
    this.sphere = renderer.mesh(sphere);
    const circle = (u, v) => Array.from({ length: 65 }, (_, i) => { const p = [0, 0, 0]; p[u] = Math.cos(i * Math.PI / 32); p[v] = Math.sin(i * Math.PI / 32); return p; });
    this.circles = [circle(0, 1), circle(1, 2), circle(0, 2)].map((points) => renderer.line(points));
    this.arrow = renderer.mesh(new Shape().turned([0, 0, 0], 0.018, 0.018, 0, 0.8, [1, 1, 1], 12).turned([0, 0, 0], 0.055, 0, 0.8, 1.0, [1, 1, 1], 16));
    this.marker = renderer.mesh(new Shape().box([0, 0, 0.004], [1, 1, 0.004]));
    this.ball = renderer.mesh(new Shape().sphere([0, 0, 0], [0.045, 0.045, 0.045], [1, 1, 1], 8, 12));
    this.unit = renderer.line([[0, 0, 0], [1, 0, 0]]);
    this.build();
  }
  build() {
    const { scene, renderer } = this, solid = new Shape(), edges = [], grass = [];
    for (const s of scene.solids) {
      const R = rotation(s.q), tint = s.grass ? [0.55, 0.66, 0.52] : [s.shade * 1.12, s.shade * 1.12, s.shade * 1.10];
      if (s.grass) { grass.push(s); continue; }
      if (s.kind === "box") { solid.box(s.p, s.size, R, tint); edges.push(...boxEdges(s.p, s.size, R)); }
      else if (s.kind === "plate") { solid.box(s.p, [s.size[0], s.size[1], 0.01], R, tint); edges.push(...boxEdges(s.p, [s.size[0], s.size[1], 0], R)); }
      else if (s.kind === "cylinder") solid.turned(s.p, s.size[0], s.size[0], -s.size[1] / 2, s.size[1] / 2, tint, 36, R);
    }
    for (const mesh of scene.meshes) {
      for (const [a, b, c] of mesh.triangles) solid.triangle(mesh.vertices[a], mesh.vertices[b], mesh.vertices[c], [0.66, 0.66, 0.65]);
    }
    this.solids = solid.data.length ? renderer.mesh(solid) : null;
    this.edges = edges.length ? renderer.line(edges, true) : null;
    this.grass = grass;
    this.setRotors(6);
  }
  setRotors(n) {
    if (n === this.rotors || n < 3 || n > 12) return;
    this.rotors = n;
    const made = aircraft(n, (this.scene.vehicle.wheelbase || 0.55) / 2);
    this.body = this.renderer.mesh(made.shape);
    this.blades = this.renderer.mesh(made.blades);
    this.disc = this.renderer.mesh(made.disc);
    this.places = made.places;
  }
  // The path of a track as one line, extended as rows arrive.
  path(name, track, version) {
    const path = this.paths[name];
    if (path.version !== version) { this.renderer.forget(path.line); Object.assign(path, { line: null, times: [], points: [], n: 0, version, step: PATH_STEP_M }); }
    const before = path.times.length;
    for (; path.n < track.n; path.n++) {
      const p = [track.get(path.n, "x"), track.get(path.n, "y"), track.get(path.n, "z")], last = path.points[path.points.length - 1];
      if (!p.every(Number.isFinite) || (last && Math.hypot(...sub(p, last)) < path.step)) continue;
      path.points.push(p);
      path.times.push(track.time(path.n));
      if (path.points.length > PATH_MAX) thin(path);
    }
    const changed = path.drawn < 0 || path.times.length - path.drawn > 3 || (before === 0 && path.times.length);
    if (path.points.length > 1 && (!path.line || changed)) {
      this.renderer.forget(path.line);
      path.line = this.renderer.line(path.points);
      path.drawn = path.times.length;
    }
    return path;
  }
  strokePath(path, t, colour, width) {
    if (!path.line) return;
    let low = 0, high = path.times.length;
    while (low < high) { const mid = (low + high) >> 1; if (path.times[mid] <= t) low = mid + 1; else high = mid; }
    const flown = Math.min(Math.max(low - 1, 0), path.line.count);
    this.renderer.stroke(path.line, rgb(colour, 0.16), width * 0.7);
    this.renderer.stroke(path.line, rgb(colour, 0.95), width, { count: flown });
  }
  drawAircraft(p, R, tint, alpha, turning) {
    const { renderer } = this, place = m4.place(p, R);
    renderer.draw(this.body, place, [...tint, alpha]);
    for (let i = 0; i < this.places.length; i++) {
      const at = add(p, turned(R, this.places[i])), a = (i % 2 ? 1 : -1) * this.angle + i, c = Math.cos(a), s = Math.sin(a);
      if (alpha === 1) renderer.draw(this.blades, m4.place(at, times(R, [[c, -s, 0], [s, c, 0], [0, 0, 1]])), [1, 1, 1, turning ? 0.75 : 1]);
      renderer.draw(this.disc, m4.place(at, R), [...tint, turning ? 0.16 * alpha : 0.05 * alpha], 0.6);
    }
  }
  drawEllipsoid(p, L, colour, alpha) {
    const place = m4.place(p, L);
    this.renderer.draw(this.sphere, place, rgb(colour, alpha), 1);
    for (const circle of this.circles) this.renderer.stroke(circle, rgb(colour, 0.5), 1.2, { place });
  }
  segment(a, b, colour, width, options) {
    const d = sub(b, a), l = Math.hypot(...d);
    if (l < 1e-4) return;
    const x = scaled(d, 1 / l), side = unit(cross(Math.abs(x[2]) < 0.9 ? [0, 0, 1] : [1, 0, 0], x)), up = cross(x, side);
    const R = [[x[0], side[0], up[0]], [x[1], side[1], up[1]], [x[2], side[2], up[2]]];
    this.renderer.stroke(this.unit, colour, width, { ...options, place: m4.place(a, R, [l, 1, 1]) });
  }
  drawArrow(p, v, colour, length) {
    const l = Math.hypot(...v) * length;
    if (!(l > 0.04)) return;
    const z = unit(v), x = unit(cross(Math.abs(z[2]) < 0.9 ? [0, 0, 1] : [1, 0, 0], z)), y = cross(z, x);
    const R = [[x[0], y[0], z[0]], [x[1], y[1], z[1]], [x[2], y[2], z[2]]], thick = Math.min(1, 0.5 + l / 2);
    this.renderer.draw(this.arrow, m4.place(p, R, [thick, thick, l]), rgb(colour), 0.3);
  }
}

function thin(path) {
  path.step *= 1.5;
  const kept = [0];
  for (let i = 1; i < path.points.length; i++) {
    if (Math.hypot(...sub(path.points[i], path.points[kept[kept.length - 1]])) >= path.step) kept.push(i);
  }
  path.points = kept.map((i) => path.points[i]);
  path.times = kept.map((i) => path.times[i]);
  path.drawn = -1;
}

function boxEdges(p, size, R) {
  const at = (x, y, z) => add(p, turned(R, [x * size[0] / 2, y * size[1] / 2, z * size[2] / 2])), lines = [];
  for (const a of [-1, 1]) for (const b of [-1, 1]) {
    lines.push(at(-1, a, b), at(1, a, b), at(a, -1, b), at(a, 1, b), at(a, b, -1), at(a, b, 1));
  }
  return lines;
}

// --- the page ---

class View {
  constructor() {
    this.renderer = new Renderer($("world"));
    this.camera = new Camera();
    this.layers = Object.fromEntries(LAYERS.map(([name]) => [name, true]));
    this.messages = new Messages();
    this.charts = new Charts();
    this.commands = new Commands((action) => this.send({ ask: action }));
    this.frames = 0; this.frameTimes = []; this.packets = 0; this.labels = []; this.drawn = {};
    this.makeLayers();
    this.watchPointer();
    const foot = $("bottom"), fit = () => document.documentElement.style.setProperty("--foot", `${foot.offsetHeight}px`);
    new ResizeObserver(fit).observe(foot);
    fit();
    for (const [id, by] of [["earlier", -1], ["later", 1]]) $(id).addEventListener("click", () => this.openWindow(this.window + by));
    requestAnimationFrame((now) => this.frame(now));
  }
  makeLayers() {
    for (const [name, words, colour] of LAYERS) {
      const button = document.createElement("button"), dot = document.createElement("i"), label = document.createElement("span");
      button.style.color = colour;
      label.textContent = words;
      button.append(dot, label);
      button.dataset.layer = name;
      const show = () => button.setAttribute("aria-pressed", this.layers[name]);
      button.addEventListener("click", () => { this.layers[name] = !this.layers[name]; show(); });
      show();
      $("layers").append(button);
    }
  }
  setLayer(name, on) {
    this.layers[name] = on;
    const button = document.querySelector(`[data-layer="${name}"]`);
    if (button) button.setAttribute("aria-pressed", on);
  }
  watchPointer() {
    const canvas = $("world"), points = new Map();
    let apart = 0;
    canvas.addEventListener("contextmenu", (event) => event.preventDefault());
    canvas.addEventListener("pointerdown", (event) => { canvas.setPointerCapture(event.pointerId); points.set(event.pointerId, event); apart = 0; });
    canvas.addEventListener("pointerup", (event) => points.delete(event.pointerId));
    canvas.addEventListener("pointercancel", (event) => points.delete(event.pointerId));
    canvas.addEventListener("pointermove", (event) => {
      const before = points.get(event.pointerId);
      if (!before) return;
      const dx = event.clientX - before.clientX, dy = event.clientY - before.clientY;
      points.set(event.pointerId, event);
      if (points.size === 2) {
        const [a, b] = [...points.values()], now = Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY);
        if (apart) this.camera.zoom(apart / Math.max(now, 1));
        apart = now;
      } else if (event.buttons & 2 || event.shiftKey) { this.setLayer("follow", false); this.camera.pan(dx, dy); }
      else this.camera.orbit(dx, dy);
    });
    canvas.addEventListener("wheel", (event) => { event.preventDefault(); this.camera.zoom(Math.exp(event.deltaY * 0.0012)); }, { passive: false });
  }

  // --- connection ---

  async connect() {
    const token = new URLSearchParams(location.hash.slice(1)).get("token");
    if (token) { history.replaceState(null, "", location.pathname); await this.logIn(token); }
    const who = await (await fetch("who")).json();
    if (who.protocol !== PROTOCOL) { location.reload(); return; }
    if (!who.right) { this.askToken(); return; }
    const socket = this.socket = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/live`);
    socket.binaryType = "arraybuffer";
    socket.onmessage = (event) => this.take(event.data);
    socket.onclose = () => { this.note("the view has ended, or the connection is lost; trying again"); this.open = false; setTimeout(() => this.retry(), 1000); };
  }
  async retry() {
    try { await this.connect(); } catch { setTimeout(() => this.retry(), 1500); }
  }
  async logIn(token) {
    const answer = await fetch("login", { headers: { Authorization: `Bearer ${token}` } });
    if (answer.ok) return "";
    return (await answer.text()).trim();
  }
  askToken() {
    const dialog = $("login");
    if (dialog.open) return;
    $("login-form").onsubmit = async (event) => {
      event.preventDefault();
      const problem = await this.logIn($("token").value);
      $("token").value = "";
      $("login-answer").textContent = problem;
      if (!problem) { dialog.close(); this.connect(); }
    };
    dialog.addEventListener("cancel", (event) => event.preventDefault());
    dialog.showModal();
  }
  send(message) { if (this.socket && this.socket.readyState === 1) this.socket.send(JSON.stringify(message)); }
  note(text) { $("note").hidden = !text; $("note").textContent = text; }
  take(message) {
    if (typeof message === "string") {
      const head = JSON.parse(message);
      if (head.scene) this.begin(head); else this.commands.take(head);
      return;
    }
    this.packets += 1;
    this.send({ ack: this.packets });
    if (new Uint8Array(message, 0, 4).every((byte, i) => byte === "JPEG".charCodeAt(i))) { this.panel.take(message.slice(4)); return; }
    const head = this.data.take(message);
    this.time.end = head.end === undefined ? head.now : head.end;
    if (head.window !== undefined) { this.window = head.window; this.showWindow(); this.time.to(Math.min(this.time.t, this.data.end)); }
    const rotors = this.data.events.of("rotors")[0], truth = this.data.tracks.truth;
    if (rotors) this.world.setRotors(rotors.n);
    else if (truth.n) this.world.setRotors(truth.columns.filter((name) => /^m\d/.test(name) && Number.isFinite(truth.get(0, name))).length);
    if (!this.loaded && this.data.tracks.state.n) { this.loaded = performance.now(); this.placeCamera(); }
  }
  begin(head) {
    this.hello = head;
    this.packets = 0;
    this.loaded = 0;
    this.data = new Data(head.columns);
    this.world = new World(this.renderer, head.scene);
    $("facts").replaceChildren();
    this.status = new Status(head.scene);
    this.panel = new CameraPanel(head.scene);
    if (!this.time) this.time = new TimeLine(head.live);
    this.window = head.window;
    this.showWindow();
    this.commands.show(head.live && head.right === "command");
    $("who").textContent = `${head.live ? "live" : "log"}${head.name ? ` · ${head.name}` : ""}${head.right === "watch" && head.live ? " · watching" : ""}`;
    this.note(head.notes.join(" "));
    if (head.live) this.send({ camera: true });
    this.open = true;
  }
  showWindow() {
    $("windows").hidden = this.hello.windows < 2;
    $("window").textContent = ` ${this.window + 1} of ${this.hello.windows} `;
    $("earlier").disabled = this.window <= 0;
    $("later").disabled = this.window >= this.hello.windows - 1;
  }
  openWindow(number) { this.time.to(0); this.send({ window: number }); }
  placeCamera() {
    const state = this.data.tracks.state, i = state.find(this.time.t) < 0 ? 0 : state.find(this.time.t);
    this.camera.target = ["x", "y", "z"].map((name) => state.get(i, name));
  }

  // --- a frame ---

  frame(now) {
    requestAnimationFrame((next) => this.frame(next));
    const dt = Math.min(0.25, (now - (this.before || now)) / 1000);
    this.before = now;
    if (!this.open || !this.time) return;
    this.time.step(dt, this.data);
    this.frames += 1;
    this.frameTimes.push(now);
    while (this.frameTimes.length > 60 || this.frameTimes[0] < now - 2000) this.frameTimes.shift();
    const { camera, renderer } = this, canvas = renderer.canvas;
    const key = [this.time.t, this.data.version, this.packets, renderer.detail, canvas.clientWidth, canvas.clientHeight, camera.distance,
      camera.azimuth, camera.elevation, ...camera.target, ...Object.values(this.layers)].join();
    if (key !== this.drawnKey || this.frames < 10) this.draw(this.time.t, dt); // a picture that stands still costs nothing
    this.drawnKey = key;
    const due = (name, period) => { // panels need fewer pictures a second than the world
      if (now - (this.drawn[name] || 0) < period) return false;
      this.drawn[name] = now;
      return true;
    };
    if (due("status", 200)) { this.status.draw(this.data, this.time.t); this.messages.draw(this.data, this.time.t); this.commands.draw(this.data); }
    if (due("time", 100)) { this.time.draw(this.data); this.panel.draw(this.data, this.time.t); }
    if (this.frames > 10 && due("detail", 1000)) this.renderer.adapt(this.fps);
    if (due("charts", 80)) this.charts.draw(this.data, this.time.t, this.frames < 20);
  }
  get fps() {
    const times = this.frameTimes;
    return times.length < 2 ? 0 : 1000 * (times.length - 1) / (times[times.length - 1] - times[0]);
  }
  draw(t, dt) {
    const { data, world, renderer, layers, camera } = this, { state, truth, cov, sent } = data.tracks;
    const known = state.find(t) >= 0, p = known ? state.vector(["x", "y", "z"], t) : [0, 0, 0], R = rotation(state.quaternion(t));
    const good = known && p.every(Number.isFinite), home = data.home();
    if (layers.follow && good) camera.target = add(camera.target, scaled(sub(p, camera.target), Math.min(1, 6 * dt + 0.02)));
    renderer.begin(camera);
    const onGround = this.groundHeight(home);
    renderer.grid(camera.target, onGround, Math.max(60, 8 * camera.distance));
    this.labels = [];
    if (layers.structure) {
      if (world.solids) renderer.draw(world.solids, m4.place([0, 0, 0]), [1, 1, 1, 1]);
      if (world.edges) renderer.stroke(world.edges, [0.04, 0.06, 0.08, 0.5], 1.1);
    }
    const bundles = this.bundlesAt(t);
    if (layers.bundles) this.drawBundles(bundles, t);
    if (layers.path) {
      if (layers.truth) world.strokePath(world.path("truth", truth, data.version), t, COLOURS.truth, 1.6);
      world.strokePath(world.path("state", state, data.version), t, COLOURS.estimate, 2.4);
    }
    if (layers.plan) this.drawPlan(home, bundles);
    if (layers.reference) this.drawReference(t, bundles);
    if (layers.photographs) this.drawPhotographs(t);
    this.labels.push({ at: home, text: "take-off", dim: true });
    const thrust = sent.value("thrust", t), flight = data.events.last("fcu", t), turning = Boolean(flight && flight.armed);
    if (turning) world.angle += dt * (14 + 20 * (Number.isFinite(thrust) ? thrust : 0.2));
    if (good) {
      world.drawAircraft(p, R, [1, 1, 1], 1, turning);
      if (layers.disturbance) {
        const d = state.vector(["dx", "dy", "dz"], t);
        world.drawArrow(add(p, [0, 0, 0.02]), d, COLOURS.amber, DISTURBANCE_M);
      }
    }
    if (layers.truth && truth.find(t) >= 0) {
      const true_ = truth.vector(["x", "y", "z"], t);
      if (true_.every(Number.isFinite)) world.drawAircraft(true_, rotation(truth.quaternion(t)), [0.76, 0.84, 0.92], 0.34, turning);
    }
    if (layers.fence) this.drawFence(home);
    if (good && layers.estimate) {
      const i = cov.find(t), row = i < 0 ? null : ["xx", "xy", "xz", "yy", "yz", "zz"].map((name) => cov.get(i, name));
      const std = state.value("std", t), P = row && t - cov.time(i) < 3 ? row : [std * std, 0, 0, std * std, 0, std * std];
      if (P.every(Number.isFinite)) world.drawEllipsoid(p, cholesky(...P), COLOURS.estimate, 0.05);
    }
    this.place(good ? p : null);
    this.shownAt = { p, good, screen: good ? renderer.project(p) : null };
  }
  groundHeight(home) {
    const grass = this.world.grass[0];
    return grass ? grass.p[2] : this.hello.scene.vehicle.simulated ? 0 : home[2] - 0.15;
  }
  bundlesAt(t) {
    const event = this.data.events.last("bundles", t);
    return event ? event.rows.map(([name, p, q, std]) => ({ name, p, R: rotation(q), std })) : [];
  }
  drawBundles(bundles, t) {
    const { world } = this, site = new Map(this.hello.scene.site.map((b) => [b.name, b]));
    for (const [name, { p, R }] of this.trueBundles(t)) if (site.has(name)) this.drawMarkers(site.get(name).markers, p, R, 1);
    for (const { name, p, R, std } of bundles) {
      const b = site.get(name), markers = b ? b.markers : [];
      this.drawMarkers(markers, p, R, this.trueBundles(t).has(name) ? 0.3 : 1);
      for (const [axis, colour] of [[[1, 0, 0], "#ff6f6f"], [[0, 1, 0], "#6fdc9f"], [[0, 0, 1], "#5fb3ff"]]) {
        world.segment(p, add(p, turned(R, scaled(axis, 0.4))), rgb(colour, 0.9), 2.2);
      }
      if (std.length) world.drawEllipsoid(p, [[std[0], 0, 0], [0, std[1], 0], [0, 0, std[2]]], COLOURS.truth, 0.03);
      const largest = std.length ? Math.max(...std) : NaN, size = Math.max(0.3, ...markers.map((m) => m.p[1] + m.size));
      this.labels.push({ at: add(p, turned(R, [0, size, 0])), text: `${name}${Number.isFinite(largest) ? ` ± ${largest.toFixed(2)} m` : ""}` });
    }
  }
  // Where the simulation has its bundles; empty on an aircraft.
  trueBundles(t) {
    const event = this.layers.truth ? this.data.events.last("true_bundles", t) : null;
    return new Map(event ? event.rows.map(([name, p, q]) => [name, { p, R: rotation(q) }]) : []);
  }
  drawMarkers(markers, p, R, alpha) {
    const { world, renderer } = this, shades = [[1.25, 0.95], [1, 0.06], [0.36, 0.95]];
    for (const marker of markers) {
      const at = add(p, turned(R, marker.p)), turn = times(R, rotation(marker.q));
      shades.forEach(([size, shade], i) => {
        const place = m4.place(add(at, turned(turn, [0, 0, 0.008 * i])), turn, [marker.size * size, marker.size * size, 1]);
        renderer.draw(world.marker, place, [shade, shade, shade, alpha]);
      });
    }
  }
  inFrame(frame, points, bundles, home) {
    if (frame === "world") return home ? points.map((q) => add(q, home)) : points;
    const b = bundles.find((bundle) => bundle.name === frame);
    return b ? points.map((q) => add(b.p, turned(b.R, q))) : null;
  }
  drawPlan(home, bundles) {
    const { plan } = this.hello.scene, { renderer, world } = this, key = JSON.stringify([home, bundles.map((b) => b.p.map((v) => v.toFixed(1)))]);
    if (key !== this.planKey) {
      this.planKey = key;
      for (const line of this.planLines || []) renderer.forget(line);
      this.planLines = []; this.planBalls = [];
      const way = plan.search ? plan.search.map((q) => add(q, home)) : [];
      if (plan.takeoff && (way.length || plan.trajectory)) way.unshift(home, add(home, [0, 0, plan.takeoff]));
      if (plan.bundle && plan.standoff) {
        const goal = this.inFrame(plan.bundle, [plan.standoff], bundles, null);
        if (goal) way.push(goal[0]);
      }
      if (way.length > 1) this.planLines.push(renderer.line(way));
      this.planBalls.push(...way.slice(1));
      if (plan.trajectory) {
        const points = this.inFrame(plan.trajectory.frame, plan.trajectory.points, bundles, home);
        if (points) this.planLines.push(renderer.line(points));
      }
      const inspection = plan.inspection;
      if (inspection) {
        this.planLines.push(renderer.line(inspection.path.map((q) => add(q, home))));
        const looks = inspection.photographs.flatMap((v) => { const q = add(v.slice(0, 3), home); return [q, add(q, scaled(v.slice(3), 0.5))]; });
        if (looks.length) this.planLines.push(renderer.line(looks, true));
      }
    }
    for (const line of this.planLines) renderer.stroke(line, rgb(COLOURS.plan, 0.75), 1.5, { dash: 0.35 });
    for (const ball of this.planBalls) renderer.draw(world.ball, m4.place(ball), rgb(COLOURS.plan, 0.8), 0.7);
  }
  drawReference(t, bundles) {
    const event = this.data.events.last("reference", t), { renderer, world } = this;
    if (!event) return;
    const points = this.inFrame(event.frame, event.points, bundles, null);
    if (!points || !points.every((q) => q.every(Number.isFinite))) return;
    const at = (time) => {
      if (points.length < 2 || !(event.lasts > 0)) return points[0];
      const s = Math.min(Math.max((time - event.start) / event.lasts, 0), 1) * (points.length - 1), i = Math.min(Math.floor(s), points.length - 2);
      return add(points[i], scaled(sub(points[i + 1], points[i]), s - i));
    };
    if (points.length > 1) {
      const key = `${event.t}/${event.frame}/${points[0].map((v) => v.toFixed(1))}`;
      if (key !== this.reference) { this.reference = key; renderer.forget(this.referenceLine); this.referenceLine = renderer.line(points); }
      if (t < event.start + event.lasts) renderer.stroke(this.referenceLine, rgb(COLOURS.reference, 0.55), 1.6);
    }
    const horizon = this.hello.scene.vehicle.horizon || 2;
    for (let i = 0; i < 12; i++) {
      world.segment(at(t + horizon * i / 12), at(t + horizon * (i + 1) / 12), rgb(COLOURS.reference, 1 - 0.05 * i), 5 - 0.25 * i);
    }
    renderer.draw(world.ball, m4.place(at(t)), rgb(COLOURS.reference, 0.95), 0.7);
  }
  drawPhotographs(t) {
    const camera = this.hello.scene.vehicle.camera, { world } = this, colour = rgb(COLOURS.photo, 0.85);
    const draw = (p, R, depth, K, text) => {
      const corners = [[0, 0], [1, 0], [1, 1], [0, 1]].map(([u, v]) => add(p, turned(R, [(u * K[0] - K[4]) / K[2] * depth, (v * K[1] - K[5]) / K[3] * depth, depth])));
      corners.forEach((c, i) => { world.segment(p, c, colour, 1.2); world.segment(c, corners[(i + 1) % 4], colour, 1.5); });
      this.labels.push({ at: add(p, [0, 0, 0.28]), text, dim: true });
    };
    for (const photo of this.data.events.of("photograph")) {
      if (photo.t > t || !camera) continue;
      const R = rotation(photo.q);
      draw(add(photo.p, turned(R, camera.p)), times(R, rotation(camera.q)), 0.35, camera.K, `${photo.id}`);
    }
    for (const capture of this.data.events.of("capture")) {
      if (capture.t > t || !capture.p || !capture.q) continue;
      draw(capture.p, rotation(capture.q), 0.35, camera ? camera.K : [640, 480, 600, 600, 320, 240], `${capture.id}`);
    }
  }
  drawFence(home) {
    const { fence } = this.hello.scene.plan;
    if (!fence) return;
    const key = home.join();
    if (key !== this.fenceKey) {
      this.fenceKey = key;
      this.renderer.forget(this.fence);
      const size = sub(fence.max, fence.min), centre = add(home, scaled(add(fence.min, fence.max), 0.5));
      this.fence = this.renderer.line(boxEdges(centre, size, [[1, 0, 0], [0, 1, 0], [0, 0, 1]]), true);
    }
    this.renderer.stroke(this.fence, rgb(COLOURS.red, 0.5), 1.4, { dash: 0.6 });
  }
  // Labels of the picture: those that would cover another, a panel or the aircraft are left out.
  place() {
    const box = $("labels"), taken = [], wide = window.innerWidth > 900;
    const left = wide ? 326 : 0, right = window.innerWidth - (wide ? 326 : 0), bottom = window.innerHeight - $("bottom").offsetHeight - 24;
    let n = 0;
    for (const label of this.layers.labels ? this.labels : []) {
      const at = this.renderer.project(label.at), width = 14 + 6.4 * label.text.length;
      if (!at || at[2] > 80) continue;
      const area = [at[0] - width / 2, at[1] - 18, at[0] + width / 2, at[1]];
      if (area[0] < left || area[2] > right || area[1] < 0 || area[3] > bottom) continue;
      if (taken.some((b) => area[0] < b[2] && b[0] < area[2] && area[1] < b[3] && b[1] < area[3])) continue;
      taken.push(area);
      const span = box.children[n] || box.appendChild(document.createElement("span"));
      if (span.textContent !== label.text) span.textContent = label.text;
      span.style.left = `${at[0]}px`;
      span.style.top = `${at[1]}px`;
      span.style.opacity = label.dim ? 0.75 : 1;
      n += 1;
    }
    while (box.children.length > n) box.lastChild.remove();
  }
}

try {
  window.view = new View();
  window.view.connect().catch(() => { window.view.note("no connection to the view; trying again"); window.view.retry(); });
} catch (error) {
  $("note").hidden = false;
  $("note").textContent = error.message;
}
