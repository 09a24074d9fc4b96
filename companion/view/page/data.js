// The data of the page: tracks (rows of float32 by time) and events, the same for a live flight and for a log.

export class Track {
  constructor(columns) {
    this.columns = columns;
    this.width = columns.length;
    this.index = Object.fromEntries(columns.map((name, i) => [name, i]));
    this.clear();
  }
  clear() { this.n = 0; this.found = 0; this.data = new Float32Array(256 * this.width); }
  append(rows) {
    const need = this.n * this.width + rows.length;
    if (need > this.data.length) {
      const larger = new Float32Array(Math.max(need, 2 * this.data.length));
      larger.set(this.data.subarray(0, this.n * this.width));
      this.data = larger;
    }
    this.data.set(rows, this.n * this.width);
    this.n += rows.length / this.width;
  }
  time(i) { return this.data[i * this.width]; }
  // Index of the last row not after t, -1 before the first.
  find(t) {
    // A picture asks for many columns of one moment, and the next picture for the next row.
    for (let i = this.found; i < this.found + 3 && i < this.n; i++) {
      if (this.time(i) <= t && (i + 1 >= this.n || this.time(i + 1) > t)) return this.found = i;
    }
    let low = -1, high = this.n;
    while (high - low > 1) { const mid = (low + high) >> 1; if (this.time(mid) <= t) low = mid; else high = mid; }
    this.found = Math.max(low, 0);
    return low;
  }
  get(i, name) { return this.data[i * this.width + this.index[name]]; }
  // Value of a column at t, between the rows; NaN before the first and where rows are more than a second apart.
  value(name, t) {
    const i = this.find(t);
    if (i < 0 || t - this.time(i) > 3) return NaN;
    const a = this.get(i, name);
    if (i + 1 >= this.n) return a;
    const t0 = this.time(i), t1 = this.time(i + 1);
    if (t1 - t0 > 1 || t1 <= t0) return a;
    return a + (this.get(i + 1, name) - a) * (t - t0) / (t1 - t0);
  }
  vector(names, t) { return names.map((name) => this.value(name, t)); }
  // Quaternion (w, x, y, z) at t, the short way between two rows.
  quaternion(t) {
    const i = this.find(t), j = Math.min(i + 1, this.n - 1), names = ["qw", "qx", "qy", "qz"];
    if (i < 0) return [1, 0, 0, 0];
    const a = names.map((name) => this.get(i, name)), b = names.map((name) => this.get(j, name));
    const t0 = this.time(i), t1 = this.time(j), s = t1 > t0 && t1 - t0 < 1 ? Math.min(1, (t - t0) / (t1 - t0)) : 0;
    const sign = a.reduce((sum, v, k) => sum + v * b[k], 0) < 0 ? -1 : 1;
    const q = a.map((v, k) => v * (1 - s) + sign * b[k] * s), size = Math.hypot(...q) || 1;
    return q.map((v) => v / size);
  }
}

export class Events {
  constructor() { this.clear(); }
  clear() { this.lists = new Map(); this.count = 0; }
  append(events, sort) {
    for (const event of events) {
      if (!this.lists.has(event.k)) this.lists.set(event.k, []);
      this.lists.get(event.k).push(event);
    }
    this.count += events.length;
    if (sort) for (const list of this.lists.values()) list.sort((a, b) => a.t - b.t);
  }
  of(kind) { return this.lists.get(kind) || []; }
  index(kind, t) {
    const list = this.of(kind);
    let low = -1, high = list.length;
    while (high - low > 1) { const mid = (low + high) >> 1; if (list[mid].t <= t) low = mid; else high = mid; }
    return low;
  }
  last(kind, t) { const i = this.index(kind, t); return i < 0 ? null : this.of(kind)[i]; }
}

export class Data {
  constructor(columns) {
    this.tracks = Object.fromEntries(Object.entries(columns).map(([name, names]) => [name, new Track(names)]));
    this.events = new Events();
    this.newest = 0; this.end = 0; this.version = 0;
  }
  // Take a packet: length, head as JSON, rows in the order of the tracks. Returns the head.
  take(buffer) {
    const size = new DataView(buffer).getUint32(0, true);
    const head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, size)));
    if (head.whole) {
      for (const track of Object.values(this.tracks)) track.clear();
      this.events.clear();
      this.version += 1;
    }
    let at = 4 + size;
    for (const [name, track] of Object.entries(this.tracks)) {
      const rows = head.tracks[name] || 0;
      if (!rows) continue;
      track.append(new Float32Array(buffer, at, rows * track.width));
      at += 4 * rows * track.width;
    }
    this.events.append(head.events, Boolean(head.whole));
    this.newest = head.now;
    this.end = head.end === undefined ? head.now : head.end;
    return head;
  }
  // Monitors of the safety table that are active at t.
  monitors(t) {
    const active = new Map();
    for (const event of this.events.of("safety")) {
      if (event.t > t) break;
      if (event.active) active.set(event.monitor, event); else active.delete(event.monitor);
    }
    return [...active.values()];
  }
  home() {
    const state = this.tracks.state, home = this.events.of("home")[0];
    if (home) return home.p;
    return state.n ? ["x", "y", "z"].map((name) => state.get(0, name)) : [0, 0, 0];
  }
}
