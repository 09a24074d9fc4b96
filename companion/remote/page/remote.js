// The page of the virtual remote: two sticks, switches, and what the aircraft reports. Protocol: companion/remote/protocol.py.
"use strict";

const PROTOCOL = 2;
const SAMPLE_MS = 25;       // between two samples of the sticks
const SOONEST_MS = 8;       // between two samples while a stick moves; the remote sends the newest, at most 50 a second
const REACH = 92;           // of a knob from its centre, in units of the drawing
const EXTENT = 216;         // of the drawing of a stick
const RETRY_MS = 1000;
const SILENT_MS = 1000;     // of a gamepad with a deflected stick, as SILENT_S of companion/remote/gamepad.py
const END_STOP = 0.98;      // of a stick that says nothing more, as END_STOP there
const CENTRED = 0.05;       // a stick nearer to its centre counts as released
const STALE_S = 1.0;        // an older state, or a link that is silent for longer, says nothing about the aircraft: it is shown as unknown
const NAMES = {
  STABILIZED: "Stabilized", ALTCTL: "Altitude", POSCTL: "Position", AUTO_LOITER: "Hold", AUTO_RTL: "Return", AUTO_LAND: "Land",
  OFFBOARD: "Offboard", AUTO_TAKEOFF: "Take-off", MANUAL: "Manual", ACRO: "Acro", AUTO_MISSION: "Mission", UNKNOWN: "–",
};

const at = id => document.getElementById(id);
const token = location.hash.slice(1);
const sticks = { ahead: 0, right: 0, up: 0, turn: 0 };
const pointers = new Map(); // the finger or mouse of each drawing of a stick, since the sticks were taken
let socket = null;
let state = null;           // the newest of this connection
let stateAt = 0;            // when it arrived
let held = false;           // this page has the sticks
let wanted = false;         // the person has asked for them
let source = "page";        // page, gamepad, or computer: a gamepad at the ground computer
let taken = null;           // the gamepad of the sticks: index, id and number of axes when they were taken
let heard = { said: "", at: 0 };  // what that gamepad showed when it last changed, and when
let sentAt = 0;
let final = false;          // refused for good: no further attempt
let refusal = "";
let question = 0;

// --- connection ------------------------------------------------------------------------------------------------------

