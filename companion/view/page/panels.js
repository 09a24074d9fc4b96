// The panels around the picture: status, messages, camera, charts, time line, commands.

const CPU = { willReadFrequently: true }; // small pictures of lines: cheaper without the graphics processor
const $ = (id) => document.getElementById(id);
export const COLOURS = {
  estimate: "#5fb3ff", truth: "#c3ccd5", reference: "#6fdc9f", amber: "#ffb454", red: "#ff6f6f", plan: "#a99cff", photo: "#ffd866", horizon: "#ff8fd0",
};
const PHASES = {
  WAIT_READY: "#7d8b99", ARM: "#8fa3b5", TAKEOFF: "#5fb3ff", ENTER_OFFBOARD: "#5fb3ff", SEARCH: "#58c4dd", APPROACH: "#4ccfb4",
  HOLD: "#6fdc9f", TRANSFER: "#4ccfb4", TRAJECTORY: "#6fdc9f", INSPECT: "#6fdc9f", PAUSE: "#ffb454", RETREAT: "#ff9a5c", RETURN: "#a99cff",
  LAND: "#8f8bd8", DONE: "#7d8b99", PX4_HOLD: "#ff6f6f", PILOT: "#ff6f6f", FAILED: "#ff6f6f",
};
export const phaseColour = (phase) => PHASES[phase] || "#7d8b99";
export function clock(s, digits = 0) {
  const sign = s < -0.05 ? "−" : "", t = Math.abs(s), m = Math.floor(t / 60);
  const seconds = (t - 60 * m).toFixed(digits).padStart(digits ? 3 + digits : 2, "0");
  return `${sign}${m}:${seconds}`;
}
const STATUS_OLD_S = 3; // of the flight controller, in a log
const ANSWER_MS = 1500; // the mission answers within a tenth of a second; a second of the link and half a second to draw it
const shown = (v, digits, unit) => (Number.isFinite(v) ? `${v.toFixed(digits)} ${unit}` : "–");
function put(node, text) { if (node.textContent !== text) node.textContent = text; }

// --- status ---

