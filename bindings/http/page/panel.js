// The server's side: memory of each tier, speed, cached sessions.
import {get_json, load_model, metrics, model, request} from "./api.js";
import {$, bytes, drawing, icon_button, make, number, problem} from "./dom.js";

const kKinds = {
  slices: ["Slices", "low-bit codes of keys and values: all tokens' scores come from them"],
  rows: ["Rows", "keys and values of the cached tokens"],
  hot_rows: ["Hot rows", "rows on the device that are selected often"],
  extra_hot_rows: ["Extra hot rows, lent", "lent while memory is free"],
  states: ["States", "of layers with linear attention; in host memory, as of earlier tokens"],
  scratch: ["Scratch", "buffers of the steps"],
  sessions: ["Sessions", "conversations on disk"],
  other: ["Weights and the rest", "the model's weights, activations and tables"],
};
const kTiers = {device: "Device", host: "Host", disk: "Disk"};
const kNumbers = {
  fasa_requests_running: "Requests running", fasa_requests_waiting: "Requests waiting",
  fasa_prompt_tokens_total: "Prompt tokens",
  fasa_cached_tokens_total: "Prompt tokens from the cache",
  fasa_generated_tokens_total: "Generated tokens", fasa_preemptions_total: "Preemptions",
  fasa_evictions_total: "Evictions",
};
const kEndless = 1e18;  // limits above mean none

// Rows of the table of numbers, where there were any.
function drafts_and_audits(values) {
  const drafts = values.fasa_draft_tokens_total, audited = values.fasa_audited_tokens_total;
  const rows = [];
  if (drafts) rows.push(["Drafts right", `${number(values.fasa_right_drafts_total)} of ${number(drafts)}`]);
  if (audited) {
    const kl = (values.fasa_audit_kl_sum / audited).toPrecision(2);
    rows.push(["KL beside full attention", `${kl}, of ${number(audited)} tokens`]);
  }
  return rows;
}

// A tier's parts in bytes, its limit (0: none), and how many bytes are lent.
function tier_of(name, values) {
  const limit = values[`fasa_budget_bytes{tier="${name}"}`];
  const used = values[`fasa_used_bytes{tier="${name}"}`];
  if (limit === undefined) return null;
  const parts = Object.keys(kKinds).map(kind =>
      [kind, values[`fasa_tier_bytes{tier="${name}",kind="${kind}"}`] ?? 0]);
  const other = used - parts.reduce((sum, part) => sum + part[1], 0);
  parts.at(-1)[1] = Math.max(0, other);
  const lent = values[`fasa_tier_bytes{tier="${name}",kind="extra_hot_rows"}`] ?? 0;
  return {name, used, lent, limit: limit > kEndless ? 0 : limit,
          parts: parts.filter(part => part[1] > 0)};
}

const percent = share => share > 0 && share < 0.005 ? "< 1 %" : Math.round(100 * share) + " %";

const swatch = kind => {
  const square = make("i", {"aria-hidden": "true"});
  square.style.background = `var(--${kind})`;
  return square;
};

// A tier without a limit fills half of its strip at most, which has no end.
function tier_element({name, used, lent, limit, parts}) {
  const whole = limit || Math.max(1, 2 ** Math.ceil(Math.log2(2 * used)));
  const strip = make("div", {className: limit ? "bar" : "bar endless", role: "img"});
  for (const [kind, size] of parts) {
    const part = swatch(kind);
    part.style.width = 100 * size / whole + "%";
    part.title = `${kKinds[kind][0]}: ${bytes(size)}`;
    strip.append(part);
  }
  const needed = used - lent;
  const of = limit ? `${bytes(needed)} of ${bytes(limit)}, ${percent(needed / limit)}`
                   : `${bytes(needed)}, no limit`;
  strip.setAttribute("aria-label", `${kTiers[name]}: ${of}`);
  const legend = parts.flatMap(([kind, size]) =>
      [swatch(kind), make("span", {title: kKinds[kind][1]}, kKinds[kind][0]),
       make("span", {}, bytes(size))]);
  const free = limit ? [make("i", {className: "free", "aria-hidden": "true"}),
                        make("span", {}, "Free"),
                        make("span", {}, bytes(Math.max(0, limit - used)))]
                     : [];
  return make("div", {className: "tier", "data-tier": name},
    make("div", {className: "tier-head"}, make("b", {}, kTiers[name]), make("span", {}, of)),
    strip, make("div", {className: "legend"}, ...legend, ...free));
}

