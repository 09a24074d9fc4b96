// The page: connects, builds the scene, and draws it at a moment of the time line.
import { Data } from "./data.js";
import { add, aircraft, Camera, cholesky, cross, dot, m4, Renderer, rgb, rotation, scaled, Shape, sub, times, turned, unit } from "./scene.js";
import { CameraPanel, Charts, clock, COLOURS, Commands, Messages, Status, TimeLine } from "./panels.js";

const $ = (id) => document.getElementById(id);
const PROTOCOL = 3;
const FULL_MS = 10000; // until a page that was refused asks again
const STALLED_MS = 1500; // without a packet: the server sends 20 a second
const LAYERS = [
  ["estimate", "estimate ± 1σ", COLOURS.estimate], ["truth", "truth", COLOURS.truth], ["path", "path", COLOURS.estimate],
  ["reference", "reference", COLOURS.reference], ["horizon", "horizon", COLOURS.horizon], ["disturbance", "disturbance", COLOURS.amber], ["bundles", "bundles", COLOURS.truth],
  ["plan", "plan", COLOURS.plan], ["photographs", "photographs", COLOURS.photo], ["fence", "fence", COLOURS.red],
  ["structure", "structure", "#9aa7b3"], ["labels", "labels", "#e4eaf0"], ["follow", "follow", "#e4eaf0"],
];
const HORIZON = rgb(COLOURS.horizon, 0.95), REFERENCE_LINE = rgb(COLOURS.reference, 0.55), REFERENCE_BALL = rgb(COLOURS.reference, 0.95);
const AXES = ["#ff6f6f", "#6fdc9f", "#5fb3ff"];
const DISTURBANCE_M = 1.0; // length of the arrow for 1 m/s²
const HORIZON_POINTS = 16, HORIZON_AGE_S = 0.6; // of the predicted path: its points, and how long it is shown without a newer one
const SOFTWARE_PERIOD_MS = 30; // without a graphics processor no more than 33 pictures a second
const PATH_STEP_M = 0.03, PATH_MAX = 2500, PATH_MAX_SOFTWARE = 800; // a longer path is drawn from fewer points