export class Status {
  constructor(scene) {
    this.scene = scene;
    $("title").textContent = [scene.title, scene.vehicle.name].filter(Boolean).join(" · ");
    this.values = {};
    for (const name of ["mode", "RC", "height", "GNSS", "speed", "± position", "error", "± bundle"]) {
      const dt = document.createElement("dt"), dd = document.createElement("dd");
      dt.textContent = name;
      dd.textContent = "–";
      $("facts").append(dt, dd);
      this.values[name] = dd;
    }
  }
  // silent: ages [s] of the topics whose last message is no state any more. behind: how old is what is shown [s], NaN: the present.
  // The past is shown as it was, with its age; what has fallen silent is no state of the present.
  draw(data, t, silent = {}, behind = NaN) {
    const { state, fcu, control } = data.tracks, phase = data.events.last("phase", t), reported = data.events.last("fcu", t);
    const past = Number.isFinite(behind), quiet = (topic) => !past && topic in silent, age = past ? behind : silent.mission_status;
    const old = past || quiet("mission_status"), since = old && age !== null ? `, ${age.toFixed(0)} s ago` : "";
    this.phase = phase ? phase.phase : "";
    put($("phase"), phase ? phase.phase.replaceAll("_", " ") + since : "no mission status");
    $("phase-dot").style.background = phaseColour(old ? "" : this.phase);
    $("phase").classList.toggle("old", old);
    put($("reason"), phase ? phase.cause || phase.reason : "");
    const row = fcu.find(t), flight = quiet("fcu_status") || row < 0 || t - fcu.time(row) > STATUS_OLD_S ? null : reported;
    const home = data.home(), height = quiet("state") ? NaN : state.value("z", t) - home[2];
    const speed = quiet("state") ? NaN : Math.hypot(...state.vector(["vx", "vy", "vz"], t)), relative = quiet("state") ? NaN : state.value("rstd", t);
    put(this.values.mode, flight ? flight.mode.replace("AUTO_", "").toLowerCase() + (flight.armed ? "" : ", disarmed") : "–");
    put(this.values.RC, flight ? (flight.rc ? "ok" : "none") : "–");
    put(this.values.GNSS, flight ? (flight.gnss ? "fix" : "no fix") : "–");
    put(this.values.height, shown(height, 2, "m"));
    put(this.values.speed, shown(speed, 2, "m/s"));
    put(this.values["± position"], shown(quiet("state") ? NaN : state.value("std", t), 2, "m"));
    put(this.values["± bundle"], shown(100 * relative, 1, "cm"));
    put(this.values.error, shown(quiet("control") ? NaN : 100 * control.value("error", t), 1, "cm"));
    const voltage = flight ? fcu.value("voltage", t) : NaN, left = flight ? fcu.value("remaining", t) : NaN, { low, critical } = this.scene.vehicle;
    const share = Number.isFinite(left) ? left : low ? (voltage - critical) / (1.25 * (low - critical) + 1e-9) / 4 : 0;
    $("battery-fill").style.width = `${100 * Math.min(1, Math.max(0, share || 0))}%`;
    $("battery-fill").style.background = voltage < critical ? COLOURS.red : voltage < low ? COLOURS.amber : COLOURS.reference;
    put($("battery-text"), Number.isFinite(voltage) ? `${voltage.toFixed(1)} V${Number.isFinite(left) ? ` · ${Math.round(100 * left)} %` : ""}` : "no battery data");
    this.monitors(data, t, quiet("mission_status") || !phase, past);
  }
  monitors(data, t, unknown, past) {
    const active = data.monitors(t), key = `${active.map((event) => event.monitor + event.t).join() || "quiet"}/${unknown}/${past}`;
    if (key === this.key) return;
    this.key = key;
    const lines = active.map((event) => {
      const line = document.createElement("div");
      line.textContent = event.text;
      if (event.action === "warn") line.className = "warn";
      return line;
    });
    const quiet = past ? "safety table: no monitor was active" : "safety table: no monitor active";
    const rest = unknown ? ["safety table: not known, the mission does not report"] : lines.length ? [] : [quiet];
    $("monitors").classList.toggle("old", unknown || past);
    $("monitors").replaceChildren(...lines, ...rest);
  }
}

// --- messages ---

export class Messages {
  draw(data, t) {
    const events = [];
    for (const kind of ["text", "safety"]) {
      const list = data.events.of(kind), last = data.events.index(kind, t);
      for (let i = Math.max(0, last - 11); i <= last; i++) events.push(list[i]);
    }
    events.sort((a, b) => b.t - a.t);
    const rows = [], seen = new Set();
    for (const event of events) {
      const text = event.k === "safety" ? event.text : `${event.source}: ${event.text}`, same = event.text.slice(0, 40);
      if (seen.has(same) || rows.length >= 7) continue;
      seen.add(same);
      rows.push({ t: event.t, text, bad: event.k === "safety" ? event.active : event.severity <= 4 });
    }
    const key = rows.map((row) => row.t + row.text).join();
    if (key === this.key) return;
    this.key = key;
    $("messages").hidden = rows.length === 0;
    $("lines").replaceChildren(...rows.map((row) => {
      const line = document.createElement("li"), time = document.createElement("time"), words = document.createElement("span");
      time.textContent = clock(row.t);
      words.textContent = row.text;
      if (row.bad) line.className = "bad";
      line.append(time, words);
      return line;
    }));
  }
}

// --- navigation camera ---