const history = {rate: [], hits: []};
function draw(id, value, top) {
  const values = history[id];
  values.push(value);
  if (values.length > 120) values.shift();
  const max = top || Math.max(...values, 1e-9);
  $(id).replaceChildren(drawing("polyline", {
    points: values.map((v, i) => `${120 - values.length + i},${38.5 - 36 * v / max}`).join(" ")}));
}

// Sessions with one beginning, such as the versions of an answer, are one entry.
function entries(sessions) {
  const entries = new Map();
  for (const session of sessions) {
    const title = session.title || `Session ${session.id}`;
    entries.set(title, [...(entries.get(title) ?? []), session]);
  }
  return [...entries];
}

function session_element([title, sessions]) {
  const most = name => Math.max(...sessions.map(session => session[name]));
  const places = ["device", "host", "disk"].map(place => [place, most(`${place}_bytes`)])
      .filter(place => place[1] > 0);
  const where = places.map(([place, size]) => `${place} ${bytes(size)}`).join(", ") ||
                "only its tokens are remembered";
  const many = sessions.length > 1 ? `${sessions.length} versions, the largest ` : "";
  return make("li", {"data-id": sessions.at(-1).id}, make("b", {title}, title),
    make("small", {}, `${many}${number(most("tokens"))} tokens · ${where}`),
    icon_button("bin", `Delete the session “${title}” from the server`, async () => {
      try {
        for (const {id} of sessions) await request(`v1/sessions/${id}`, {method: "DELETE"});
      } catch (error) {
        problem(error.message);
      }
      watch();
    }));
}

let last = null, shown_sessions = "";
function fill(values, sessions) {
  $("tiers").replaceChildren(...Object.keys(kTiers).map(name => tier_of(name, values))
      .filter(tier => tier && (tier.used > 0 || tier.limit > 0)).map(tier_element));
  const now = performance.now(), tokens = values.fasa_generated_tokens_total;
  if (last) {
    const rate = Math.max(0, 1e3 * (tokens - last.tokens) / (now - last.now));
    draw("rate", rate);
    $("rate-now").textContent = rate.toFixed(1);
  }
  last = {now, tokens};
  draw("hits", values.fasa_hot_row_hit_ratio, 1);
  $("hits-now").textContent = percent(values.fasa_hot_row_hit_ratio);
  const rows = Object.entries(kNumbers).map(([name, label]) => [label, number(values[name])]);
  $("numbers").replaceChildren(...[...rows, ...drafts_and_audits(values)].map(([label, value]) =>
      make("tr", {}, make("td", {}, label), make("td", {}, value))));
  const list = JSON.stringify(sessions);
  if (list === shown_sessions) return;  // so that the focus stays
  shown_sessions = list;
  const all = entries(sessions), kShown = 50, rest = all.length - kShown;
  $("sessions").replaceChildren(...all.slice(-kShown).reverse().map(session_element));
  if (!sessions.length) $("sessions").append(make("li", {className: "none"}, "None yet"));
  if (rest > 0) $("sessions").append(make("li", {className: "none"}, `and ${rest} more`));
}

let timer = 0, reached = null, on_reached = () => {};
// Called when the server is reached again, with its model known, and when it is not, with why.
export function on_reached_changed(handler) { on_reached = handler; }

function set_reached(now, why = "") {
  if (reached !== now) on_reached(now, why);
  reached = now;
}

// Looks once, and again each second while the panel is seen. After a refusal (401) it looks no
// more until it is called.
export async function watch() {
  clearTimeout(timer);
  try {
    if (!reached) await load_model();  // it may have another one now
    set_reached(true);
    if (!$("server").hidden && !document.hidden) {
      const [values, sessions] = await Promise.all([metrics(), get_json("v1/sessions")]);
      fill(values, sessions.data);
    }
  } catch (error) {
    last = null;
    set_reached(false, error.status === 401 ? "API key needed" : "server not reached");
    if (error.status === 401) return;
  }
  clearTimeout(timer);
  timer = setTimeout(watch, 1000);
}
