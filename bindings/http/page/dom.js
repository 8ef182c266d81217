// Helpers for elements, numbers and announcements.
export const $ = id => document.getElementById(id);

// An element with properties, or attributes (aria-*, data-*, role), and children.
export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined) continue;
    if (/^(aria|data)-|^role$/.test(name)) element.setAttribute(name, value);
    else element[name] = value;
  }
  element.append(...children.filter(one => one !== null && one !== undefined));
  return element;
}

export function drawing(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

export const icon = name => drawing("svg", {"aria-hidden": "true"},
                                    drawing("use", {href: "#i-" + name}));

export function icon_button(name, label, onclick) {
  return make("button", {type: "button", className: "icon small", title: label, "aria-label": label,
                         onclick}, icon(name));
}

export const number = value => value.toLocaleString("en");

export function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (count >= 1024 && unit < 4) { count /= 1024; ++unit; }
  return (unit && count < 100 ? count.toFixed(1) : Math.round(count)) + " " + units[unit];
}

export function seconds(value) {
  if (value < 10) return value.toFixed(1) + " s";
  return value < 100 ? Math.round(value) + " s" : number(Math.round(value / 60)) + " min";
}

// Screen readers speak it.
export function say(text) { $("say").textContent = text; }

export async function copy(text, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {  // not a secure origin
    const area = make("textarea", {className: "unseen", value: text});
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  say("Copied");
  button.classList.add("done");
  setTimeout(() => button.classList.remove("done"), 1200);
}

let notice_timer = 0;
// A short message above the input, with something to do.
export function notice(text, label, action) {
  const close = () => { $("notice").hidden = true; };
  $("notice").replaceChildren(text, make("button", {
    type: "button", onclick() { close(); action(); }}, label));
  $("notice").hidden = false;
  clearTimeout(notice_timer);
  notice_timer = setTimeout(close, 8000);
}

// What went wrong; stays until it is closed or something is sent.
export function problem(text) {
  $("problem").replaceChildren(make("span", {}, text),
                               icon_button("close", "Close", () => problem("")));
  $("problem").hidden = !text;
}
