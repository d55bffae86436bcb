// The page of `gputop exporter --page`: reads fleet.json every few seconds, and draws it.
//
// All text from outside is set as text, never as HTML. Nodes stay, and only what has changed is
// written: a new node would end the selection, the focus or the open list in it.
"use strict";

const PERIOD = 3000;
/// The time between two announcements of changed totals.
const CALM = 60000;
const STATES = new Map([
  ["sick", ["x", "sick"]],
  ["leak", ["L", "leaks"]],
  ["orphan", ["o", "left over"]],
  ["held_idle", ["h", "held idle"]],
  ["nearly_full", ["%", "over 90 % full"]],
  ["busy", ["\u00a0", "in use"]],
  ["free", ["·", "free"]],
  ["unknown", ["?", "unknown"]],
]);

const by = (id) => document.getElementById(id);
/// The last readings; null before the first.
let fleet = null;
/// The time of the last readings, in milliseconds.
let received = 0;
/// Why there are no newer readings; null while they come.
let complaint = null;
/// The totals that were announced last, and when.
let announced = { totals: "", at: 0 };

function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function attribute(node, name, value) {
  if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
}

function show(node, isShown) {
  if (node.hidden === isShown) node.hidden = !isShown;
}

/// Makes as many children as there are items, and updates each with its item.
function list(parent, items, make, update) {
  while (parent.children.length > items.length) parent.lastElementChild.remove();
  while (parent.children.length < items.length) parent.append(make());
  items.forEach((item, place) => update(parent.children[place], item));
}

/// No line ends between the two.
const withUnit = (number, unit) => `${number}\u00a0${unit}`;
const counted = (number, noun) => withUnit(number, number === 1 ? noun : `${noun}s`);

function bytes(count) {
  if (count === null || count === undefined) return "?";
  const gib = count / 2 ** 30;
  return gib >= 1000 ? withUnit((gib / 1024).toFixed(1), "TiB") : withUnit(gib.toFixed(gib < 10 ? 1 : 0), "GiB");
}

function span(seconds) {
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return `${Math.round(seconds / 3600)} h`;
}

const stateOf = (gpu) => (STATES.has(gpu.state) ? gpu.state : "unknown");
const wordsOf = (gpu) => STATES.get(stateOf(gpu))[1];

function totals(gpus) {
  const count = (state) => gpus.filter((gpu) => stateOf(gpu) === state).length;
  return [
    [count("free"), "free"],
    [count("held_idle"), "held idle"],
    [count("leak"), "leaking"],
    [count("orphan"), "with leftovers"],
    [count("sick"), "sick"],
    [count("unknown"), "unknown"],
  ]
    .filter(([number], place) => place === 0 || number > 0)
    .map(([number, words]) => withUnit(number, words));
}

function details(gpu) {
  const memory = gpu.memory_total_bytes ? `, ${bytes(gpu.memory_used_bytes)} of ${bytes(gpu.memory_total_bytes)}` : "";
  const users = gpu.users.length ? `, ${gpu.users.join(", ")}` : "";
  return `GPU ${gpu.label}: ${wordsOf(gpu)}${users}${memory}`;
}

function updateCell(made, gpu) {
  attribute(made, "class", `cell ${stateOf(gpu)}`);
  attribute(made, "title", details(gpu));
  write(made, STATES.get(stateOf(gpu))[0]);
}

function bar() {
  const make = (name) => document.createElementNS("http://www.w3.org/2000/svg", name);
  const svg = make("svg");
  svg.setAttribute("class", "bar");
  svg.setAttribute("viewBox", "0 0 100 10");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-hidden", "true");
  for (const className of ["whole", "part"]) {
    const rect = make("rect");
    rect.setAttribute("width", 100);
    rect.setAttribute("height", 10);
    rect.setAttribute("class", className);
    svg.append(rect);
  }
  return svg;
}

function column(heading, className, ...children) {
  const made = element("td", className);
  if (heading) made.dataset.heading = heading;
  made.setAttribute("role", "cell");
  made.append(...children);
  return made;
}

function makeRow() {
  const made = element("tr");
  made.setAttribute("role", "row");
  const host = element("th", "name");
  host.scope = "row";
  host.setAttribute("role", "rowheader");
  const silence = column("", "silence");
  silence.colSpan = 6;
  const cells = element("span", "cells");
  cells.setAttribute("aria-hidden", "true");
  const summary = element("summary");
  summary.append(element("span", "unseen"), cells);
  const gpus = element("details");
  gpus.append(summary, element("ul", "gpus"));
  made.append(
    host,
    silence,
    column("", "", gpus),
    column("free", "n"),
    column("memory", "n", element("span"), bar()),
    column("use", "n"),
    column("power", "n"),
    column("users", "name"),
  );
  return made;
}

