"use strict";
// Elements, tables and numbers of all reports.

// element("p", {className: "note"}, "text", child, ...)
function element(name, properties, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

const paragraph = (text, className = "") => element("p", {className}, text);
const heading = (text, level = 2) => element(`h${level}`, {}, text);
const swatch = (colour) =>
    element("i", {className: "swatch", style: `background: var(--${colour})`});

// `rows` are arrays of texts or nodes; null is a dash.
function table(head, rows, className = "") {
  const line = (cells, tag) =>
      element("tr", {}, ...cells.map((cell) => element(tag, {}, cell ?? "-")));
  return element("div", {className: "wide"},
      element("table", {className}, element("thead", {}, line(head, "th")),
          element("tbody", {}, ...rows.map((cells) => line(cells, "td")))));
}

const details = (title, ...children) =>
    element("details", {}, element("summary", {}, title), ...children);
const configOf = (title, config) =>
    details(title, element("pre", {}, JSON.stringify(config, null, 2)));

const known = (value) => value !== null && value !== undefined && Number.isFinite(value);
const number = (value, digits) => known(value) ? value.toFixed(digits) : null;
const ms = (value) => known(value) ? `${value.toFixed(3)} ms` : null;
const percent = (share, digits = 1) =>
    known(share) ? `${(100 * share).toFixed(digits)} %` : null;

function bytes(amount) {
  if (!known(amount)) return null;
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (; amount >= 1024 && unit < units.length - 1; ++unit) amount /= 1024;
  return `${amount.toFixed(unit === 0 ? 0 : 2)} ${units[unit]}`;
}

// The paths and values of an object's leaves: {"prefetch.depth": "auto", ...}.
function leaves(object, path = "") {
  if (object === null || typeof object !== "object" || Array.isArray(object)) {
    return {[path]: JSON.stringify(object)};
  }
  return Object.assign({}, ...Object.entries(object).map(
      ([key, value]) => leaves(value, path ? `${path}.${key}` : key)));
}