export class CameraPanel {
  constructor(scene) {
    this.canvas = $("camera");
    const K = scene.vehicle.camera && scene.vehicle.camera.K;
    this.size = K ? [K[0], K[1]] : [640, 480];
    this.canvas.style.aspectRatio = `${this.size[0]} / ${this.size[1]}`;
    this.picture = null; this.pictured = 0; this.photographs = new Map(); this.key = "";
  }
  take(bytes) {
    if (!bytes.byteLength) return;
    createImageBitmap(new Blob([bytes], { type: "image/jpeg" })).then((picture) => { this.picture = picture; this.pictured = performance.now(); }, () => {});
  }
  photograph(file) {
    if (!this.photographs.has(file)) {
      const image = new Image();
      image.src = `photograph/${encodeURIComponent(file)}`;
      this.photographs.set(file, image);
    }
    const image = this.photographs.get(file);
    return image.complete && image.naturalWidth ? image : null;
  }
  // present: t is the present of a running flight; its pictures come without a time, and belong to no other.
  draw(data, t, present) {
    const event = data.events.last("markers", t), taken = data.events.last("photograph", t);
    const corners = event && t - event.t < 0.6 ? event.corners : [];
    const photo = taken && t - taken.t < 2.5 ? this.photograph(taken.file) : null;
    const live = present && this.picture && performance.now() - this.pictured < 1500;
    const key = `${event && event.t}/${corners.length}/${photo ? taken.file : ""}/${live ? this.pictured : ""}`;
    if (key === this.key) return;
    this.key = key;
    const canvas = this.canvas, ctx = canvas.getContext("2d", CPU), [w, h] = this.size, s = canvas.width / w;
    canvas.height = Math.round(canvas.width * h / w);
    ctx.setTransform(s, 0, 0, s, 0, 0);
    ctx.fillStyle = "#0b0f13";
    ctx.fillRect(0, 0, w, h);
    const picture = photo || (live ? this.picture : null);
    if (picture) ctx.drawImage(picture, 0, 0, w, h);
    else {
      ctx.strokeStyle = "rgba(255,255,255,0.09)";
      ctx.lineWidth = 1 / s;
      ctx.beginPath();
      ctx.moveTo(w / 2, h * 0.44); ctx.lineTo(w / 2, h * 0.56); ctx.moveTo(w * 0.455, h / 2); ctx.lineTo(w * 0.545, h / 2);
      ctx.stroke();
    }
    ctx.lineWidth = 3;
    for (const c of corners) {
      ctx.beginPath();
      for (let i = 0; i < 4; i++) ctx[i ? "lineTo" : "moveTo"](c[2 * i], c[2 * i + 1]);
      ctx.closePath();
      ctx.fillStyle = "rgba(111, 220, 159, 0.14)";
      ctx.fill();
      ctx.strokeStyle = COLOURS.reference;
      ctx.stroke();
      ctx.fillStyle = COLOURS.amber;
      ctx.fillRect(c[0] - 4, c[1] - 4, 8, 8);
    }
    const names = event ? [...new Set(event.bundles)].join(", ") : "";
    put($("seen"), photo ? `photograph ${taken.id}` : corners.length ? `${names}: ${corners.length} markers` : event ? "no marker" : "no camera data");
  }
}

// --- strip charts ---

const CHARTS = [
  ["position error", "control", (track, i) => 100 * track.get(i, "error"), 1, "cm", COLOURS.estimate],
  ["± position", "state", (track, i) => track.get(i, "std"), 2, "m", COLOURS.plan],
  ["disturbance", "state", (track, i) => Math.hypot(track.get(i, "dx"), track.get(i, "dy"), track.get(i, "dz")), 2, "m/s²", COLOURS.amber],
  ["thrust", "sent", (track, i) => 100 * track.get(i, "thrust"), 0, "%", COLOURS.reference],
  ["controller cycle", "control", (track, i) => track.get(i, "cycle"), 1, "ms", COLOURS.truth],
  ["battery", "fcu", (track, i) => track.get(i, "voltage"), 2, "V", COLOURS.photo],
];
const SPAN_S = 40, POINTS = 220;