function updateRow(made, host) {
  const [name, silence, gpus, free, memory, use, power, users] = made.children;
  const number = host.gpus.filter((gpu) => gpu.state === "free").length;
  attribute(made, "class", host.up ? "" : "down");
  write(name, host.name);
  show(silence, !host.up);
  for (const figures of [gpus, free, memory, use, power, users]) show(figures, host.up);
  write(silence, host.since_seconds === null ? "no readings yet" : `no readings for ${span(host.since_seconds)}`);
  const [summary, texts] = gpus.firstChild.children;
  write(summary.firstChild, `${counted(host.gpus.length, "GPU")} of ${host.name}: ${totals(host.gpus).join(", ")}`);
  list(summary.lastChild, host.gpus, () => element("span"), updateCell);
  list(texts, host.gpus, () => element("li"), (item, gpu) => write(item, details(gpu)));
  write(free, String(number));
  const bound = host.memory_is_lower_bound ? "≥ " : "";
  write(memory.firstChild, `${bound}${bytes(host.memory_used_bytes)} of ${bytes(host.memory_total_bytes)}`);
  attribute(memory.lastChild.lastChild, "width", Math.min(100, (100 * host.memory_used_bytes) / host.memory_total_bytes) || 0);
  write(use, host.sm_percent === null ? "?" : `${Math.round(host.sm_percent)} %`);
  write(power, host.power_watts === null ? "?" : `${(host.power_watts / 1000).toFixed(1)} kW`);
  write(users, host.users.map((user) => withUnit(user.name, user.gpus)).join(", "));
}

function makeTrouble() {
  const made = element("li");
  made.append(element("b"), ": ", element("span"));
  return made;
}

function updateTrouble(made, item) {
  attribute(made, "class", item.severity === "notable" ? "notable" : "");
  write(made.firstChild, item.host);
  write(made.lastChild, item.sentence);
}

function matches(host, words) {
  const text = [host.name, ...host.users.map((user) => user.name), ...host.gpus.map(wordsOf), host.up ? "" : "down"].join(" ");
  return words.every((word) => text.toLowerCase().includes(word));
}

function draw() {
  if (fleet === null) return;
  const words = by("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const shown = fleet.hosts.filter((host) => matches(host, words));
  const gpus = shown.flatMap((host) => host.gpus);
  write(by("totals"), [counted(shown.length, "host"), counted(gpus.length, "GPU"), ...totals(gpus)].join(" · "));
  const names = new Set(shown.map((host) => host.name));
  const troubles = fleet.troubles.filter((item) => names.has(item.host));
  show(by("troubles-section"), troubles.length > 0);
  list(by("troubles"), troubles, makeTrouble, updateTrouble);
  const free = shown
    .map((host) => [host.name, host.gpus.filter((gpu) => gpu.state === "free").length])
    .filter(([, number]) => number > 0)
    .sort((one, other) => other[1] - one[1]);
  write(by("free"), free.map(([name, number]) => withUnit(name, number)).join(", ") || "no GPU");
  // Each host keeps its row, so that a filter by state moves no open list to another host.
  list(by("hosts"), fleet.hosts, makeRow, (made, host) => {
    updateRow(made, host);
    show(made, shown.includes(host));
  });
  show(by("none"), shown.length === 0);
}

/// Lets screen readers say it, and the totals with it.
function announce(words) {
  announced = { totals: by("totals").textContent, at: Date.now() };
  write(by("news"), [words, announced.totals].filter(Boolean).join(": "));
}

function complain(why) {
  const since = received ? `; these readings are ${span((Date.now() - received) / 1000)} old` : "";
  write(by("complaint"), `${why}${since}`);
  show(by("complaint"), true);
  // The age grows on the screen; it is not said again and again.
  if (complaint === null) write(by("news"), why);
  complaint = why;
}

function accept(readings) {
  const isFirst = fleet === null;
  const isBack = complaint !== null;
  fleet = readings;
  received = Date.now();
  complaint = null;
  show(by("complaint"), false);
  draw();
  if (isBack) announce("gputop answers again");
  else if (isFirst) announce("");
  else if (announced.totals !== by("totals").textContent && Date.now() - announced.at >= CALM) announce("");
}

/// Whether it has the form that this page draws.
function isFleet(answer) {
  const isHost = (host) =>
    typeof host?.name === "string" &&
    Array.isArray(host.gpus) &&
    host.gpus.every((gpu) => Array.isArray(gpu?.users)) &&
    Array.isArray(host.users) &&
    host.users.every((user) => typeof user?.name === "string");
  return Array.isArray(answer?.hosts) && answer.hosts.every(isHost) && Array.isArray(answer.troubles) && answer.troubles.every(Boolean);
}

/// Reads fleet.json and returns what is wrong, or null.
async function readFleet() {
  let text;
  try {
    const answer = await fetch("fleet.json", { cache: "no-store", signal: AbortSignal.timeout(2 * PERIOD) });
    if (!answer.ok) return `gputop answers with the code ${answer.status}`;
    text = await answer.text();
  } catch {
    return "gputop does not answer";
  }
  let readings = null;
  try {
    readings = JSON.parse(text);
  } catch {
    // The sentence below is for this, too.
  }
  if (!isFleet(readings)) return "The answer does not have the form that this page reads: reload the page";
  accept(readings);
  return null;
}

async function refresh() {
  try {
    const wrong = await readFleet();
    if (wrong !== null) complain(wrong);
  } finally {
    setTimeout(refresh, PERIOD);
  }
}

let typed = 0;
by("filter").addEventListener("input", () => {
  draw();
  // The result is said once the user pauses.
  clearTimeout(typed);
  typed = setTimeout(announce, 1000, "");
});
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && document.activeElement !== by("filter")) {
    event.preventDefault();
    by("filter").focus();
  } else if (event.key === "Escape") {
    by("filter").value = "";
    by("filter").blur();
    draw();
  }
});
for (const [state, [letter, words]] of STATES) {
  const made = element("span");
  made.append(element("i", `cell ${state}`, letter), words);
  by("legend").append(made);
}
refresh();
