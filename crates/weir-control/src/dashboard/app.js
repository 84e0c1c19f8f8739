"use strict";
// Text is always set with textContent, because names, reasons and routes come from files and servers.

const WINDOW_MS = 15 * 60 * 1000;
const PERIOD_MS = 2000;
const ROW = 30;
const CERTIFICATES_MAX = 100;
// The same as in weir-proxy.
const EXPIRY_WARNING_DAYS = 14;
// The bounds of the histograms in microseconds, as in weir-proxy.
const BOUNDS_US = [500, 1000, 2500, 5000, 10000, 25000, 100000, 250000, 1000000, 5000000, 30000000];

const at = (id) => document.getElementById(id);
const make = (tag, text, kind) => {
  const node = document.createElement(tag);
  if (text !== undefined) node.textContent = text;
  if (kind) node.className = kind;
  return node;
};

let report = null;
let rows = [];
let shown = [];
let selected = null;
let opened = null;
let role = "read";
let sort = { key: "state", up: true };
let token = sessionStorage.getItem("weir-token") || "";
const series = new Map();
// Names of the series that contain points that the director recorded before the page was opened.
const recalled = new Set();
// Counters of the servers in the previous document, for rates.
let counts = new Map();

// --- numbers ---------------------------------------------------------------------------------------------------------

function short(number) {
  if (number === undefined || number === null || Number.isNaN(number)) return "–";
  for (const [unit, name] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    if (number >= unit) return (number / (name === "k" ? 1e3 : unit)).toFixed(1) + name;
  }
  return Number.isInteger(number) ? String(number) : number.toFixed(number < 10 ? 2 : 0);
}

function millis(ms) {
  if (ms === undefined || ms === null) return "–";
  return ms >= 1000 ? (ms / 1000).toFixed(2) + " s" : ms.toFixed(ms < 10 ? 2 : 0) + " ms";
}

function age(since) {
  const s = Math.max(0, Math.floor((Date.now() - Date.parse(since)) / 1000));
  if (s < 60) return s + "s";
  if (s < 3600) return Math.floor(s / 60) + "m" + (s % 60) + "s";
  if (s < 86400) return Math.floor(s / 3600) + "h" + Math.floor(s / 60) % 60 + "m";
  return Math.floor(s / 86400) + "d" + Math.floor(s / 3600) % 24 + "h";
}

// Returns a quantile in milliseconds from counts by bucket, interpolated within the bucket.
function quantile(buckets, share) {
  const total = buckets.reduce((a, b) => a + b, 0);
  if (!total) return null;
  let rank = share * total;
  for (let i = 0; i < buckets.length; i++) {
    if (rank <= buckets[i]) {
      const low = i ? BOUNDS_US[i - 1] : 0;
      const high = i < BOUNDS_US.length ? BOUNDS_US[i] : low;
      return (low + (high - low) * rank / buckets[i]) / 1000;
    }
    rank -= buckets[i];
  }
  return BOUNDS_US[BOUNDS_US.length - 1] / 1000;
}

const sum = (map) => Object.values(map || {}).reduce((a, b) => a + b, 0);
const failures = (of) => of.exchanges ? sum(of.exchanges.errors) : 0;

// --- series of the last 15 minutes -----------------------------------------------------------------------------------

function sample(name, time, totals) {
  let one = series.get(name);
  if (!one) series.set(name, one = []);
  one.push({ time, ...totals });
  while (one.length && one[0].time < time - WINDOW_MS) one.shift();
}

function totals(one) {
  return {
    connections: one.connections, requests: one.exchanges ? one.exchanges.ended : one.connections,
    failures: failures(one), bytes: one.bytes_in + one.bytes_out,
    active: one.clients !== undefined ? one.clients : (one.active_connections || 0),
    times: one.exchanges && one.exchanges.times.response.buckets || [],
  };
}

function add(a, b) {
  const times = a.times.length ? a.times.map((n, i) => n + (b.times[i] || 0)) : b.times;
  return { connections: a.connections + b.connections, requests: a.requests + b.requests,
    failures: a.failures + b.failures, bytes: a.bytes + b.bytes, active: a.active + b.active, times };
}