export class Charts {
  constructor() {
    this.rows = CHARTS.map(([name, track, value, digits, unit, colour]) => {
      const box = document.createElement("div"), head = document.createElement("div"), label = document.createElement("span");
      const figure = document.createElement("span"), canvas = document.createElement("canvas");
      box.className = "chart"; head.className = "head"; figure.className = "figure";
      label.textContent = name;
      head.append(label, figure);
      box.append(head, canvas);
      $("charts").append(box);
      return { track, value, digits, unit, colour, figure, canvas };
    });
    this.next = 0;
  }
  // One chart at a time: each is drawn a few times a second, which is enough to read it.
  draw(data, t, all) {
    const rows = all ? this.rows : [this.rows[this.next = (this.next + 1) % this.rows.length]];
    for (const row of rows) this.one(row, data.tracks[row.track], t);
  }
  one(row, track, t) {
    const { canvas } = row, ratio = Math.min(window.devicePixelRatio || 1, 2), w = canvas.clientWidth, h = canvas.clientHeight;
    if (!w || !h) return;
    if (canvas.width !== Math.round(w * ratio) || canvas.height !== Math.round(h * ratio)) {
      canvas.width = Math.round(w * ratio);
      canvas.height = Math.round(h * ratio);
    }
    const ctx = canvas.getContext("2d", CPU);
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    ctx.clearRect(0, 0, w, h);
    const last = track.find(t), first = Math.max(0, track.find(t - SPAN_S)), step = Math.max(1, Math.floor((last - first) / POINTS));
    const points = [];
    let low = Infinity, high = -Infinity;
    for (let i = first - (first % step); i <= last; i += step) {
      const v = row.value(track, i);
      if (i < 0 || !Number.isFinite(v)) continue;
      points.push([track.time(i), v]);
      low = Math.min(low, v); high = Math.max(high, v);
    }
    const now = last >= 0 && t - track.time(last) < 2 ? row.value(track, last) : NaN;
    put(row.figure, Number.isFinite(now) ? `${now.toFixed(row.digits)} ${row.unit}` : "–");
    ctx.strokeStyle = "rgba(255,255,255,0.10)";
    ctx.lineWidth = 1;
    ctx.beginPath(); ctx.moveTo(0, h - 0.5); ctx.lineTo(w, h - 0.5); ctx.stroke();
    if (points.length < 2) return;
    const least = 4 * 10 ** -row.digits, room = Math.max(high - low, least) * 0.12;
    const bottom = (high - low < least ? (high + low - least) / 2 : low) - room, top = (high - low < least ? (high + low + least) / 2 : high) + room;
    ctx.strokeStyle = row.colour;
    ctx.lineWidth = 1.4;
    ctx.beginPath();
    for (const [time, v] of points) ctx.lineTo(w * (1 + (time - t) / SPAN_S), h - 2 - (h - 4) * (v - bottom) / (top - bottom));
    ctx.stroke();
  }
}

// --- time line ---

const LAG_S = 0.1; // of the shown present behind the newest packet: packets come 20 times a second
const SPEEDS = [0.25, 0.5, 1, 2, 5, 10, 30];

