"use strict";
// Runs the dashboard's script with a stub of the DOM, and prints what the script renders for a status document.

const fs = require("fs");
const vm = require("vm");

class Element {
  constructor(tag) {
    Object.assign(this, { tagName: tag, children: [], dataset: {}, style: {}, attributes: {}, options: [], value: "",
      listeners: {}, textContent: "", hidden: true, scrollTop: 0, clientHeight: 300, clientWidth: 0, open: false });
  }
  append(...nodes) { this.children.push(...nodes); }
  replaceChildren(...nodes) { this.children = nodes; this.options = nodes; }
  setAttribute(name, value) { this.attributes[name] = value; }
  addEventListener(name, run) { (this.listeners[name] = this.listeners[name] || []).push(run); }
  matches() { return false; }
  querySelectorAll() { return []; }
  querySelector(name) { return this.children.find((it) => it.tagName === name) || new Element(name); }
  focus() {}
  showModal() { this.open = true; setImmediate(() => { this.returnValue = "yes"; this.close(); }); }
  close() { this.open = false; for (const run of this.listeners.close || []) run(); }
  get tHead() { return this.head = this.head || new Element("thead"); }
  get tBodies() { return [this.body = this.body || new Element("tbody")]; }
}

const [script, status] = process.argv.slice(2);
const byId = new Map();
const posted = [];
const document = new Element("document");
document.documentElement = new Element("html");
document.createElement = (tag) => new Element(tag);
document.querySelector = () => null;
document.getElementById = (id) => {
  if (!byId.has(id)) byId.set(id, new Element(id));
  return byId.get(id);
};
const storage = { getItem: () => null, setItem: () => {} };
const now = Date.now();
const past = { at_ms: now - 5000, connections: 1, requests: 1, failures: 0, bytes: 1, active: 1, response: [] };
const responses = { "v1/status": JSON.parse(status), "v1/caller": { role: "operate" },
  "v1/history": { now_ms: now, points: [past, { ...past, at_ms: now + 60_000 }] } };
const page = { document, sessionStorage: storage, localStorage: storage, window: { addEventListener: () => {} },
  location: { hash: "", pathname: "/" }, history: { replaceState: () => {} }, Node: Element, performance, setTimeout: () => {}, console,
  requestAnimationFrame: (run) => run(), matchMedia: () => ({ matches: false }), encodeURIComponent, decodeURIComponent,
  getComputedStyle: () => ({ getPropertyValue: () => "" }),
  Option: class extends Element { constructor(text, value) { super("option"); this.value = value; } },
  fetch: async (path, options) => {
    const token = options.headers.Authorization || "X-None";
    if (options.method === "POST") posted.push([path, options.body, token].join(" "));
    return { ok: true, json: async () => responses[path] || {} };
  } };
vm.createContext(page);
vm.runInContext(fs.readFileSync(script, "utf8"), page);

setImmediate(async () => {
  await vm.runInContext("identify().then(refresh)", page);
  await vm.runInContext("change(shown[0], 'maint', { state: 'maint' })", page);
  await vm.runInContext("opened = shown[0].id, panel()", page);
  const rows = vm.runInContext("shown.map(({ server, ...row }) => row)", page);
  const shown = (row) => row.children.map((cell) => String(cell.textContent));
  const certificates = document.getElementById("certificates").tBodies[0].children.map(shown);
  const marks = document.getElementById("certificates").tBodies[0].children.map((row) => row.children[4].className);
  const times = vm.runInContext("series.get('all').map((it) => it.time)", page);
  const hidden = document.getElementById("certificates-section").hidden;
  const summary = document.getElementById("summary").textContent;
  const history = times.filter((time) => time < now - 4000).length;
  process.stdout.write(JSON.stringify({ rows, certificates, marks, hidden, history, times: times.length, posted, summary,
    problem: document.getElementById("problem").textContent }));
});