function flows(service) {
  return service.protocol ? service : { ...service,
    active_connections: service.servers.reduce((n, it) => n + it.active_connections, 0) };
}

function collect(now) {
  let all = null;
  for (const service of report.services) {
    const one = totals(flows(service));
    sample("service " + service.name, now, one);
    all = all ? add(all, one) : one;
  }
  if (all) sample("all", now, all);
  // Only the opened server is sampled, because samples of all servers would use too much memory.
  const row = opened && rows.find((it) => it.id === opened);
  if (row) sample("server " + opened, now, totals(row.server));
}

// Adds the director's points of the last 15 minutes before the points of this page.
async function recall(name) {
  if (recalled.has(name)) return;
  recalled.add(name);
  const service = name === "all" ? "" : "?service=" + encodeURIComponent(name.slice("service ".length));
  const history = await call("v1/history" + service);
  // The clocks of the director and the browser may differ.
  const offset = Date.now() - history.now_ms;
  const own = series.get(name) || [];
  const end = own.length ? own[0].time - PERIOD_MS / 2 : Infinity;
  const points = history.points.map(({ at_ms, response, ...totals }) => (
    { time: at_ms + offset, times: response, ...totals }));
  series.set(name, [...points.filter((it) => it.time < end), ...own]);
}

function rate(name, key) {
  const points = series.get(name) || [];
  const out = [];
  for (let i = 1; i < points.length; i++) {
    const seconds = (points[i].time - points[i - 1].time) / 1000;
    // A counter that decreases was reset.
    out.push([points[i].time, Math.max(0, points[i][key] - points[i - 1][key]) / seconds]);
  }
  return out;
}

const level = (name, key) => (series.get(name) || []).map((it) => [it.time, it[key]]);

function latency(name, share) {
  const points = series.get(name) || [];
  const out = [];
  for (let i = 1; i < points.length; i++) {
    const from = points[Math.max(0, i - 5)];
    const counts = points[i].times.map((n, b) => Math.max(0, n - (from.times[b] || 0)));
    const value = quantile(counts, share);
    if (value !== null) out.push([points[i].time, value]);
  }
  return out;
}

function chart(parent, title, points, format) {
  let figure = [...parent.children].find((it) => it.dataset.title === title);
  if (!figure) {
    figure = make("figure");
    figure.dataset.title = title;
    const caption = make("figcaption");
    caption.append(make("span", title), make("b", ""));
    figure.append(caption, make("canvas"));
    parent.append(figure);
  }
  const last = points.length ? format(points[points.length - 1][1]) : "–";
  figure.querySelector("b").textContent = last;
  const canvas = figure.querySelector("canvas");
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", title + ", now " + last);
  const scale = window.devicePixelRatio || 1;
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  if (!width) return;
  canvas.width = width * scale;
  canvas.height = height * scale;
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  const colors = getComputedStyle(document.documentElement);
  const most = Math.max(1e-9, ...points.map((it) => it[1]));
  const now = Date.now();
  pen.strokeStyle = colors.getPropertyValue("--line");
  pen.strokeRect(0.5, 0.5, width - 1, height - 1);
  pen.fillStyle = colors.getPropertyValue("--soft");
  pen.font = "10px system-ui";
  pen.fillText(format(most), 4, 11);
  pen.strokeStyle = colors.getPropertyValue("--accent");
  pen.lineWidth = 1.5;
  pen.beginPath();
  points.forEach(([time, value], i) => {
    const x = width * (1 - (now - time) / WINDOW_MS);
    const y = height - 2 - (height - 16) * value / most;
    if (i) pen.lineTo(x, y); else pen.moveTo(x, y);
  });
  pen.stroke();
}

function charts() {
  const name = scope();
  const parent = at("charts");
  chart(parent, "Requests and flows /s", rate(name, "requests"), short);
  chart(parent, "Errors /s", rate(name, "failures"), short);
  chart(parent, "Clients and active flows", level(name, "active"), short);
  chart(parent, "Bytes /s", rate(name, "bytes"), short);
  chart(parent, "Response p50", latency(name, 0.5), millis);
  chart(parent, "Response p99", latency(name, 0.99), millis);
}

// --- tables ----------------------------------------------------------------------------------------------------------