class World {
  constructor(renderer, scene) {
    this.renderer = renderer;
    this.scene = scene;
    this.rotors = 0;
    this.angle = 0;
    this.pathMax = renderer.software ? PATH_MAX_SOFTWARE : PATH_MAX;
    this.paths = { state: { line: null, times: [], n: 0 }, truth: { line: null, times: [], n: 0 } };
    this.place = new Float32Array(16);
    this.sphere = renderer.mesh(new Shape().sphere([0, 0, 0], [1, 1, 1], [1, 1, 1], 14, 22));
    const circle = (u, v) => Array.from({ length: 65 }, (_, i) => { const p = [0, 0, 0]; p[u] = Math.cos(i * Math.PI / 32); p[v] = Math.sin(i * Math.PI / 32); return p; });
    this.circles = renderer.line([circle(0, 1), circle(1, 2), circle(0, 2)].flatMap((points) => points.slice(1).flatMap((p, i) => [points[i], p])), true);
    this.arrow = renderer.mesh(new Shape().turned([0, 0, 0], 0.018, 0.018, 0, 0.8, [1, 1, 1], 12).turned([0, 0, 0], 0.055, 0, 0.8, 1.0, [1, 1, 1], 16));
    this.axes = [[1, 0, 0], [0, 1, 0], [0, 0, 1]].map((axis) => renderer.line([[0, 0, 0], scaled(axis, 0.4)]));
    this.boards = new Map(scene.site.filter((b) => b.markers.length).map((b) => [b.name, renderer.mesh(board(b.markers))]));
    this.horizon = renderer.changing(HORIZON_POINTS);
    this.ball = renderer.mesh(new Shape().sphere([0, 0, 0], [0.045, 0.045, 0.045], [1, 1, 1], 8, 12));
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
    this.discs = this.renderer.mesh(made.discs);
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
      if (path.points.length > this.pathMax) thin(path);
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
    this.renderer.stroke(path.line, rgb(colour, 0.16), width * 0.7, { from: flown });
    this.renderer.stroke(path.line, rgb(colour, 0.95), width, { count: flown });
  }
  drawAircraft(p, R, tint, alpha, turning) {
    const { renderer } = this;
    renderer.draw(this.body, m4.place(p, R, undefined, this.place), [...tint, alpha]);
    for (let i = 0; alpha === 1 && i < this.places.length; i++) {
      const at = add(p, turned(R, this.places[i])), a = (i % 2 ? 1 : -1) * this.angle + i, c = Math.cos(a), s = Math.sin(a);
      renderer.draw(this.blades, m4.place(at, times(R, [[c, -s, 0], [s, c, 0], [0, 0, 1]]), undefined, this.place), [1, 1, 1, turning ? 0.75 : 1]);
    }
    renderer.draw(this.discs, m4.place(p, R, undefined, this.place), [...tint, turning ? 0.16 * alpha : 0.05 * alpha], 0.6);
  }
  drawEllipsoid(p, L, colour, alpha) {
    const place = m4.place(p, L, undefined, this.place);
    this.renderer.draw(this.sphere, place, rgb(colour, alpha), 1);
    this.renderer.stroke(this.circles, rgb(colour, 0.5), 1.2, { place });
  }
  // The predicted positions of the newest plan before t, from where the aircraft is; false where there are none.
  drawHorizon(track, t, latency, p, colour) {
    const i = track.find(t);
    if (i < 0 || t - track.time(i) > HORIZON_AGE_S) return false;
    const { rows } = this.horizon, at = i * track.width, n = track.data[at + 2], passed = (t - track.time(i) - latency) / track.data[at + 1];
    let from = p, segments = 0, along = 0;
    for (let k = Math.max(0, Math.floor(passed) + 1); k < n; k++) {
      const to = [track.data[at + 3 + 3 * k], track.data[at + 4 + 3 * k], track.data[at + 5 + 3 * k]];
      rows.set(from, 7 * segments); rows.set(to, 7 * segments + 3); rows[7 * segments + 6] = along;
      along += Math.hypot(...sub(to, from));
      from = to;
      segments += 1;
    }
    this.renderer.moved(this.horizon, segments);
    this.renderer.stroke(this.horizon, colour, 4.5);
    this.end = from;
    return segments > 0;
  }
  drawArrow(p, v, colour, length) {
    const l = Math.hypot(...v) * length;
    if (!(l > 0.04)) return;
    const z = unit(v), x = unit(cross(Math.abs(z[2]) < 0.9 ? [0, 0, 1] : [1, 0, 0], z)), y = cross(z, x);
    const R = [[x[0], y[0], z[0]], [x[1], y[1], z[1]], [x[2], y[2], z[2]]], thick = Math.min(1, 0.5 + l / 2);
    this.renderer.draw(this.arrow, m4.place(p, R, [thick, thick, l]), rgb(colour), 0.3);
  }
}

