// The page of `gputop exporter --page`: reads fleet.json every few seconds, and draws it.
//
// All text from outside is set as text, never as HTML.
"use strict";

const PERIOD = 3000;
const LETTERS = {
  sick: ["x", "sick"],
  leak: ["L", "leaks"],
  orphan: ["o", "left over"],
  held_idle: ["h", "held idle"],
  nearly_full: ["%", "over 90 % full"],
  busy: ["", "in use"],
  free: ["·", "free"],
  unknown: ["?", "unknown"],
};

const by = (id) => document.getElementById(id);
let fleet = null;
let received = 0;

function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function bytes(count) {
  if (count === null || count === undefined) return "?";
  const gib = count / 2 ** 30;
  return gib >= 1000 ? `${(gib / 1024).toFixed(1)} TiB` : `${gib.toFixed(gib < 10 ? 1 : 0)} GiB`;
}

function span(seconds) {
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return `${Math.round(seconds / 3600)} h`;
}

function bar(used, total) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("class", "bar");
  svg.setAttribute("viewBox", "0 0 100 10");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-hidden", "true");
  for (const [width, className] of [[100, ""], [Math.min(100, (100 * used) / total), "part"]]) {
    const rect = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    rect.setAttribute("width", width);
    rect.setAttribute("height", 10);
    if (className) rect.setAttribute("class", className);
    svg.append(rect);
  }
  return svg;
}

function cell(gpu) {
  const [letter, words] = LETTERS[gpu.state] || LETTERS.unknown;
  const made = element("span", `cell ${gpu.state}`, letter);
  const memory = gpu.memory_total_bytes ? `, ${bytes(gpu.memory_used_bytes)} of ${bytes(gpu.memory_total_bytes)}` : "";
  const users = gpu.users.length ? `, ${gpu.users.join(", ")}` : "";
  made.title = `GPU ${gpu.label}: ${words}${users}${memory}`;
  made.setAttribute("role", "img");
  made.setAttribute("aria-label", made.title);
  return made;
}

function column(heading, className, ...children) {
  const made = element("td", className);
  made.dataset.heading = heading;
  made.append(...children);
  return made;
}

function row(host) {
  const made = element("tr", host.up ? "" : "down");
  made.append(element("td", "", host.name));
  if (!host.up) {
    const since = host.since_seconds === null ? "no readings yet" : `no readings for ${span(host.since_seconds)}`;
    const rest = column("", "", since);
    rest.colSpan = 6;
    made.append(rest);
    return made;
  }
  const cells = element("div", "cells");
  cells.append(...host.gpus.map(cell));
  const free = host.gpus.filter((gpu) => gpu.state === "free").length;
  const memory = column("memory", "n", `${bytes(host.memory_used_bytes)} of ${bytes(host.memory_total_bytes)}`);
  if (host.memory_total_bytes) memory.append(bar(host.memory_used_bytes, host.memory_total_bytes));
  const use = host.sm_percent === null ? "?" : `${Math.round(host.sm_percent)} %`;
  const power = host.power_watts === null ? "?" : `${(host.power_watts / 1000).toFixed(1)} kW`;
  const users = host.users.map((user) => `${user.name} ${user.gpus}`).join(", ");
  made.append(
    column("", "", cells),
    column("free", "n", String(free)),
    memory,
    column("use", "n", use),
    column("power", "n", power),
    column("users", "", users),
  );
  return made;
}

function matches(host, words) {
  const states = host.gpus.map((gpu) => (LETTERS[gpu.state] || LETTERS.unknown)[1]);
  const text = [host.name, ...host.users.map((user) => user.name), ...states, host.up ? "" : "down"].join(" ");
  return words.every((word) => text.toLowerCase().includes(word));
}

function trouble(item) {
  const made = element("li", item.severity);
  made.append(element("b", "", item.host), document.createTextNode(`: ${item.sentence}`));
  return made;
}

function draw() {
  if (fleet === null) return;
  const words = by("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const shown = fleet.hosts.filter((host) => matches(host, words));
  const gpus = shown.flatMap((host) => host.gpus);
  const count = (state) => gpus.filter((gpu) => gpu.state === state).length;
  const parts = [
    [shown.length, shown.length === 1 ? "host" : "hosts"],
    [gpus.length, "GPUs"],
    [count("free"), "free"],
    [count("held_idle"), "held idle"],
    [count("leak"), "leaking"],
    [count("orphan"), "with leftovers"],
    [count("sick"), "sick"],
    [count("unknown"), "unknown"],
  ];
  const always = 3;
  const said = parts.filter(([number], place) => place < always || number > 0);
  by("totals").textContent = said.map(([number, word]) => `${number} ${word}`).join(" · ");
  by("totals").className = "";
  const names = new Set(shown.map((host) => host.name));
  const troubles = fleet.troubles.filter((item) => names.has(item.host));
  by("troubles-section").hidden = troubles.length === 0;
  by("troubles").replaceChildren(...troubles.map(trouble));
  const free = shown
    .map((host) => [host.name, host.gpus.filter((gpu) => gpu.state === "free").length])
    .filter(([, number]) => number > 0)
    .sort((one, other) => other[1] - one[1]);
  by("free").textContent = free.map(([name, number]) => `${name} ${number}`).join(", ") || "no GPU";
  by("hosts").replaceChildren(...shown.map(row));
  by("none").hidden = shown.length > 0;
}

function complain(why) {
  const since = received ? `; these readings are ${span((Date.now() - received) / 1000)} old` : "";
  by("totals").textContent = `${why}${since}`;
  by("totals").className = "old";
}

async function refresh() {
  try {
    const answer = await fetch("fleet.json", { cache: "no-store", signal: AbortSignal.timeout(2 * PERIOD) });
    if (!answer.ok) throw new Error(`gputop answers with the code ${answer.status}`);
    fleet = await answer.json();
    received = Date.now();
    draw();
  } catch (error) {
    complain(error instanceof TypeError || error.name === "TimeoutError" ? "gputop does not answer" : error.message);
  }
  setTimeout(refresh, PERIOD);
}

by("filter").addEventListener("input", draw);
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
for (const [state, [letter, words]] of Object.entries(LETTERS)) {
  const made = element("span");
  made.append(element("i", `cell ${state}`, letter), document.createTextNode(words));
  by("legend").append(made);
}
refresh();