function table(id, heads, lines) {
  const [head, body] = [at(id).tHead, at(id).tBodies[0]];
  const top = make("tr");
  for (const [title, kind] of heads) {
    const cell = make("th", title, kind);
    cell.scope = "col";
    top.append(cell);
  }
  head.replaceChildren(top);
  body.replaceChildren(...lines.map((line) => {
    const row = make("tr");
    line.forEach((cell, i) => row.append(cell instanceof Node ? cell : make("td", cell, heads[i][1])));
    return row;
  }));
}

function speed(service) {
  const points = rate("service " + service.name, "requests");
  return points.length ? points[points.length - 1][1] : undefined;
}

// Returns the row of a pool or a route of a service.
function part(it) {
  const { exchanges } = it;
  const buckets = exchanges.times.response.buckets;
  return ["\u21b3 " + it.name, "", "", "", "", "", short(exchanges.ended), "", exchanges.responses.map(short).join(" "),
    short(failures(it)), millis(quantile(buckets, 0.5)), millis(quantile(buckets, 0.99))];
}

function services() {
  const lines = report.services.flatMap((it) => {
    const up = it.servers.filter((server) => ["up", "unchecked"].includes(server.state)).length;
    const times = it.exchanges ? it.exchanges.times.response.buckets : [];
    const classes = it.responses ? it.responses.map(short).join(" ") : "";
    const state = make("td", up + "/" + it.servers.length, up === it.servers.length ? "up" : up ? "warning" : "down");
    const parts = [...(it.pools || []).slice(it.pools && it.pools.length > 1 ? 0 : 1), ...(it.routes || [])];
    return [[it.name, it.listen.join(" "), it.forward, it.pool + (it.pool_state ? " (" + it.pool_state + ")" : ""),
      it.vip, state, short(it.connections), short(speed(it)), classes, short(failures(it)),
      millis(quantile(times, 0.5)), millis(quantile(times, 0.99))], ...parts.map(part)];
  });
  table("services", [["Service"], ["Listen"], ["Forward", "wide"], ["Pool"], ["VIP", "wide"], ["Servers"],
    ["Connections", "number"], ["Per second", "number"], ["1xx–5xx", "wide"], ["Errors", "number"],
    ["p50", "number wide"], ["p99", "number wide"]], lines);
}

const COLUMNS = [
  { key: "state", title: "State", cell: (it) => make("td", it.state, it.state) },
  { key: "address", title: "Server" },
  { key: "pool", title: "Pool" },
  { key: "service", title: "Service", kind: "wide" },
  { key: "effective", title: "Weight", kind: "number", cell: (it) => hinted(it.weight, layers(it.server)) },
  { key: "active", title: "Active", kind: "number" },
  { key: "rate", title: "Per second", kind: "number wide roomy" },
  { key: "connections", title: "Connections", kind: "number wide roomy" },
  { key: "requests", title: "Requests", kind: "number wide" },
  { key: "errors", title: "Errors", kind: "number" },
  { key: "p50", title: "p50", kind: "number wide", format: millis },
  { key: "p99", title: "p99", kind: "number wide", format: millis },
  { key: "probes", title: "Probes", kind: "wide", cell: (it) => strip(it.server) },
  { key: "since", title: "Since", format: age },
  { key: "reason", title: "Reason" },
];

// Worst first.
const RANK = { down: 0, ejected: 1, removed: 2, starting: 3, maint: 4, drain: 5, warning: 6, up: 7, unchecked: 8 };

function strip(server) {
  const cell = make("td", undefined, "wide strip");
  const text = (server.checks || []).map((it) => it.results.slice(-12)).join(" ");
  for (const mark of text) cell.append(make("span", mark, mark === "+" ? "pass" : "fail"));
  return cell;
}

// Returns a cell with a number and an explanation as a tooltip.
function hinted(text, title) {
  const cell = make("td", text, "number");
  cell.title = title;
  return cell;
}

function layers(server) {
  const parts = ["configured " + server.weight];
  if (server.override) parts.push("override " + server.override);
  if (server.check_weight !== undefined) parts.push("check " + server.check_weight);
  if (server.slow_start !== undefined) parts.push("slow start " + server.slow_start / 10 + " %");
  return parts.join(", ") + ": " + server.effective_weight;
}