// The markers of a bundle in its frame: a pale board, the black square, its middle.
function board(markers) {
  const shape = new Shape();
  for (const marker of markers) {
    const R = rotation(marker.q);
    [[1.25, 0.95], [1, 0.06], [0.36, 0.95]].forEach(([size, shade], i) => {
      shape.box(add(marker.p, turned(R, [0, 0, 0.004 + 0.008 * i])), [marker.size * size, marker.size * size, 0.004], R, [shade, shade, shade]);
    });
  }
  return shape;
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
    this.problem = ""; // of the last token
    this.messages = new Messages();
    this.charts = new Charts();
    this.commands = new Commands((action, phase) => this.send({ ask: action, seen: this.stamp, phase }), () => this.status.phase, () => this.goLive());
    $("back").addEventListener("click", () => this.goLive());
    $("log-in").addEventListener("click", () => this.askToken(false));
    window.addEventListener("hashchange", async () => {
      if (await this.takeHash()) { $("login").close(); this.reconnect(); } else $("login-answer").textContent = this.problem;
    });
    if (this.renderer.software) document.body.classList.add("software");
    this.frames = 0; this.frameTimes = []; this.packets = 0; this.labels = []; this.drawn = {};
    this.makeLayers();
    this.watchPointer();
    const foot = $("bottom"), fit = () => { this.foot = foot.offsetHeight; document.documentElement.style.setProperty("--foot", `${this.foot}px`); };
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
    await this.takeHash();
    const answer = await fetch("who");
    if (!answer.ok) throw new Error((await answer.text()).trim());
    const who = await answer.json();
    if (who.protocol !== PROTOCOL) { location.reload(); return; }
    if (!who.right) { this.askToken(); return; }
    const socket = this.socket = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/live`);
    socket.binaryType = "arraybuffer";
    socket.onmessage = (event) => this.take(event.data);
    socket.onclose = (event) => {
      this.note(`${event.reason || "the view has ended, or the connection is lost"}; trying again`);
      this.open = false;
      document.body.classList.add("lost"); // what is shown was true once
      if (this.status && this.hello.live) this.status.draw(this.data, this.time.t, this.silence(true), this.behind());
      setTimeout(() => this.retry(), event.reason ? FULL_MS : 1000);
    };
  }
  async retry() {
    try { await this.connect(); } catch (error) {
      this.note(error instanceof TypeError ? "no connection to the view; trying again" : error.message); // a TypeError: no answer came
      setTimeout(() => this.retry(), 1500);
    }
  }
  // With the session that a person has now.
  reconnect() {
    if (this.socket && this.socket.readyState < 2) this.socket.close(); else this.retry();
  }
  // The token of a printed address, also where it was entered into this page. False: there is none, or it is wrong.
  async takeHash() {
    const token = new URLSearchParams(location.hash.slice(1)).get("token");
    if (!token) return false;
    history.replaceState(history.state, "", location.pathname);
    return !await this.logIn(token);
  }
  // Why not, "" when the person is known.
  async logIn(token) {
    const answer = await fetch("login", { headers: { Authorization: `Bearer ${token}` } });
    this.problem = answer.ok ? "" : (await answer.text()).trim();
    if (answer.ok) this.remember((await answer.json()).right);
    this.showRights();
    return this.problem;
  }
  // The right that a person entered with; it outlives a reload, and is compared with the right that the page has.
  remember(right) { history.replaceState({ right }, ""); }
  // A page that may only watch says so where a person expects the commands.
  showRights() {
    const head = this.hello;
    if (!head) return;
    const commands = head.live && head.right === "command", lost = history.state && history.state.right === "command";
    const why = this.problem || (head.live && lost ? "the right to command has ended" : "");
    this.commands.show(commands, commands ? this.problem : why && `${why}: this page may watch only`);
  }
  // needed: without a token the page shows nothing.
  askToken(needed = true) {
    const dialog = $("login");
    if (dialog.open) return;
    $("login-form").onsubmit = async (event) => {
      event.preventDefault();
      const problem = await this.logIn($("token").value);
      $("token").value = "";
      $("login-answer").textContent = problem;
      if (!problem) { dialog.close(); this.reconnect(); }
    };
    $("login-answer").textContent = this.problem;
    dialog.oncancel = (event) => { if (needed) event.preventDefault(); };
    dialog.showModal();
  }
  // False where there is no connection.
  send(message) {
    if (!this.socket || this.socket.readyState !== 1) return false;
    this.socket.send(JSON.stringify(message));
    return true;
  }
  // False where the page showed the past of a running flight: it is live from now on, and a person has to look first.
  goLive() {
    if (this.time.follows) return true;
    this.time.goLive();
    this.drawStatus();
    return false;
  }
  // How old is what the page shows of a running flight [s]; NaN while it is live.
  behind() {
    if (!this.hello.live || this.time.follows) return NaN;
    return Math.max(this.stamp - this.hello.base + (performance.now() - this.received) / 1000 - this.time.t, 0);
  }
  // Ages [s] of the topics that are too old to be shown as the state of the aircraft; null: never heard.
  silence(lost) {
    if (!this.hello.live) return {};
    const stalled = performance.now() - this.received;
    if (!lost && stalled < STALLED_MS) return this.silent || {};
    return Object.fromEntries(["mission_status", "fcu_status", "state", "control"].map((topic) => [topic, ((this.silent || {})[topic] || 0) + stalled / 1000]));
  }
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
    let head;
    try { head = this.data.take(message); } catch (error) { this.note(`a part of the data cannot be drawn: ${error.message}`); return; }
    this.received = performance.now();
    if (head.stamp !== undefined) { this.stamp = head.stamp; this.silent = head.silent; }
    if (head.notes) this.note(head.notes.join(" "));
    this.time.end = head.end === undefined ? head.now : head.end;
    if (head.window !== undefined) { this.window = head.window; this.showWindow(); this.time.to(Math.min(this.time.t, this.data.end)); }
    const rotors = this.data.events.of("rotors")[0], truth = this.data.tracks.truth;
    if (rotors) this.world.setRotors(rotors.n);
    else if (truth.n) this.world.setRotors(truth.columns.filter((name) => /^m\d/.test(name) && Number.isFinite(truth.get(0, name))).length);
    if (!this.loaded && this.data.tracks.state.n) { this.loaded = performance.now(); this.placeCamera(); }
  }
  begin(head) {
    const source = JSON.stringify([head.live, head.base, head.start, head.end, head.scene.title]);
    if (this.source && this.source !== source) { location.reload(); return; } // another flight: nothing of the page belongs to it
    this.source = source;
    this.hello = head;
    this.packets = 0;
    this.loaded = 0;
    this.data = new Data(head.columns);
    this.world = new World(this.renderer, head.scene);
    this.site = new Map(head.scene.site.map((b) => [b.name, b]));
    $("facts").replaceChildren();
    this.status = new Status(head.scene);
    this.panel = new CameraPanel(head.scene);
    if (!this.time) this.time = new TimeLine(head.live);
    this.window = head.window;
    this.showWindow();
    this.commands.asksAs = head.asks_as;
    if (head.live && head.right === "command") this.remember("command");
    this.showRights();
    $("who").textContent = `${head.live ? "live" : "log"}${head.name ? ` · ${head.name}` : ""}${head.right === "watch" && head.live ? " · watching" : ""}`;
    document.body.classList.remove("lost");
    this.received = performance.now();
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
    const { software } = this.renderer;
    if (software && now - (this.before || 0) < SOFTWARE_PERIOD_MS) return;
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
    if (due("status", 200)) { this.drawStatus(); this.messages.draw(this.data, this.time.t); this.commands.draw(this.data); }
    if (due("time", software ? 200 : 100)) { this.time.draw(this.data); this.panel.draw(this.data, this.time.t, this.time.follows); }
    if (this.frames > 10 && due("detail", 1000)) this.renderer.adapt(this.fps);
    if (due("charts", software ? 160 : 80)) this.charts.draw(this.data, this.time.t, this.frames < 20);
  }
  drawStatus() {
    const silent = this.silence(false), age = silent.mission_status, behind = this.behind();
    this.status.draw(this.data, this.time.t, silent, behind);
    document.body.classList.toggle("past", Number.isFinite(behind));
    $("past-words").textContent = Number.isFinite(behind) ? `not live: showing the past, ${behind.toFixed(0)} s ago` : "";
    const words = age === undefined ? "" : age === null ? "no data from the mission so far" : `no data from the mission for ${age.toFixed(0)} s`;
    if (words !== this.quiet && (words || this.quiet)) this.note(words);
    this.quiet = words;
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
      if (world.solids) renderer.draw(world.solids, renderer.origin, [1, 1, 1, 1]);
      if (world.edges) renderer.stroke(world.edges, [0.04, 0.06, 0.08, 0.5], 1.1);
    }
    const bundles = this.bundlesAt(t);
    if (layers.bundles) this.drawBundles(bundles, t);
    if (layers.path) {
      if (layers.truth) world.strokePath(world.path("truth", truth, data.version), t, COLOURS.truth, 1.6);
      world.strokePath(world.path("state", state, data.version), t, COLOURS.estimate, 2.4);
    }
    if (layers.plan) this.drawPlan(home, bundles);
    this.drawReference(t, bundles, good ? p : null);
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
    this.shownAt = { p, good, screen: good ? this.onPage(p) : null };
  }
  // Place on the page [CSS pixels] of a world point.
  onPage(p) {
    const at = this.renderer.project(p);
    return at && [at[0] + this.renderer.left, at[1], at[2]];
  }
  groundHeight(home) {
    const grass = this.world.grass[0];
    return grass ? grass.p[2] : this.hello.scene.vehicle.simulated ? 0 : home[2] - 0.15;
  }
  bundlesAt(t) {
    const event = this.data.events.last("bundles", t);
    if (!event) return [];
    return event.drawn || (event.drawn = event.rows.map(([name, p, q, std]) => ({ name, p, R: rotation(q), std })));
  }
  drawBundles(bundles, t) {
    const { world, renderer } = this, site = this.site, true_ = this.trueBundles(t);
    const draw = (name, p, R, alpha) => {
      if (world.boards.has(name)) renderer.draw(world.boards.get(name), m4.place(p, R, undefined, world.place), [1, 1, 1, alpha]);
    };
    for (const [name, { p, R }] of true_) draw(name, p, R, 1);
    for (const { name, p, R, std } of bundles) {
      const b = site.get(name), markers = b ? b.markers : [];
      draw(name, p, R, true_.has(name) ? 0.3 : 1);
      m4.place(p, R, undefined, world.place);
      AXES.forEach((colour, i) => renderer.stroke(world.axes[i], rgb(colour, 0.9), 2.2, { place: world.place }));
      if (std.length) world.drawEllipsoid(p, [[std[0], 0, 0], [0, std[1], 0], [0, 0, std[2]]], COLOURS.truth, 0.03);
      const largest = std.length ? Math.max(...std) : NaN, size = Math.max(0.3, ...markers.map((m) => m.p[1] + m.size));
      this.labels.push({ at: add(p, turned(R, [0, size, 0])), text: `${name}${Number.isFinite(largest) ? ` ± ${largest.toFixed(2)} m` : ""}` });
    }
  }
  // Where the simulation has its bundles; empty on an aircraft.
  trueBundles(t) {
    const event = this.layers.truth ? this.data.events.last("true_bundles", t) : null;
    if (!event) return new Map();
    return event.drawn || (event.drawn = new Map(event.rows.map(([name, p, q]) => [name, { p, R: rotation(q) }])));
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
    for (const ball of this.planBalls) renderer.draw(world.ball, m4.place(ball, undefined, undefined, world.place), rgb(COLOURS.plan, 0.8), 0.7);
  }
  drawReference(t, bundles, p) {
    const event = this.data.events.last("reference", t), { renderer, world, layers } = this, { horizon } = this.data.tracks;
    const { vehicle } = this.hello.scene;
    const planned = layers.horizon && p && world.drawHorizon(horizon, t, vehicle.latency || 0, p, HORIZON);
    const points = event && this.inFrame(event.frame, event.points, bundles, null);
    if (!points || !points.every((q) => q.every(Number.isFinite))) return;
    const at = (time) => {
      if (points.length < 2 || !(event.lasts > 0)) return points[0];
      const s = Math.min(Math.max((time - event.start) / event.lasts, 0), 1) * (points.length - 1), i = Math.min(Math.floor(s), points.length - 2);
      return add(points[i], scaled(sub(points[i + 1], points[i]), s - i));
    };
    if (layers.reference && points.length > 1) {
      const key = `${event.t}/${event.frame}/${points[0].map((v) => v.toFixed(1))}`;
      if (key !== this.reference) { this.reference = key; renderer.forget(this.referenceLine); this.referenceLine = renderer.line(points); }
      if (t < event.start + event.lasts) renderer.stroke(this.referenceLine, REFERENCE_LINE, 1.6);
    }
    if (layers.horizon && !planned && !horizon.n) { // a log from before predicted paths: the reference over the horizon
      const { rows } = world.horizon, length = vehicle.horizon || 2;
      for (let i = 0; i < 12; i++) { rows.set(at(t + length * i / 12), 7 * i); rows.set(at(t + length * (i + 1) / 12), 7 * i + 3); }
      renderer.moved(world.horizon, 12);
      renderer.stroke(world.horizon, REFERENCE_LINE, 4.5);
    }
    if (layers.reference) renderer.draw(world.ball, m4.place(at(t), undefined, undefined, world.place), REFERENCE_BALL, 0.7);
  }
  // All photographs taken until t are one line, made again when there is another one.
  drawPhotographs(t) {
    const camera = this.hello.scene.vehicle.camera, { renderer } = this, { events } = this.data, taken = [];
    const of = (kind) => events.of(kind).slice(0, events.index(kind, t) + 1);
    for (const photo of camera ? of("photograph") : []) {
      const R = rotation(photo.q);
      taken.push([add(photo.p, turned(R, camera.p)), times(R, rotation(camera.q)), camera.K, photo.id]);
    }
    for (const capture of of("capture")) {
      if (capture.p && capture.q) taken.push([capture.p, rotation(capture.q), camera ? camera.K : [640, 480, 600, 600, 320, 240], capture.id]);
    }
    const key = `${this.data.version}/${taken.length}`;
    if (key !== this.photographKey) {
      this.photographKey = key;
      renderer.forget(this.photographLine);
      const ends = [], depth = 0.35;
      for (const [p, R, K] of taken) {
        const corners = [[0, 0], [1, 0], [1, 1], [0, 1]].map(([u, v]) => add(p, turned(R, [(u * K[0] - K[4]) / K[2] * depth, (v * K[1] - K[5]) / K[3] * depth, depth])));
        corners.forEach((c, i) => ends.push(p, c, c, corners[(i + 1) % 4]));
      }
      this.photographLine = ends.length ? renderer.line(ends, true) : null;
    }
    if (this.photographLine) renderer.stroke(this.photographLine, rgb(COLOURS.photo, 0.85), 1.4);
    for (const [p, , , id] of taken) this.labels.push({ at: add(p, [0, 0, 0.28]), text: `${id}`, dim: true });
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
    const left = wide ? 326 : 0, right = window.innerWidth - (wide ? 326 : 0), bottom = window.innerHeight - this.foot - 24;
    const shift = this.renderer.left;
    let n = 0;
    for (const label of this.layers.labels ? this.labels : []) {
      const at = this.renderer.project(label.at), width = 14 + 6.4 * label.text.length;
      if (!at || at[2] > 80) continue;
      at[0] += shift;
      const area = [at[0] - width / 2, at[1] - 18, at[0] + width / 2, at[1]];
      if (area[0] < left || area[2] > right || area[1] < 0 || area[3] > bottom) continue;
      if (taken.some((b) => area[0] < b[2] && b[0] < area[2] && area[1] < b[3] && b[1] < area[3])) continue;
      taken.push(area);
      const span = box.children[n] || box.appendChild(document.createElement("span"));
      if (span.textContent !== label.text) span.textContent = label.text;
      span.style.transform = `translate(${at[0].toFixed(1)}px, ${at[1].toFixed(1)}px) translate(-50%, -100%)`; // moved by the compositor alone
      if (span.dim !== label.dim) { span.dim = label.dim; span.style.opacity = label.dim ? 0.75 : 1; }
      n += 1;
    }
    while (box.children.length > n) box.lastChild.remove();
  }
}

try {
  window.view = new View();
  window.view.retry();
} catch (error) {
  $("note").hidden = false;
  $("note").textContent = error.message;
}