export class TimeLine {
  constructor(live, jump) {
    this.live = live;
    this.t = 0; this.end = 0; this.playing = true; this.speed = 1; this.follows = live;
    this.jump = jump;
    for (const speed of SPEEDS) $("speed").append(new Option(`${speed}×`, speed, speed === 1, speed === 1));
    $("speed").addEventListener("change", () => { this.speed = Number($("speed").value); });
    $("play").addEventListener("click", () => this.toggle());
    $("now").hidden = !live;
    $("now").addEventListener("click", () => this.goLive());
    const scrub = $("scrub"), to = (event) => {
      const box = scrub.getBoundingClientRect();
      this.to(this.end * Math.min(1, Math.max(0, (event.clientX - box.left) / box.width)));
    };
    scrub.addEventListener("pointerdown", (event) => { scrub.setPointerCapture(event.pointerId); this.drags = true; to(event); });
    scrub.addEventListener("pointermove", (event) => { if (this.drags) to(event); });
    scrub.addEventListener("pointerup", () => { this.drags = false; });
    document.addEventListener("keydown", (event) => {
      if (event.target.closest("input, dialog, select, button") || document.querySelector("dialog[open]")) return;
      if (event.key === " ") { event.preventDefault(); this.toggle(); }
      if (event.key === "ArrowLeft") this.to(this.t - (event.shiftKey ? 30 : 5));
      if (event.key === "ArrowRight") this.to(this.t + (event.shiftKey ? 30 : 5));
      if (event.key === "Home") this.to(0);
      if (event.key === "End") this.to(Infinity);
    });
    // After the mouse the keys are the time line's again; a button that was reached by the keyboard keeps them.
    for (const id of ["play", "now"]) $(id).addEventListener("click", (event) => { if (event.detail) $("scrub").focus({ preventScroll: true }); });
  }
  toggle() {
    this.playing = !this.playing;
    this.follows = false;
    if (this.playing && !this.live && this.t >= this.end - 0.05) this.t = 0;
  }
  // The end of a running flight is its present.
  to(t) { this.t = Math.min(Math.max(t, 0), this.end); this.follows = this.live && t >= this.end; this.playing ||= this.follows; }
  goLive() { this.follows = true; this.playing = true; this.t = Math.max(this.end - LAG_S, 0); }
  step(dt, data) {
    this.end = this.live ? data.newest : data.end;
    if (this.follows) {
      const goal = data.newest - LAG_S;
      this.t += dt;
      this.t += Math.abs(goal - this.t) > 1 ? goal - this.t : 0.08 * (goal - this.t);
    } else if (this.playing && !this.drags) {
      this.t = Math.min(this.end, this.t + dt * this.speed);
      if (this.t >= this.end && this.end > 0) { if (this.live) this.follows = true; else this.playing = false; } // 0: nothing has arrived
    }
  }
  draw(data) {
    put($("play"), this.playing ? "❚❚" : "▶");
    put($("clock"), clock(this.t, 1));
    put($("length"), clock(this.end));
    $("now").classList.toggle("on", this.follows);
    const canvas = $("scrub"), ratio = Math.min(window.devicePixelRatio || 1, 2), w = canvas.clientWidth, h = canvas.clientHeight;
    const x = (t) => w * Math.min(1, Math.max(0, t / Math.max(this.end, 1e-3)));
    $("knob").style.transform = `translateX(${x(this.t).toFixed(1)}px)`;
    const now = this.t.toFixed(0);
    if (now !== this.now) { this.now = now; canvas.setAttribute("aria-valuenow", now); }
    // The line itself changes with its events, in a running flight also with its length: once in 1/300 of it is enough to see.
    const counts = ["phase", "safety", "photograph", "capture"].map((kind) => data.events.of(kind).length);
    const key = [data.version, w, h, ratio, this.live ? Math.floor(300 * Math.log(Math.max(this.end, 1))) : this.end, ...counts].join();
    if (key === this.key) return;
    this.key = key;
    canvas.setAttribute("aria-valuemax", this.end.toFixed(0));
    if (canvas.width !== Math.round(w * ratio)) { canvas.width = Math.round(w * ratio); canvas.height = Math.round(h * ratio); }
    const ctx = canvas.getContext("2d", CPU);
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    ctx.clearRect(0, 0, w, h);
    const phases = data.events.of("phase"), y = h / 2 - 4;
    let labelled = -1e9;
    for (let i = 0; i < phases.length; i++) {
      const from = x(phases[i].t), to = i + 1 < phases.length ? x(phases[i + 1].t) : w;
      ctx.fillStyle = phaseColour(phases[i].phase);
      ctx.globalAlpha = 0.75;
      ctx.fillRect(from, y, Math.max(to - from - (i + 1 < phases.length ? 1 : 0), 0.5), 8);
      ctx.globalAlpha = 1;
      const name = phases[i].phase.replaceAll("_", " "), last = i > 0 && phases[i - 1].phase === phases[i].phase;
      ctx.font = "10px system-ui, 'DejaVu Sans', sans-serif";
      const width = ctx.measureText(name).width;
      if (!last && from > labelled && to - from > width + 4) {
        ctx.fillStyle = "#93a1af";
        ctx.fillText(name, from + 1, y - 3);
        labelled = from + width + 8;
      }
    }
    if (!phases.length) { ctx.fillStyle = "rgba(255,255,255,0.1)"; ctx.fillRect(0, y, w, 8); }
    for (const [kind, colour] of [["safety", COLOURS.red], ["photograph", COLOURS.photo], ["capture", COLOURS.photo]]) {
      ctx.fillStyle = colour;
      for (const event of data.events.of(kind)) if (kind !== "safety" || event.active) ctx.fillRect(x(event.t) - 1, y + 11, 2, 5);
    }
  }
}