function gather() {
  rows = [];
  const [now, earlier] = [performance.now(), counts];
  counts = new Map();
  for (const service of report.services) {
    for (const server of service.servers) {
      const pool = server.pool || service.pool;
      const state = server.removed ? "removed" : server.ejected ? "ejected" : server.warning ? "warning" : server.state;
      const own = server.effective_weight === server.weight ? server.weight
        : server.effective_weight + "/" + server.weight;
      const id = service.name + " " + pool + " " + server.address;
      const count = server.requests || server.connections;
      const last = earlier.get(id);
      counts.set(id, { now, count });
      rows.push({ id, server, service: service.name, pool, state,
        rate: last ? Math.max(0, count - last.count) * 1000 / (now - last.now) : undefined,
        address: server.address, weight: own, effective: server.effective_weight,
        active: server.active_connections, connections: server.connections,
        requests: server.requests, errors: failures(server), since: server.since,
        p50: server.latency && server.latency.p50_ms, p99: server.latency && server.latency.p99_ms,
        probes: (server.checks || []).map((it) => it.results).join(" "),
        reason: server.ejected ? server.ejected.reason : server.warning ? server.warning.reason : server.reason });
    }
  }
}

function filter() {
  const words = at("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const state = at("state").value;
  shown = rows.filter((it) => {
    if (state && it.state !== state && it.server.state !== state) return false;
    const text = (it.id + " " + it.state + " " + it.reason).toLowerCase();
    return words.every((word) => text.includes(word));
  });
  const way = sort.up ? 1 : -1;
  const value = (it) => sort.key === "state" ? RANK[it.state] : it[sort.key];
  shown.sort((a, b) => {
    const [x, y] = [value(a), value(b)];
    if (x === y) return a.id < b.id ? -1 : 1;
    if (x === undefined) return 1;
    if (y === undefined) return -1;
    return (x < y ? -1 : 1) * way;
  });
  at("count").textContent = shown.length + " of " + rows.length;
  heads();
  draw();
}

function heads() {
  const row = make("tr");
  for (const column of COLUMNS) {
    const head = make("th", undefined, column.kind);
    head.scope = "col";
    head.setAttribute("aria-sort", sort.key !== column.key ? "none" : sort.up ? "ascending" : "descending");
    const mark = sort.key !== column.key ? "" : sort.up ? " ↑" : " ↓";
    const button = make("button", column.title + mark);
    button.type = "button";
    button.addEventListener("click", () => {
      sort = { key: column.key, up: sort.key === column.key ? !sort.up : true };
      filter();
    });
    head.append(button);
    row.append(head);
  }
  const focused = [...at("list").tHead.querySelectorAll("button")].indexOf(document.activeElement);
  at("list").tHead.replaceChildren(row);
  if (focused >= 0) row.querySelectorAll("button")[focused].focus();
}

// Creates only the visible rows.
function draw() {
  const view = at("viewport");
  const first = Math.max(0, Math.min(Math.floor(view.scrollTop / ROW) - 5, shown.length));
  const last = Math.min(shown.length, first + Math.ceil(view.clientHeight / ROW) + 12);
  const space = (count) => {
    const row = make("tr", undefined, "space");
    const cell = make("td");
    cell.colSpan = COLUMNS.length;
    cell.style.height = count * ROW + "px";
    row.setAttribute("aria-hidden", "true");
    row.append(cell);
    return row;
  };
  const body = shown.slice(first, last).map((it) => {
    const row = make("tr");
    row.dataset.id = it.id;
    row.setAttribute("aria-selected", String(it.id === selected));
    for (const column of COLUMNS) {
      if (column.cell) { row.append(column.cell(it)); continue; }
      const value = it[column.key];
      const text = column.format ? column.format(value) : typeof value === "number" ? short(value) : value;
      const cell = make("td", text === undefined ? "–" : text, column.kind);
      cell.title = typeof value === "string" ? value : "";
      row.append(cell);
    }
    row.addEventListener("click", () => { selected = it.id; draw(); open(it.id); });
    return row;
  });
  at("list").tBodies[0].replaceChildren(space(first), ...body, space(shown.length - last));
}

const urgency = (days) => days < 0 ? "down" : days < EXPIRY_WARNING_DAYS ? "warning" : "";

// Shows certificates in order of expiry.
function certificates() {
  const found = report.services.flatMap((it) => (it.certificates || []).map((one) => ({ service: it.name, ...one })));
  found.push(...(report.admin_certificates || []).map((one) => ({ service: "[node] admin", ...one })));
  found.sort((a, b) => a.not_after_s - b.not_after_s);
  at("certificates-section").hidden = !found.length;
  table("certificates", [["Service"], ["Host"], ["File", "wide"], ["Expires"], ["Days left", "number"]],
    found.slice(0, CERTIFICATES_MAX).map((it) => [it.service, it.name || "–", it.file, it.not_after,
      make("td", it.days_left, "number " + urgency(it.days_left))]));
}

function others() {
  table("interfaces", [["Interface"], ["Mode"], ["Reason"]],
    report.xdp.map((it) => [it.interface, it.mode, it.reason || ""]));
  const ways = report.ways || {};
  const all = (ways.xdp || 0) + (ways.xdp_sent_by_tc || 0) + (ways.tc || 0);
  at("ways").textContent = all ? "fast path: " + (100 * ways.xdp / all).toFixed(1) + " % of packets by XDP, "
    + (100 * ways.xdp_sent_by_tc / all).toFixed(1) + " % sent by tc, " + (100 * ways.tc / all).toFixed(1) + " % tc"
    : report.xdp.length ? "no packets yet" : "no layer 4 services";
  table("packets", [["Packets", "number"], ["Outcome"], ["Meaning"]],
    report.reasons.map((it) => [short(it.packets), it.reason, it.description]));
  at("reloads").replaceChildren(...(report.reloads || []).slice().reverse().map((it) => {
    const line = make("li");
    line.append(make("div", it.at + (it.error ? ", failed: " + it.error : ", revision " + it.revision)));
    if (it.changes.length) line.append(make("pre", it.changes.join("\n")));
    return line;
  }));
}

const scope = () => at("scope").value || "all";

function scopes() {
  const names = ["all", ...report.services.map((it) => "service " + it.name)];
  const list = at("scope");
  if (list.options.length === names.length) return;
  const chosen = list.value;
  list.replaceChildren(...names.map((name) => new Option(name, name)));
  if (names.includes(chosen)) list.value = chosen;
}

function summary() {
  const count = {};
  for (const it of rows) count[it.server.state] = (count[it.server.state] || 0) + 1;
  const known = new Set(rows.map((it) => it.pool + " " + it.address));
  // In the same order as `weir status`.
  const order = ["up", "down", "starting", "drain", "maint", "unchecked"];
  const states = order.filter((state) => count[state]).map((state) => count[state] + " " + state).join(", ");
  const counted = (number, noun) => number + " " + noun + (number === 1 ? "" : "s");
  at("summary").textContent = "revision " + report.revision + ", " + counted(report.services.length, "service") + ", "
    + counted(known.size, "server") + (known.size === rows.length ? "" : ", counted in each service")
    + (states ? ": " + states : "");
}

// --- one server ------------------------------------------------------------------------------------------------------

function open(id) {
  opened = id;
  if (decodeURIComponent(location.hash.slice(1)) !== id) location.hash = encodeURIComponent(id);
  panel();
  if (!at("panel").open) at("panel").showModal();
}

// Opens the server in the page's address, for links and the browser's history.
function follow() {
  const id = decodeURIComponent(location.hash.slice(1));
  if (id === (opened || "")) return;
  if (rows.some((it) => it.id === id)) open(id);
  else at("panel").close();
}

function facts(row) {
  const it = row.server;
  const list = [["State", it.state + " since " + it.since + " (" + age(it.since) + ")"], ["Reason", it.reason],
    ["Weight", layers(it)], ["Forward", it.forward], ["Service", row.service], ["Pool", row.pool],
    ["Active, inactive", it.active_connections + ", " + it.inactive_connections],
    ["Connections", it.connections], ["Bytes in, out", short(it.bytes_in) + ", " + short(it.bytes_out)]];
  if (it.ejected) list.push(["Ejected", it.ejected.reason + ", until " + it.ejected.until]);
  if (it.warning) list.push(["Warning", it.warning.reason]);
  if (it.handshakes) list.push(["Handshakes", it.handshakes.finished + " of " + it.handshakes.syns + " SYNs"]);
  if (it.exchanges) {
    const e = it.exchanges;
    list.push(["Requests", it.requests], ["1xx 2xx 3xx 4xx 5xx", e.responses.join(" ")],
      ["Errors", Object.entries(e.errors || {}).map(([kind, n]) => kind + " " + n).join(", ") || "none"],
      ["Failed connections, responses", it.connect_failures + ", " + it.response_failures],
      ["Redispatches, repetitions", e.redispatches + ", " + e.repetitions]);
    for (const stage of ["queue", "connect", "response", "total"]) {
      const time = e.times[stage];
      list.push(["Mean " + stage, time.count ? millis(time.sum_us / time.count / 1000) + " of " + time.count : "–"]);
    }
  }
  if (it.latency) {
    const { p50_ms, p90_ms, p99_ms, method } = it.latency;
    list.push(["Recent response",
      "p50 " + millis(p50_ms) + ", p90 " + millis(p90_ms) + ", p99 " + millis(p99_ms) + ", " + method]);
  }
  for (const check of it.checks || []) {
    list.push(["Check " + check.check, check.state + ", " + check.reason + ", " + check.failures + " of " + check.probes
      + " failed, mean " + millis(check.probes ? check.time_us / check.probes / 1000 : 0) + "  " + check.results]);
  }
  return list;
}

function panel() {
  const row = rows.find((it) => it.id === opened);
  if (!row) { at("panel").close(); return; }
  at("panel-title").textContent = row.address + " in pool " + row.pool + " of service " + row.service;
  at("panel-facts").tBodies[0].replaceChildren(...facts(row).map(([name, value]) => {
    const line = make("tr");
    const head = make("th", name);
    head.scope = "row";
    line.append(head, make("td", String(value)));
    return line;
  }));
  if (at("panel-actions").dataset.of !== opened + role) {
    at("panel-actions").dataset.of = opened + role;
    at("panel-actions").replaceChildren(...actions(row));
    at("panel-charts").replaceChildren();
  }
  const name = "server " + opened;
  chart(at("panel-charts"), "Requests and flows /s", rate(name, "requests"), short);
  chart(at("panel-charts"), "Errors /s", rate(name, "failures"), short);
  chart(at("panel-charts"), "Active", level(name, "active"), short);
}

function actions(row) {
  if (role === "read") return [make("span", "read-only: changes require a token with the role operate")];
  const order = (text, body) => {
    const button = make("button", text);
    button.type = "button";
    button.addEventListener("click", () => change(row, text, body()));
    return button;
  };
  const weight = make("input");
  Object.assign(weight, { type: "number", min: 0, max: 65535, value: row.server.weight });
  weight.setAttribute("aria-label", "Weight");
  return [order("drain", () => ({ state: "drain" })), order("ready", () => ({ state: "ready" })),
    order("maint", () => ({ state: "maint" })), weight, order("weight", () => ({ weight: Number(weight.value) }))];
}

function ask(text) {
  const dialog = at("confirm");
  at("confirm-text").textContent = text;
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((done) => {
    dialog.addEventListener("close", () => done(dialog.returnValue === "yes"), { once: true });
  });
}

async function change(row, what, body) {
  if (role === "read") return;
  if (!await ask(what + " " + row.address + " in pool " + row.pool + "?")) return;
  const path = "v1/servers/" + encodeURIComponent(row.pool) + "/" + encodeURIComponent(row.address);
  try {
    await call(path, { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" } });
    await refresh();
  } catch (error) {
    complain(error.message);
  }
}

// --- the API ---------------------------------------------------------------------------------------------------------

async function call(path, options = {}) {
  const headers = { ...options.headers };
  if (token) headers.Authorization = "Bearer " + token;
  const answer = await fetch(path, { ...options, headers, cache: "no-store", credentials: "omit" });
  const body = await answer.json();
  if (!answer.ok) throw new Error(body.error || "status " + answer.status);
  return body;
}

function complain(text) {
  at("problem").hidden = !text;
  at("problem").textContent = text || "";
}

async function identify() {
  try {
    role = (await call("v1/caller")).role;
  } catch (error) {
    role = "read";
    complain(error.message);
  }
  at("role").textContent = "role: " + role;
  filter();
}

async function refresh() {
  const now = await call("v1/status");
  report = now;
  gather();
  collect(Date.now());
  scopes();
  summary();
  services();
  certificates();
  others();
  filter();
  charts();
  if (at("panel").open) panel();
  document.documentElement.dataset.revision = report.revision;
  complain("");
  await past();
}

async function past() {
  const name = scope();
  if (recalled.has(name)) return;
  try {
    await recall(name);
  } catch (error) {
    recalled.delete(name);
    throw error;
  }
  charts();
}

async function poll() {
  const begun = performance.now();
  try {
    if (!document.hidden || !report) await refresh();
  } catch (error) {
    complain(error.message);
  }
  // Large documents are read less often.
  setTimeout(poll, Math.max(PERIOD_MS, 5 * (performance.now() - begun)));
}

// --- input -----------------------------------------------------------------------------------------------------------

function move(step) {
  const index = shown.findIndex((it) => it.id === selected);
  const next = Math.min(shown.length - 1, Math.max(0, index + step));
  if (!shown[next]) return;
  selected = shown[next].id;
  const view = at("viewport");
  const top = next * ROW;
  if (top < view.scrollTop) view.scrollTop = top;
  if (top + 2 * ROW > view.scrollTop + view.clientHeight) view.scrollTop = top + 2 * ROW - view.clientHeight;
  draw();
}

document.addEventListener("keydown", (event) => {
  const typing = event.target.matches("input, select, textarea");
  if (event.ctrlKey || event.altKey || event.metaKey || document.querySelector("dialog[open]")) return;
  if (typing) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const row = shown.find((it) => it.id === selected);
  const orders = { d: "drain", r: "ready", m: "maint" };
  if (event.key === "/") at("search").focus();
  else if (event.key === "j" || event.key === "ArrowDown") move(1);
  else if (event.key === "k" || event.key === "ArrowUp") move(-1);
  else if (event.key === "Enter" && row && event.target.tagName !== "BUTTON") open(row.id);
  else if (orders[event.key] && row) change(row, orders[event.key], { state: orders[event.key] });
  else return;
  event.preventDefault();
});

function theme(name) {
  if (name) document.documentElement.dataset.theme = name;
  const dark = document.documentElement.dataset.theme === "dark"
    || (!document.documentElement.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
  at("theme").setAttribute("aria-pressed", String(dark));
  return dark;
}

at("theme").addEventListener("click", () => {
  const next = theme() ? "light" : "dark";
  localStorage.setItem("weir-theme", next);
  theme(next);
  if (report) charts();
});
at("help").addEventListener("click", () => at("keys").showModal());
at("login").addEventListener("click", () => {
  at("token-text").value = token;
  at("token").returnValue = "no";
  at("token").showModal();
});
at("token").addEventListener("close", () => {
  if (at("token").returnValue !== "yes") return;
  token = at("token-text").value.trim();
  sessionStorage.setItem("weir-token", token);
  identify();
  refresh().catch((error) => complain(error.message));
});
at("panel").addEventListener("close", () => { opened = null; history.replaceState(null, "", location.pathname); });
at("search").addEventListener("input", filter);
at("state").addEventListener("change", filter);
at("scope").addEventListener("change", () => {
  charts();
  past().catch((error) => complain(error.message));
});
// A hidden page reads nothing. When it becomes visible, the missing points are read from the director.
document.addEventListener("visibilitychange", () => {
  if (document.hidden || !report) return;
  series.clear();
  recalled.clear();
  refresh().catch((error) => complain(error.message));
});
window.addEventListener("hashchange", follow);
at("viewport").addEventListener("scroll", () => requestAnimationFrame(draw));
at("state").replaceChildren(new Option("any", ""), ...Object.keys(RANK).map((name) => new Option(name, name)));
theme(localStorage.getItem("weir-theme"));
identify();
poll().then(follow);