function connect() {
  socket = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/sticks`);
  socket.onopen = () => send({ type: "hello", protocol: PROTOCOL, token });
  socket.onmessage = event => receive(JSON.parse(event.data));
  socket.onclose = () => {
    state = null;           // of a connection that has ended
    stop();
    show();
    if (final) return;
    cover(`${refusal || "No connection to the remote"}. Trying again…`);
    refusal = "";
    setTimeout(connect, RETRY_MS);
  };
}

// Whether the message went to an open connection.
function send(message) {
  if (!socket || socket.readyState !== WebSocket.OPEN) return false;
  socket.send(JSON.stringify(message));
  return true;
}

// A request names the state that the person saw; the remote refuses one that was old, or that waited in the network.
function request(message) {
  const lost = remoteLost() || linkLost();
  if (!lost && send({ ...message, seen_s: state.s })) return true;
  say(`Not sent: ${lost || "no connection"}`, "bad");
  return false;
}

// --- what is known -----------------------------------------------------------------------------------------------------

function stateAge() {
  return (performance.now() - stateAt) / 1000;
}

// Why nothing of the remote is known, "" when it is.
function remoteLost() {
  if (!socket || socket.readyState !== WebSocket.OPEN || !state) return "no remote";
  return stateAge() > STALE_S ? `no remote for ${fixed(stateAge(), 1)} s` : "";
}

// Why nothing of the aircraft is known; only with a remote that is known.
function linkLost() {
  const age = factAge("link");
  if (state.wrong) return state.wrong;
  if (age === null) return "no link";
  return age > STALE_S || !state.connected ? `no link for ${fixed(age, 1)} s` : "";
}

// Age of the message behind a fact [s]; null: it never came.
function factAge(source) {
  const age = state ? state.ages_s[source] : null;
  return age === null ? null : age + stateAge();
}

function ageText(source) {
  const age = factAge(source);
  return age === null ? "" : `, ${fixed(age, 1)} s`;
}

function receive(message) {
  if (message.type === "welcome") {
    if (message.gamepad) chooseSource("computer");
    cover("");
  } else if (message.type === "refused") {
    final = message.final;
    refusal = `Refused: ${message.reason}`;
    cover(refusal);
  } else if (message.type === "state") {
    state = message;
    stateAt = performance.now();
    if (held && !message.you) stop();
    held = message.you;
    show();
  } else if (message.type === "question") {
    question = message.question;
    at("question-text").textContent = message.text;
    if (!at("question").open) at("question").showModal();
    setTimeout(() => { if (question === message.question) at("question").close(); }, 1000 * message.seconds);
  } else if (message.type === "answer") {
    say(message.text.replace(/^[A-Z_]+(?=:)/, name => NAMES[name] || name), message.ok ? "good" : "bad");
    if (message.to === "take") held = wanted = wanted && message.ok;  // not after a release that was on its way
    if (message.to === "question" && at("question").open) at("question").close();
    if (message.to === "stopped") stop();
    show();
  }
}

// --- sticks ------------------------------------------------------------------------------------------------------------

function sample(now) {
  if (!wanted || !state) return;
  if (send({ type: "sticks", ...sticks, seen_s: state.s })) sentAt = now;
}

// A finger that is down is dropped too: it counts again only after it has gone down again.
function centre() {
  pointers.clear();
  for (const name in sticks) sticks[name] = 0;
  draw();
}

function stop() {
  held = wanted = false;
  centre();
}

function moved() {
  draw();
  const now = performance.now();
  if (now - sentAt >= SOONEST_MS) sample(now);
}

setInterval(() => {
  if (source === "gamepad" && wanted) readGamepad();
  const now = performance.now();
  if (now - sentAt >= SAMPLE_MS - 4) sample(now);
}, SAMPLE_MS / 2);

function release(reason) {
  if (wanted) send({ type: "release", reason });
  stop();
  offerGamepad();
  show();
}

function pad(element, across, along) {
  element.append(...at("pad").content.firstElementChild.cloneNode(true).children);
  const move = event => {
    const box = element.getBoundingClientRect();
    const scale = EXTENT / box.width;
    const x = ((event.clientX - box.left) * scale - EXTENT / 2) / REACH, y = (EXTENT / 2 - (event.clientY - box.top) * scale) / REACH;
    sticks[across] = Math.max(-1, Math.min(1, x));
    sticks[along] = Math.max(-1, Math.min(1, y));
    moved();
  };
  element.addEventListener("pointerdown", event => {
    if (!held || !wanted || source !== "page" || pointers.has(element)) return;
    pointers.set(element, event.pointerId);
    element.setPointerCapture(event.pointerId);
    move(event);
    event.preventDefault();
  });
  // the raw event comes at once, the other with the next picture
  const motion = "onpointerrawupdate" in window ? "pointerrawupdate" : "pointermove";
  element.addEventListener(motion, event => { if (held && pointers.get(element) === event.pointerId) move(event); });
  const end = event => {
    if (pointers.get(element) !== event.pointerId) return;
    pointers.delete(element);
    sticks[across] = sticks[along] = 0;
    moved();
  };
  for (const name of ["pointerup", "pointercancel", "lostpointercapture"]) element.addEventListener(name, end);
  element.addEventListener("contextmenu", event => event.preventDefault());
}
pad(at("left"), "turn", "up");
pad(at("right"), "right", "ahead");

// --- gamepad -----------------------------------------------------------------------------------------------------------

// Only a gamepad whose axes the browser knows: in another layout an axis may be a trigger, which rests at its end.
function gamepads() {
  return navigator.getGamepads ? [...navigator.getGamepads()].filter(pad => pad && pad.connected) : [];
}

function usable(pad) {
  return pad.mapping === "standard" && pad.axes.length >= 4;
}

function nameOf(pad) {
  return String(pad.id || "").replace(/\s*\(.*$/, "").slice(0, 32) || "without a name";
}

// The gamepad that would be taken, or null and the reason on the page.
function offeredGamepad() {
  const found = gamepads(), pad = found.find(usable);
  if (pad) return pad;
  say(found.length ? `Gamepad ${nameOf(found[0])}: the browser does not know its layout. Use it at the ground computer: --gamepad and --axes` : "No gamepad", "bad");
  return null;
}

// No other gamepad comes in the place of the one that was taken: nobody holds its sticks.
function readGamepad() {
  const found = gamepads().find(pad => pad.index === taken.index);
  if (!found) { release("the gamepad is gone"); return; }
  if (found.id !== taken.id || found.axes.length !== taken.axes || !usable(found)) { release("the gamepad is another one"); return; }
  const [turn, down, right, back] = found.axes;
  const inRange = value => Math.max(-1, Math.min(1, Number.isFinite(value) ? value : 0));
  Object.assign(sticks, { turn: inRange(turn), up: -inRange(down), right: inRange(right), ahead: -inRange(back) });
  if (isSilent(found)) { release("a stick is deflected, and the gamepad is silent"); return; }
  draw();
}

// A gamepad whose radio or battery fails stays connected, with its last axes. Its timestamp is that of its last message.
function isSilent(pad) {
  const said = `${pad.timestamp} ${pad.axes}`, now = performance.now();
  if (said !== heard.said) heard = { said, at: now };
  return now - heard.at > SILENT_MS && Object.values(sticks).some(stick => Math.abs(stick) >= CENTRED && Math.abs(stick) < END_STOP);
}

function offerGamepad() {
  const button = document.querySelector("[data-source=gamepad]"), found = gamepads(), pad = found.find(usable) || found[0];
  button.disabled = source === "computer" || !pad;
  if (!(wanted && source === "gamepad")) button.textContent = pad ? `Gamepad: ${nameOf(pad)}` : "Gamepad";
  button.title = window.isSecureContext ? "Move a stick of the gamepad so that the browser shows it" : "A gamepad needs https or 127.0.0.1";
}

// A gamepad that comes back between two readings has been away all the same.
for (const [name, reason] of [["gamepadconnected", "the gamepad is another one"], ["gamepaddisconnected", "the gamepad is gone"]])
  window.addEventListener(name, event => {
    if (source === "gamepad" && wanted && event.gamepad && event.gamepad.index === taken.index) release(reason);
    if (source === "gamepad" && wanted) readGamepad();
    offerGamepad();
  });
offerGamepad();

function chooseSource(name) {
  if (name === source || (name === "gamepad" && !offeredGamepad())) return;
  release("the source changes");
  source = name;
  for (const button of document.querySelectorAll("[data-source]")) {
    button.classList.toggle("chosen", button.dataset.source === name);
    if (name === "computer") button.disabled = true;
  }
  if (name === "computer") say("The sticks are those of the gamepad at the ground computer.", "");
}

// --- switches ----------------------------------------------------------------------------------------------------------

at("take").addEventListener("click", () => {
  if (held) { release("given back"); return; }
  if (source === "gamepad") {
    const pad = offeredGamepad();
    if (!pad) return;
    taken = { index: pad.index, id: pad.id, axes: pad.axes.length };
  }
  centre();
  wanted = request({ type: "take" });
});
for (const button of document.querySelectorAll("[data-mode]"))
  button.addEventListener("click", () => request({ type: "mode", mode: button.dataset.mode }));
for (const button of document.querySelectorAll("[data-frame]"))
  button.addEventListener("click", () => request({ type: "frame", frame: button.dataset.frame }));
for (const button of document.querySelectorAll("[data-source]"))
  button.addEventListener("click", () => chooseSource(button.dataset.source));
at("set-ahead").addEventListener("click", () => request({ type: "ahead" }));
at("arm").addEventListener("click", () => request({ type: "arm", arm: !(state && state.armed) }));
at("yes").addEventListener("click", () => { request({ type: "confirm", question }); at("question").close(); });
at("no").addEventListener("click", () => at("question").close());
at("question").addEventListener("close", () => { question = 0; });

// A page that a person does not look at has no sticks.
window.addEventListener("blur", () => release("the page lost the focus"));
document.addEventListener("visibilitychange", () => { if (document.hidden) release("the page is hidden"); });
window.addEventListener("pagehide", () => release("the page was closed"));

// --- drawing -----------------------------------------------------------------------------------------------------------

function say(text, kind) {
  at("message").textContent = text;
  at("message").className = `message ${kind}`;
}

function cover(text) {
  at("cover-text").textContent = text;
  at("cover").hidden = !text;
}

function fixed(value, digits) {
  if (value === null || value === undefined) return "–";
  const text = value.toFixed(digits);
  return Number(text) === 0 ? text.replace("-", "") : text.replace("-", "−");
}

function percent(value) {
  return `${fixed(100 * value, 0)} %`;
}

function draw() {
  for (const [id, x, y] of [["left", sticks.turn, sticks.up], ["right", sticks.right, sticks.ahead]]) {
    const knob = at(id).querySelector(".knob"), arm = at(id).querySelector(".arm");
    knob.setAttribute("cx", REACH * x); knob.setAttribute("cy", -REACH * y);
    arm.setAttribute("x2", REACH * x); arm.setAttribute("y2", -REACH * y);
  }
  at("up").textContent = percent(sticks.up); at("turn").textContent = percent(sticks.turn);
  at("go").textContent = percent(sticks.ahead); at("side").textContent = percent(sticks.right);
  drawWish();
}

// The direction of the world in which the right stick points, on the compass.
function drawWish() {
  const known = state && !remoteLost() && !linkLost();
  const from = known ? (state.frame === "headless" ? state.ahead_deg : state.heading_deg) : null;
  const angle = from === null ? 0 : (from + 180 / Math.PI * Math.atan2(sticks.right, sticks.ahead)) * Math.PI / 180;
  const size = from !== null && held ? 78 * Math.min(1, Math.hypot(sticks.right, sticks.ahead)) : 0;
  at("wish").setAttribute("x2", size * Math.sin(angle)); at("wish").setAttribute("y2", -size * Math.cos(angle));
}

// What no longer comes is shown as unknown, with the age of the last message: never as it was.
function show() {
  const noRemote = remoteLost(), lost = noRemote || linkLost();
  document.body.classList.toggle("held", held);
  document.body.classList.toggle("lost", Boolean(lost));
  at("take").textContent = held ? "Give the sticks back" : "Take the sticks";
  showAircraft(lost ? NOTHING : state, lost);
  showRemote(noRemote ? NO_REMOTE : state);
  for (const button of document.querySelectorAll("[data-mode], #yes")) button.disabled = Boolean(lost);
  for (const button of document.querySelectorAll("[data-frame], #set-ahead")) button.disabled = Boolean(lost) || !held;
  at("arm").disabled = Boolean(lost) || state.armed === null;
  at("take").disabled = !held && (Boolean(lost) || Boolean(state.owner));
  if (lost && at("question").open) at("question").close();
  drawWish();
}

const NOTHING = { mode: null, armed: null, landed: null, height_m: null, speed_m_s: null, climb_m_s: null, heading_deg: null, battery: null };
const NO_REMOTE = { you: false, owner: "", stopped: "", ignored: "", centred: false, foreign: "", frame: null, ahead_deg: null, texts: [], control: null, rc_loss: "" };

function showAircraft(s, lost) {
  fact("link", lost || "link", lost ? "bad" : "good");
  const flies = s.landed === null ? `, landed or not: unknown${ageText("landed")}` : s.landed ? "" : ", flying";
  fact("armed", s.armed === null ? `arming unknown${ageText("mode")}` : s.armed ? `armed${flies}` : "disarmed", s.armed === null ? "unknown" : s.armed ? "live" : "");
  fact("flight-mode", s.mode === null ? `mode unknown${ageText("mode")}` : NAMES[s.mode] || s.mode, s.mode === null ? "unknown" : "strong");
  value("height", s.height_m, fixed(s.height_m, 1), "position");
  value("speed", s.speed_m_s, fixed(s.speed_m_s, 1), "position");
  value("climb", s.climb_m_s, fixed(s.climb_m_s, 1), "position");
  value("heading", s.heading_deg, s.heading_deg === null ? "–" : String(Math.round(s.heading_deg) % 360), "attitude");
  value("battery", s.battery, s.battery === null ? "–" : fixed(100 * s.battery, 0), "battery");
  at("battery").parentElement.classList.toggle("bad", s.battery !== null && s.battery < 0.2);
  const age = factAge("link");
  at("age").textContent = fixed(age, 2);
  at("age").parentElement.classList.toggle("bad", age === null || age > 0.5);
  at("aircraft").setAttribute("transform", `rotate(${s.heading_deg === null ? 0 : s.heading_deg})`);
  at("aircraft").classList.toggle("unknown", s.heading_deg === null);
  choose("[data-mode]", button => button.dataset.mode === s.mode);
  at("arm").textContent = s.armed ? "Disarm…" : "Arm…";
}

function showRemote(s) {
  const but = [s.ignored, s.centred ? "headless: no attitude, sticks centred" : ""].filter(Boolean).join("; ");
  at("owner").textContent = s.you ? (but ? `You have the sticks, but ${but}` : "You have the sticks") : s.owner ? `Another page has the sticks: ${s.owner}`
    : s.stopped ? `Sticks stopped: ${s.stopped}` : s === NO_REMOTE ? "Who has the sticks: unknown" : "No page has the sticks";
  at("owner").classList.toggle("bad", s.you ? Boolean(but) : Boolean(s.stopped));
  at("ahead").setAttribute("transform", `rotate(${s.ahead_deg === null ? 0 : s.ahead_deg})`);
  at("ahead").setAttribute("visibility", s.ahead_deg === null ? "hidden" : "visible");
  at("right-title").textContent = s.frame === "headless" ? "Headless: ahead and right of the pilot" : "Ahead and right of the nose";
  choose("[data-frame]", button => button.dataset.frame === s.frame);
  at("texts").replaceChildren(...s.texts.slice(-2).reverse().map(text => { const item = document.createElement("li"); item.textContent = text; return item; }));
  const c = s.control;
  at("control").textContent = c ? `MANUAL_CONTROL x ${c[0]}  y ${c[1]}  z ${c[2]}  r ${c[3]}`.replaceAll("-", "−") : "MANUAL_CONTROL –";
  at("rate").textContent = c ? `${fixed(s.rate_hz, 0)} Hz` : "";
  at("loss").textContent = s.rc_loss ? `Flight controller: ${s.rc_loss}` : "";
  at("foreign").textContent = s.foreign;
  if (source === "computer" && c && held) { Object.assign(sticks, { ahead: c[0] / 1000, right: c[1] / 1000, up: c[2] / 500 - 1, turn: c[3] / 1000 }); draw(); }
}

// A number with the age of its message.
function value(id, known, text, source) {
  at(id).textContent = text;
  at(id).parentElement.title = `age${ageText(source).replace(",", "") || ": it never came"}`;
  at(id).parentElement.classList.toggle("unknown", known === null);
}

function fact(id, text, kind) {
  at(id).textContent = text;
  at(id).className = `fact ${kind}`;
}

function choose(selector, isChosen) {
  for (const button of document.querySelectorAll(selector)) button.classList.toggle("chosen", isChosen(button));
}

function ticks() {
  const make = (name, attributes, text) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const key in attributes) element.setAttribute(key, attributes[key]);
    if (text) element.textContent = text;
    at("ticks").append(element);
  };
  for (let angle = 0; angle < 360; angle += 15) {
    const long = angle % 90 === 0;
    if (!long) make("line", { x1: 0, y1: -94, x2: 0, y2: angle % 45 ? -89 : -85, transform: `rotate(${angle})` });
  }
  for (const [text, x, y] of [["N", 0, -84], ["E", 84, 0], ["S", 0, 84], ["W", -84, 0]]) make("text", { x, y }, text);
}

ticks();
draw();
show();
setInterval(show, 200);     // also when no state comes: ages grow
// Another address in this tab, as that of the next start, differs only behind the "#": the browser does not load the page again.
window.addEventListener("hashchange", () => location.reload());
if (!token) { final = true; cover("No token: open the address that companion remote printed."); } else connect();