// --- commands ---

const COMMANDS = [
  ["start", "start the mission, if its checks pass and the switch of the RC is on"],
  ["hold here", "hold the present position until “go on”"],
  ["go on", "end the hold and continue the mission"],
  ["return", "end the mission, fly home and land"],
  ["land", "land on the spot: PX4 lands below where the aircraft is now"],
  ["stop streaming", "stop the setpoints: PX4's own failsafe acts, the pilot must be ready"],
];

export class Commands {
  // send(action, phase): false where there is no connection; phase(): what the page shows now; goLive(): false where it showed the past.
  constructor(send, phase, goLive) {
    this.send = send;
    this.phase = phase;
    this.goLive = goLive;
    for (const [action, words] of COMMANDS) {
      const button = document.createElement("button");
      button.textContent = action;
      button.dataset.ask = action;
      if (action === "land" || action === "stop streaming") button.className = "danger";
      button.addEventListener("click", () => this.confirm(action, words));
      $("buttons").append(button);
    }
    $("confirm").addEventListener("close", () => {
      if ($("confirm").returnValue === "yes" && this.action) this.ask(this.action);
      this.action = null;
    });
  }
  // words: why the page may watch only, or what was wrong with a token.
  show(allowed, words) {
    $("commands").hidden = !allowed && !words;
    $("buttons").hidden = !allowed;
    $("rights").hidden = !words;
    $("rights-words").textContent = words;
  }
  confirm(action, words) {
    if (!this.goLive()) { this.say(`${action}: NOT sent, the page showed the past; it is live now: look, and press again`); return; }
    this.action = action;
    this.chosenIn = this.phase(); // a person chose it for this phase
    $("confirm-words").textContent = `${action[0].toUpperCase()}${action.slice(1)}? This asks the mission to ${words}.`;
    $("confirm").returnValue = "";
    $("confirm").showModal();
    $("confirm-no").focus();
  }
  ask(action) {
    const gone = this.send(action, this.chosenIn);
    this.waits = gone ? { action, since: performance.now() } : null;
    this.say(gone ? `${action}: sent` : `${action}: NOT sent, there is no connection`);
  }
  say(text) { $("answer").textContent = text; }
  take(head) {
    this.say(head.ask ? `${head.ask}: ${head.answer}` : head.answer);
    if (!/^sent/.test(head.answer)) this.waits = null;
  }
  // The mission's own words follow as a message to the ground station.
  draw(data) {
    // What another person asked is no answer to this page. A refusal begins with the request, the beginning of a phase does not.
    const texts = data.events.of("text"), own = this.asksAs;
    const last = texts.findLast && texts.findLast((event) => event.source === "mission" && event.text.includes(own));
    if (last && last !== this.last) {
      this.last = last;
      this.say(last.text);
      if (this.waits && !COMMANDS.some(([name]) => name !== this.waits.action && last.text.startsWith(`${name} (`))) this.waits = null;
    }
    if (this.waits && performance.now() - this.waits.since > ANSWER_MS) {
      this.say(`${this.waits.action}: no answer from the mission`);
      this.waits = null;
    }
  }
}
